"""One view of an operator call, whether it stands in an exported graph (ATen) or an edge graph."""

from __future__ import annotations

import operator
from functools import cached_property
from typing import Any

import torch
from torch.fx import Node

# Nodes on integers (sizes): they become expressions, not operators.
SYMBOLIC = {"aten.sym_size.int", "aten.sym_numel.default"}
_SYMBOLIC_PYTHON = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg}
# Statements about sizes, which hold or torch.export would have failed.
ASSERTIONS = {
    "aten._assert_scalar.default",
    "aten._assert_async.msg",
    "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
}


def overload(node: Node) -> Any:
    """The torch operator of a call: an edge operator wraps it."""
    return node.target if isinstance(node.target, torch._ops.OpOverload) else getattr(node.target, "_op", node.target)


def op_name(node: Node) -> str:
    """ "aten.linear.default"; for Python functions their name."""
    target = overload(node)
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return getattr(target, "__name__", str(target))


def meta(value: Any) -> Any:
    """What a node stands for (fake tensor, SymInt …); anything else is itself."""
    return value.meta.get("val") if isinstance(value, Node) else value


def is_getitem(node: Node) -> bool:
    return node.op == "call_function" and node.target is operator.getitem


def is_symbolic(node: Node) -> bool:
    """A node that computes an integer of sizes."""
    if node.op != "call_function" or not isinstance(meta(node), (int, torch.SymInt)) or isinstance(meta(node), bool):
        return False
    return op_name(node) in SYMBOLIC or node.target in _SYMBOLIC_PYTHON or is_getitem(node)


class Call:
    """A call with its arguments by schema: `call["bias"]` is an fx Node, a Python value, or the default."""

    def __init__(self, node: Node):
        self.node = node
        self.op = op_name(node)
        target = overload(node)
        self.schema = target._schema if isinstance(target, torch._ops.OpOverload) else None

    @cached_property
    def args(self) -> dict[str, Any]:
        """All arguments in the schema's order, keyword-only ones last, defaults filled in."""
        given = {}
        for position, argument in enumerate(a for a in self.schema.arguments if not a.kwarg_only):
            if position < len(self.node.args):
                given[argument.name] = self.node.args[position]
        given.update(self.node.kwargs)
        return {
            a.name: given.get(a.name, a.default_value)
            for a in sorted(self.schema.arguments, key=lambda a: a.kwarg_only)
        }

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def value(self, name: str) -> Any:
        """The argument's meta value (fake tensor, SymInt) or Python value."""
        return meta(self.args[name])

    def shape(self, name: str) -> torch.Size:
        return self.value(name).shape

    @property
    def outputs(self) -> list[torch.Tensor]:
        out = meta(self.node)
        return list(out) if isinstance(out, (tuple, list)) else [out]

    def tensors(self) -> list[tuple[str, torch.Tensor, Node]]:
        """(argument, fake tensor, node) of every tensor argument."""
        found = []
        for name, arg in self.args.items():
            for item in arg if isinstance(arg, (tuple, list)) else [arg]:
                if isinstance(meta(item), torch.Tensor):
                    found.append((name, meta(item), item))
        return found

    def used_outputs(self) -> set[int]:
        """Of an operator with several results: those that something reads."""
        return {u.args[1] for u in self.node.users if is_getitem(u) and u.users}
