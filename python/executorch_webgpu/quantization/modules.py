"""Quantised weights as plain PyTorch modules.

`forward` computes with the very weights that are packed, so eager on them is the reference of an exported model.
The lowering recognises `dequantize` and packs q, scale and min as they are.
"""

from __future__ import annotations

import logging

import torch
import torch.nn.functional as F
from torch import nn

from . import r4

_log = logging.getLogger(__name__)


def to_f16(values: torch.Tensor, what: str) -> tuple[torch.Tensor, float]:
    """Rounds to f16. Returns the values and the largest relative error; raises OverflowError beyond f16's range."""
    rounded = values.to(torch.float16)
    if not bool(torch.isfinite(rounded).all()):
        worst = float(values.abs().max())
        raise OverflowError(f"{what} of {worst:g} does not fit f16 (largest 65504)")
    exact = values.double()
    error = (rounded.double() - exact).abs() / exact.abs().clamp_min(torch.finfo(torch.float64).tiny)
    return rounded, float(error.max()) if error.numel() else 0.0


class QuantizedWeight(nn.Module):
    """A [N, K] weight in 4 bits with f16 scales (and minima) per group of K, or 8 bits with an f32 scale per row.

    Buffers: q (u8 0 … 15, or i8) [N, K]; scale f16 [N, K/group], or f32 [N]; minimum f16 [N, K/group], affine only.
    4 bits affine: w = q · scale + minimum; 4 bits symmetric: w = (q − 8) · scale; 8 bits: w = q · scale.
    """

    def __init__(self, q: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor | None = None):
        super().__init__()
        self.bits = 8 if q.dtype == torch.int8 else 4
        self.group = 0 if self.bits == 8 else q.shape[1] // scale.shape[1]
        self.symmetric = minimum is None
        if reason := r4.why_not(q.shape[0], q.shape[1], self.bits, self.group):
            raise ValueError(reason)
        self.rounding_error = 0.0
        # As they are, contiguous or not: made-up weights are views of little memory.
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        self.register_buffer("minimum", minimum)

    @property
    def shape(self) -> torch.Size:
        return self.q.shape

    @staticmethod
    def from_float(w: torch.Tensor, bits: int = 4, group: int = 32, symmetric: bool = False) -> QuantizedWeight:
        """Quantises a [N, K] weight by the range of each group. Constants are rounded to f16 before q is chosen."""
        w = w.detach().float()
        n, k = w.shape
        if reason := r4.why_not(n, k, bits, group):
            raise ValueError(reason)
        if bits == 8:
            scale = w.abs().amax(1) / 127
            q = torch.round(w / scale.clamp_min(torch.finfo(torch.float32).tiny)[:, None]).clamp(-127, 127)
            return QuantizedWeight(q.to(torch.int8), scale)
        groups = w.view(n, -1, group)
        if symmetric:
            # The value of the largest magnitude takes −8, the one level without a counterpart.
            largest = groups.gather(2, groups.abs().argmax(2, keepdim=True)).squeeze(2)
            scale, _ = to_f16(largest / -8, "a scale")
            step = torch.where(scale == 0, 1, scale.float())
            q = torch.round(groups / step[..., None]) + 8
            return QuantizedWeight(q.clamp(0, 15).to(torch.uint8).view(n, k), scale)
        low, high = groups.amin(2), groups.amax(2)
        minimum, _ = to_f16(low, "a minimum")
        scale, _ = to_f16((high - minimum.float()).clamp_min(0) / 15, "a scale")
        step = torch.where(scale == 0, 1, scale.float())
        q = torch.round((groups - minimum.float()[..., None]) / step[..., None])
        return QuantizedWeight(q.clamp(0, 15).to(torch.uint8).view(n, k), scale, minimum)

    @staticmethod
    def from_parts(q: torch.Tensor, scale: torch.Tensor, minimum: torch.Tensor | None = None) -> QuantizedWeight:
        """Takes over quantised values as they are: q u8 [N, K] in 0 … 15 with scale (and minimum) [N, K/group], or i8
        with scale [N]. Constants that f16 cannot hold exactly are rounded, and the largest relative error is logged."""
        if q.dtype == torch.int8:
            return QuantizedWeight(q, scale.float())
        rounded, error = to_f16(scale, "a scale")
        if minimum is not None:
            minimum, minimum_error = to_f16(minimum, "a minimum")
            error = max(error, minimum_error)
        weight = QuantizedWeight(q, rounded, minimum)
        weight.rounding_error = error
        if error:
            _log.warning(
                "scales or minima of a %s weight rounded to f16, relative error up to %.3g", tuple(q.shape), error
            )
        return weight

    def dequantize(self) -> torch.Tensor:
        """The weight as f32 [N, K]."""
        values = self.q.to(torch.float32)
        if self.bits == 8:
            return values * self.scale[:, None]
        values = values.view(self.q.shape[0], -1, self.group)
        scale = self.scale.to(torch.float32)[..., None]
        if self.minimum is None:
            return ((values - 8.0) * scale).view(self.q.shape)
        return (values * scale + self.minimum.to(torch.float32)[..., None]).view(self.q.shape)

    def pack(self) -> r4.Packed:
        if self.bits == 8:
            return r4.pack8(self.q.numpy(), self.scale.numpy())
        return r4.pack4(self.q.numpy(), self.scale.numpy(), None if self.minimum is None else self.minimum.numpy())


class QuantizedLinear(nn.Module):
    """x · Wᵀ + bias with a quantised weight, which may be shared with an embedding."""

    def __init__(self, weight: QuantizedWeight, bias: torch.Tensor | None = None):
        super().__init__()
        self.weight = weight
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.dequantize(), self.bias)


class QuantizedEmbedding(nn.Module):
    """Rows of a quantised weight."""

    def __init__(self, weight: QuantizedWeight):
        super().__init__()
        self.weight = weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, self.weight.dequantize())


def quantize_model(
    model: nn.Module,
    bits: int = 4,
    group: int = 32,
    symmetric: bool = False,
    embedding_bits: int | None = 8,
    heads: tuple[str, ...] = ("head", "lm_head"),
) -> nn.Module:
    """Replaces linears and embeddings of any module, in place, where their K fits; returns the module.

    Linears named as in `heads`, or tied to an embedding, take `embedding_bits`, as embeddings do (None: float).
    Tied weights stay tied. Raises ValueError for a weight with NaN or infinity, OverflowError for one whose scales do
    not fit; both name it.
    """
    tied = {m.weight.data_ptr() for m in model.modules() if isinstance(m, nn.Embedding)}
    made: dict[int, QuantizedWeight] = {}

    def quantized(weight: torch.Tensor, width: int, name: str) -> QuantizedWeight | None:
        if r4.why_not(*weight.shape, width, group):
            return None
        key = weight.data_ptr()
        if key not in made:
            if not bool(torch.isfinite(weight).all()):
                raise ValueError(f"{name} holds NaN or infinity")
            try:
                made[key] = QuantizedWeight.from_float(weight, width, group, symmetric)
            except OverflowError as error:
                raise OverflowError(f"{name} cannot be stored with {width} bits: {error}") from error
        return made[key]

    for path, parent in list(model.named_modules()):
        for name, child in list(parent.named_children()):
            of = f"{path}.{name}.weight".lstrip(".")
            if isinstance(child, nn.Embedding):
                weight = embedding_bits and quantized(child.weight, embedding_bits, of)
                replacement = weight and QuantizedEmbedding(weight)
            elif type(child) is nn.Linear:
                width = embedding_bits if name in heads or child.weight.data_ptr() in tied else bits
                weight = width and quantized(child.weight, width, of)
                replacement = weight and QuantizedLinear(weight, child.bias)
            else:
                continue
            if replacement:
                setattr(parent, name, replacement)
    return model
