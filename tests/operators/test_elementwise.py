"""Elementwise operators: every function over its range, broadcasts, types, layouts. The index spaces are those where
the generated kernels change: multiples of 4 (vectors) and others, borders of a workgroup of 256, no element at all."""

import pytest
import torch
import torch.nn.functional as F
from operators.helpers import HALF, check
from torch.export import Dim

pytestmark = pytest.mark.gpu

SIZES = [1, 2, 5, 63, 64, 65, 211]
N = Dim("n", min=0, max=300)
EDGES = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, -6.0, 1e-6, -1e-6, 0.3, 80.0, -80.0])


def values(n, columns, scale=3.0):
    """The edges first, then random ones."""
    x = torch.randn(n * columns) * scale
    x[: EDGES.numel()] = EDGES[: x.numel()]
    return x.view(n, columns)


def unary(x):
    p, a = x.abs() + 0.01, x.clamp(-20, 20)
    z = [x.exp(), p.log(), p.sqrt(), p.rsqrt(), p.reciprocal(), a.sin(), a.cos(), x.tanh(), x.erf(), x.sigmoid()]
    z += [F.silu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.hardtanh(x, -0.5, 0.25), F.relu6(x), F.hardswish(x)]
    z += [F.hardsigmoid(x), F.leaky_relu(x, 0.2), F.elu(x, 1.3), x.floor(), -x, x.abs(), x.relu(), x.clamp(-0.5, 0.7)]
    z += [x.clamp(min=0.25), x.clamp(max=0.25), x.clamp(2, -2), p.pow(2.5), x.pow(2), x.pow(3), p.pow(-1.5), a.pow(0)]
    z += [x + 1.5, x - 2, x * 3, x / 7, 3 - x, torch.add(x, x.abs(), alpha=2), torch.sub(x, p, alpha=0.5), x.square()]
    return tuple(z)


@pytest.mark.parametrize("columns", [3, 4])
def test_unary(tmp_path, columns):
    torch.manual_seed(0)
    calls = [(values(n, columns),) for n in [*SIZES, 0]]
    check(tmp_path, unary, calls, ({0: N},), calls[3], tolerance=3e-5, each=True)


def binary(x, y):
    p = x.abs() + 0.1
    z = [x + y, x - y, x * y, x / (y.abs() + 0.1), p.pow(y), torch.minimum(x, y), torch.maximum(x, y), y - x]
    z += [x == y, x != y, x < y, x <= y, x > y, x >= y, x == 0.5, x != 1, x < 0.1, x <= 0, x > 0.1, x >= -0.5]
    return (*z, torch.where(x > y, x, y), torch.where(x > 0, x, 0.0), torch.where(y < x, 1.5, -x))


SHAPES = [((5, 3, 4), (3, 4)), ((4, 1, 3), (5, 1)), ((2, 3, 4), ()), ((1,), (7, 5)), ((6, 1, 4, 1), (1, 3, 1, 8))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_broadcast(tmp_path, shapes):
    torch.manual_seed(1)
    x, y = (torch.randn(s) * 2 for s in shapes)
    if y.numel() > 1:
        y.view(-1)[0] = x.view(-1)[0]  # a tie
    check(tmp_path, binary, [(x, y)], tolerance=3e-5, each=True)


def test_binary_live_sizes(tmp_path):
    """A row against a column of live sizes."""
    torch.manual_seed(2)
    m, n = Dim("m", min=1, max=70), Dim("n", min=2, max=70)
    calls = [(torch.randn(a, 1), torch.randn(b)) for a, b in ((1, 2), (7, 64), (70, 70), (33, 5))]
    check(tmp_path, binary, calls, ({0: m}, {0: n}), calls[1], tolerance=3e-5, each=True)


def integers(a, b):
    z = [a + b, a - b, a * b, torch.minimum(a, b), torch.maximum(a, b), -a, a.abs(), a.relu(), a.clamp(-3, 5), 7 - a]
    z += [a.clamp(min=2), a + 3, a - 2, a * -3, a == b, a != b, a < b, a <= b, a > b, a >= b, a == 2, a != 2, a < 1]
    z += [a <= 1, a > 1, a >= -1, torch.where(a > b, a, b), a.to(torch.float32) * 0.5, a.to(torch.bool)]
    return (*z, torch.add(a, b, alpha=3), a.to(torch.int32), a.to(torch.int64), (a > 0).to(a.dtype) + 1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_integers(tmp_path, dtype):
    torch.manual_seed(3)
    calls = [
        (torch.randint(-(2**k), 2**k, (n, 6)).to(dtype), torch.randint(-8, 9, (6,)).to(dtype))
        for n, k in ((4, 3), (1, 20), (43, 27), (64, 3))
    ]
    check(tmp_path, integers, calls, ({0: N}, None))


def booleans(a, b, x):
    z = [torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_not(a), a & b, a | b, ~a, a == b, a != b]
    z += [torch.where(a, x, -x), torch.where(a, b, ~b), a.to(torch.float32), a.to(torch.int64), x.to(torch.bool)]
    return (*z, (x * 3).to(torch.int64), (x * 3).to(torch.int32), a & (x > 0) | ~b)


def test_booleans(tmp_path):
    torch.manual_seed(4)
    calls = [(torch.rand(n, 5) < 0.5, torch.rand(5) < 0.5, values(n, 5)) for n in (4, 1, 52, 103)]
    check(tmp_path, booleans, calls, ({0: N}, None, {0: N}))


def layouts(x, y):
    """Strided reads inside of arithmetic: permuted, expanded, sliced, selected, several of one tensor."""
    t = x.permute(2, 0, 1)
    z = [t + y[:, None, None], t * x.permute(2, 0, 1).exp(), x[:, 1:] - x[:, :-1], x[:, ::2, 1:-1] * 2, x[:, -1] + y]
    z += [x.transpose(1, 2) + x[:, :1].transpose(1, 2), y.expand(3, 6) * y.unsqueeze(0), x[..., 0] + x[..., -1]]
    return (*z, (x + 1).permute(1, 0, 2)[1:].relu(), x.select(1, 2) * y)


def test_layouts(tmp_path):
    torch.manual_seed(5)
    calls = [(torch.randn(n, 5, 6), torch.randn(6)) for n in (3, 1, 17, 64)]
    check(tmp_path, layouts, calls, ({0: Dim("n", min=1, max=64)}, None))


def test_not_finite(tmp_path):
    """What masks need: infinite constants; infinities and NaN are copied, the sign of a zero too."""
    inf = float("inf")

    def masks(x):
        z = [torch.where(x > 0, x, -inf), torch.where(x > 0, inf, x), x.clamp(-inf, 2), x < inf, x.clamp(-2, inf)]
        return (*z, x + torch.full((2, 4), -inf), torch.full((2, 1), -inf).expand(2, 4) + x[1])

    check(tmp_path, masks, [(torch.tensor([[3.0, -3.0, 0.0, 1e30], [-1e30, 3e38, -3e38, 2.0]]),)], each=True)
    moved = torch.tensor([float("nan"), inf, -inf, -0.0, 1.0, 2.0])
    check(tmp_path, lambda x: (x.reshape(2, 3).t(), x[::2], torch.cat([x, x[1:]])), [(moved,)])


def test_half(tmp_path):
    torch.manual_seed(6)
    for columns in (3, 4):
        calls = [(torch.randn(n, columns).half().float(), torch.randn(()).half().float()) for n in (5, 64)]
        check(tmp_path, lambda x, y: (*unary_half(x), x + y, x * y), calls, ({0: N}, None), runs=HALF)


def unary_half(x):
    return F.silu(x), F.gelu(x), x.relu() * 2, x.exp(), x > 0, (x * 3).to(torch.int64), torch.where(x > 0, x, 0.5)
