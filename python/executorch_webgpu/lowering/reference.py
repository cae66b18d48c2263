"""Runs a payload with torch operators: proof, without the runtime, that what was serialised is right."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from . import payload
from .serialize import _schema, unpack_value


class ReferenceDelegate:
    """One delegate. data(key) gives the bytes (u8 tensor) of named data. States are kept between calls."""

    def __init__(
        self, graph: payload.Graph, data: Callable[[str], torch.Tensor], states: dict[str, torch.Tensor] | None = None
    ):
        self.graph = graph
        self.constants: dict[int, torch.Tensor] = {}
        self.states = {} if states is None else states  # by name: shared between delegates of a program
        for i, value in enumerate(graph.values):
            if value.kind == "constant":
                self.constants[i] = unpack_value(graph, value, data(value.data_key))
            elif value.kind == "state" and value.name not in self.states:
                dims = [graph.exprs[d].value for d in value.dims]
                self.states[value.name] = (
                    unpack_value(graph, value, data(value.data_key))
                    if value.data_key
                    else torch.zeros(dims, dtype=payload.TORCH_DTYPES[value.dtype])
                )

    @torch.no_grad()
    def run(self, inputs: list[torch.Tensor | int]) -> list[torch.Tensor | int]:
        """Executes the graph; checks every result's dtype and shape against what the payload says."""
        graph = self.graph
        exprs = payload.evaluate(graph, self._symbols(inputs))
        values: dict[int, Any] = dict(self.constants)
        for i, value in enumerate(graph.values):
            if value.kind == "state":
                values[i] = self.states[value.name]
        for entry, given in zip(graph.inputs, inputs, strict=True):
            if entry.value >= 0:
                values[entry.value] = self._checked(entry.value, given, exprs)
        for node in graph.nodes:
            results = _execute(node, values, exprs)
            for output, result in zip(node.outputs, results, strict=True):
                values[output] = self._checked(output, result, exprs, node)
        outputs = [values[o.value] if o.value >= 0 else exprs[o.expr] for o in graph.outputs]
        outputs = [o.clone() if isinstance(o, torch.Tensor) else o for o in outputs]
        updates = {graph.values[m.state].name: values[m.value].clone() for m in graph.mutations}
        self.states.update(updates)
        return outputs

    def _symbols(self, inputs: list[torch.Tensor | int]) -> list[int]:
        found = []
        for s in self.graph.symbols:
            value = inputs[s.input].shape[s.dim] if s.source == "input_dim" else int(inputs[s.input])
            if not s.min <= value <= s.max:
                raise ValueError(f"{s.name} = {value} is outside of {s.min} … {s.max}")
            found.append(value)
        return found

    def _checked(
        self, index: int, tensor: torch.Tensor, exprs: list[int], node: payload.Node | None = None
    ) -> torch.Tensor:
        value = self.graph.values[index]
        dims = [exprs[d] for d in value.dims]
        if list(tensor.shape) != dims or tensor.dtype != payload.TORCH_DTYPES[value.dtype]:
            raise AssertionError(
                f"{value.name}: the payload says {value.dtype}{dims}, "
                f"{node.op if node else 'the input'} gives {tensor.dtype}{list(tensor.shape)}"
            )
        return tensor


def _execute(node: payload.Node, values: dict[int, Any], exprs: list[int]) -> list[torch.Tensor]:
    namespace, name, overload = node.op.split(".")
    if namespace == "dim_order_ops":  # the default order only: an ordinary copy
        dtype = node.args[1] if name == "_to_dim_order_copy" else None
        source = values[node.args[0].ids[0]]
        return [source.to(payload.TORCH_DTYPES[dtype.dtype]) if dtype and dtype.kind == "dtype" else source.clone()]
    target = operator.attrgetter(f"{namespace}.{name}.{overload}")(torch.ops)
    ordered = sorted(_schema(node.op).arguments, key=lambda a: a.kwarg_only)
    args, kwargs = [], {}
    for argument, given in zip(ordered, node.args, strict=True):
        if argument.kwarg_only:
            kwargs[argument.name] = _argument(given, values, exprs)
        else:
            args.append(_argument(given, values, exprs))
    result = target(*args, **kwargs)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _argument(arg: payload.Arg, values: dict[int, Any], exprs: list[int]) -> Any:
    match arg.kind:
        case "none":
            return None
        case "value":
            return values[arg.ids[0]]
        case "values":
            return [None if i < 0 else values[i] for i in arg.ids]
        case "int_":
            return exprs[arg.ids[0]]
        case "ints":
            return [exprs[i] for i in arg.ids]
        case "double_":
            return arg.numbers[0]
        case "bool_":
            return arg.flags[0]
        case "doubles":
            return arg.numbers
        case "bools":
            return arg.flags
        case "string_":
            return arg.text
        case _:
            return payload.TORCH_DTYPES[arg.dtype]


def delegates(manager: Any) -> list[ReferenceDelegate]:
    """The delegates of an ExecutorchProgramManager in order of methods and calls, sharing states."""
    program = manager.executorch_program
    named = {}
    store = manager._named_data
    for key, entry in store.pte_data.items():
        named[key] = store.buffers[entry.buffer_index]
    for tagged in store.external_data.values():
        named |= {key: store.buffers[entry.buffer_index] for key, entry in tagged.items()}
    states: dict[str, torch.Tensor] = {}
    found = []
    for plan in program.execution_plan:
        for delegate in plan.delegates:
            data = program.backend_delegate_data[delegate.processed.index].data
            graph = payload.decode(bytes(data))
            found.append(
                ReferenceDelegate(graph, lambda key: torch.frombuffer(bytearray(named[key]), dtype=torch.uint8), states)
            )
    return found
