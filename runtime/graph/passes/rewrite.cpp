#include "runtime/graph/passes/rewrite.h"

#include <algorithm>
#include <cmath>

#include "runtime/graph/fused_ops.h"

namespace etwgpu {

ValueId tensorArg(const Node& node, size_t i) {
  if (i >= node.args.size()) return kNoValue;
  const auto* v = std::get_if<ValueId>(&node.args[i]);
  return v ? *v : kNoValue;
}

std::optional<int64_t> intArg(const Graph& graph, const Node& node, size_t i) {
  if (i >= node.args.size()) return {};
  if (const auto* e = std::get_if<IntArg>(&node.args[i])) {
    if (graph.exprs.isConstant(e->expr)) return graph.exprs.constantValue(e->expr);
  } else if (const auto* b = std::get_if<bool>(&node.args[i])) {
    return *b ? 1 : 0;
  } else if (const auto* d = std::get_if<double>(&node.args[i])) {
    if (*d == std::floor(*d) && std::fabs(*d) < 9e15) return int64_t(*d);
  }
  return {};
}

std::optional<double> numberArg(const Graph& graph, const Node& node, size_t i) {
  if (i >= node.args.size()) return {};
  if (const auto* d = std::get_if<double>(&node.args[i])) return *d;
  if (const auto n = intArg(graph, node, i)) return double(*n);
  return {};
}

std::optional<ExprId> exprArg(const Graph&, const Node& node, size_t i) {
  if (i >= node.args.size()) return {};
  if (const auto* e = std::get_if<IntArg>(&node.args[i])) return e->expr;
  return {};
}

bool isNoneArg(const Node& node, size_t i) {
  return i >= node.args.size() || std::holds_alternative<std::monostate>(node.args[i]);
}

bool flagArg(const Node& node, size_t i) {
  if (i >= node.args.size()) return false;
  const auto* b = std::get_if<bool>(&node.args[i]);
  return b && *b;
}

std::string_view textArg(const Node& node, size_t i) {
  if (i >= node.args.size()) return {};
  const auto* s = std::get_if<std::string>(&node.args[i]);
  return s ? std::string_view(*s) : std::string_view();
}

int64_t normalizedDim(int64_t dim, size_t rank) { return dim < 0 ? dim + int64_t(rank) : dim; }

ValueId newAlias(Graph& graph, ValueId of, std::string name, std::vector<ExprId> dims) {
  Value v;
  v.name = std::move(name);
  v.dtype = graph.value(of).dtype;
  v.dims = std::move(dims);
  v.alias_of = of;
  return graph.newValue(std::move(v));
}

ValueId newIntermediate(Graph& graph, DType dtype, std::string name, std::vector<ExprId> dims) {
  Value v;
  v.name = std::move(name);
  v.dtype = dtype;
  v.dims = std::move(dims);
  return graph.newValue(std::move(v));
}

std::vector<ValueId> writtenStates(const Node& node) {
  if (node.op == kStateIndexPut) return {tensorArg(node, kStateIndexPutState)};
  if (node.op == kStateCopy) return {tensorArg(node, 0)};
  if (node.op == kRopeCacheWrite) return {tensorArg(node, kRopeKCache), tensorArg(node, kRopeVCache)};
  if (node.op == kQkvCacheWrite) return {tensorArg(node, kQkvKCache), tensorArg(node, kQkvVCache)};
  return {};
}

bool readsState(const Graph& g, const Node& node) {
  bool found = false;
  forEachTensorArg(node, [&](ValueId v) { found |= g.value(g.storage(v)).kind == ValueKind::state; });
  return found;
}

bool sameDims(const Graph& graph, ValueId a, ValueId b) { return graph.value(a).dims == graph.value(b).dims; }

GraphIndex::GraphIndex(const Graph& graph)
    : graph_(graph),
      producer_(graph.values.size(), -1),
      users_(graph.values.size()),
      leaves_(graph.values.size(), false) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (ValueId v : node.outputs) {
      if (v != kNoValue) producer_[size_t(v)] = int32_t(i);
    }
    forEachTensorArg(node, [&](ValueId v) { users_[size_t(graph.storage(v))].push_back(int32_t(i)); });
  }
  for (const GraphOutput& out : graph.outputs) {
    if (out.value != kNoValue) leaves_[size_t(graph.storage(out.value))] = true;
  }
  for (const GraphMutation& m : graph.mutations) leaves_[size_t(graph.storage(m.value))] = true;
}

const Node* GraphIndex::produced(ValueId v, std::string_view op) const {
  if (v == kNoValue) return nullptr;
  const ValueId s = graph_.storage(v);
  const int32_t p = producer_[size_t(s)];
  if (p < 0 || graph_.nodes[size_t(p)].op != op || !sameDims(graph_, s, v)) return nullptr;
  return &graph_.nodes[size_t(p)];
}

void NodeEditor::apply() {
  std::vector<Node> nodes;
  nodes.reserve(graph_.nodes.size());
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    if (const auto it = added_.find(int32_t(i)); it != added_.end()) {
      for (Node& n : it->second) nodes.push_back(std::move(n));
    }
    if (!dead_[i]) nodes.push_back(std::move(graph_.nodes[i]));
  }
  graph_.nodes = std::move(nodes);
}

void applyToAll(Graph& graph, Rewrite rewrite) {
  const GraphIndex index(graph);
  NodeEditor editor(graph);
  const size_t n = graph.nodes.size();
  for (size_t i = 0; i < n; ++i) {
    const bool candidate = graph.nodes[i].outputs.size() == 1 && !editor.erased(int32_t(i));
    if (candidate) rewrite(graph, index, editor, int32_t(i));
  }
  editor.apply();
}

void removeDeadNodes(Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (const GraphOutput& out : graph.outputs) {
    if (out.value != kNoValue) needed[size_t(graph.storage(out.value))] = true;
  }
  for (const GraphMutation& m : graph.mutations) needed[size_t(graph.storage(m.value))] = true;
  std::vector<bool> keep(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    keep[i] = !writtenStates(node).empty() || std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
      return v != kNoValue && needed[size_t(v)];
    });
    if (keep[i]) forEachTensorArg(node, [&](ValueId v) { needed[size_t(graph.storage(v))] = true; });
  }
  size_t n = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!keep[i]) continue;
    if (n != i) graph.nodes[n] = std::move(graph.nodes[i]);
    ++n;
  }
  graph.nodes.resize(n);
}

void removeUnusedValues(Graph& graph) {
  std::vector<bool> used(graph.values.size(), false);
  const auto mark = [&](ValueId v) {
    for (; v != kNoValue && !used[size_t(v)]; v = graph.value(v).alias_of) used[size_t(v)] = true;
  };
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].kind == ValueKind::input || graph.values[i].kind == ValueKind::state) mark(ValueId(i));
  }
  for (const Node& n : graph.nodes) {
    forEachTensorArg(n, mark);
    for (ValueId v : n.outputs) mark(v);
  }
  for (const GraphOutput& o : graph.outputs) mark(o.value);
  for (const GraphMutation& m : graph.mutations) mark(m.state), mark(m.value);

  std::vector<ValueId> renumbered(graph.values.size(), kNoValue);
  std::vector<Value> values;
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (!used[i]) continue;
    renumbered[i] = ValueId(values.size());
    values.push_back(std::move(graph.values[i]));
  }
  const auto renumber = [&](ValueId& v) {
    if (v != kNoValue) v = renumbered[size_t(v)];
  };
  for (Value& v : values) renumber(v.alias_of);
  for (Node& n : graph.nodes) {
    for (Arg& arg : n.args) {
      if (auto* v = std::get_if<ValueId>(&arg)) renumber(*v);
      if (auto* list = std::get_if<std::vector<ValueId>>(&arg)) std::for_each(list->begin(), list->end(), renumber);
    }
    std::for_each(n.outputs.begin(), n.outputs.end(), renumber);
  }
  for (GraphInput& in : graph.inputs) renumber(in.value);
  for (GraphOutput& o : graph.outputs) renumber(o.value);
  for (GraphMutation& m : graph.mutations) renumber(m.state), renumber(m.value);
  graph.values = std::move(values);
}

ValueId concatenateRows(Graph& graph, const GraphIndex& index, const std::vector<ValueId>& constants) {
  constexpr int64_t kRowsOfABlock = 8;
  constexpr uint64_t kPlaneAlignment = 256;
  Value joined;
  int64_t rows = 0;
  uint64_t words = 0;
  for (size_t i = 0; i < constants.size(); ++i) {
    if (constants[i] == kNoValue) return kNoValue;
    const Value& c = graph.value(constants[i]);
    const bool usable = c.kind == ValueKind::constant && c.alias_of == kNoValue && !c.pieces.empty() &&
                        !c.dims.empty() && index.users(constants[i]).size() == 1;
    if (!usable) return kNoValue;
    if (i == 0) {
      joined = c;
      joined.name.clear();
      joined.pieces.clear();
      joined.constants_pieces.clear();
      joined.terms.clear();
    }
    const Quantization &a = c.quantization, &b = joined.quantization;
    const bool alike = c.dtype == joined.dtype && c.dims.size() == joined.dims.size() &&
                       std::equal(c.dims.begin() + 1, c.dims.end(), joined.dims.begin() + 1) && a.bits == b.bits &&
                       a.group == b.group && a.symmetric == b.symmetric;
    const int64_t n = graph.exprs.constantValue(c.dims[0]);
    if (!alike || n % kRowsOfABlock != 0) return kNoValue;
    for (LowRankTerm term : c.terms) {
      term.first_row += rows;
      joined.terms.push_back(term);
    }
    rows += n;
    joined.name += (i ? "+" : "") + c.name;
    joined.pieces.insert(joined.pieces.end(), c.pieces.begin(), c.pieces.end());
    joined.constants_pieces.insert(joined.constants_pieces.end(), c.constants_pieces.begin(), c.constants_pieces.end());
  }
  for (const ConstantPiece& p : joined.pieces) words += p.size;
  if (joined.quantization.bits != 0) {
    joined.quantization.constants_offset = (words + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
  }
  joined.dims[0] = graph.exprs.constant(rows);
  return graph.newValue(std::move(joined));
}

}  // namespace etwgpu
