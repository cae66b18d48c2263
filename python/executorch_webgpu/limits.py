"""Which of WebGPU's limits a model needs, from its exported programs: the largest buffer that is bound whole.

Matrices of linears and embeddings are bound in parts where they are larger, so they need none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from executorch_webgpu.quantization import QuantizedWeight

# operator → the argument whose rows the runtime takes in parts
IN_PARTS = {torch.ops.aten.linear.default: 1, torch.ops.aten.embedding.default: 0}


def is_split(node: torch.fx.Node) -> bool:
    """Whether only operators that take its rows in parts use a constant."""
    return all(user.target in IN_PARTS and user.args[IN_PARTS[user.target]] is node for user in node.users)


def upper_bound(size: int | torch.SymInt, program: ExportedProgram) -> int:
    """The largest value of a dimension whose symbols are bounded."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    bounds = {s: program.range_constraints[s].upper for s in expression.free_symbols if s in program.range_constraints}
    return int(expression.subs(bounds))


def tensor_bytes(value: torch.Tensor, program: ExportedProgram) -> int:
    """Bytes on the GPU at the upper bounds: bool is stored as u32, i64 computed as i32."""
    width = 4 if value.dtype in (torch.bool, torch.int64) else value.element_size()
    return width * math.prod(upper_bound(size, program) for size in value.shape)


def buffer_bytes(module: nn.Module, program: ExportedProgram) -> Iterator[int]:
    """Sizes of inputs, state, constants that are bound whole and of everything that is computed from inputs.

    What is computed from constants alone, such as a dequantised weight, never exists at run time.
    """
    quantised = {n for n, m in module.named_modules(remove_duplicate=False) if isinstance(m, QuantizedWeight)}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    state = program.graph_signature.buffers_to_mutate.values()
    live = set()
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder":
            spec = specs[node.name]
            if spec.kind == InputKind.USER_INPUT or spec.target in state:
                live.add(node)
            elif spec.target.rpartition(".")[0] in quantised or is_split(node):
                continue
        elif live.isdisjoint(node.all_input_nodes):
            continue
        else:
            live.add(node)
        if isinstance(value, torch.Tensor):
            yield tensor_bytes(value, program)


def limits(modules: dict[str, nn.Module], programs: dict[str, ExportedProgram]) -> dict[str, int]:
    """The limits by WebGPU's names; a device with less has to split buffers, or cannot run the model."""
    sizes = (size for name, program in programs.items() for size in buffer_bytes(modules[name], program))
    return {"maxStorageBufferBindingSize": max(sizes, default=0)}
