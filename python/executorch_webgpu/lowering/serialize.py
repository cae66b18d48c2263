"""Lowers a delegated program to a payload: inputs, constants and states become values, calls become nodes."""

from __future__ import annotations

import functools
import hashlib
import logging
import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node as FxNode

from executorch_webgpu.quantization import r4

from . import patterns, payload, rewrites
from .batch_norm import fold_batch_norms
from .calls import ASSERTIONS, Call, is_getitem, is_symbolic, meta, op_name
from .constants import Constants
from .symbols import ExprTable

_log = logging.getLogger(__name__)

EXPORTER = "executorch-webgpu 0.1.0"
ALIGNMENT = 256

# Copies that change nothing.
_NO_OPS = {
    "aten.alias_copy.default",
    "aten.clone.default",
    "dim_order_ops._clone_dim_order.default",
    "aten.lift_fresh_copy.default",
    "aten.detach_copy.default",
}
_CASTS = {"aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default"}
# Operators with a constant number as second operand: (overload on a scalar, overload with the operands swapped).
_SCALAR_FORMS = {
    "aten.add.Tensor": ("aten.add.Scalar", "aten.add.Scalar"),
    "aten.sub.Tensor": ("aten.sub.Scalar", None),
    "aten.mul.Tensor": ("aten.mul.Scalar", "aten.mul.Scalar"),
    "aten.div.Tensor": ("aten.div.Scalar", None),
    "aten.pow.Tensor_Tensor": ("aten.pow.Tensor_Scalar", None),
    "aten.eq.Tensor": ("aten.eq.Scalar", "aten.eq.Scalar"),
    "aten.ne.Tensor": ("aten.ne.Scalar", "aten.ne.Scalar"),
    "aten.lt.Tensor": ("aten.lt.Scalar", "aten.gt.Scalar"),
    "aten.le.Tensor": ("aten.le.Scalar", "aten.ge.Scalar"),
    "aten.gt.Tensor": ("aten.gt.Scalar", "aten.lt.Scalar"),
    "aten.ge.Tensor": ("aten.ge.Scalar", "aten.le.Scalar"),
}


# Operators that promote 0-d tensors to the dtype of the others; the kernels do not.
_PROMOTING = {*_SCALAR_FORMS, "aten.minimum.default", "aten.maximum.default", "aten.where.self"}


@dataclass
class NamedData:
    """Bytes of a constant under their key."""

    key: str
    tensor: torch.Tensor


@dataclass
class Reference:
    """A value of the payload, where `Lowering.emit` otherwise takes nodes and Python values."""

    value: int


@dataclass
class Lowered:
    graph: payload.Graph
    data: list[NamedData]


def lower(
    program: ExportedProgram,
    ranges: dict[str, tuple[int, int]] | None = None,
    ambiguous: set[str] | None = None,
    structure_only: bool = False,
) -> Lowered:
    """Lowers the program of a delegate.

    ranges: true (min, max) of symbols by name, where torch.export's own range has lost a minimum of 1.
    ambiguous: names that methods use for different constants: their keys get the content's hash.
    structure_only: quantised weights have keys, but no data.
    """
    return Lowering(program, ranges or {}, ambiguous or set(), structure_only).run()


class Lowering:
    def __init__(
        self,
        program: ExportedProgram,
        ranges: dict[str, tuple[int, int]],
        ambiguous: set[str],
        structure_only: bool = False,
    ):
        self.program = program
        self.structure_only = structure_only
        self.constants = Constants(program)
        self.ambiguous = ambiguous
        known = {str(s): (max(int(r.lower), 0), _upper(r)) for s, r in program.range_constraints.items()}
        self.exprs = ExprTable({**known, **ranges})
        self.graph = payload.Graph(exporter=EXPORTER, exprs=self.exprs.exprs, symbols=self.exprs.symbols)
        self.values: dict[FxNode, Any] = {}  # value id, list of value ids, or None
        self.data: dict[str, torch.Tensor] = {}
        self._by_content: dict[str, int] = {}
        self._quantized: dict[FxNode, int] = {}
        self._scheme_values: dict[str, int] = {}
        self.folded = fold_batch_norms(program.graph, self.constants)

    def run(self) -> Lowered:
        self._add_inputs()
        skipped = self._not_emitted()
        for node in self.program.graph.nodes:
            if node.op == "call_function" and node not in skipped:
                self._add_call(node)
        self._add_outputs()
        self.graph.data_digest = _digest_of_all(self.data)
        return Lowered(self.graph, [NamedData(key, tensor) for key, tensor in self.data.items()])

    # ---- inputs, outputs -----------------------------------------------------------------------------------------
    def _add_inputs(self) -> None:
        by_name = {n.name: n for n in self.program.graph.nodes if n.op == "placeholder"}
        inputs = [by_name[name] for name in self.program.graph_signature.user_inputs if name in by_name]
        self.exprs.bind_inputs([meta(node) for node in inputs])
        for node in inputs:
            value = meta(node)
            if isinstance(value, torch.Tensor):
                self.values[node] = self.new_value(node.name, value, "input")
                self.graph.inputs.append(payload.Input(self.values[node]))
            else:
                self.graph.inputs.append(payload.Input())
        for node in by_name.values():
            if self.constants.is_state(node):
                self._add_state(node)

    def _add_state(self, node: FxNode) -> None:
        name, tensor = self.constants.name(node), self.constants.stored(node)
        key = ""
        if tensor is not None and bool((tensor != 0).any()):
            key = self._store(name, tensor, name in self.ambiguous)
        self.values[node] = self.new_value(name, meta(node), "state", key)

    def _add_outputs(self) -> None:
        signature = self.program.graph_signature
        output = next(n for n in self.program.graph.nodes if n.op == "output")
        states = {self.constants.name(n): self.values[n] for n in self.values if n.op == "placeholder"}
        for node, spec in zip(output.args[0], signature.output_specs, strict=True):
            if spec.kind == torch.export.graph_signature.OutputKind.BUFFER_MUTATION:
                self.graph.mutations.append(payload.Mutation(states[spec.target], self.value_of(node)))
            elif isinstance(meta(node), torch.Tensor):
                self.graph.outputs.append(payload.Output(value=self._output_value(node)))
            else:
                self.graph.outputs.append(payload.Output(expr=self.exprs.add(meta(node))))

    def _output_value(self, node: FxNode) -> int:
        """Outputs are values of their own: a constant that leaves the graph is copied."""
        value = self.value_of(node)
        if self.graph.values[value].kind == "intermediate":
            return value
        return self.emit("aten.clone.default", [Reference(value), None], meta(node), f"{node.name}_out")

    def _not_emitted(self) -> set[FxNode]:
        """Nodes that become part of others: dequantisations, folded batch norms, sizes, assertions, constants."""
        skipped = set(self.folded.removed)
        for node in self.program.graph.nodes:
            if node.op != "call_function":
                continue
            if is_symbolic(node) or op_name(node) in ASSERTIONS:
                skipped.add(node)
            elif self.constants.is_constant(node) and self.constants.has_weights(node):
                skipped.add(node)  # evaluated when something reads it
            elif self.constants.scalar(node) is not None:
                skipped.add(node)
        return skipped

    # ---- values --------------------------------------------------------------------------------------------------
    def new_value(self, name: str, like: torch.Tensor, kind: str = "intermediate", key: str = "") -> int:
        dims = [self.exprs.add(size) for size in like.shape]
        self.graph.values.append(payload.Value(name, payload.DTYPES[like.dtype], dims, kind, key))
        return len(self.graph.values) - 1

    def reference(self, value: int) -> Reference:
        return Reference(value)

    def value_of(self, node: FxNode) -> int:
        """The value of a node; a constant gets one when it is first used."""
        if node not in self.values:
            name = self.constants.name(node)
            tensor = self.constants.evaluate(node)
            lifted = name is None or self.constants.is_lifted(node)
            self.values[node] = self._constant(None if lifted else name, tensor)
        return self.values[node]

    def _constant(self, name: str | None, tensor: torch.Tensor) -> int:
        """A plain constant. A tensor under two names (tied), and unnamed ones with equal content, are one value."""
        digest = _digest(tensor)
        if name:
            digest = f"{digest}@{tensor.data_ptr():x}"
        if digest not in self._by_content:
            name = name or f"constant.{digest}"
            key = self._store(name, tensor, name in self.ambiguous)
            self._by_content[digest] = self.new_value(name, tensor, "constant", key)
        return self._by_content[digest]

    def _store(self, key: str, tensor: torch.Tensor, ambiguous: bool = False) -> str:
        """Keeps bytes under a key; a key that is taken by other bytes gets the content's hash behind it."""
        tensor = tensor.detach().contiguous()
        if ambiguous or (key in self.data and not _equal_bytes(self.data[key], tensor)):
            key = f"{key}#{_digest(tensor)}"
        self.data[key] = tensor
        return key

    def _quantized_weight(self, node: FxNode) -> int | None:
        """The packed value of a weight that is a dequantisation, or None."""
        if node in self._quantized:
            return self._quantized[node]
        try:
            match = patterns.match(node, self.constants, check=False)
        except patterns.Refused as reason:
            _log.error("%s: the weight is stored in f32: %s", node.name, reason)
            return None
        if match is None:
            return None
        weight, name = match.weight, self.constants.name(match.source)
        offset, _ = r4.packed_bytes(*weight.shape, weight.bits, weight.group, weight.symmetric)
        scheme = payload.Quantization(weight.bits, weight.group, weight.symmetric, offset)
        key = f"{_without_leaf(name)}.{scheme.scheme}"
        if not self.structure_only:
            key = self._store(key, torch.from_numpy(weight.pack().data), name in self.ambiguous)
        if key not in self._scheme_values:
            value = self.new_value(_without_leaf(name), torch.empty(match.weight.shape, device="meta"), "constant", key)
            self.graph.values[value].quantization = scheme
            self._scheme_values[key] = value
        self._quantized[node] = self._scheme_values[key]
        return self._quantized[node]

    # ---- calls ---------------------------------------------------------------------------------------------------
    def _add_call(self, node: FxNode) -> None:
        if is_getitem(node):
            results = self.values[node.args[0]]
            self.values[node] = results[node.args[1]]
            return
        call = Call(node)
        if call.op in rewrites.REWRITES:
            self.values[node] = rewrites.REWRITES[call.op].emit(call, self)
        elif call.op == rewrites.SDPA and rewrites.needs_products(call):
            self.values[node] = rewrites.attend_by_products(call, self)
        elif call.op == rewrites.SDPA and rewrites.needs_padded_heads(call):
            self.values[node] = rewrites.attend_padded(call, self)
        elif call.op in _NO_OPS or _is_idle_cast(call):
            self.values[node] = self.value_of(node.args[0])
        else:
            self.values[node] = self._emit_call(call)

    def _emit_call(self, call: Call) -> Any:
        arguments = dict(call.args)
        op = self._scalar_form(call, arguments) or call.op
        if op in _PROMOTING:
            self._cast_numbers(call, arguments)
        weight = patterns.CONSUMERS.get(call.op)
        if weight:
            packed = self._quantized_weight(arguments[weight])
            if packed is not None:
                arguments[weight] = Reference(packed)
        if call.op == "aten.convolution.default" and call.node in self.folded.weights:
            new_weight, new_bias = self.folded.weights[call.node]
            names = [self.constants.name(call["weight"]), self.constants.name(call["bias"]) if call["bias"] else None]
            names[1] = names[1] or (names[0] and f"{_without_leaf(names[0])}.bias")
            arguments["weight"], arguments["bias"] = (
                Reference(self._constant(name and f"{name}.folded", tensor))
                for name, tensor in zip(names, (new_weight, new_bias), strict=True)
            )
        if call.op in ("aten.view_copy.default", "aten.expand_copy.default"):
            arguments["size"] = list(call.outputs[0].shape)  # without −1
        if "kernel_size" in arguments and not arguments.get("stride"):
            arguments["stride"] = arguments["kernel_size"]
        if "eps" in arguments and arguments["eps"] is None:
            arguments["eps"] = torch.finfo(torch.float32).eps
        outputs = self._emit(op, arguments, call, call.outputs, call.node.name)
        results = outputs if len(call.outputs) > 1 else outputs[0]
        for norm in self.folded.norms.get(call.node, ()):
            self.values[norm] = [outputs[0]] * 3
            for user in norm.users:
                self.values[user] = outputs[0]
        return results

    def _scalar_form(self, call: Call, arguments: dict[str, Any]) -> str | None:
        """Turns a 0-d constant operand into a number; returns the overload that takes it."""
        if call.op not in _SCALAR_FORMS:
            return None
        first, second = (n for n in arguments if n in ("self", "other", "exponent"))
        plain, swapped = _SCALAR_FORMS[call.op]
        number = self.constants.scalar(arguments[second])
        if number is None and swapped and arguments.get("alpha", 1) == 1:
            number = self.constants.scalar(arguments[first])
            if number is None:
                return None
            arguments[first], plain = arguments[second], swapped
        if number is None or call.value(first).dtype == torch.bool:
            return None
        kept = meta(arguments[first]).dtype
        if isinstance(number, float) and not kept.is_floating_point:
            return None
        arguments[second] = float(number) if kept.is_floating_point else number
        return plain

    def _cast_numbers(self, call: Call, arguments: dict[str, Any]) -> None:
        """Gives constants without dimensions the dtype that the operator computes in."""
        dtypes = [meta(a).dtype for n, a in arguments.items() if n != "condition" and isinstance(meta(a), torch.Tensor)]
        if not dtypes:
            return
        dtype = functools.reduce(torch.promote_types, dtypes)
        if call.outputs[0].dtype != torch.bool:
            dtype = call.outputs[0].dtype
        for name, value in arguments.items():
            if name != "condition" and isinstance(meta(value), torch.Tensor) and meta(value).dtype != dtype:
                if self.constants.scalar(value) is not None:
                    arguments[name] = Reference(self._constant(None, self.constants.evaluate(value).to(dtype)))

    def emit(self, op: str, arguments: list[Any], out: torch.Tensor, name: str) -> int:
        """Adds a node with arguments in the schema's order: nodes, References, numbers, lists. Returns its value."""
        schema = _schema(op)
        named = dict(zip([a.name for a in schema.arguments], arguments, strict=True))
        return self._emit(op, named, None, [out], name)[0]

    def dtype_arg(self, dtype: torch.dtype) -> torch.dtype:
        return dtype

    def _emit(
        self, op: str, arguments: dict[str, Any], call: Call | None, outs: list[torch.Tensor], name: str
    ) -> list[int]:
        schema = _schema(op) if call is None or op != call.op else call.schema
        ordered = sorted(schema.arguments, key=lambda a: a.kwarg_only)
        args = [self._arg(a, arguments.get(a.name, a.default_value)) for a in ordered]
        if self._computes_in_float(arguments, outs):
            args = [_as_double(self.exprs, a, arg) for a, arg in zip(ordered, args, strict=True)]
        outputs = [self.new_value(name if len(outs) == 1 else f"{name}_{i}", out) for i, out in enumerate(outs)]
        self.graph.nodes.append(payload.Node(op, args, outputs, name))
        return outputs

    def _computes_in_float(self, arguments: dict[str, Any], outs: list[torch.Tensor]) -> bool:
        for value in arguments.values():
            if isinstance(value, Reference):
                return payload.TORCH_DTYPES[self.graph.values[value.value].dtype].is_floating_point
            if isinstance(meta(value), torch.Tensor):
                return meta(value).dtype.is_floating_point
        return outs[0].dtype.is_floating_point

    def _arg(self, argument: Any, value: Any) -> payload.Arg:
        kind = str(argument.real_type)
        if kind.startswith("Optional["):
            kind = kind[len("Optional[") : -1]
        if value is None or isinstance(value, (torch.device, torch.layout, torch.memory_format)):
            return payload.Arg("none")
        if isinstance(value, torch.dtype):
            return payload.Arg("dtype", dtype=payload.DTYPES[value])
        if argument.name == "pin_memory":
            return payload.Arg("none")
        if kind.startswith("List["):
            if not isinstance(value, (list, tuple)):
                value = [value] * (argument.N or 1)
            return self._list_arg(kind, list(value))
        if isinstance(value, str):
            return payload.Arg("string_", text=value)
        if isinstance(value, Reference) or isinstance(meta(value), torch.Tensor):
            return payload.Arg("value", ids=[self._id(value)])
        number = meta(value)
        if isinstance(number, bool):
            return payload.Arg("bool_", flags=[number])
        if isinstance(number, float) or (kind == "float" and isinstance(number, int)):
            return payload.Arg("double_", numbers=[float(number)])
        return payload.Arg("int_", ids=[self.exprs.add(number)])

    def _list_arg(self, kind: str, items: list[Any]) -> payload.Arg:
        if "Tensor" in kind:
            return payload.Arg("values", ids=[-1 if item is None else self._id(item) for item in items])
        if "bool" in kind:
            return payload.Arg("bools", flags=items)
        if "float" in kind:
            return payload.Arg("doubles", numbers=[float(item) for item in items])
        return payload.Arg("ints", ids=[self.exprs.add(meta(item)) for item in items])

    def _id(self, value: FxNode | Reference) -> int:
        return value.value if isinstance(value, Reference) else self.value_of(value)


def _as_double(exprs: ExprTable, argument: Any, arg: payload.Arg) -> payload.Arg:
    """A constant number beside f32 tensors is a double, however it was written (alpha stays as it is)."""
    is_number = str(argument.real_type) in ("number", "Optional[number]") and argument.name != "alpha"
    if not is_number or arg.kind != "int_" or exprs.exprs[arg.ids[0]].op != "constant":
        return arg
    return payload.Arg("double_", numbers=[float(exprs.exprs[arg.ids[0]].value)])


def _schema(op: str) -> torch._C.FunctionSchema:
    namespace, name, overload = op.split(".")
    return operator.attrgetter(f"{namespace}.{name}.{overload}")(torch.ops)._schema


def _upper(value_range: Any) -> int:
    from .symbols import UNBOUNDED

    return int(value_range.upper) if value_range.upper.is_Integer else UNBOUNDED


def _is_idle_cast(call: Call) -> bool:
    return call.op in _CASTS and call.value("self").dtype == call.outputs[0].dtype


def _without_leaf(name: str) -> str:
    return name.rsplit(".", 1)[0] if "." in name else name


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _digest(tensor: torch.Tensor) -> str:
    digest = hashlib.sha256(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
    digest.update(_bytes(tensor))
    return digest.hexdigest()[:16]


def _digest_of_all(data: dict[str, torch.Tensor]) -> str:
    text = "".join(f"{key}={_digest(data[key])};" for key in sorted(data))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _equal_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and _bytes(a) == _bytes(b)


def unpack_value(graph: payload.Graph, value: payload.Value, data: torch.Tensor) -> torch.Tensor:
    """The tensor of a constant or a state from its named data (u8); quantised weights are dequantised."""
    dims = [graph.exprs[d].value for d in value.dims]
    if value.quantization:
        q = value.quantization
        packed = r4.Packed(data.numpy(), q.constants_offset, q.bits, q.group, q.symmetric)
        return torch.from_numpy(r4.dequantize(packed, *dims))
    return data.clone().view(payload.TORCH_DTYPES[value.dtype]).reshape(dims)
