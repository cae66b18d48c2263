"""The delegate payload in Python: the classes of schema/graph.fbs, read, written and shown as text.

Enums are strings with the schema's names: dtype "f32", kind "constant", argument kind "int_".
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import torch

from executorch_webgpu.operators.registry import find_schema

from . import flatbuffer

VERSION = 1

DTYPES = {
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bool: "bool_",
    torch.bfloat16: "bf16",
}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


class PayloadError(flatbuffer.FormatError):
    """The bytes are not a payload that this version reads."""


@dataclass
class Expr:
    op: str
    a: int = 0
    b: int = 0
    value: int = 0


@dataclass
class Symbol:
    name: str
    min: int
    max: int
    source: str
    input: int
    dim: int = 0


@dataclass
class Quantization:
    bits: int
    group: int
    symmetric: bool
    constants_offset: int

    @property
    def scheme(self) -> str:
        """The end of a data key: r4b4g32a, r4b4g64s, r4b8."""
        return f"r4b{self.bits}" + (f"g{self.group}{'s' if self.symmetric else 'a'}" if self.bits == 4 else "")


@dataclass
class Value:
    name: str
    dtype: str
    dims: list[int]
    kind: str = "intermediate"
    data_key: str = ""
    quantization: Quantization | None = None


@dataclass
class Arg:
    kind: str = "none"
    ids: list[int] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    flags: list[bool] = field(default_factory=list)
    text: str = ""
    dtype: str = "f32"


@dataclass
class Node:
    op: str
    args: list[Arg]
    outputs: list[int]
    name: str = ""


@dataclass
class Input:
    value: int = -1


@dataclass
class Output:
    value: int = -1
    expr: int = -1


@dataclass
class Mutation:
    state: int
    value: int


@dataclass
class Graph:
    version: int = VERSION
    exporter: str = ""
    exprs: list[Expr] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    data_digest: str = ""


_CLASSES = {c.__name__: c for c in (Expr, Symbol, Quantization, Value, Arg, Node, Input, Output, Mutation, Graph)}


@functools.cache
def schema() -> flatbuffer.Schema:
    return flatbuffer.Schema.parse(find_schema("graph.fbs").read_text())


def encode(graph: Graph) -> bytes:
    return flatbuffer.encode(schema(), graph)


def decode(data: bytes) -> Graph:
    """Reads a payload; raises PayloadError where it is none, or one of a later version."""
    try:
        graph = flatbuffer.decode(schema(), data, _CLASSES)
    except flatbuffer.FormatError as error:
        raise PayloadError(str(error)) from error
    if graph.version > VERSION:
        raise PayloadError(f"the payload has version {graph.version}, this package reads up to {VERSION}")
    return graph


def evaluate(graph: Graph, symbols: list[int]) -> list[int]:
    """The value of every expression, given those of the symbols."""
    operations = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "floordiv": lambda a, b: a // b,
        "mod": lambda a, b: a % b,
        "min": min,
        "max": max,
    }
    values: list[int] = []
    for e in graph.exprs:
        if e.op == "constant":
            values.append(e.value)
        elif e.op == "symbol":
            values.append(symbols[e.a])
        else:
            values.append(operations[e.op](values[e.a], values[e.b]))
    return values


# ---- text --------------------------------------------------------------------------------------------------------


def expr_text(graph: Graph, index: int) -> str:
    e = graph.exprs[index]
    if e.op == "constant":
        return str(e.value)
    if e.op == "symbol":
        return graph.symbols[e.a].name
    a, b = expr_text(graph, e.a), expr_text(graph, e.b)
    signs = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}
    return f"({a} {signs[e.op]} {b})" if e.op in signs else f"{e.op}({a}, {b})"


def value_text(graph: Graph, index: int) -> str:
    v = graph.values[index]
    return f"%{index} {v.dtype.rstrip('_')}[{', '.join(expr_text(graph, d) for d in v.dims)}]"


def _arg_text(graph: Graph, arg: Arg) -> str:
    def ids(show, many):
        texts = [show(i) for i in arg.ids]
        return f"[{', '.join(texts)}]" if many else texts[0]

    def reference(i):
        return f"%{i}" if i >= 0 else "None"

    match arg.kind:
        case "none":
            return "None"
        case "value" | "values":
            return ids(reference, arg.kind == "values")
        case "int_" | "ints":
            return ids(lambda i: expr_text(graph, i), arg.kind == "ints")
        case "double_" | "bool_":
            return repr((arg.numbers or arg.flags)[0])
        case "doubles":
            return repr(arg.numbers)
        case "bools":
            return repr(arg.flags)
        case "string_":
            return repr(arg.text)
        case _:
            return arg.dtype.rstrip("_")


def to_text(graph: Graph) -> str:
    """The payload, one node a line."""
    lines = [f"payload version {graph.version}, {graph.exporter}"]
    for s in graph.symbols:
        lines.append(
            f"symbol {s.name} in {s.min}..{s.max} = input {s.input}"
            + (f" dim {s.dim}" if s.source == "input_dim" else "")
        )
    for i, v in enumerate(graph.values):
        if v.kind in ("constant", "state"):
            scheme = f" {v.quantization.scheme}" if v.quantization else ""
            lines.append(
                f"{v.kind} {value_text(graph, i)}{scheme} {v.name}" + (f" <- {v.data_key}" if v.data_key else "")
            )
    for position, entry in enumerate(graph.inputs):
        what = value_text(graph, entry.value) + f" {graph.values[entry.value].name}" if entry.value >= 0 else "int"
        lines.append(f"input {position}: {what}")
    for node in graph.nodes:
        outputs = ", ".join(value_text(graph, o) for o in node.outputs)
        lines.append(f"{outputs} = {node.op}({', '.join(_arg_text(graph, a) for a in node.args)})  # {node.name}")
    for position, out in enumerate(graph.outputs):
        what = value_text(graph, out.value) if out.value >= 0 else expr_text(graph, out.expr)
        lines.append(f"output {position}: {what}")
    for m in graph.mutations:
        lines.append(f"state %{m.state} := %{m.value}  # {graph.values[m.state].name}")
    return "\n".join(lines) + "\n"
