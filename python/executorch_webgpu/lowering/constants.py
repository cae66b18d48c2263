"""Constants of an exported program: parameters, buffers, lifted tensors, and what can be computed from them alone."""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from .calls import meta, overload


class Constants:
    """Constant tensors of a program by node; folds subgraphs of constants on demand."""

    def __init__(self, program: ExportedProgram):
        self.program = program
        signature = program.graph_signature
        self.mutated = set(signature.buffers_to_mutate.values())
        # The signature builds these anew at every access.
        self._buffers = dict(signature.inputs_to_buffers)
        self._lifted = dict(signature.inputs_to_lifted_tensor_constants)
        self._names = {**signature.inputs_to_parameters, **self._buffers, **self._lifted}
        self._cache: dict[Node, Any] = {}
        self._depends: dict[Node, bool] = {}

    def name(self, node: Node) -> str | None:
        """Fully qualified name of a parameter, buffer or lifted constant; None for anything else."""
        return self._names.get(node.name) if node.op == "placeholder" else None

    def is_state(self, node: Node) -> bool:
        return node.op == "placeholder" and self._buffers.get(node.name) in self.mutated

    def is_lifted(self, node: Node) -> bool:
        return node.op == "placeholder" and node.name in self._lifted

    def stored(self, node: Node) -> torch.Tensor | None:
        """The tensor of a parameter, buffer (state too) or lifted constant."""
        name = self.name(node) if isinstance(node, Node) else None
        if name is None:
            return None
        # Lifted constants and buffers that are not persistent are in `constants`, the rest in the state dict.
        tensor = self.program.constants.get(name) if node.name in self._lifted else self.program.state_dict.get(name)
        tensor = self.program.constants.get(name) if tensor is None else tensor
        return tensor.detach() if isinstance(tensor, torch.Tensor) else None

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
