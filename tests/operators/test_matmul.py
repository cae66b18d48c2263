"""Linear layers and matrix products on the GPU: a wrong tile border, packing, epilogue or split would show here."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from executorch_webgpu.errors import LimitExceededError
from executorch_webgpu.quantization import QuantizedEmbedding, QuantizedLinear, QuantizedWeight
from operators.helpers import CPU, GPU, HALF, WIDE, WITHOUT_PASSES, Function, Run, check, check_gpu
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.gpu

ROWS = [1, 2, 4, 5, 7, 31, 33, 63, 65, 97, 129, 256]  # borders of the GEMV, of the small and of the large tile
SCHEMES = [(4, 32, False), (4, 64, True), (8, 0, True)]


def quantized(n, k, bits, group, symmetric, bias=False):
    weight = QuantizedWeight.from_float(torch.randn(n, k) / k**0.5, bits, group, symmetric)
    return QuantizedLinear(weight, torch.randn(n) if bias else None)


def calls(rows, k, scale=2.0):
    return [(torch.randn(1, m, k) * scale,) for m in rows]


def rows_dim(most=300):
    return {1: Dim("rows", min=1, max=most)}


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_quantized_rows(tmp_path, scheme):
    torch.manual_seed(0)
    check_gpu(tmp_path, quantized(72, 256, *scheme, bias=True), calls(ROWS, 256), (rows_dim(),), calls([8], 256)[0])


@pytest.mark.parametrize(("n", "k"), [(136, 128), (13, 37), (1, 1), (65, 18)])
def test_plain_rows(tmp_path, n, k):
    torch.manual_seed(1)
    check_gpu(tmp_path, nn.Linear(k, n), calls([1, 3, 33, 130], k), (rows_dim(),), calls([8], k)[0])


class Gated(nn.Module):
    """RMSNorm, gate and up with SiLU, down, residual: what the passes fuse into two kernels."""

    def __init__(self, dim, ffn, scheme):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        make = (lambda n, k: quantized(n, k, *scheme)) if scheme else (lambda n, k: nn.Linear(k, n, bias=False))
        self.gate, self.up, self.down = make(ffn, dim), make(ffn, dim), make(dim, ffn)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


@pytest.mark.parametrize("scheme", [*SCHEMES, None], ids=str)
def test_fused_gate(tmp_path, scheme):
    torch.manual_seed(2)
    model = Gated(64, 192, scheme) if not scheme or scheme[1] != 128 else Gated(128, 256, scheme)
    check_gpu(
        tmp_path, model, calls([1, 4, 6, 40, 100], 64), (rows_dim(),), calls([8], 64)[0], max_dispatches=2,
        precisions=("f32", "f16") if scheme == SCHEMES[0] else ("f32",),
    )  # fmt: skip


class Tied(nn.Module):
    """Embedding, gate with biases and activation, down, and a head that is the embedding: every matrix in parts."""

    def __init__(self, scheme):
        super().__init__()
        if scheme:
            self.weight = QuantizedWeight.from_float(torch.randn(212, 64) / 8, *scheme)
            self.embedding, self.head = QuantizedEmbedding(self.weight), QuantizedLinear(self.weight)
            self.gate, self.up = quantized(136, 64, *scheme, bias=True), quantized(136, 64, *scheme, bias=True)
        else:
            self.embedding, self.head = nn.Embedding(212, 64), nn.Linear(64, 212, bias=False)
            self.head.weight = self.embedding.weight
            self.gate, self.up = nn.Linear(64, 136), nn.Linear(64, 136)
        self.down = nn.Linear(136, 64)

    def forward(self, ids):
        x = self.embedding(ids)
        return self.head((x + self.down(F.silu(self.gate(x)) * self.up(x)))[:, -1])


BINDINGS = dict(zip([*SCHEMES, None], (7168, 7168, 8192, 20480), strict=True))


def check_bindings(tmp_path, scheme, runs):
    torch.manual_seed(9)
    calls = [(torch.randint(0, 212, (1, m)),) for m in (1, 4, 12)]
    calls[1][0][0, :3] = torch.tensor([0, 211, 104])
    runs = [replace(run, binding=BINDINGS[scheme]) for run in runs]
    check(tmp_path, Tied(scheme), calls, ({1: Dim("rows", min=1, max=12)},), (calls[1][0][:, :3],), runs)


@pytest.mark.parametrize("scheme", [SCHEMES[0], None], ids=str)
def test_weights_beyond_a_binding(tmp_path, scheme):
    """Embedding, head and gate in parts; the intermediates just fit."""
    check_bindings(tmp_path, scheme, [Run(tier="baseline")])
    with pytest.raises(LimitExceededError, match="8 rows of the weight"):
        Run(binding=512).session(tmp_path / "model.pte")


@pytest.mark.full
@pytest.mark.parametrize("scheme", BINDINGS, ids=str)
def test_weights_beyond_a_binding_everywhere(tmp_path, scheme):
    check_bindings(tmp_path, scheme, [Run(), Run(wide=True), Run(precision="f16"), Run(disable_passes="all")])


def test_long_sum(tmp_path):
    """K beyond the chunk that is staged at a time, and a team larger than a subgroup."""
    torch.manual_seed(3)
    check_gpu(tmp_path, quantized(8, 8192, 4, 64, True), calls([1, 9], 8192), (rows_dim(),), calls([8], 8192)[0])


@pytest.mark.parametrize(
    ("n", "k", "scheme"),
    [
        (72, 256, (4, 32, False)),  # a last block beyond the rows that a workgroup takes
        (520, 608, (4, 32, True)),  # more units than the teams' iterations divide
        (8, 8192, (4, 64, True)),  # x staged in several chunks
        (136, 192, (8, 0, True)),
        (8, 9216, (4, 128, False)),
    ],
    ids=str,
)
def test_wide_gemv(tmp_path, n, k, scheme):
    torch.manual_seed(5)
    check(tmp_path, quantized(n, k, *scheme, bias=True), calls([1, 3], k), (rows_dim(4),), calls([3], k)[0], WIDE)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_wide_gate(tmp_path, scheme):
    torch.manual_seed(6)
    model = Gated(128, 320, scheme)
    check(tmp_path, model, calls([1, 2], 128), (rows_dim(4),), calls([3], 128)[0], WIDE, max_dispatches=2)


class Head(nn.Module):
    """Norm and projection of the last row, as a decoder's head."""

    def __init__(self, scheme):
        super().__init__()
        self.norm, self.head = nn.RMSNorm(128, eps=1e-5), quantized(72, 128, *scheme)

    def forward(self, x):
        return self.head(self.norm(x[:, -1]))


@pytest.mark.parametrize("scheme", SCHEMES[1:], ids=str)
def test_last_row(tmp_path, scheme):
    torch.manual_seed(8)
    runs = [*GPU, *WIDE, *CPU, *WITHOUT_PASSES]
    check(tmp_path, Head(scheme), calls([1, 5, 40], 128), (rows_dim(64),), calls([3], 128)[0], runs)
    check(tmp_path, Head(scheme), calls([1, 5], 128), (rows_dim(64),), calls([3], 128)[0], GPU, max_dispatches=1)


def test_wide_range(tmp_path):
    """f16 arithmetic neither overflows with the largest values nor loses the smallest."""
    torch.manual_seed(7)
    norm = nn.Sequential(nn.RMSNorm(256, eps=1e-9), quantized(64, 256, 4, 32, True))
    x = torch.randn(1, 1, 256)
    check(tmp_path, norm, [(x * 1e4,), (x * 1e-3,)], runs=WIDE)
    # one outlier, as activations before a down projection have them
    x[0, 0, 17] = 4e4
    layer = quantized(64, 256, 4, 32, True)
    layer.weight.scale.mul_(1e-2)
    check(tmp_path, layer, [(x,)], runs=WIDE)


@pytest.mark.full
@pytest.mark.parametrize("matrices", [8, 16])
@pytest.mark.parametrize("scheme", [*SCHEMES, None], ids=str)
def test_subgroup_matrices(tmp_path, scheme, matrices):
    """Emulated: their shaders, but not the GPU's own product."""
    torch.manual_seed(9)
    layer = quantized(72, 256, *scheme, bias=True) if scheme else nn.Linear(256, 72)
    runs = [Run(precision="f16", wide=True, matrices=matrices)]
    check(tmp_path, layer, calls([5, 70, 130], 256), (rows_dim(),), calls([3], 256)[0], runs)


def test_large_values_in_tiles(tmp_path):
    """Before the scales of int8 weights, sums are beyond f16 where the results are not."""
    layer = QuantizedLinear(QuantizedWeight.from_float(torch.full((16, 64), 0.01), 8, 0, True))
    check(tmp_path, layer, [(torch.full((1, 8, 64), 3000.0),)], runs=WIDE)


def test_large_and_zero(tmp_path):
    torch.manual_seed(4)
    x = torch.randn(1, 6, 64) * 1e4
    x[0, 1] = 0
    norm = nn.Sequential(nn.RMSNorm(64, eps=1e-5), quantized(16, 64, 4, 32, False))
    check_gpu(tmp_path, norm, [(x,), (x[:, 1:2],)], (rows_dim(),), (x[:, :5],))


class Normed(nn.Module):
    """Two norms of the same rows, each with a projection."""

    def __init__(self, scheme):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(256, eps=eps) for eps in (1e-5, 1e-6))
        make = (lambda: quantized(72, 256, *scheme)) if scheme else (lambda: nn.Linear(256, 72))
        self.linears = nn.ModuleList(make() for _ in self.norms)
        for norm in self.norms:
            nn.init.uniform_(norm.weight, 0.5, 1.5)

    def forward(self, x):
        return tuple(linear(norm(x)) for norm, linear in zip(self.norms, self.linears, strict=True))


@pytest.mark.parametrize("runs", [[*GPU, *HALF, *CPU, *WITHOUT_PASSES], pytest.param(WIDE, marks=pytest.mark.full)])
@pytest.mark.parametrize("scheme", [SCHEMES[0], SCHEMES[2], None], ids=str)
def test_small_rows(tmp_path, scheme, runs):
    """Mean squares of about eps, far below it, and 0, beside usual ones: in every shape that norms its rows."""
    torch.manual_seed(10)
    rows = torch.tensor([1e-4, 3e-3, 0.0, 1.0, 1e-3])
    calls = [(torch.randn(1, m, 256) * rows.repeat(m)[i : m + i, None],) for i, m in enumerate([1, 1, 1, 3, 40, 100])]
    check(tmp_path, Normed(scheme), calls, (rows_dim(),), (torch.randn(1, 8, 256),), runs)


PRODUCTS = [
    ((33, 36), (36, 72)),
    ((5, 37), (37, 13)),
    ((3, 65, 16), (3, 16, 65)),
    ((2, 3, 5, 8), (2, 3, 8, 12)),
    ((2, 3, 5, 7), (7, 9)),
]


@pytest.mark.parametrize(("a", "b"), PRODUCTS)
def test_products(tmp_path, a, b):
    torch.manual_seed(5)
    check_gpu(tmp_path, Function(torch.matmul), [(torch.randn(a), torch.randn(b))], tiers=["baseline"])


def test_computed_weights(tmp_path):
    torch.manual_seed(7)

    def products(x, w, b, v):
        return (
            F.linear(x, w, b),
            F.linear(x * 2, w),
            torch.matmul(x, v),
            torch.mm(x[0], w.t()),
            torch.bmm(x, x.transpose(1, 2)),
        )

    check(tmp_path, products, [(torch.randn(2, 5, 7), torch.randn(9, 7), torch.randn(9), torch.randn(7))])


def test_addmm(tmp_path):
    torch.manual_seed(6)
    model = Function(lambda c, a, b: torch.addmm(c, a, b))
    check_gpu(tmp_path, model, [(torch.randn(13), torch.randn(6, 9), torch.randn(9, 13))], tiers=["baseline"])
