"""Exports a model, runs its delegates by the reference interpreter and compares with eager."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from executorch_webgpu.lowering import payload, reference
from executorch_webgpu.partitioner import WebGPUPartitioner
from export.make_fixtures import lower
from torch import nn


@dataclass
class Exported:
    program: object
    partitioner: WebGPUPartitioner
    delegates: list[reference.ReferenceDelegate]

    @property
    def graph(self) -> payload.Graph:
        return self.delegates[0].graph

    @property
    def ops(self) -> list[str]:
        return [node.op for d in self.delegates for node in d.graph.nodes]

    def values(self, kind: str) -> list[payload.Value]:
        return [v for d in self.delegates for v in d.graph.values if v.kind == kind]

    def refusals(self) -> dict[str, str]:
        return {r.op: r.reason for r in self.partitioner.report().refusals}

    def cpu_operators(self) -> list[str]:
        return [op.name for plan in self.program.executorch_program.execution_plan for op in plan.operators]

    def run(self, inputs: list) -> list:
        """Runs a program that is one delegate call: its outputs need not come in the order of the program's."""
        (plan,) = self.program.executorch_program.execution_plan
        (call,) = [i.instr_args for i in plan.chains[0].instructions if type(i.instr_args).__name__ == "DelegateCall"]
        values = dict(zip(plan.inputs, inputs, strict=True))
        taken, given = len(self.graph.inputs), len(self.graph.outputs)
        assert len(call.args) == taken + given
        results = self.delegates[0].run([values[i] for i in call.args[:taken]])
        values.update(zip(call.args[taken:], results, strict=True))
        return [values[i] for i in plan.outputs]


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def export(model, example: tuple, dynamic_shapes=None, **options) -> Exported:
    if not isinstance(model, nn.Module):
        model = Function(model)
    if isinstance(model, Function) and dynamic_shapes:
        dynamic_shapes = (dynamic_shapes,)  # one entry for *args
    partitioner = WebGPUPartitioner(**options)
    program = lower(model, example, dynamic_shapes, partitioner)
    return Exported(program, partitioner, reference.delegates(program))


@torch.no_grad()
def check(
    model, calls: list[tuple], dynamic_shapes=None, example: tuple | None = None, tolerance: float = 1e-5, **options
):
    """Exports into one delegate and nothing else, and compares every call with eager on a model with the same state."""
    model = model if isinstance(model, nn.Module) else Function(model)
    model.eval()
    start = {name: buffer.clone() for name, buffer in model.named_buffers()}
    exported = export(model, example or calls[0], dynamic_shapes, **options)
    report = str(exported.partitioner.report())
    assert len(exported.delegates) == 1, report
    assert not exported.cpu_operators(), report
    for name, buffer in model.named_buffers():
        buffer.copy_(start[name])
    for call in calls:
        expected = model(*call)
        expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
        found = exported.run(list(call))
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            assert torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance), (a.double() - b).abs().max()
    return exported
