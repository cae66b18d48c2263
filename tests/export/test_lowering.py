"""What is serialised computes what eager computes, at every size, with state; what is not supported stays outside."""

from functools import cache
from random import Random

import pytest
import sympy
import torch
import torch.nn.functional as F
from executorch.exir import to_edge_transform_and_lower
from executorch_webgpu.lowering import payload, reference, symbols
from executorch_webgpu.operators import load_operators
from executorch_webgpu.partitioner import WebGPUPartitioner
from export import make_fixtures
from export.helpers import check, export
from torch import nn
from torch.export import Dim
from torch.export import export as torch_export
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod


@cache
def fixture_and_export(name):
    torch.manual_seed(0)
    fixture = make_fixtures.FIXTURES[name]()
    return fixture, export(fixture.model, fixture.example or fixture.calls[0], fixture.dynamic_shapes)


@pytest.mark.parametrize("name", ["mlp", "conv", "decoder2", "decoder2_all"])
def test_fixture(name):
    fixture, exported = fixture_and_export(name)
    expected = make_fixtures.eager_outputs(fixture)
    assert len(exported.delegates) == 1 and not exported.cpu_operators()
    delegate = exported.delegates[0]
    for i, (call, outputs) in enumerate(zip(fixture.calls, expected, strict=True)):
        if i in fixture.reset:
            for state in delegate.states.values():
                state.zero_()
        for found, wanted in zip(delegate.run(list(call)), outputs, strict=True):
            assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_decoder_is_small_and_says_its_bounds():
    _, exported = fixture_and_export("decoder2")
    assert len(exported.ops) < 25 + 2 * 45
    assert [(s.min, s.max, s.input, s.dim) for s in exported.graph.symbols] == [(1, 63, 0, 1)]
    states = exported.values("state")
    assert sorted(s.name for s in states) == [f"layers.{i}.{n}_cache" for i in (0, 1) for n in "kv"]
    assert not any(s.data_key for s in states) and len(exported.graph.mutations) == 4
    assert all(op in load_operators() for op in exported.ops)


def test_the_payload_tells_weights_apart():
    digests = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        fixture = make_fixtures.mlp()
        digests.append(export(fixture.model, fixture.example, fixture.dynamic_shapes).graph.data_digest)
    assert len(digests[0]) == 32 and digests[0] == digests[1] != digests[2]


def test_just_works_without_options():
    program = torch_export(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.SiLU()), (torch.randn(2, 8),))
    manager = to_edge_transform_and_lower(program, partitioner=[WebGPUPartitioner()]).to_executorch()
    (delegate,) = reference.delegates(manager)
    assert [n.op for n in delegate.graph.nodes] == [
        "aten.linear.default",
        "aten.layer_norm.default",
        "aten.silu.default",
    ]


def test_minimum_of_a_dim():
    """torch.export forgets a minimum of 1 on the way; 2 and more are what the user said."""
    for low in (1, 2, 3):
        exported = export(lambda x: x * 2 + 1, (torch.randn(5, 4),), ({0: Dim("n", min=low, max=9)},))
        assert [(s.min, s.max) for s in exported.graph.symbols] == [(low, 9)]


def test_size_arithmetic():
    def function(x, y):
        n = x.shape[0]
        tripled = torch.cat([x, x, x], dim=0)  # [3n, 4]
        return tripled.view(n, 12) + torch.arange(n)[:, None], y[3:], x[n - 1], tripled.reshape(-1)[1 : 12 * n - 1]

    n = Dim("n", min=1, max=11)
    calls = [(torch.randn(size, 4), torch.randn(size + 5)) for size in (1, 7, 11)]
    exported = check(function, calls, ({0: n}, {0: n + 5}), (torch.randn(5, 4), torch.randn(10)))
    assert {e.op for e in exported.graph.exprs} >= {"constant", "symbol", "mul", "add"}


@pytest.mark.parametrize("seed", range(4))
def test_expressions_lower_to_what_sympy_computes(seed):
    """Random expressions of sizes, with all the operators that torch.export makes, at random sizes."""
    random = Random(seed)
    s, t = sympy.Symbol("s", integer=True, positive=True), sympy.Symbol("t", integer=True, positive=True)
    operations = [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: FloorDiv(a, random.randint(2, 5)),
        lambda a, b: Mod(abs(a) if a.is_number else a * a, random.randint(2, 7)),
        lambda a, b: Max(a, b),
        lambda a, b: Min(a, b),
    ]
    kinds = set()
    for _ in range(60):
        expr = random.choice([s, t])
        for _ in range(random.randint(1, 4)):
            expr = random.choice(operations)(expr, random.choice([s, t, sympy.Integer(random.randint(-3, 9))]))
        table = symbols.ExprTable({"s": (1, 99), "t": (1, 99)})
        table._bound = {s: (s, "input_int", 0, 0), t: (t, "input_int", 1, 0)}
        index = table.add(expr)
        graph = payload.Graph(exprs=table.exprs, symbols=table.symbols)
        kinds |= {e.op for e in table.exprs}
        for _ in range(5):
            values = {"s": random.randint(1, 99), "t": random.randint(1, 99)}
            wanted = int(expr.subs({s: values["s"], t: values["t"]}))
            assert payload.evaluate(graph, [values[x.name] for x in table.symbols])[index] == wanted, expr
    assert len(kinds) >= 8


def test_scaled_dimension_gives_its_symbol():
    """The input's dimension is 3·n: n is that size divided by 3."""
    n = Dim("n", min=1, max=5)
    calls = [(torch.randn(3 * a, 4),) for a in (1, 3, 5)]
    exported = check(lambda x: x.view(-1, 3, 4) * 2, calls, ({0: 3 * n},), (torch.randn(6, 4),))
    assert (exported.graph.symbols[0].min, exported.graph.symbols[0].max) == (3, 15)


def test_integer_across_a_border():
    """A size computed on the CPU side reaches the second delegate as an integer or by a dimension."""

    def function(x):
        y = torch.cumsum(x * 2, dim=0)
        return y.view(-1, 2) + 1

    exported = export(function, (torch.randn(4, 6),), ({0: Dim("n", min=1, max=8)},))
    assert len(exported.delegates) == 2
    for size in (1, 8):
        x = torch.randn(size, 6)
        (middle,) = exported.delegates[0].run([x])[:1]
        second = exported.delegates[1]
        inputs = [torch.cumsum(middle, dim=0) if i.value >= 0 else size for i in second.graph.inputs]
        assert torch.equal(second.run(inputs)[0], function(x))


def test_state_is_kept_and_starts_with_its_values():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.full((4,), 3.0))
            self.register_buffer("zero", torch.zeros(2, 4))

        def forward(self, x):
            self.total.add_(x)
            self.zero[1] = x
            return self.total * 2, self.zero.sum(dim=0)

    exported = check(Counter(), [(torch.randn(4),) for _ in range(3)])
    keys = {v.name: v.data_key for v in exported.values("state")}
    assert keys == {"total": "total", "zero": ""}


def test_state_that_an_island_reads_belongs_to_the_program():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.total.add_(x)
            return torch.cumsum(self.total, dim=0)

    exported = export(Model(), (torch.randn(4),))
    assert not exported.values("state") and "aten::cumsum" in exported.cpu_operators()


@pytest.mark.parametrize(
    ("function", "shape", "op", "reason"),
    [
        (lambda x: torch.cumsum(x, 0), [4, 4], "aten.cumsum.default", "not in operators.yaml"),
        (lambda x: x.double() + 1, [4], "aten.add.Tensor", "f64"),
        (lambda x: x.sum((0, 1)) * 2, [1, 1, 1, 1, 1, 1, 2], "aten.sum.dim_IntList", "rank 7"),
        (lambda x: F.max_pool2d(x, 2, ceil_mode=True), [1, 1, 5, 5], "aten.max_pool2d_with_indices.default", "yaml"),
        (
            lambda x: F.conv_transpose2d(x, torch.ones(2, 2, 2, 2)),
            [1, 2, 5, 5],
            "aten.convolution.default",
            "transposed",
        ),
        (lambda x: x.argmax().float() + 1, [4, 4], "aten.argmax.default", "all dimensions"),
        (lambda x: F.conv3d(x, torch.ones(2, 2, 2, 2, 2)), [1, 2, 5, 5, 5], "aten.convolution.default", "3 spatial"),
    ],
)
def test_refusals_have_reasons(function, shape, op, reason):
    exported = export(function, (torch.randn(shape),))
    assert reason in exported.refusals()[op]
    assert op in str(exported.partitioner.report())


def test_the_report_says_what_nothing_here_runs(caplog):
    """As ExecuTorch's own kernels would: operators that neither a delegate nor this runtime's CPU takes."""
    exported = export(lambda x: F.conv3d(x, torch.ones(2, 2, 2, 2, 2)).half(), (torch.randn(1, 2, 5, 5, 5),))
    reasons = {r.op: r.on_cpu for r in exported.partitioner.report().refusals}
    assert reasons["aten.convolution.default"] == "no CPU kernel for 3 spatial dimensions"
    assert reasons["dim_order_ops._to_dim_order_copy.default"] == "no CPU kernel for f16"
    text = str(exported.partitioner.report())
    assert "3 spatial dimensions; and no CPU kernel for 3 spatial dimensions here" in text
    assert "aten.convolution.default: neither a delegate nor the CPU of this runtime runs it" in caplog.text
    cumsum = export(lambda x: torch.cumsum(x, 0), (torch.randn(4),)).partitioner.report()
    assert [r.on_cpu for r in cumsum.refusals] == [None]


def test_views_alone_are_no_delegate():
    exported = export(lambda x: x.view(4, 2).unsqueeze(0), (torch.randn(2, 4),))
    assert not exported.delegates and "nothing" in str(exported.partitioner.report())


def test_kept_only_where_every_use_is_taken():
    """One of two linears is in f64: keeping linear whole would be an error, so both are decomposed."""

    def function(x, w):
        return F.linear(x, w), F.linear(x.double(), w.double())

    exported = export(function, (torch.randn(3, 4), torch.randn(5, 4)))
    assert "aten.mm.default" in exported.ops


def test_batch_norm_folds_into_the_convolution():
    fixture = make_fixtures.conv()
    exported = check(fixture.model, fixture.calls, fixture.dynamic_shapes, fixture.example)
    assert not any("batch_norm" in op for op in exported.ops)
    assert any(v.data_key == "conv.weight.folded" for v in exported.values("constant"))
    assert not any(v.data_key == "conv.weight" for v in exported.values("constant"))


def test_batch_norm_without_a_convolution_stays():
    norm = nn.BatchNorm2d(3)
    norm.running_mean.uniform_()
    exported = check(norm, [(torch.randn(2, 3, 4, 4),)])
    assert exported.ops == ["aten._native_batch_norm_legit_no_training.default"]


def test_batch_norm_does_not_fold_where_the_convolution_is_used_twice():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
            self.norm.running_mean.uniform_()

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y) + y

    exported = check(Model(), [(torch.randn(1, 3, 6, 6),)])
    assert any("batch_norm" in op for op in exported.ops)


def test_constant_subgraphs_fold():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.gain = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.rand(4, 1))

        def forward(self, x):
            return F.linear(x, self.weight / self.weight.norm(dim=1, keepdim=True) * self.gain)

    exported = export(Model(), (torch.randn(2, 6),))
    assert exported.delegates[-1].graph.nodes[-1].op == "aten.linear.default"
    assert exported.ops.count("aten.mul.Tensor") == 0


def test_numbers_become_immediates():
    def function(x, i):
        return (
            (1 - x) * 2.5 / 3,
            x.clamp(min=0),
            x > 1,
            i + 1,
            torch.where(x > 0, x, 7.0),
            torch.maximum(x, torch.tensor(2)),
        )

    exported = check(function, [(torch.randn(3, 4), torch.arange(4))])
    assert {"aten.mul.Scalar", "aten.div.Scalar", "aten.gt.Scalar", "aten.add.Scalar"} <= set(exported.ops)


def test_no_op_copies_vanish_and_outputs_are_values_of_their_own():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))

        def forward(self, x):
            return x.clone() + 1, self.weight * 2 + x

    exported = check(Model(), [(torch.randn(3),)])
    assert "clone" not in " ".join(exported.ops)
    kinds = {d.graph.values[o.value].kind for d in exported.delegates for o in d.graph.outputs}
    assert kinds == {"intermediate"}


def test_same_name_in_two_methods():
    """Two modules whose constants have one name: both are right. The same module twice: one copy."""
    torch.manual_seed(0)
    a, b = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 8).requires_grad_(False)
    example = (torch.randn(2, 8),)
    programs = {
        "first": torch_export(a, example),
        "second": torch_export(b, example),
        "third": torch_export(a, example),
    }
    manager = to_edge_transform_and_lower(programs, partitioner=[WebGPUPartitioner()]).to_executorch()
    for delegate, module in zip(reference.delegates(manager), (a, b, a), strict=True):
        assert torch.allclose(delegate.run([example[0]])[0], module(*example), atol=1e-6)
    assert len(manager._named_data.pte_data) == 4


def test_external_weights(tmp_path):
    model = nn.Linear(64, 64)
    inside = export(model, (torch.randn(2, 64),))
    outside = export(model, (torch.randn(2, 64),), external_weights="weights")
    outside.program.write_tensor_data_to_file(str(tmp_path))
    assert (tmp_path / "weights.ptd").stat().st_size > 64 * 64 * 4
    assert len(outside.program.buffer) < len(inside.program.buffer) - 64 * 64 * 4 + 4096
    assert not outside.program._named_data.pte_data


def test_payload_text_names_everything():
    text = payload.to_text(fixture_and_export("decoder2")[1].graph)
    for part in ("in 1..63", "r4b4g32a", "r4b8", "layers.0.k_cache", "aten.rms_norm.default", "state %"):
        assert part in text


def test_every_listed_operator_exists_in_torch():
    """operators.yaml has no misspelt name: each is an operator of PyTorch or of executorch."""
    from executorch_webgpu.lowering.serialize import _schema

    for name in load_operators():
        assert _schema(name).name
