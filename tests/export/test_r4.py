"""Packing R4 to the bit, against the documented formula written out word by word."""

import numpy as np
import pytest
import torch
from executorch_webgpu.quantization import QuantizedWeight, quantize_model, r4
from torch import nn


@pytest.mark.parametrize("n", [1, 7, 8, 9, 16, 33])
@pytest.mark.parametrize(("k", "group"), [(32, 32), (96, 32), (128, 64), (256, 128)])
@pytest.mark.parametrize("symmetric", [True, False])
def test_four_bits(n, k, group, symmetric):
    rng = np.random.default_rng(n * k)
    q = rng.integers(0, 16, (n, k), dtype=np.uint8)
    scale = rng.standard_normal((n, k // group)).astype(np.float16)
    minimum = None if symmetric else rng.standard_normal((n, k // group)).astype(np.float16)
    packed = r4.pack4(q, scale, minimum)
    rows = -(-n // 8) * 8
    words = packed.data[: rows * k // 2].view("<u4")
    for b in range(rows // 4):
        for c in range(k // 8):
            for r in range(4):
                row, word = 4 * b + r, 0
                for i in range(4) if row < n else ():
                    word |= int(q[row, 8 * c + i]) << (8 * i) | int(q[row, 8 * c + 4 + i]) << (8 * i + 4)
                assert words[(b * (k // 8) + c) * 4 + r] == word
    assert packed.constants_offset % 256 == 0 and 0 <= packed.constants_offset - rows * k // 2 < 256
    assert not packed.data[rows * k // 2 : packed.constants_offset].any()
    width = 4 if symmetric else 8
    constants = packed.data[packed.constants_offset :].view("<f2").reshape(rows // 4, k // group, width)
    for row in range(rows):
        for g in range(k // group):
            assert constants[row // 4, g, row % 4] == (scale[row, g] if row < n else 0)
            if not symmetric:
                assert constants[row // 4, g, 4 + row % 4] == (minimum[row, g] if row < n else 0)
    assert (packed.constants_offset, packed.data.size) == r4.packed_bytes(n, k, 4, group, symmetric)
    weight = QuantizedWeight(
        torch.from_numpy(q), torch.from_numpy(scale), minimum if symmetric else torch.from_numpy(minimum)
    )
    assert np.array_equal(r4.dequantize(packed, n, k), weight.dequantize().numpy())


@pytest.mark.parametrize("n", [1, 8, 13])
def test_eight_bits(n):
    rng = np.random.default_rng(n)
    q = rng.integers(-128, 128, (n, 64), dtype=np.int8)
    scale = rng.standard_normal(n).astype(np.float32)
    packed = r4.pack8(q, scale)
    rows = -(-n // 8) * 8
    data = packed.data[: rows * 64].view(np.int8)
    for row in range(rows):
        for k in range(64):
            place = (((row // 4) * 16 + k // 4) * 4 + row % 4) * 4 + k % 4
            assert data[place] == (q[row, k] if row < n else 0)
    constants = packed.data[packed.constants_offset :].view("<f4")
    assert np.array_equal(constants[:n], scale) and not constants[n:].any() and constants.size == rows
    assert np.array_equal(r4.dequantize(packed, n, 64), q.astype(np.float32) * scale[:, None])


@pytest.mark.parametrize(("bits", "symmetric"), [(4, False), (4, True), (8, True)])
def test_from_float_is_within_half_a_step(bits, symmetric):
    """Constants are rounded to f16 first, and q is chosen for the rounded ones."""
    torch.manual_seed(0)
    w = torch.randn(40, 128) * torch.logspace(-3, 2, 40)[:, None]
    weight = QuantizedWeight.from_float(w, bits, 32, symmetric)
    error = (weight.dequantize() - w).abs().view(40, -1, 128 if bits == 8 else 32).amax(2)
    step = weight.scale.float().abs().view(40, -1)
    # Symmetric: the level +8 does not exist, so the far end may be a whole step away.
    assert bool((error <= step * (1.001 if symmetric and bits == 4 else 0.52)).all())
    assert bool((error > 0).all()), "a test that quantises nothing"


def test_constant_groups_are_exact():
    w = torch.full((8, 32), 0.5)
    assert torch.equal(QuantizedWeight.from_float(w, 4, 32, False).dequantize(), w)
    assert torch.equal(QuantizedWeight.from_float(w * 0, 8).dequantize(), w * 0)


def test_from_parts_reports_rounding_and_refuses_overflow():
    q = torch.zeros(8, 32, dtype=torch.uint8)
    exact = QuantizedWeight.from_parts(q, torch.full((8, 1), 0.25))
    rounded = QuantizedWeight.from_parts(q, torch.full((8, 1), 0.1))
    assert exact.rounding_error == 0 and 1e-5 < rounded.rounding_error < 5e-4
    with pytest.raises(OverflowError, match="70000"):
        QuantizedWeight.from_parts(q, torch.full((8, 1), 70000.0))


@pytest.mark.parametrize(
    ("k", "bits", "group", "message"), [(40, 4, 32, "40"), (64, 4, 48, "48"), (96, 4, 64, "96"), (64, 3, 32, "3 bits")]
)
def test_what_does_not_fit_is_named(k, bits, group, message):
    with pytest.raises(ValueError, match=message):
        QuantizedWeight.from_float(torch.randn(8, k), bits, group)


def test_quantize_model_keeps_ties_and_what_does_not_fit():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(40, 64), nn.Linear(64, 40, bias=False)
            self.head.weight = self.embedding.weight
            self.inner = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 20), nn.Linear(20, 64))

    model = quantize_model(Model())
    assert model.head.weight is model.embedding.weight and model.head.weight.bits == 8
    assert model.inner[0].weight.bits == 4 and isinstance(model.inner[2], nn.Linear)
