"""The limits that a manifest states: too low and a page would begin a download that its device cannot run."""

from __future__ import annotations

import pytest
import torch
from executorch_webgpu.limits import limits, packed_bytes
from executorch_webgpu.quantization import QuantizedEmbedding, QuantizedWeight
from torch import nn


@pytest.mark.parametrize(("bits", "group", "symmetric"), [(4, 32, False), (4, 64, True), (8, 0, True)])
@pytest.mark.parametrize("rows", [8, 13])
def test_packed_bytes(rows, bits, group, symmetric):
    """The formula equals what packing makes, but for the padding of 8-bit constants."""
    weight = QuantizedWeight.from_float(torch.randn(rows, 128), bits, group, symmetric)
    packed = weight.pack()
    assert len(packed.data) <= packed_bytes(weight) <= len(packed.data) + 4 * 7


def largest(module, inputs, dynamic_shapes=None):
    program = torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic_shapes)
    return limits({"forward": module}, {"forward": program})["maxStorageBufferBindingSize"]


class Wide(nn.Module):
    def forward(self, x):
        return (x[:, :, None] * x[:, None, :]).sum((1, 2))


def test_intermediates_count_at_the_upper_bound():
    rows = torch.export.Dim("rows", min=1, max=64)
    assert largest(Wide(), (torch.zeros(2, 32),), {"x": {0: rows}}) == 64 * 32 * 32 * 4


def test_dequantised_weights_do_not_count():
    weight = QuantizedWeight.from_float(torch.randn(512, 64))
    assert largest(QuantizedEmbedding(weight), (torch.zeros(1, 3, dtype=torch.int64),)) == packed_bytes(weight)


def test_bool_is_four_bytes():
    class Mask(nn.Module):
        def forward(self, x):
            return (x[:, None] > x[None]).any()

    assert largest(Mask(), (torch.zeros(50),)) == 50 * 50 * 4
