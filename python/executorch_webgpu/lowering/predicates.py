"""Whether a call can be delegated: operators.yaml first, then a cheap predicate per operator, beside what lowers it.

Every predicate returns why not, or None. They work on exported (ATen) and edge graphs alike, since operators
that are to be kept whole are chosen before the edge graph exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from executorch_webgpu.operators import load_operators

from . import rewrites, symbols
from .calls import Call, meta
from .payload import DTYPES

Predicate = Callable[[Call], "str | None"]
_PREDICATES: dict[str, Predicate] = {}


def predicate(*operators: str) -> Callable[[Predicate], Predicate]:
    def register(function: Predicate) -> Predicate:
        for name in operators:
            if name in _PREDICATES:
                raise ValueError(f"two predicates for {name}")
            _PREDICATES[name] = function
        return function

    return register


def why_not(call: Call) -> str | None:
    """Why a call cannot be delegated, or None."""
    if call.schema is None:
        return "not an operator"
    try:
        if call.op in rewrites.REWRITES:
            rewrite = rewrites.REWRITES[call.op]
            return _by_list(call, load_operators()[rewrite.into]) or rewrite.why_not(call)
        listed = load_operators().get(call.op)
        if listed is None:
            return "not in operators.yaml"
        return _by_list(call, listed) or (_PREDICATES[call.op](call) if call.op in _PREDICATES else None)
    except GuardOnDataDependentSymNode:
        return "whether it is supported depends on a size that is only known at run time"


def _by_list(call: Call, listed) -> str | None:
    tensors = [(name, value) for name, value, _ in call.tensors()]
    used = call.used_outputs() if len(call.outputs) > 1 else {0}
    tensors += [(f"result {i}", value) for i, value in enumerate(call.outputs) if i in used]
    for name, value in tensors:
        if not isinstance(value, torch.Tensor):
            return f"{name} is not a tensor"
        allowed = listed.arg_dtypes.get(name, listed.dtypes)
        dtype = DTYPES.get(value.dtype, str(value.dtype)).rstrip("_")
        if dtype not in allowed and not (name == "indices" or name == "index"):
            return f"{name} is {dtype}; supported: {', '.join(sorted(allowed))}"
        if value.dim() > listed.max_rank:
            return f"{name} has rank {value.dim()}; supported up to {listed.max_rank}"
        if value.layout != torch.strided or value.is_complex():
            return f"{name} is not a dense real tensor"
        for size in value.shape:
            if isinstance(size, torch.SymInt) and (reason := symbols.why_not(size)):
                return reason
    for name, arg in call.args.items():
        for item in arg if isinstance(arg, (list, tuple)) else [arg]:
            value = meta(item)
            if isinstance(value, (torch.SymFloat, torch.SymBool)):
                return f"{name} is a {type(value).__name__}"
            if isinstance(value, torch.SymInt) and (reason := symbols.why_not(value)):
                return f"{name}: {reason}"
    return None


def _rank(call: Call, name: str) -> int:
    return call.value(name).dim()


def _same_dtypes(call: Call) -> str | None:
    """Tensors with dimensions and the result have one dtype: the kernels do not promote."""
    dtypes = {value.dtype for _, value, _ in call.tensors() if value.dim()} | {call.outputs[0].dtype}
    if len(dtypes) > 1 and any(value.dim() for _, value, _ in call.tensors()):
        return "mixed dtypes: " + ", ".join(sorted(DTYPES.get(d, str(d)) for d in dtypes))
    every = {value.dtype for _, value, _ in call.tensors()}
    if len(every) > 1 and call.outputs[0].dtype not in every:
        return "mixed dtypes: " + ", ".join(sorted(DTYPES.get(d, str(d)) for d in every))
    return None


_ARITHMETIC = [f"aten.{op}.{overload}" for op in ("add", "sub", "mul", "div") for overload in ("Tensor", "Scalar")]
predicate(
    *_ARITHMETIC,
    "aten.pow.Tensor_Scalar",
    "aten.pow.Tensor_Tensor",
    "aten.minimum.default",
    "aten.maximum.default",
    "aten.cat.default",
    "aten.copy.default",
    "aten.slice_scatter.default",
    "aten.clamp.default",
)(_same_dtypes)


@predicate(*[f"aten.{op}.{kind}" for op in ("eq", "ne", "lt", "le", "gt", "ge") for kind in ("Tensor", "Scalar")])
def _comparison(call: Call) -> str | None:
    dtypes = {value.dtype for _, value, _ in call.tensors() if value.dim()}
    return "mixed dtypes" if len(dtypes) > 1 else None


@predicate("aten.where.self")
def _where(call: Call) -> str | None:
    if call.value("condition").dtype != torch.bool:
        return "the condition is not bool"
    if len({call.value(n).dtype for n in ("self", "other")} | {call.outputs[0].dtype}) > 1:
        return "mixed dtypes"
    return None


@predicate("aten.clone.default", "dim_order_ops._clone_dim_order.default", "dim_order_ops._to_dim_order_copy.default")
def _default_order(call: Call) -> str | None:
    order = call.args.get("dim_order")
    if order is not None and list(order) != list(range(len(order))):
        return f"dim order {list(order)}: only the default order is supported"
    if call.args.get("memory_format") not in (None, torch.contiguous_format, torch.preserve_format):
        return f"memory format {call['memory_format']}"
    return None


@predicate("aten.linear.default")
def _linear(call: Call) -> str | None:
    if _rank(call, "input") < 2:
        return "the input has one dimension"
    return None if _rank(call, "weight") == 2 else "the weight is not a matrix"


@predicate("aten.addmm.default")
def _addmm(call: Call) -> str | None:
    return None if call["alpha"] == 1 and call["beta"] == 1 else "alpha or beta is not 1"


@predicate("aten.matmul.default")
def _matmul(call: Call) -> str | None:
    a, b = call.shape("self"), call.shape("other")
    if len(a) < 2 or len(b) < 2:
        return "a vector"
    if len(b) > 2 and (len(a) != len(b) or list(a[:-2]) != list(b[:-2])):
        return "batch dimensions differ"
    return None


@predicate("aten.rms_norm.default", "aten.layer_norm.default", "aten.native_layer_norm.default")
def _norm(call: Call) -> str | None:
    if len(call["normalized_shape"]) != 1:
        return "more than one normalised dimension"
    return _first_output_only(call)


@predicate("aten._native_batch_norm_legit_no_training.default")
def _first_output_only(call: Call) -> str | None:
    return "its statistics are used" if len(call.outputs) > 1 and call.used_outputs() - {0} else None


@predicate("aten.scaled_dot_product_attention.default")
def _sdpa(call: Call) -> str | None:
    if any(_rank(call, name) != 4 for name in ("query", "key", "value")):
        return "query, key and value must have 4 dimensions"
    if call["dropout_p"] != 0:
        return "dropout"
    query, key, value = (call.shape(name) for name in ("query", "key", "value"))
    if query[-1] != value[-1]:
        return "value's head size differs"
    fixed = all(isinstance(size, int) for size in (query[1], query[3], key[1]))
    return None if fixed else "heads or their size are only known at run time"


@predicate("aten.sum.dim_IntList", "aten.mean.dim")
def _reduce(call: Call) -> str | None:
    if call.value("self").dtype != call.outputs[0].dtype:
        return "the result has another dtype"
    return "a scalar" if _rank(call, "self") == 0 else None


@predicate("aten.argmax.default")
def _argmax(call: Call) -> str | None:
    if call["dim"] is None:
        return "over all dimensions"
    return None if call.value("self").dtype == torch.float32 else "only f32 is supported"


@predicate("aten.softmax.int", "aten._softmax.default", "aten._log_softmax.default")
def _softmax(call: Call) -> str | None:
    if call.args.get("dtype") not in (None, torch.float32) or call.args.get("half_to_float"):
        return "converts its dtype"
    return None


@predicate("aten.convolution.default")
def _convolution(call: Call) -> str | None:
    if call["transposed"]:
        return "transposed"
    return None if _rank(call, "input") in (3, 4) else f"{_rank(call, 'input') - 2} spatial dimensions"


@predicate("aten.max_pool2d.default", "aten.avg_pool2d.default")
def _pool(call: Call) -> str | None:
    if call["ceil_mode"]:
        return "ceil_mode"
    return None if _rank(call, "self") == 4 else "the input must have 4 dimensions"


@predicate("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default")
def _adaptive_pool(call: Call) -> str | None:
    return None if _rank(call, "self") == 4 else "the input must have 4 dimensions"


def _one_index(indices: Any) -> str | None:
    given = [meta(i) for i in indices if i is not None]
    if len(given) != 1:
        return f"{len(given)} index tensors; supported: 1"
    return None if given[0].dtype in (torch.int64, torch.int32) else f"indices are {given[0].dtype}"


@predicate("aten.index.Tensor")
def _index(call: Call) -> str | None:
    return _one_index(call["indices"])


@predicate("aten.index_select.default")
def _index_select(call: Call) -> str | None:
    return "a scalar" if _rank(call, "self") == 0 else None


@predicate("aten.index_put.default")
def _index_put(call: Call) -> str | None:
    if call["accumulate"]:
        return "accumulates"
    return _one_index(call["indices"]) or (
        "several dimensions of indices" if max(meta(i).dim() for i in call["indices"] if i is not None) > 1 else None
    )


@predicate("aten.embedding.default")
def _embedding(call: Call) -> str | None:
    return None if _rank(call, "weight") == 2 else "the weight is not a matrix"


@predicate("aten.arange.start_step", "aten.full.default", "aten.full_like.default", "aten.scalar_tensor.default")
def _fill(call: Call) -> str | None:
    numbers = [call.args.get(n) for n in ("fill_value", "start", "end", "step", "s")]
    bad = next((n for n in map(meta, numbers) if not isinstance(n, (int, float, torch.SymInt, type(None)))), None)
    return f"a {type(bad).__name__} argument" if bad is not None else None
