"""Quantised weights arrive in the payload as one packed value, whatever made them."""

import pytest
import torch
from executorch_webgpu.quantization import QuantizedEmbedding, QuantizedLinear, QuantizedWeight
from export.helpers import check, export
from torch import nn
from torch.export import Dim
from torchao.quantization import IntxWeightOnlyConfig, PerAxis, PerGroup, quantize_
from torchao.quantization.quant_primitives import MappingType


def schemes(exported):
    return sorted(v.quantization.scheme for v in exported.values("constant") if v.quantization)


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("symmetric", [True, False])
def test_own_linear(group, symmetric):
    torch.manual_seed(0)
    weight = QuantizedWeight.from_float(torch.randn(20, 256), 4, group, symmetric)
    exported = check(QuantizedLinear(weight, torch.randn(20)), [(torch.randn(3, 256),)])
    assert exported.ops == ["aten.linear.default"]
    assert schemes(exported) == [f"r4b4g{group}{'s' if symmetric else 'a'}"]
    (key,) = [v.data_key for v in exported.values("constant") if v.quantization]
    assert key == f"weight.{schemes(exported)[0]}"


def test_own_tied_eight_bits_are_stored_once():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            weight = QuantizedWeight.from_float(torch.randn(40, 64), 8)
            self.embedding, self.head = QuantizedEmbedding(weight), QuantizedLinear(weight)

        def forward(self, ids):
            return self.head(self.embedding(ids))

    calls = [(torch.randint(0, 40, (1, n)),) for n in (3, 1, 5)]
    exported = check(Model(), calls, ({1: Dim("n", min=1, max=8)},))
    assert exported.ops == ["aten.embedding.default", "aten.linear.default"]
    assert schemes(exported) == ["r4b8"]
    assert len(exported.program._named_data.pte_data) == 1


def test_tied_weight_with_an_island_between():
    """Both delegates have the packed weight; the file has its bytes once, and no float weight crosses a border."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            weight = QuantizedWeight.from_float(torch.randn(40, 64), 8)
            self.embedding, self.head = QuantizedEmbedding(weight), QuantizedLinear(weight)

        def forward(self, ids):
            return self.head(torch.cumsum(self.embedding(ids), dim=1))

    exported = export(Model(), (torch.zeros(1, 3, dtype=torch.long),))
    assert [[n.op for n in d.graph.nodes] for d in exported.delegates] == [
        ["aten.embedding.default"],
        ["aten.linear.default"],
    ]
    assert schemes(exported) == ["r4b8", "r4b8"] and len(exported.program._named_data.pte_data) == 1
    assert exported.cpu_operators() == ["aten::cumsum"]


def torchao_model(kind, mapping=MappingType.SYMMETRIC):
    torch.manual_seed(0)
    config = {
        "int8": IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0), mapping_type=mapping),
        **{
            f"int4g{g}": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(g), mapping_type=mapping)
            for g in (32, 64, 128)
        },
    }[kind]
    model = nn.Sequential(nn.Embedding(24, 128), nn.Linear(128, 20))
    quantize_(model, config)
    quantize_(model, config, lambda module, name: isinstance(module, nn.Embedding))
    return model


@pytest.mark.parametrize(
    ("kind", "mapping", "scheme", "tolerance"),
    [
        ("int8", MappingType.SYMMETRIC, "r4b8", 1e-5),
        ("int4g32", MappingType.SYMMETRIC, "r4b4g32s", 3e-3),
        ("int4g64", MappingType.SYMMETRIC, "r4b4g64s", 3e-3),
        ("int4g128", MappingType.SYMMETRIC, "r4b4g128s", 3e-3),
        ("int4g32", MappingType.ASYMMETRIC, "r4b4g32a", 1e-2),
        ("int4g128", MappingType.ASYMMETRIC, "r4b4g128a", 1e-2),
    ],
)
def test_torchao(kind, mapping, scheme, tolerance):
    exported = check(torchao_model(kind, mapping), [(torch.randint(0, 24, (1, 5)),)], tolerance=tolerance)
    assert exported.ops == ["aten.embedding.default", "aten.linear.default"]
    assert schemes(exported) == [scheme, scheme]
    rounding = exported.partitioner.report().rounding
    assert all(1e-6 < error < 1e-3 for error in rounding.values()) and bool(rounding) == (kind != "int8"), rounding


def test_overflowing_scale_is_refused_with_a_reason():
    model = torchao_model("int4g32")[1:]
    with torch.no_grad():
        model[0].weight.scale.mul_(1e7)
    exported = check(model, [(torch.randn(2, 128),)])
    assert any("overflow" in reason for reason in exported.partitioner.report().refused_weights.values())
    assert "overflow" in str(exported.partitioner.report())
    assert not schemes(exported)


def test_other_uses_of_a_dequantised_weight_are_constants():
    """The weight's sums are also asked for: they are known at export, and the packed weight stays packed."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = QuantizedLinear(QuantizedWeight.from_float(torch.randn(8, 64), 4, 32))

        def forward(self, x):
            return self.linear(x), self.linear.weight.dequantize().sum(dim=1)

    exported = check(Model(), [(torch.randn(2, 64),)])
    assert schemes(exported) == ["r4b4g32a"]
    assert sorted(len(v.dims) for v in exported.values("constant")) == [1, 2]


def test_look_alike_is_not_taken():
    """uint8 values above 15 with a scale are no 4-bit weight."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("q", torch.arange(256, dtype=torch.uint8).view(8, 32))
            self.register_buffer("scale", torch.rand(8, 1))

        def forward(self, x):
            return nn.functional.linear(x, (self.q.to(torch.float32) - 8.0) * self.scale)

    exported = check(Model(), [(torch.randn(2, 32),)], tolerance=1e-4)
    assert not schemes(exported)
