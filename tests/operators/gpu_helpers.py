"""Runs one-operator models on the GPU and compares with PyTorch eager in float64, per tier of kernels."""

from __future__ import annotations

import copy

import torch
from executorch_webgpu.partitioner import WebGPUPartitioner
from executorch_webgpu.quantization import QuantizedLinear
from executorch_webgpu.runtime import load
from export.make_fixtures import lower
from torch import nn

TIERS = ["baseline", "subgroups"]
TOLERANCE = {"f32": 2e-5, "f16": 4e-3}


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def as_list(y):
    return list(y) if isinstance(y, (tuple, list)) else [y]


def in_double(model: nn.Module) -> nn.Module:
    """A copy that computes in float64, on the same (quantised) weights."""
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, QuantizedLinear):
                setattr(parent, name, _dense(child))
    return (_dense(model) if isinstance(model, QuantizedLinear) else model).double()


def _dense(layer: QuantizedLinear) -> nn.Linear:
    weight = layer.weight.dequantize()
    dense = nn.Linear(weight.shape[1], weight.shape[0], bias=layer.bias is not None)
    dense.weight.data = weight
    if layer.bias is not None:
        dense.bias.data = layer.bias.data
    return dense


@torch.no_grad()
def expected(model: nn.Module, call: tuple) -> list[torch.Tensor]:
    double = in_double(model)
    return as_list(double(*[a.double() if a.is_floating_point() else a for a in call]))


def check_gpu(
    tmp_path,
    model: nn.Module,
    calls: list[tuple],
    dynamic_shapes=None,
    example: tuple | None = None,
    tiers=TIERS,
    precisions=("f32",),
    tolerance: float | None = None,
    max_dispatches: int | None = None,
) -> None:
    """One delegate, no CPU operator; every call at every tier within the tolerance, relative to the largest value."""
    model = model.eval()
    if isinstance(model, Function) and dynamic_shapes:
        dynamic_shapes = (dynamic_shapes,)  # one entry for *args
    references = [expected(model, call) for call in calls]
    program = lower(model, example or calls[0], dynamic_shapes, WebGPUPartitioner())
    plan = program.executorch_program.execution_plan[0]
    assert len(plan.delegates) == 1 and not plan.operators, [op.name for op in plan.operators]
    path = tmp_path / "model.pte"
    path.write_bytes(program.buffer)
    for precision in precisions:
        for tier in tiers:
            session = load(path, device="webgpu", max_tier=tier, precision=precision)
            for call, reference in zip(calls, references, strict=True):
                found = session.forward(*call)
                assert len(found) == len(reference)
                for a, b in zip(found, reference, strict=True):
                    assert a.shape == b.shape, (a.shape, b.shape)
                    scale = max(1.0, b.abs().max().item()) if b.numel() else 1.0
                    error = (a.double() - b).abs().max().item() / scale if b.numel() else 0.0
                    what = f"{tier} {precision} {[tuple(x.shape) for x in call]}: error {error:.2e}"
                    assert error <= (tolerance or TOLERANCE[precision]), what
                if max_dispatches is not None:
                    assert session.last_stats["dispatches"] <= max_dispatches
