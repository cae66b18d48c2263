"""Chooses what of an edge program the WebGPU backend runs, and says why not where it does not."""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import dataclass, field

import torch
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from .backend import AMBIGUOUS, BACKEND_ID, EXTERNAL_TAG, RANGES, STRUCTURE_ONLY
from .lowering import patterns, predicates, symbols
from .lowering.calls import ASSERTIONS, Call, is_getitem, is_symbolic, meta, op_name
from .lowering.constants import Constants
from .lowering.payload import DTYPES
from .operators import why_not_on_cpu

_log = logging.getLogger(__name__)

# Operators that would otherwise be decomposed before the partitioner sees them: kept whole if every use will be taken.
KEEP = (
    "aten.linear.default",
    "aten.matmul.default",
    "aten.scaled_dot_product_attention.default",
    "aten.rms_norm.default",
    "aten.layer_norm.default",
    "aten.group_norm.default",
    "aten.silu.default",
    "aten.gelu.default",
    "aten.hardswish.default",
    "aten.hardsigmoid.default",
    "aten.hardtanh.default",
    "aten.leaky_relu.default",
    "aten.elu.default",
    "aten.softmax.int",
    "aten.max_pool2d.default",
    "aten.avg_pool2d.default",
    "aten.adaptive_avg_pool2d.default",
    "aten.index_select.default",
)
# A partition of these alone computes nothing.
_IDLE = {
    "aten.view_copy.default",
    "aten.unsqueeze_copy.default",
    "aten.squeeze_copy.dims",
    "aten.alias_copy.default",
    "aten.clone.default",
    "dim_order_ops._clone_dim_order.default",
    "aten.full.default",
    "aten.full_like.default",
    "aten.scalar_tensor.default",
    "aten.arange.start_step",
}


@dataclass
class Refusal:
    node: str
    op: str
    reason: str
    on_cpu: str | None = None  # why the CPU of this runtime cannot run it either


@dataclass
class Report:
    """What was delegated and what was not."""

    delegated: Counter = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)
    delegates: int = 0
    quantized: dict[str, str] = field(default_factory=dict)  # scheme by the weight's name
    refused_weights: dict[str, str] = field(default_factory=dict)  # reason by the names of a weight's parts
    rounding: dict[str, float] = field(default_factory=dict)  # weight: relative error of its rounded constants

    def __str__(self) -> str:
        lines = [f"{sum(self.delegated.values())} nodes in {self.delegates} delegate(s)"]
        lines += [f"  {count:5} {op}" for op, count in sorted(self.delegated.items())]
        if self.quantized:
            lines.append(
                "quantised weights: "
                + ", ".join(f"{n} × {s}" for s, n in sorted(Counter(self.quantized.values()).items()))
            )
        for name, error in self.rounding.items():
            lines.append(f"  {name}: constants rounded to f16, relative error up to {error:.3g}")
        lines += [f"  {name} stays a float weight: {reason}" for name, reason in self.refused_weights.items()]
        lines.append(f"{len(self.refusals)} nodes not delegated")
        by_reason: dict[tuple[str, str], list[str]] = {}
        for r in self.refusals:
            reason = r.reason if r.on_cpu is None else f"{r.reason}; and {r.on_cpu} here"
            by_reason.setdefault((r.op, reason), []).append(r.node)
        for (op, reason), nodes in by_reason.items():
            shown = ", ".join(nodes[:3]) + (", …" if len(nodes) > 3 else "")
            lines.append(f"  {len(nodes):5} {op}: {reason} ({shown})")
        return "\n".join(lines)


class WebGPUPartitioner(Partitioner):
    """Delegates to WebGPU what operators.yaml lists, where the predicate of the operator agrees.

    external_weights: name of the .ptd file (without extension) that constants go to instead of into the .pte.
    structure_only: quantised weights have keys and no data: somebody makes them up later (executorch_webgpu.structure).
    verify: compare every quantised weight with what the graph makes of it, so that a look-alike is never taken.
    One instance serves all methods of a program; `report()` tells about all of them.
    """

    def __init__(self, external_weights: str | None = None, structure_only: bool = False, verify: bool = True):
        super().__init__()
        self._specs = [CompileSpec(EXTERNAL_TAG, external_weights.encode())] if external_weights else []
        if structure_only:
            self._specs.append(CompileSpec(STRUCTURE_ONLY, b"1"))
        self._verify = verify
        self.delegation_spec = DelegationSpec(BACKEND_ID, self._specs)
        self._report = Report()
        self._minima: dict[tuple[str, int], int] = {}  # a symbol's own minimum, by its name and maximum
        self._constants: dict[str, torch.Tensor] = {}  # by name, over all methods
        self._checked: set[tuple] = set()  # quantised weights whose values were looked at
        self._ambiguous: set[str] = set()  # names that methods use for different constants

    def report(self) -> Report:
        return self._report

    # ---- before decomposition ------------------------------------------------------------------------------------
    def ops_to_not_decompose(self, ep: ExportedProgram):
        """Operators to keep whole: those that will be delegated wherever they stand."""
        self._remember_ranges(ep)
        self._remember_constants(ep)
        constants = Constants(ep)
        self._check_quantized(ep, constants)
        calls: dict[str, list[Call]] = {}
        for node in ep.graph.nodes:
            if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                calls.setdefault(op_name(node), []).append(Call(node))
        hidden = _ops_in_subgraphs(ep)
        kept = [
            found[0].node.target
            for op in KEEP
            if (found := calls.get(op)) and op not in hidden and not any(map(predicates.why_not, found))
        ]
        dequantised = calls.get(patterns.TORCHAO, [])
        if dequantised and all(self._is_taken(call.node, constants) for call in dequantised):
            kept.append(dequantised[0].node.target)
        return kept, None

    def _remember_ranges(self, ep: ExportedProgram) -> None:
        """A Dim's own minimum of 1 is lost in lowering (0 and 1 are special to torch.export); where a dimension is
        a · symbol + b, only the constraint on that expression has it."""
        bounds = {e: (int(r.lower), int(r.upper)) for e, r in ep.range_constraints.items() if _is_bounded(r)}
        for symbol, (low, high) in bounds.items():
            if not symbol.is_Symbol:
                continue
            for expr, (expr_low, _) in bounds.items():
                slope, rest = symbols.linear_in(expr, symbol) or (0, 0)
                if slope > 0:
                    low = min(low, -((rest - expr_low) // slope)) if low == 2 else low
            key = (str(symbol), high)
            self._minima[key] = min(low, self._minima.get(key, low))

    def _ranges(self, ep: ExportedProgram) -> dict[str, tuple[int, int]]:
        ranges = {}
        for symbol, bounds in ep.range_constraints.items():
            if _is_bounded(bounds) and (key := (str(symbol), int(bounds.upper))) in self._minima:
                ranges[key[0]] = (self._minima[key], key[1])
        return ranges

    def _remember_constants(self, ep: ExportedProgram) -> None:
        """Methods made of different modules may use one name for different constants."""
        for name, tensor in [*ep.state_dict.items(), *ep.constants.items()]:
            if isinstance(tensor, torch.Tensor):
                known = self._constants.setdefault(name, tensor)
                if known.data_ptr() != tensor.data_ptr() and not _equal(known, tensor):
                    self._ambiguous.add(name)

    def _check_quantized(self, ep: ExportedProgram, constants: Constants) -> None:
        """Looks at the values of quantised weights, which are out of reach once the program is partitioned."""
        for node in ep.graph.nodes:
            argument = patterns.CONSUMERS.get(op_name(node)) if node.op == "call_function" else None
            weight = Call(node)[argument] if argument else None
            if weight is None or self._is_checked(weight, constants):
                continue
            try:
                match = patterns.match(weight, constants, self._verify)
            except patterns.Refused as reason:
                for leaf in patterns.stored_inputs(weight, constants):
                    self._report.refused_weights[leaf] = str(reason)
                _log.error("%s keeps a float weight: %s", node.name, reason)
                continue
            if match:
                self._record(match, constants.name(match.source))

    def _is_checked(self, weight: Node, constants: Constants) -> bool:
        """executorch asks several times, and tied weights have several readers: one look is enough."""
        names = patterns.stored_inputs(weight, constants)
        key = tuple(sorted((name, self._constants[name].data_ptr()) for name in names if name in self._constants))
        if key in self._checked:
            return True
        self._checked.add(key)
        return False

    def _is_taken(self, weight: Node, constants: Constants) -> bool:
        """Whether every use of a dequantised weight is a linear or an embedding that will be delegated."""
        if any(name in self._report.refused_weights for name in patterns.stored_inputs(weight, constants)):
            return False
        for user in weight.users:
            argument = patterns.CONSUMERS.get(op_name(user)) if user.op == "call_function" else None
            if not argument or Call(user)[argument] is not weight or predicates.why_not(Call(user)):
                return False
        return bool(weight.users) and constants.is_constant(weight)

    def _record(self, match: patterns.Match, name: str) -> None:
        kind = "s" if match.weight.symmetric else "a"
        scheme = "int8 per row" if match.weight.bits == 8 else f"int4 g{match.weight.group}{kind}"
        self._report.quantized[name] = scheme
        if match.rounding_error and name not in self._report.rounding:
            self._report.rounding[name] = match.rounding_error
            _log.warning("%s: constants rounded to f16, relative error up to %.3g", name, match.rounding_error)

    # ---- partition -----------------------------------------------------------------------------------------------
    def partition(self, ep: ExportedProgram) -> PartitionResult:
        graph = ep.graph_module.graph
        _erase_assertions(graph)
        constants = Constants(ep)
        support = _Support(constants, self._report, self._report.refused_weights)
        support.prepare(graph)
        proposer = CapabilityBasedPartitioner(ep.graph_module, support, allows_single_node_partition=True)
        tags: dict[str, DelegationSpec] = {}
        specs = [
            *self._specs,
            CompileSpec(RANGES, json.dumps(self._ranges(ep), sort_keys=True).encode()),
            CompileSpec(AMBIGUOUS, json.dumps(sorted(self._ambiguous)).encode()),
        ]
        for partition in proposer.propose_partitions():
            nodes = list(partition.nodes)
            if reason := _why_not_together(nodes):
                support.refuse_all(nodes, reason)
                continue
            tag = f"webgpu_{partition.id}"
            for node in nodes:
                node.meta["delegation_tag"] = tag
                if node in support.taken and not is_getitem(node) and not is_symbolic(node):
                    self._report.delegated[op_name(node)] += 1
            tags[tag] = DelegationSpec(BACKEND_ID, specs)
        tag_constant_data(ep)
        _tag_states(ep)
        self._report.delegates += len(tags)
        _log.info("%s", self._report)
        for op, reason in {(r.op, r.on_cpu) for r in self._report.refusals if r.on_cpu}:
            _log.warning("%s: neither a delegate nor the CPU of this runtime runs it (%s)", op, reason)
        return PartitionResult(tagged_exported_program=ep, partition_tags=tags)


def _why_not_on_cpu(node: Node) -> str | None:
    call = Call(node)
    if call.schema is None or is_symbolic(node):
        return None
    if call.op == "aten.convolution.default" and call["transposed"]:
        return "no CPU kernel for transposed convolutions"
    values = [value for _, value, _ in call.tensors()] + [v for v in call.outputs if isinstance(v, torch.Tensor)]
    dtypes = {DTYPES.get(value.dtype, str(value.dtype)).rstrip("_") for value in values}
    return why_not_on_cpu(call.op, dtypes, max((value.dim() for value in values), default=0))


class _Support(OperatorSupportBase):
    """Which nodes are taken. Refusals are recorded once, when the graph is prepared."""

    def __init__(self, constants: Constants, report: Report, refused_weights: dict[str, str]):
        self.constants = constants
        self.report = report
        self.refused_weights = refused_weights
        self.taken: set[Node] = set()
        self.dequantisations: set[Node] = set()
        self.folded: set[Node] = set()

    def prepare(self, graph: Graph) -> None:
        self._find_quantized(graph)
        reasons: dict[Node, str] = {}
        for node in graph.nodes:
            if node.op == "call_function" and node not in self.dequantisations:
                if reason := self._why_not(node):
                    reasons[node] = reason
                else:
                    self.taken.add(node)
        for node in reversed(graph.nodes):
            if node in reasons and self._folds(node):
                self.folded.add(node)
        for node, reason in reasons.items():
            if node not in self.folded and not is_getitem(node):
                self.refuse(node, reason)

    def _folds(self, node: Node) -> bool:
        """Whatever the operator: a result known at export that goes to delegates only is a constant of theirs."""
        if not self.constants.is_constant(node) or not self.constants.has_weights(node):
            return False
        return bool(node.users) and all(self.is_node_supported({}, user) for user in node.users)

    def is_node_supported(self, submodules, node: Node) -> bool:
        return node in self.taken or node in self.dequantisations or node in self.folded

    def refuse(self, node: Node, reason: str) -> None:
        self.report.refusals.append(Refusal(node.name, op_name(node), reason, _why_not_on_cpu(node)))

    def refuse_all(self, nodes: list[Node], reason: str) -> None:
        for node in nodes:
            if node in self.taken and not is_getitem(node):
                self.refuse(node, reason)
            self.taken.discard(node)

    def _why_not(self, node: Node) -> str | None:
        if is_getitem(node) and not is_symbolic(node):
            return None if node.args[0] in self.taken else "its operator is not delegated"
        if is_symbolic(node):
            return symbols.why_not(meta(node))
        return predicates.why_not(Call(node))

    def _find_quantized(self, graph: Graph) -> None:
        """Dequantisations before linears and embeddings. Each consumer gets a copy of its own, so that it and
        its weight are always in one delegate."""
        for node in list(graph.nodes):
            argument = patterns.CONSUMERS.get(op_name(node)) if node.op == "call_function" else None
            if not argument or predicates.why_not(Call(node)):
                continue
            weight = Call(node)[argument]
            try:
                match = patterns.match(weight, self.constants)
            except patterns.Refused as reason:
                self.refuse(weight, f"dequantisation before {node.name}: {reason}")
                continue
            if match is None:
                continue
            if reason := self.refused_weights.get(self.constants.name(match.source)):
                self.refuse(weight, f"dequantisation before {node.name}: {reason}")
                continue
            chain = match.nodes
            if any(user is not node and user not in chain for n in chain for user in n.users):
                chain = _copy_chain(graph, weight, chain, node)
            self.dequantisations.update(chain)


def _copy_chain(graph: Graph, weight: Node, chain: list[Node], consumer: Node) -> list[Node]:
    """A copy of the nodes that compute a weight, for one consumer."""
    copies: dict[Node, Node] = {}
    order = {node: i for i, node in enumerate(graph.nodes)}
    for node in sorted(chain, key=order.__getitem__):
        with graph.inserting_before(consumer):
            copies[node] = graph.node_copy(node, lambda n: copies.get(n, n))
    consumer.replace_input_with(weight, copies[weight])
    return list(copies.values())


def _is_bounded(value_range) -> bool:
    return bool(value_range.lower.is_Integer and value_range.upper.is_Integer)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(torch.equal(a, b))


def _ops_in_subgraphs(ep: ExportedProgram) -> set[str]:
    """Operators inside control flow, which are never delegated and so must be decomposed."""
    found = set()
    for module in ep.graph_module.modules():
        if module is not ep.graph_module and isinstance(module, torch.fx.GraphModule):
            found |= {op_name(n) for n in module.graph.nodes if n.op == "call_function"}
    return found


def _erase_assertions(graph: Graph) -> None:
    """Removes assertions on sizes, and what only they needed."""
    for node in reversed(list(graph.nodes)):
        if node.op != "call_function" or node.users:
            continue
        if op_name(node) in ASSERTIONS or isinstance(meta(node), (torch.SymBool, torch.SymInt, torch.SymFloat)):
            graph.erase_node(node)


def _why_not_together(nodes: list[Node]) -> str | None:
    """Why a proposed partition is not worth, or not able, to be a delegate."""
    calls = [n for n in nodes if not is_getitem(n) and not is_symbolic(n)]
    if all(op_name(n) in _IDLE for n in calls):
        return "computes nothing: not worth a delegate"
    inside = set(nodes)
    inputs = {n for node in nodes for n in node.all_input_nodes if n not in inside}
    table = symbols.ExprTable({})
    table.bind_inputs([meta(n) for n in inputs])
    missing = set()
    for node in nodes:
        for value in meta(node) if isinstance(meta(node), (list, tuple)) else [meta(node)]:
            for size in value.shape if isinstance(value, torch.Tensor) else [value]:
                if isinstance(size, torch.SymInt):
                    missing |= table.unbound(size)
    return f"no input gives the sizes {', '.join(sorted(missing))}" if missing else None


def _tag_states(ep: ExportedProgram) -> None:
    """A mutated buffer belongs to a delegate if all that reads it, or its new value, is in that delegate; otherwise it
    is memory of the program, which goes in and out."""
    signature = ep.graph_signature
    producers = {target: name for name, target in signature.buffers_to_mutate.items()}
    by_name = {n.name: n for n in ep.graph.nodes}
    output = next(n for n in ep.graph.nodes if n.op == "output")
    buffers = dict(signature.inputs_to_buffers)
    for node in ep.graph.nodes:
        target = buffers.get(node.name)
        if node.op != "placeholder" or target not in producers:
            continue
        producer = by_name[producers[target]]
        # executorch cannot hand out a new value beside its being the state's (a clone of it can leave).
        leaves = output.args[0].count(producer) > 1
        users = [user for user in (*node.users, *producer.users) if user is not output]
        tags = {n.meta.get("delegation_tag") for n in [*users, producer]}
        if len(tags) == 1 and None not in tags and not leaves:
            node.meta["delegation_tag"] = tags.pop()
