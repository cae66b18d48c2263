"""Constants of an exported program: parameters, buffers, lifted tensors, and what can be computed from them alone."""

from __future__ import annotations

from typing import Any

import torch
from torch._export.utils import (
    get_buffer,
    get_lifted_tensor_constant,
    get_param,
    is_buffer,
    is_lifted_tensor_constant,
    is_param,
)
from torch.export import ExportedProgram
from torch.fx import Node

from .calls import meta, overload


class Constants:
    """Constant tensors of a program by node; folds subgraphs of constants on demand."""

    def __init__(self, program: ExportedProgram):
        self.program = program
        signature = program.graph_signature
        self.mutated = set(signature.buffers_to_mutate.values())
        self._cache: dict[Node, Any] = {}
        self._depends: dict[Node, bool] = {}

    def name(self, node: Node) -> str | None:
        """Fully qualified name of a parameter, buffer or lifted constant; None for anything else."""
        signature = self.program.graph_signature
        for table in (
            signature.inputs_to_parameters,
            signature.inputs_to_buffers,
            signature.inputs_to_lifted_tensor_constants,
        ):
            if node.op == "placeholder" and node.name in table:
                return table[node.name]
        return None

    def is_state(self, node: Node) -> bool:
        return self.program.graph_signature.inputs_to_buffers.get(node.name) in self.mutated

    def is_lifted(self, node: Node) -> bool:
        return node.op == "placeholder" and is_lifted_tensor_constant(self.program, node)

    def stored(self, node: Node) -> torch.Tensor | None:
        """The tensor of a parameter, buffer (state too) or lifted constant."""
        if not isinstance(node, Node) or node.op != "placeholder":
            return None
        for test, get in (
            (is_param, get_param),
            (is_buffer, get_buffer),
            (is_lifted_tensor_constant, get_lifted_tensor_constant),
        ):
            if test(self.program, node):
                tensor = get(self.program, node)
                return None if tensor is None else tensor.detach()
        return None

    def is_constant(self, node: Any) -> bool:
        """Whether a node's value is known at export: no input, state or size goes into it."""
        if not isinstance(node, Node):
            return not isinstance(node, torch.SymInt)
        if node not in self._depends:
            if node.op == "placeholder":
                known = self.name(node) is not None and not self.is_state(node)
            elif node.op == "call_function" and not node.is_impure():
                known = all(self.is_constant(n) for n in node.all_input_nodes)
            else:
                known = False
            self._depends[node] = known
        return self._depends[node]

    def has_weights(self, node: Node) -> bool:
        """Whether a constant node is computed from stored tensors (and not only from arange, full …)."""
        return node.op == "placeholder" or any(self.has_weights(n) for n in node.all_input_nodes)

    def scalar(self, node: Any) -> int | float | bool | None:
        """The number in a constant tensor without dimensions, or None."""
        value = meta(node)
        if (
            not isinstance(node, Node)
            or not isinstance(value, torch.Tensor)
            or value.dim()
            or not self.is_constant(node)
        ):
            return None
        return self.evaluate(node).item()

    @torch.no_grad()
    def evaluate(self, node: Any) -> Any:
        """The value of a constant node."""
        if not isinstance(node, Node):
            return node
        if node not in self._cache:
            if node.op == "placeholder":
                return self.stored(node)
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self.evaluate)
            result = overload(node)(*args, **kwargs)
            if not isinstance(result, torch.Tensor) or result.numel() > 1:
                return result  # large ones are cheap to make again, dear to keep
            self._cache[node] = result
        return self._cache[node]
