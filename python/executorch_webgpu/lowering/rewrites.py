"""Operators that the payload expresses by others: each is one entry here.

`into` is the listed operator whose dtypes and rank apply. `emit(call, lowering)` adds nodes and returns the value, or
for an operator with several results the list of values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from .calls import Call

if TYPE_CHECKING:
    from .serialize import Lowering


@dataclass(frozen=True)
class Rewrite:
    into: str
    emit: Callable[[Call, Lowering], Any]
    why_not: Callable[[Call], str | None] = lambda call: None


def _split(call: Call, lowering: Lowering) -> list[int]:
    results, start = [], 0
    for i, (size, out) in enumerate(zip(_split_sizes(call), call.outputs, strict=True)):
        dim = call["dim"] % call.value("self").dim()
        results.append(
            lowering.emit(
                "aten.slice_copy.Tensor", [call["self"], dim, start, start + size, 1], out, f"{call.node.name}_{i}"
            )
        )
        start = start + size
    return results


def _split_sizes(call: Call) -> list[Any]:
    dim = call["dim"] % call.value("self").dim()
    return [out.shape[dim] for out in call.outputs]


def _unbind(call: Call, lowering: Lowering) -> list[int]:
    dim = call["dim"] % call.value("self").dim()
    return [
        lowering.emit("aten.select_copy.int", [call["self"], dim, i], out, f"{call.node.name}_{i}")
        for i, out in enumerate(call.outputs)
    ]


def _permute(order: Callable[[Call], list[int]]):
    def emit(call: Call, lowering: Lowering) -> int:
        return lowering.emit("aten.permute_copy.default", [call["self"], order(call)], call.outputs[0], call.node.name)

    return emit


def _swap(call: Call) -> list[int]:
    rank = call.value("self").dim()
    order = list(range(rank))
    if rank:
        a, b = call["dim0"] % rank, call["dim1"] % rank
        order[a], order[b] = order[b], order[a]
    return order


def _squeeze(call: Call, lowering: Lowering) -> int:
    """squeeze of one dimension or of all: a view, whose result's shape says everything."""
    out = call.outputs[0]
    return lowering.emit("aten.view_copy.default", [call["self"], list(out.shape)], out, call.node.name)


def _square(call: Call, lowering: Lowering) -> int:
    return lowering.emit("aten.mul.Tensor", [call["self"], call["self"]], call.outputs[0], call.node.name)


def _reverse_subtract(call: Call, lowering: Lowering) -> int:
    """other − alpha · self, as self · (−alpha) + other."""
    out = call.outputs[0]
    scaled = lowering.emit("aten.mul.Scalar", [call["self"], -call["alpha"]], out, call.node.name + "_scaled")
    return lowering.emit("aten.add.Scalar", [lowering.reference(scaled), call["other"], 1], out, call.node.name)


def _reduce_all(into: str):
    def emit(call: Call, lowering: Lowering) -> int:
        dims = list(range(call.value("self").dim()))
        return lowering.emit(into, [call["self"], dims, False, None], call.outputs[0], call.node.name)

    return emit


def _keeps_dtype(call: Call) -> str | None:
    if call.value("self").dtype != call.outputs[0].dtype:
        return "the result has another dtype"
    return "a scalar" if call.value("self").dim() == 0 else None


def _filled(value: float):
    def emit(call: Call, lowering: Lowering) -> int:
        out = call.outputs[0]
        number = value if out.dtype.is_floating_point else bool(value) if out.dtype == torch.bool else int(value)
        dtype = lowering.dtype_arg(out.dtype)
        return lowering.emit(
            "aten.full.default", [list(out.shape), number, dtype, None, None, None], out, call.node.name
        )

    return emit


SDPA = "aten.scaled_dot_product_attention.default"
# Of the GPU's attention kernels.
_HEAD_MULTIPLE = 4
_LARGEST_HEAD = 256


def needs_padded_heads(call: Call) -> bool:
    size = call.value("query").shape[-1]
    return isinstance(size, int) and size % _HEAD_MULTIPLE != 0


def attend_padded(call: Call, lowering: Lowering) -> int:
    """Attention over heads of any size: zeros behind query and key leave the products as they are, and those behind
    value come back as zeros, which are cut off."""
    size, name = call.value("query").shape[-1], call.node.name
    by = -size % _HEAD_MULTIPLE
    padded = {
        key: lowering.emit(
            "aten.constant_pad_nd.default", [call[key], [0, by], 0.0], F.pad(call.value(key), (0, by)), f"{name}_{key}"
        )
        for key in ("query", "key", "value")
    }
    arguments = dict(call.args) | {key: lowering.reference(value) for key, value in padded.items()}
    arguments["scale"] = size**-0.5 if call["scale"] is None else call["scale"]
    whole = lowering.emit(SDPA, list(arguments.values()), F.pad(call.outputs[0], (0, by)), f"{name}_padded")
    return lowering.emit("aten.slice_copy.Tensor", [lowering.reference(whole), 3, 0, size, 1], call.outputs[0], name)


def needs_products(call: Call) -> bool:
    return call.value("query").shape[-1] > _LARGEST_HEAD


def attend_by_products(call: Call, lowering: Lowering) -> int:
    """Attention over larger heads than the kernels take, as two products with a softmax between them. Query heads that
    share keys are rows of one product."""
    query, key, name = call.value("query"), call.value("key"), call.node.name
    batch, heads, rows, size = query.shape
    groups, length = key.shape[1], key.shape[2]
    shared = [batch, groups, heads // groups * rows]

    def emit(op: str, arguments: list[Any], shape: list[Any], part: str, dtype=torch.float32):
        out = query.new_empty(shape, dtype=dtype)
        return lowering.reference(lowering.emit(op, arguments, out, f"{name}_{part}"))

    def view(x: Any, shape: list[Any], part: str):
        return emit("aten.view_copy.default", [x, shape], shape, part) if heads != groups else x

    def product(a: Any, b: Any, columns: Any, part: str):
        return emit("aten.matmul.default", [a, b], [*shared, columns], part)

    turned = emit("aten.permute_copy.default", [call["key"], [0, 1, 3, 2]], [batch, groups, size, length], "keys")
    scores = product(view(call["query"], [*shared, size], "rows"), turned, length, "products")
    whole = [batch, heads, rows, length]
    scores = view(scores, whole, "heads")
    scale = size**-0.5 if call["scale"] is None else call["scale"]
    scores = emit("aten.mul.Scalar", [scores, scale], whole, "scores")
    mask = call["attn_mask"]
    if call["is_causal"]:
        fill = [lowering.dtype_arg(torch.int64), None, None, None]
        at = [
            emit("aten.arange.start_step", [0, count, 1, *fill], [count], part, torch.int64)
            for count, part in ((length, "at_key"), (rows, "at_row"))
        ]
        at[1] = emit("aten.unsqueeze_copy.default", [at[1], 1], [rows, 1], "at_column", torch.int64)
        mask = emit("aten.le.Tensor", at, [rows, length], "causal", torch.bool)
    if call["is_causal"] or (mask is not None and call.value("attn_mask").dtype == torch.bool):
        fill = [lowering.dtype_arg(torch.float32), None, None, None]
        hidden = emit("aten.full.default", [[1], float("-inf"), *fill], [1], "hidden")
        scores = emit("aten.where.self", [mask, scores, hidden], whole, "masked")
    elif mask is not None:
        scores = emit("aten.add.Tensor", [scores, mask, 1], whole, "masked")
    weights = emit("aten.softmax.int", [scores, -1, None], whole, "weights")
    if heads == groups:
        return lowering.emit("aten.matmul.default", [weights, call["value"]], call.outputs[0], name)
    sums = product(view(weights, [*shared, length], "shares"), call["value"], size, "sums")
    return lowering.emit("aten.view_copy.default", [sums, list(call.outputs[0].shape)], call.outputs[0], name)


_ZEROS, _ONES = _filled(0.0), _filled(1.0)

REWRITES: dict[str, Rewrite] = {
    "aten.split_with_sizes_copy.default": Rewrite("aten.slice_copy.Tensor", _split),
    "aten.split_copy.Tensor": Rewrite("aten.slice_copy.Tensor", _split),
    "aten.unbind_copy.int": Rewrite("aten.select_copy.int", _unbind),
    "aten.t_copy.default": Rewrite(
        "aten.permute_copy.default", _permute(lambda c: list(reversed(range(c.value("self").dim()))))
    ),
    "aten.transpose_copy.int": Rewrite("aten.permute_copy.default", _permute(_swap)),
    "aten.squeeze_copy.dim": Rewrite("aten.view_copy.default", _squeeze),
    "aten.squeeze_copy.default": Rewrite("aten.view_copy.default", _squeeze),
    "aten.square.default": Rewrite("aten.mul.Tensor", _square),
    "aten.rsub.Scalar": Rewrite("aten.mul.Scalar", _reverse_subtract, _keeps_dtype),
    "aten.sum.default": Rewrite("aten.sum.dim_IntList", _reduce_all("aten.sum.dim_IntList"), _keeps_dtype),
    "aten.mean.default": Rewrite("aten.mean.dim", _reduce_all("aten.mean.dim"), _keeps_dtype),
    "aten.zeros_like.default": Rewrite("aten.full.default", _ZEROS),
    "aten.zeros.default": Rewrite("aten.full.default", _ZEROS),
    "aten.ones_like.default": Rewrite("aten.full.default", _ONES),
    "aten.ones.default": Rewrite("aten.full.default", _ONES),
}
