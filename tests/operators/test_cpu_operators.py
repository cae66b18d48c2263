"""Every operator of schema/operators.yaml on the native CPU runtime against PyTorch eager in float64.

A case is a small module that is exported with the partitioner. It must be delegated whole (else the test would check
the program's own kernels), and its result must agree with eager at double precision. Each case also runs without graph
passes, so that the ATen kernels themselves are tested and not only what fusion makes of them. Without this
file a wrong argument position or a wrong broadcast in any CPU kernel would go unnoticed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from executorch_webgpu.lowering import reference
from executorch_webgpu.partitioner import WebGPUPartitioner
from export.helpers import Function
from export.make_fixtures import lower
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

_native = pytest.importorskip("executorch_webgpu._native")
from executorch_webgpu.runtime import load  # noqa: E402

SCHEMA = Path(__file__).parents[2] / "schema" / "operators.yaml"


def rand(*sizes, seed=0, scale=1.0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed + len(sizes) * 100)) * scale


def ints(high, *sizes, seed=0, low=0):
    return torch.randint(low, high, sizes, generator=torch.Generator().manual_seed(seed))


X = rand(2, 5, 7)
Y = rand(5, 7, seed=1)
I64 = ints(9, 4, 6, low=-8)
J64 = ints(9, 6, seed=1, low=-8)
BOOL = ints(2, 4, 6).bool()
IMAGE = rand(2, 6, 13, 15)


class Conv(nn.Module):
    def __init__(self, *arguments, one_dimension=False, **options):
        super().__init__()
        torch.manual_seed(0)
        self.layer = (nn.Conv1d if one_dimension else nn.Conv2d)(*arguments, **options)

    def forward(self, x):
        return self.layer(x)


def module(layer):
    return layer.eval()


def batch_norm():
    torch.manual_seed(0)
    layer = nn.BatchNorm2d(6)
    layer.running_mean.normal_()
    layer.running_var.uniform_(0.5, 2)
    nn.init.normal_(layer.weight)
    nn.init.normal_(layer.bias)
    return layer.eval()


def unary(function):
    return function, (torch.cat([X.flatten(), torch.tensor([0.0, 3.5, -3.5, 20.0, -20.0])]),)


def positive(function):
    return function, (X.abs() + 0.01,)


# name -> (function or module, inputs)
CASES = {
    "add": (lambda a, b: torch.add(a, b, alpha=2), (X, Y)),
    "add_int": (lambda a, b: a + b, (I64, J64)),
    "add_scalar": (lambda a: a + 1.5, (X,)),
    "add_broadcast_both": (lambda a, b: a + b, (rand(4, 1, 3), rand(5, 1))),
    "sub": (lambda a, b: torch.sub(a, b, alpha=3), (X, Y)),
    "sub_scalar": (lambda a: a - 2, (I64,)),
    "mul": (lambda a, b: a * b, (X, Y)),
    "mul_int": (lambda a, b: a * b, (I64, J64)),
    "mul_scalar": (lambda a: a * 3, (I64,)),
    "div": (lambda a, b: a / b, (X, Y.abs() + 0.5)),
    "div_scalar": (lambda a: a / 3.0, (X,)),
    "minimum": (torch.minimum, (X, Y)),
    "maximum": (torch.maximum, (I64, J64)),
    "pow_scalar": (lambda a: torch.pow(a, 2.5), (X.abs(),)),
    "pow_square": (lambda a: a**2, (X,)),
    "pow_tensor": (torch.pow, (X.abs() + 0.1, Y)),
    "neg": (torch.neg, (X,)),
    "neg_int": (torch.neg, (I64,)),
    "abs": (torch.abs, (I64,)),
    "relu": (torch.relu, (X,)),
    "clamp": (lambda a: a.clamp(-0.5, 0.7), (X,)),
    "clamp_min": (lambda a: a.clamp(min=2), (I64,)),
    "exp": unary(torch.exp),
    "log": positive(torch.log),
    "sqrt": positive(torch.sqrt),
    "rsqrt": positive(torch.rsqrt),
    "reciprocal": positive(torch.reciprocal),
    "sin": unary(torch.sin),
    "cos": unary(torch.cos),
    "tanh": unary(torch.tanh),
    "erf": unary(torch.erf),
    "sigmoid": unary(torch.sigmoid),
    "silu": unary(F.silu),
    "gelu": unary(F.gelu),
    "gelu_tanh": unary(lambda a: F.gelu(a, approximate="tanh")),
    "hardtanh": unary(lambda a: F.hardtanh(a, -0.5, 0.25)),
    "relu6": unary(F.relu6),
    "hardswish": unary(F.hardswish),
    "hardsigmoid": unary(F.hardsigmoid),
    "leaky_relu": unary(lambda a: F.leaky_relu(a, 0.2)),
    "elu": unary(lambda a: F.elu(a, 1.3)),
    "floor": unary(torch.floor),
    "eq": (lambda a, b: a == b, (I64, J64)),
    "ne": (lambda a, b: a != b, (I64, J64)),
    "lt": (lambda a, b: a < b, (X, Y)),
    "le": (lambda a, b: a <= b, (X, Y)),
    "gt": (lambda a, b: a > b, (X, Y)),
    "ge": (lambda a, b: a >= b, (I64, J64)),
    "eq_scalar": (lambda a: a == 2, (I64,)),
    "ne_scalar": (lambda a: a != 2, (I64,)),
    "lt_scalar": (lambda a: a < 0.1, (X,)),
    "le_scalar": (lambda a: a <= 0, (I64,)),
    "gt_scalar": (lambda a: a > 0.1, (X,)),
    "ge_scalar": (lambda a: a >= -1, (I64,)),
    "logical_and": (torch.logical_and, (BOOL, BOOL.flip(0))),
    "logical_or": (torch.logical_or, (BOOL, BOOL.flip(0))),
    "logical_not": (torch.logical_not, (BOOL,)),
    "bitwise_and": (lambda a, b: a & b, (BOOL, BOOL.flip(0))),
    "bitwise_or": (lambda a, b: a | b, (BOOL, BOOL.flip(0))),
    "bitwise_not": (lambda a: ~a, (BOOL,)),
    "where": (torch.where, (BOOL, rand(4, 6), rand(6))),
    "to_int": (lambda a: (a * 3).to(torch.int64), (X,)),
    "to_float": (lambda a: a.to(torch.float32) * 0.5, (I64,)),
    "to_bool": (lambda a: a.to(torch.bool), (I64,)),
    "view": (lambda a: (a + 1).view(10, 7), (X,)),
    "unsqueeze": (lambda a: (a + 1).unsqueeze(1) * 2, (X,)),
    "squeeze": (lambda a: (a + 1).squeeze(1) * 2, (rand(3, 1, 4),)),
    "clone": (lambda a: a.clone() + 1, (X,)),
    "permute": (lambda a: a.permute(2, 0, 1), (X,)),
    "permute_4d": (lambda a: a.permute(0, 2, 3, 1), (IMAGE,)),
    "transpose_bool": (lambda a: a.transpose(0, 1), (BOOL,)),
    "expand": (lambda a: a.expand(3, 4, 5), (rand(4, 1),)),
    "slice": (lambda a: a[:, 1:-1:2, -3:], (X,)),
    "select": (lambda a: a.select(1, -2), (I64,)),
    "cat": (lambda a, b: torch.cat([a, b, a], 1), (X, rand(2, 3, 7))),
    "cat_int": (lambda a, b: torch.cat([a, b], 0), (I64, I64[:1])),
    "pad": (lambda a: F.pad(a, (1, 2, 0, 3), value=-1.5), (X,)),
    "full": (lambda a: a + torch.full((5, 7), 2.5), (X,)),
    "full_like": (lambda a: a + torch.full_like(a, 2.5), (X,)),
    "arange": (lambda a: a + torch.arange(3, 24, 3), (ints(9, 2, 7),)),
    "embedding": (lambda w, i: F.embedding(i, w), (rand(11, 6), ints(11, 2, 5))),
    "index": (lambda a, i: a[i], (rand(7, 3, 2), ints(7, 2, 4, low=-7))),
    "index_middle": (lambda a, i: a[:, i], (rand(3, 5, 6), ints(5, 4))),
    "index_select": (lambda a, i: a.index_select(1, i), (X, ints(5, 3))),
    "index_put": (lambda a, i, v: a.index_put((i,), v), (rand(7, 3), torch.tensor([5, 0, 2]), rand(3, 3))),
    "slice_scatter": (lambda a, b: a.slice_scatter(b, 1, 1, 4), (X, rand(2, 3, 7))),
    "linear": (lambda x, w, b: F.linear(x, w, b), (X, rand(9, 7), rand(9))),
    "linear_layer": (module(nn.Linear(7, 9)), (rand(1, 7),)),
    "mm": (torch.mm, (rand(5, 7), rand(7, 33))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b), (rand(33), rand(5, 7), rand(7, 33))),
    "bmm": (torch.bmm, (rand(3, 5, 7), rand(3, 7, 4))),
    "matmul": (torch.matmul, (rand(2, 3, 5, 7), rand(3, 7, 4))),
    "matmul_vector": (torch.matmul, (rand(2, 5, 7), rand(7))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (7,), w, 1e-5), (X, rand(7))),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (7,), w, b), (X, rand(7), rand(7, seed=1))),
    "layer_norm_plain": (lambda x: F.layer_norm(x, (7,)), (X,)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), (IMAGE, rand(6), rand(6, seed=1))),
    "batch_norm": (batch_norm(), (IMAGE,)),
    "sdpa": (F.scaled_dot_product_attention, (rand(2, 3, 9, 8), rand(2, 3, 11, 8), rand(2, 3, 11, 8, seed=1))),
    "sdpa_causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (rand(2, 3, 9, 8), rand(2, 3, 9, 8, seed=2), rand(2, 3, 9, 8, seed=1)),
    ),
    "sdpa_mask": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.3),
        (rand(1, 4, 60, 8), rand(1, 4, 70, 8), rand(1, 4, 70, 8, seed=1), ints(2, 60, 70).bool()),
    ),
    "sdpa_gqa": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (rand(1, 6, 5, 8), rand(1, 2, 11, 8), rand(1, 2, 11, 8, seed=1)),
    ),
    "sum": (lambda a: a.sum((0, 2)), (X,)),
    "sum_int": (lambda a: a.sum(1, keepdim=True), (I64,)),
    "mean": (lambda a: a.mean((2, 3), keepdim=True), (IMAGE,)),
    "mean_first": (lambda a: a.mean(0), (X,)),
    "amax": (lambda a: a.amax((0, 1)), (X,)),
    "amin": (lambda a: a.amin(-1, keepdim=True), (X,)),
    "argmax": (lambda a: a.argmax(1), (X,)),
    "argmax_keepdim": (lambda a: a.argmax(-1, keepdim=True), (X,)),
    "softmax": (lambda a: a.softmax(-1), (X,)),
    "softmax_middle": (lambda a: a.softmax(1), (X,)),
    "log_softmax": (lambda a: a.log_softmax(-1), (X,)),
    "conv": (Conv(6, 9, 3, padding=1), (IMAGE,)),
    "conv_stride": (Conv(6, 9, 3, stride=2, dilation=2), (IMAGE,)),
    "conv_groups": (Conv(6, 9, 3, padding=1, groups=3), (IMAGE,)),
    "conv_depthwise": (Conv(6, 6, 3, padding=1, groups=6), (IMAGE,)),
    "conv_pointwise": (Conv(6, 17, 1, bias=False), (IMAGE,)),
    "conv_1d": (Conv(6, 9, 3, stride=2, padding=1, one_dimension=True), (rand(2, 6, 21),)),
    "avg_pool": (lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False), (IMAGE,)),
    "avg_pool_padded": (lambda a: F.avg_pool2d(a, (2, 3), (2, 1), (1, 0)), (IMAGE,)),
    "max_pool": (lambda a: F.max_pool2d(a, 3, 2, 1), (IMAGE,)),
    "adaptive_pool": (lambda a: F.adaptive_avg_pool2d(a, (3, 4)), (IMAGE,)),
    "adaptive_pool_one": (lambda a: F.adaptive_avg_pool2d(a, 1), (IMAGE,)),
}

# What the exporter writes as another operator of the list, or folds away; tests/cpp/cpu_kernels_test.cpp calls their
# kernels.
UNREACHED = {
    "aten._adaptive_avg_pool2d.default",
    "aten._softmax.default",
    "aten._to_copy.default",
    "aten.alias_copy.default",
    "aten.clone.default",
    "aten.copy.default",
    "aten.matmul.default",
    "aten.native_layer_norm.default",
    "aten.scalar_tensor.default",
    "dim_order_ops._clone_dim_order.default",
}
_seen: set[str] = set()


def compare(found, expected):
    found, expected = torch.as_tensor(found), torch.as_tensor(expected)
    assert tuple(found.shape) == tuple(expected.shape)
    if expected.dtype.is_floating_point:
        torch.testing.assert_close(found.double(), expected.double(), rtol=1e-5, atol=2e-5)
    else:
        assert torch.equal(found.to(expected.dtype), expected)


def double(value):
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def eager64(model, inputs):
    """Eager at double precision; where the function makes f32 tensors itself (full) the result is converted."""
    model = model.double()
    try:
        return model(*map(double, inputs))
    finally:
        model.float()


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_operator(name, tmp_path):
    function, inputs = CASES[name]
    model = (function if isinstance(function, nn.Module) else Function(function)).eval()
    expected = eager64(model, inputs)
    program = lower(model, inputs, None, WebGPUPartitioner())
    delegates = reference.delegates(program)
    _seen.update(node.op for d in delegates for node in d.graph.nodes)
    assert len(delegates) == 1 and not program.executorch_program.execution_plan[0].operators, "not delegated whole"
    path = tmp_path / "model.pte"
    path.write_bytes(program.buffer)
    for disabled in ("", "all"):
        session = load(path, device="cpu", activations="exact", threads=2, disable_passes=disabled)
        compare(session.forward(*inputs)[0], expected)


@torch.no_grad()
def test_dynamic_sizes(tmp_path):
    """One program at its smallest, largest and a middle size; a size outside is refused."""

    def function(x, w):
        y = torch.cat([x, x * 2], 0)[1:]
        return F.softmax(F.linear(y, w).relu() + torch.arange(y.shape[0]).unsqueeze(1), -1)

    model = Function(function)
    w = rand(9, 7)
    program = lower(model, (rand(5, 7), w), (({0: Dim("n", min=1, max=20)}, None),), WebGPUPartitioner())
    path = tmp_path / "model.pte"
    path.write_bytes(program.buffer)
    session = load(path, device="cpu", threads=1)
    for n in (1, 20, 7, 2):
        x = rand(n, 7, seed=n)
        compare(session.forward(x, w)[0], eager64(model, (x, w)))
    with pytest.raises(Exception, match="21"):
        session.forward(rand(21, 7), w)


def test_every_listed_operator_is_tested():
    """Runs last: an operator added to the list without a case here fails."""
    if len(_seen) < 40:
        pytest.skip("only some of the cases have run")
    listed = {
        op
        for entries in yaml.safe_load(SCHEMA.read_text()).values()
        if isinstance(entries, list)
        for e in entries
        for op in e["ops"]
    }
    missing = sorted(listed - _seen - UNREACHED)
    assert not missing, "\n".join(missing)
