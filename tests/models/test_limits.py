"""The limits that a manifest states: too low and a page would begin a download that its device cannot run."""

from __future__ import annotations

import pytest
import torch
from executorch_webgpu.limits import limits
from executorch_webgpu.quantization import QuantizedEmbedding, QuantizedWeight
from torch import nn


def largest(module, inputs, dynamic_shapes=None):
    program = torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic_shapes)
    return limits({"forward": module}, {"forward": program})["maxStorageBufferBindingSize"]


class Wide(nn.Module):
    def forward(self, x):
        return (x[:, :, None] * x[:, None, :]).sum((1, 2))


def test_intermediates_count_at_the_upper_bound():
    rows = torch.export.Dim("rows", min=1, max=64)
    assert largest(Wide(), (torch.zeros(2, 32),), {"x": {0: rows}}) == 64 * 32 * 32 * 4


@pytest.mark.parametrize("quantised", [False, True])
def test_what_is_bound_in_parts_does_not_count(quantised):
    """Nor what is computed from constants alone. A matrix that something else uses, too, counts."""
    weight = torch.randn(512, 64)
    stored = QuantizedWeight.from_float(weight)
    embedding = QuantizedEmbedding(stored) if quantised else nn.Embedding.from_pretrained(weight)
    ids = torch.zeros(1, 3, dtype=torch.int64)
    assert largest(embedding, (ids,)) == 3 * 64 * 4

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding.from_pretrained(weight)

        def forward(self, ids):
            return self.table(ids) + self.table.weight.sum(0)

    assert largest(Sum(), (ids,)) == 512 * 64 * 4


def test_bool_is_four_bytes():
    class Mask(nn.Module):
        def forward(self, x):
            return (x[:, None] > x[None]).any()

    assert largest(Mask(), (torch.zeros(50),)) == 50 * 50 * 4
