"""Attention on the GPU: scaled_dot_product_attention in general, and a layer with cache, whose decode splits the cache
over workgroups. A wrong mask, tile border, head group or position would show here."""

import copy

import pytest
import torch
import torch.nn.functional as F
from executorch_webgpu.partitioner import WebGPUPartitioner
from executorch_webgpu.runtime import load
from export.make_fixtures import Layer, lower
from operators.helpers import TIERS, Function, check_gpu
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("heads", "kv_heads", "s", "t", "d"),
    [(4, 4, 1, 1, 64), (4, 2, 33, 65, 32), (3, 3, 7, 129, 40), (2, 1, 5, 9, 256), (2, 2, 65, 64, 16)],
)
@pytest.mark.parametrize("mask", [None, "bool", "float", "causal"])
def test_sdpa(tmp_path, heads, kv_heads, s, t, d, mask):
    torch.manual_seed(0)
    tensors = [torch.randn(2, heads, s, d) * 2, torch.randn(2, kv_heads, t, d), torch.randn(2, kv_heads, t, d)]
    visible = torch.rand(s, t) < 0.7
    visible[:, 0] = True
    if mask == "bool":
        tensors.append(visible)
    if mask == "float":
        tensors.append(torch.randn(s, t).masked_fill(~visible, float("-inf")))
    gqa = heads != kv_heads
    model = Function(
        lambda q, k, v, m=None: F.scaled_dot_product_attention(q, k, v, m, is_causal=mask == "causal", enable_gqa=gqa)
    )
    check_gpu(tmp_path, model, [tuple(tensors)], tiers=["baseline"])


class Cached(nn.Module):
    def __init__(self, heads, kv_heads, d, length):
        super().__init__()
        self.layer, self.length = Layer(64, heads, kv_heads, d, 96, length), length
        angles = torch.rand(length, d // 2) * 6
        self.register_buffer("rotary", torch.stack([angles.cos(), angles.sin()], 1), persistent=False)

    def forward(self, x, start):
        positions = torch.arange(x.shape[1]) + start
        mask = torch.arange(self.length)[None] <= positions[:, None]
        return self.layer(x, positions, self.rotary[positions], mask)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "d", "length"), [(9, 3, 64, 160), (4, 4, 16, 64), (4, 2, 128, 64), (2, 1, 128, 64)]
)
@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_cached_layer(tmp_path, heads, kv_heads, d, length, precision):
    """Prefill, decode over the border of a part, chunks; at most 5 dispatches a layer when decoding."""
    torch.manual_seed(1)
    model = Cached(heads, kv_heads, d, length).eval().requires_grad_(False)
    for p in model.parameters():
        if p.dim() == 1:
            nn.init.uniform_(p, 0.5, 1.5)
    reference = copy.deepcopy(model).double()
    dims = ({1: Dim("s", min=1, max=length - 1)}, None)
    program = lower(model, (torch.randn(1, 5, 64), torch.tensor([0])), dims, WebGPUPartitioner())
    path = tmp_path / "model.pte"
    path.write_bytes(program.buffer)
    sessions = [load(path, device="webgpu", max_tier=tier, precision=precision) for tier in TIERS]
    start = 0
    for s in [7, 1, 1, 33, 1, length - 44, 1]:
        x = torch.randn(1, s, 64)
        expected = reference(x.double(), torch.tensor([start]))
        for tier, session in zip(TIERS, sessions, strict=True):
            (found,) = session.forward(x, torch.tensor([start]))
            error = (found.double() - expected).abs().max().item() / max(1, expected.abs().max().item())
            assert error < (3e-5 if precision == "f32" else 1e-2), f"{tier}, {s} rows at {start}: {error:.1e}"
            if s == 1:
                assert session.last_stats["dispatches"] <= 5
        start += s
