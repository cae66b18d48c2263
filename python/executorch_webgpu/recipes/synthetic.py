"""Weights that nobody trained, for measurements of models whose weights are not at hand: the right shapes and sizes,
values of the right magnitude, next to no memory.

A matrix is a view of one short random vector (row n is its values 2n … 2n + K − 1), so that only packing it takes
memory.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from executorch_webgpu.quantization import QuantizedWeight
from executorch_webgpu.recipes.decoder import DecoderConfig, weight_shapes
from executorch_webgpu.recipes.text_generation import Scheme

# Standard deviations of evenly spread stored values: 0 … 15, and −127 … 127.
SPREAD = {4: 4.61, 8: 73.3}


def sliding(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A [N, K] view of 2N + K values; row n begins at value 2n (executorch takes strides of (1, 1) for a transpose)."""
    return values.as_strided(shape, (2, 1))


def weight(name: str, shape: tuple[int, ...], scheme: Scheme) -> Tensor | QuantizedWeight:
    """The weight of that name, the same every time: rows of matrices of norm 1, norms near 1, biases near 0."""
    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "little"))
    if len(shape) == 1:
        noise = 0.05 * torch.randn(shape, generator=generator)
        return noise if name.endswith(".bias") else 1 + noise
    bits, group, symmetric = scheme.layout(name, shape)
    length, deviation = 2 * shape[0] + shape[1], shape[1] ** -0.5
    if bits == 32:
        return sliding(deviation * torch.randn(length, generator=generator), shape)
    scale = torch.tensor(deviation / SPREAD[bits])
    if bits == 8:
        q = torch.randint(-127, 128, (length,), generator=generator, dtype=torch.int8)
        return QuantizedWeight(sliding(q, shape), scale.expand(shape[0]))
    # Symmetric ones mean q − 8: without the 0 they have no mean of their own.
    q = torch.randint(1 if symmetric else 0, 16, (length,), generator=generator, dtype=torch.uint8)
    scale = scale.half()
    groups = (shape[0], shape[1] // group)
    minimum = None if symmetric else (-7.5 * scale).expand(groups)
    return QuantizedWeight(sliding(q, shape), scale.expand(groups), minimum)


def weights(config: DecoderConfig, scheme: Scheme) -> dict[str, Tensor | QuantizedWeight]:
    """Every weight of a decoder."""
    return {name: weight(name, shape, scheme) for name, shape in weight_shapes(config).items()}
