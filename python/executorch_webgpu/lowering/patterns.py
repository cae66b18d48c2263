"""Quantised weights in a graph: finds the dequantisation before a linear or an embedding and takes it apart.

(a) executorch_webgpu.quantization: (q − 8) · scale, q · scale + min, q · scale, in plain operators
(b) torchao: torchao.dequantize_affine of int4 values with groups (symmetric or not) and int8 per row
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node

from executorch_webgpu.quantization import QuantizedWeight, r4
from executorch_webgpu.quantization.modules import to_f16

from .calls import Call, op_name
from .constants import Constants

TORCHAO = "torchao.dequantize_affine.default"
# Operators whose weight may be quantised, and the argument it is.
CONSUMERS = {"aten.linear.default": "weight", "aten.embedding.default": "weight"}

# They move or convert bytes and keep the values.
_RESHAPES = {
    *("view_copy", "view", "reshape", "_unsafe_view", "unsqueeze_copy", "unsqueeze", "squeeze_copy", "squeeze"),
    *("_to_copy", "to", "_to_dim_order_copy", "clone", "_clone_dim_order", "alias_copy", "alias"),
    *("lift_fresh_copy", "detach_copy", "expand_copy", "expand", "slice_copy", "slice"),
}


class Refused(ValueError):
    """A dequantisation that cannot become a packed weight; the message says why."""


@dataclass
class Match:
    """A quantised weight: the nodes of its dequantisation, the stored q it comes from, and its parts (None where the
    program holds no values: partitioners see fake tensors)."""

    nodes: list[Node]
    source: Node  # the placeholder of q
    weight: QuantizedWeight | None
    rounding_error: float = 0.0


def dequantisation_nodes(weight: Node) -> list[Node]:
    """All operator nodes that a weight is computed by."""
    found, pending = {}, [weight]
    while pending:
        node = pending.pop()
        if node.op == "call_function" and node not in found:
            found[node] = None
            pending += node.all_input_nodes
    return list(found)


def stored_inputs(weight: Node, constants: Constants) -> list[str]:
    """Names of the constants that a weight is computed from."""
    leaves = {n for node in dequantisation_nodes(weight) for n in node.all_input_nodes if n.op == "placeholder"}
    return [name for leaf in leaves if (name := constants.name(leaf))]


def match(weight: Node, constants: Constants, check: bool = True) -> Match | None:
    """Takes a weight apart. None: it is not a dequantisation. Raises Refused where it is one that we cannot hold.

    check: compare with the graph's own result, so that a look-alike is never taken.
    """
    if not isinstance(weight, Node) or weight.op != "call_function" or not constants.is_constant(weight):
        return None
    parts = _torchao(weight, constants) if op_name(weight) == TORCHAO else _plain(weight, constants)
    if parts is None:
        return None
    source, q, scale, minimum = parts
    bits = 8 if q.dtype == torch.int8 else 4
    if reason := r4.why_not(q.shape[0], q.shape[1], bits, 0 if bits == 8 else q.shape[1] // scale.shape[-1]):
        raise Refused(reason)
    if isinstance(q, FakeTensor):
        return Match(dequantisation_nodes(weight), source, None)
    error = 0.0
    if bits == 4:
        try:
            scale, error = to_f16(scale, "a scale")
            if minimum is not None:
                minimum, minimum_error = to_f16(minimum, "a minimum")
                error = max(error, minimum_error)
        except OverflowError as overflow:
            raise Refused(f"quantisation constants overflow: {overflow}") from overflow
    packed = QuantizedWeight(q, scale.float() if bits == 8 else scale, minimum)
    if check:
        _check_equal(constants.evaluate(weight), packed, error)
    return Match(dequantisation_nodes(weight), source, packed, error)


def _check_equal(expected: torch.Tensor, packed: QuantizedWeight, error: float) -> None:
    if expected.shape != packed.shape or expected.dtype != torch.float32:
        raise Refused(f"the dequantised weight is {expected.dtype} {tuple(expected.shape)}, q is {tuple(packed.shape)}")
    # |w| is made of two terms up to 15 steps and a minimum, each with the relative error of its constant.
    span = 16 * packed.scale.float().abs().max() + (0 if packed.minimum is None else packed.minimum.float().abs().max())
    difference = float((packed.dequantize() - expected).abs().max())
    if difference > float(span) * (2 * error + 1e-6):
        raise Refused(f"what looks like a dequantisation differs from it by {difference:g}")


def _strip(node: Node) -> Node:
    while isinstance(node, Node) and node.op == "call_function" and op_name(node).split(".")[1] in _RESHAPES:
        node = node.args[0]
    return node


def _operation(node: Node) -> str:
    name = op_name(node).split(".") if isinstance(node, Node) and node.op == "call_function" else []
    return name[1] if len(name) == 3 else ""


def _plain(weight: Node, constants: Constants):
    node, minimum = _strip(weight), None
    if _operation(node) == "add":
        node, minimum = _strip(node.args[0]), constants.evaluate(_strip(node.args[1]))
    if _operation(node) != "mul":
        return None
    values, scale = _strip(node.args[0]), constants.evaluate(_strip(node.args[1]))
    offset: float | None = 0.0
    if _operation(values) == "sub":
        offset, values = _number(values.args[1], constants), _strip(values.args[0])
    q = constants.stored(values)
    if q is None or q.dtype not in (torch.uint8, torch.int8) or not isinstance(scale, torch.Tensor) or q.dim() != 2:
        return None
    n, k = q.shape
    if q.dtype == torch.int8:
        ok = minimum is None and offset == 0 and scale.numel() == n
        return (values, q, scale.reshape(n), None) if ok else None
    if scale.numel() % n or (k * n) % scale.numel():
        return None
    if minimum is not None and (not isinstance(minimum, torch.Tensor) or minimum.numel() != scale.numel()):
        return None
    if not isinstance(q, FakeTensor) and (offset != (8 if minimum is None else 0) or int(q.max()) > 15):
        return None
    return values, q, scale.reshape(n, -1), None if minimum is None else minimum.reshape(n, -1)


def _number(value, constants: Constants) -> float | None:
    """A constant number, given as such or as a tensor of one element; NaN where it is not known."""
    if isinstance(value, Node):
        value = constants.evaluate(value)
    if isinstance(value, FakeTensor):
        return float("nan")
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 else None
    return float(value)


def _torchao(weight: Node, constants: Constants):
    call = Call(weight)
    source, block, low, high = call["input"], list(call["block_size"]), call["quant_min"], call["quant_max"]
    q, scale = constants.stored(source), constants.evaluate(call["scale"])
    zero = constants.evaluate(call["zero_point"])
    if q is None or q.dim() != 2 or q.dtype != torch.int8 or len(block) != 2 or block[0] != 1:
        raise Refused(f"torchao layout: {None if q is None else q.dtype}, block {block}")
    n, k = q.shape
    scale = scale.reshape(n, -1).float()
    zero = torch.zeros_like(scale) if zero is None else zero.reshape(n, -1).float()
    shifted = not isinstance(zero, FakeTensor) and bool(zero.any())
    if low is not None and (low, high) == (-8, 7):
        q4 = (q.to(torch.int16) + 8).to(torch.uint8)
        return source, q4, scale, -(zero + 8) * scale if shifted else None
    if (low is None or (low, high) in ((-128, 127), (-127, 127))) and block[1] == k:
        if shifted:
            raise Refused("int8 with a zero point: only symmetric int8 is supported")
        return source, q, scale.reshape(n), None
    raise Refused(f"torchao values in {low} … {high} with block {block}: only int4 groups and int8 rows are supported")
