"""Attention on the GPU: scaled_dot_product_attention in general, and a layer with cache, whose decode splits the cache
over workgroups. A wrong mask, tile border, head group or position would show here."""

import pytest
import torch
import torch.nn.functional as F
from executorch_webgpu.quantization import QuantizedLinear, QuantizedWeight
from export.make_fixtures import Layer
from operators.helpers import HALF, WIDE, Function, Run, check, check_gpu, exported, in_double
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("heads", "kv_heads", "s", "t", "d"),
    [
        (4, 4, 1, 1, 64),
        (4, 2, 33, 65, 32),
        (3, 3, 7, 129, 40),
        (2, 1, 5, 9, 256),
        (2, 2, 65, 64, 16),
        (4, 2, 6, 7, 5),
        (4, 2, 6, 9, 320),
    ],
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


@pytest.mark.full
def test_large_values(tmp_path):
    """Results are means of the values, and as large as they; sums over keys are beyond f16."""
    q, k, v = (torch.full((1, 2, n, 64), x) for n, x in ((8, 0.0), (32, 0.0), (32, 60000.0)))
    check(tmp_path, F.scaled_dot_product_attention, [(q, k, v)], runs=WIDE)


class Cached(nn.Module):
    def __init__(self, heads, kv_heads, d, length, window=0):
        super().__init__()
        self.layer, self.length, self.window = Layer(64, heads, kv_heads, d, 96, length), length, window
        angles = torch.rand(length, d // 2) * 6
        self.register_buffer("rotary", torch.stack([angles.cos(), angles.sin()], 1), persistent=False)

    def forward(self, x, start):
        positions = torch.arange(x.shape[1]) + start
        keys = torch.arange(self.length)
        mask = keys <= positions[:, None]
        if self.window:
            mask = mask & (keys > positions[:, None] - self.window)
        return self.layer(x, positions, self.rotary[positions], mask)


class HeadNormed(nn.Module):
    """A projection, each head of whose result is normed; with an eps that counts."""

    def __init__(self, linear, d):
        super().__init__()
        self.linear, self.norm = linear, nn.RMSNorm(d, eps=0.1)

    def forward(self, x):
        y = self.linear(x)
        return self.norm(y.view(1, y.shape[1], -1, self.norm.weight.shape[0])).flatten(2)


CACHES = [Run("cpu"), Run("cpu", precision="f16")]
EVERY = [Run(tier="baseline"), Run(), *HALF, *CACHES]
# Software adapters take a minute to compile the kernels of large GPUs, of which tests/cpp runs a sample.
LARGE = pytest.mark.full


@pytest.mark.parametrize(
    ("heads", "kv_heads", "d", "length", "window", "quantised", "norms", "runs"),
    [
        (9, 3, 64, 160, 0, True, False, EVERY),
        (4, 2, 128, 64, 0, True, True, [*HALF, *CACHES]),
        (7, 1, 96, 301, 100, False, False, [Run(tier="baseline")]),
        (4, 1, 256, 300, 0, False, True, [Run()]),
        (2, 2, 80, 65, 30, False, False, [Run()]),
        pytest.param(9, 3, 64, 160, 0, True, False, WIDE, marks=LARGE),
        pytest.param(4, 2, 128, 64, 0, True, True, WIDE[:1], marks=LARGE),
        pytest.param(7, 1, 96, 301, 100, False, False, WIDE[1:], marks=LARGE),
        pytest.param(4, 1, 256, 300, 0, False, True, WIDE[:1], marks=LARGE),
        pytest.param(2, 2, 80, 65, 30, False, False, WIDE[1:], marks=LARGE),
    ],
)
def test_cached_layer(tmp_path, heads, kv_heads, d, length, window, quantised, norms, runs):
    """Prefill, decode over the border of a part, chunks, the last position; decoding takes 5 dispatches a layer."""
    torch.manual_seed(1)
    model = Cached(heads, kv_heads, d, length, window).eval()
    if quantised:
        for name, child in list(model.layer.named_children()):
            if isinstance(child, nn.Linear):
                weight = QuantizedWeight.from_float(child.weight, 4, 32, symmetric=name == "o")
                setattr(model.layer, name, QuantizedLinear(weight))
    if norms:
        model.layer.q, model.layer.k = HeadNormed(model.layer.q, d), HeadNormed(model.layer.k, d)
    for p in model.requires_grad_(False).parameters():
        if p.dim() == 1:
            nn.init.uniform_(p, 0.5, 1.5)
    reference = in_double(model)
    dims = ({1: Dim("s", min=1, max=length - 1)}, None)
    path = exported(tmp_path, model, (torch.randn(1, 5, 64), torch.tensor([0])), dims)
    sessions = [run.session(path) for run in runs]
    start = 0
    for s in [7, 1, 1, 33, 1, length - 44, 1]:
        x = torch.randn(1, s, 64)
        expected = reference(x.double(), torch.tensor([start]))
        for run, session in zip(runs, sessions, strict=True):
            (found,) = session.forward(x, torch.tensor([start]))
            error = (found.double() - expected).abs().max().item() / max(1, expected.abs().max().item())
            assert error < (3e-5 if run.precision == "f32" else 1e-2), f"{run}, {s} rows at {start}: {error:.1e}"
            if s == 1 and run.device == "webgpu":
                assert session.last_stats["dispatches"] <= 5
        start += s
