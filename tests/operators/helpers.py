"""Runs small models on every device, tier and precision, with graph passes and without; compares with eager in float64.

What is promised about values: WGSL lets a compiler assume that there are no infinities and NaNs, and flush denormals.
So only this is relied on: copies move infinities and NaNs, masks of -inf work in softmax and attention.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from executorch_webgpu.lowering import reference
from executorch_webgpu.partitioner import WebGPUPartitioner
from executorch_webgpu.quantization import QuantizedEmbedding, QuantizedLinear
from executorch_webgpu.runtime import load
from export.helpers import Function
from export.make_fixtures import lower
from program_cache import cached
from torch import nn

TIERS = ["baseline", "subgroups"]
TOLERANCE = {"f32": 2e-5, "f16": 4e-3}
seen_operators: set[str] = set()  # of all programs that were compared


@dataclass(frozen=True)
class Run:
    device: str = "webgpu"
    tier: str = "subgroups"
    precision: str = "f32"  # on the CPU: of the caches
    disable_passes: str = ""
    wide: bool = False  # the kernels for large GPUs
    matrices: int = 0  # 8 or 16: subgroup matrices of that size, emulated
    binding: int = 0  # the most bytes that a buffer may be bound with, 0: the device's

    def session(self, path):
        if self.device == "cpu":
            return load(
                path,
                device="cpu",
                activations="exact",
                kv_cache=self.precision,
                threads=2,
                disable_passes=self.disable_passes,
            )
        return load(
            path,
            device="webgpu",
            max_tier="subgroup_matrix" if self.matrices else self.tier,
            emulate_matrices=self.matrices,
            precision=self.precision,
            disable_passes=self.disable_passes,
            wide_kernels=self.wide,
            max_binding_bytes=self.binding,
        )


GPU = [Run(tier="baseline"), Run()]
CPU = [Run("cpu")]
WITHOUT_PASSES = [Run(disable_passes="all"), Run("cpu", disable_passes="all")]
HALF = [Run(precision="f16")]
WIDE = [Run(wide=True), Run(precision="f16", wide=True)]
# Where kernels do not depend on the tier.
EVERYWHERE = [Run(), *CPU, *WITHOUT_PASSES]


def as_list(y):
    return list(y) if isinstance(y, (tuple, list)) else [y]


def in_double(model: nn.Module) -> nn.Module:
    """A copy that computes in float64, on the same (quantised) weights."""
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, QuantizedLinear):
                setattr(parent, name, _dense(child))
            elif isinstance(child, QuantizedEmbedding):
                setattr(parent, name, nn.Embedding.from_pretrained(child.weight.dequantize()))
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


def error_of(found: torch.Tensor, reference: torch.Tensor, each: bool) -> float:
    """The largest difference, relative to the element (each) or to the largest element, but at least to 1; infinite
    where shapes, integers, infinities or NaNs differ."""
    if found.shape != reference.shape or found.is_floating_point() != reference.is_floating_point():
        return float("inf")
    if not reference.is_floating_point():
        return 0.0 if found.dtype == reference.dtype and torch.equal(found, reference) else float("inf")
    found, finite = found.double(), reference.isfinite()
    if not torch.equal(found[~finite].nan_to_num(nan=0.5), reference[~finite].nan_to_num(nan=0.5)):
        return float("inf")
    found, reference = found[finite], reference[finite]
    if not reference.numel():
        return 0.0
    scale = reference.abs() if each else reference.abs().max()
    error = ((found - reference).abs() / scale.clamp(min=1)).max().item()
    return error if error == error else float("inf")


def exported(folder: Path, model: nn.Module, example: tuple, dynamic_shapes=None) -> Path:
    """The path of the model's program in this folder: one delegate, and no operator beside it."""

    def make() -> tuple[bytes, list[str]]:
        program = lower(model, example, dynamic_shapes, WebGPUPartitioner())
        plan = program.executorch_program.execution_plan[0]
        assert len(plan.delegates) == 1 and not plan.operators, [op.name for op in plan.operators]
        names = {node.op for d in reference.delegates(program) for node in d.graph.nodes}
        return program.buffer, sorted(names)

    buffer, names = cached(model, example, make)
    seen_operators.update(names)
    path = folder / "model.pte"
    path.write_bytes(buffer)
    return path


def check(
    tmp_path,
    model,
    calls: list[tuple],
    dynamic_shapes=None,
    example: tuple | None = None,
    runs: list[Run] = EVERYWHERE,
    tolerance: float | None = None,
    each: bool = False,
    max_dispatches: int | None = None,
) -> None:
    """One delegate, no operator of the program's own; every call in every run within the tolerance (see error_of)."""
    model = (model if isinstance(model, nn.Module) else Function(model)).eval()
    if isinstance(model, Function) and dynamic_shapes:
        dynamic_shapes = (dynamic_shapes,)  # one entry for *args
    references = [expected(model, call) for call in calls]
    path = exported(tmp_path, model, example or calls[0], dynamic_shapes)
    wrong = []
    for run in runs:
        session = run.session(path)
        for call, wanted in zip(calls, references, strict=True):
            found = session.forward(*call)
            assert len(found) == len(wanted)
            for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
                error = error_of(a, b, each)
                if error > (tolerance or TOLERANCE[run.precision]):
                    wrong.append(f"{run} {[tuple(x.shape) for x in call]}: output {i} of {tuple(b.shape)}: {error:.2e}")
            if max_dispatches is not None and run.device == "webgpu":
                assert session.last_stats["dispatches"] <= max_dispatches
    assert not wrong, "\n".join(wrong)


def check_gpu(tmp_path, model, calls, dynamic_shapes=None, example=None, tiers=TIERS, precisions=("f32",), **options):
    """check() on the GPU at these tiers and precisions, and on the CPU with passes and without."""
    runs = [Run(tier=tier, precision=precision) for precision in precisions for tier in tiers]
    check(tmp_path, model, calls, dynamic_shapes, example, [*runs, *CPU, WITHOUT_PASSES[1]], **options)
