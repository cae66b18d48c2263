"""Packing R4 of quantised weights, to the bit (docs/file-format.md).

A block is four rows. Words first, u32 little endian; N is padded to a multiple of 8 with zero scales (and minima):
  4 bits: word (b, c, r) at (b · K/8 + c) · 4 + r holds row 4b + r, k 8c … 8c + 7:
          byte i has k + i in its low nibble and k + 4 + i in its high one
  8 bits: word (b, c, r) at (b · K/4 + c) · 4 + r holds row 4b + r, k 4c … 4c + 3, two's complement
Constants at the next multiple of 256 bytes:
  4 bits symmetric: f16 [N/4][K/G][4 scales]              w = (q − 8) · scale
  4 bits affine:    f16 [N/4][K/G][4 scales, 4 minima]    w = q · scale + min
  8 bits:           f32 [N]                               w = q · scale
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GROUPS = (32, 64, 128)
ALIGNMENT = 256


@dataclass
class Packed:
    """A packed weight: its bytes, where the constants begin, and the scheme."""

    data: np.ndarray  # u8
    constants_offset: int
    bits: int
    group: int  # 0: the whole row
    symmetric: bool


def why_not(rows: int, k: int, bits: int, group: int) -> str | None:
    """Why a [rows, k] weight cannot be packed, or None."""
    if bits not in (4, 8):
        return f"{bits} bits: only 4 and 8 are supported"
    if k % 32 or k == 0:
        return f"K = {k} is not a multiple of 32"
    if bits == 4 and group not in GROUPS:
        return f"group {group}: only {GROUPS} are supported"
    if bits == 4 and k % group:
        return f"K = {k} is not a multiple of the group {group}"
    if rows == 0:
        return "no rows"
    return None


def _padded_rows(a: np.ndarray) -> np.ndarray:
    return np.pad(a, [(0, -a.shape[0] % 8)] + [(0, 0)] * (a.ndim - 1))


def _join(words: np.ndarray, constants: np.ndarray) -> tuple[np.ndarray, int]:
    words, constants = np.ascontiguousarray(words).view(np.uint8).ravel(), np.ascontiguousarray(constants)
    offset = -(-words.size // ALIGNMENT) * ALIGNMENT
    data = np.zeros(offset + constants.nbytes, np.uint8)
    data[: words.size] = words
    data[offset:] = constants.view(np.uint8).ravel()
    return data, offset


def pack4(q: np.ndarray, scale: np.ndarray, minimum: np.ndarray | None) -> Packed:
    """Packs 4-bit values q u8 [N, K] (0 … 15), scale f16 [N, K/G] and minimum f16 [N, K/G] (None: symmetric)."""
    n, k = q.shape
    group = k // scale.shape[1]
    if reason := why_not(n, k, 4, group):
        raise ValueError(reason)
    if q.dtype != np.uint8 or q.max() > 15:
        raise ValueError(f"4-bit values must be uint8 in 0 … 15, found {q.dtype} up to {q.max()}")
    if scale.dtype != np.float16 or (minimum is not None and minimum.dtype != np.float16):
        raise ValueError("scales and minima must be float16")
    q = _padded_rows(q).reshape(-1, 4, k // 8, 8)
    words = (q[..., :4] | (q[..., 4:] << 4)).transpose(0, 2, 1, 3)

    def plane(a):
        return _padded_rows(a).reshape(-1, 4, k // group).transpose(0, 2, 1)

    constants = plane(scale) if minimum is None else np.concatenate([plane(scale), plane(minimum)], axis=2)
    data, offset = _join(words, constants.astype("<f2"))
    return Packed(data, offset, 4, group, minimum is None)


def pack8(q: np.ndarray, scale: np.ndarray) -> Packed:
    """Packs 8-bit values q i8 [N, K] with scale f32 [N]."""
    n, k = q.shape
    if reason := why_not(n, k, 8, 0):
        raise ValueError(reason)
    if q.dtype != np.int8 or scale.dtype != np.float32 or scale.shape != (n,):
        raise ValueError(
            f"expected int8 [N, K] and float32 [N], found {q.dtype} {q.shape}, {scale.dtype} {scale.shape}"
        )
    words = _padded_rows(q).reshape(-1, 4, k // 4, 4).transpose(0, 2, 1, 3)
    data, offset = _join(words, _padded_rows(scale).astype("<f4"))
    return Packed(data, offset, 8, 0, True)


def packed_bytes(n: int, k: int, bits: int, group: int, symmetric: bool) -> tuple[int, int]:
    """(offset of the constants, size of all bytes) of a packed [n, k] weight."""
    n = -(-n // 8) * 8
    offset = -(-(n * k * bits // 8) // ALIGNMENT) * ALIGNMENT
    return offset, offset + (n * 4 if bits == 8 else n * (k // group) * (2 if symmetric else 4))


def unpack(packed: Packed, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The q, scale and minimum (None unless affine) that were packed."""
    offset, size = packed_bytes(n, k, packed.bits, packed.group, packed.symmetric)
    if packed.data.size != size or packed.constants_offset != offset:
        raise ValueError(
            f"a packed [{n}, {k}] weight has {size} bytes and its constants at {offset}; "
            f"found {packed.data.size} bytes and {packed.constants_offset}"
        )
    blocks = -(-n // 8) * 2
    constants = packed.data[offset:]
    if packed.bits == 8:
        words = packed.data[: blocks * 4 * k].view(np.int8).reshape(blocks, k // 4, 4, 4)
        return words.transpose(0, 2, 1, 3).reshape(-1, k)[:n], constants.view("<f4")[:n], None
    words = packed.data[: blocks * 2 * k].reshape(blocks, k // 8, 4, 4).transpose(0, 2, 1, 3)
    q = np.concatenate([words & 15, words >> 4], axis=3).reshape(-1, k)[:n]
    groups = k // packed.group
    planes = constants.view("<f2").reshape(blocks, groups, 1 if packed.symmetric else 2, 4)

    def rows(i):
        return planes[:, :, i].transpose(0, 2, 1).reshape(-1, groups)[:n]

    return q, rows(0), None if packed.symmetric else rows(1)


def dequantize(packed: Packed, n: int, k: int) -> np.ndarray:
    """The f32 [n, k] weight, computed as QuantizedWeight.dequantize does."""
    q, scale, minimum = unpack(packed, n, k)
    values = q.astype(np.float32)
    if packed.bits == 8:
        return values * scale[:, None]
    values = values.reshape(n, -1, packed.group)
    scale = scale.astype(np.float32)[..., None]
    if minimum is None:
        return ((values - np.float32(8)) * scale).reshape(n, k)
    return (values * scale + minimum.astype(np.float32)[..., None]).reshape(n, k)
