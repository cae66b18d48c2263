// state_mutations: an index_put into a state whose result becomes the state's content → etwgpu.state_index_put in
// place.
//   new = index_put(state, [None × dim, index], value, accumulate = false);  state ← new
// Legal where nothing reads the old content afterwards.
#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {
namespace {

struct Match {
  int64_t dim = 0;
  ValueId index = kNoValue, value = kNoValue;
};

std::optional<Match> matchIndexPut(const Graph& g, const Node& node, ValueId state) {
  if (node.op != "aten.index_put.default" && node.op != "aten.index_put_.default") return {};
  if (tensorArg(node, 0) != state || flagArg(node, 3) || node.args.size() < 3) return {};
  const auto* indices = std::get_if<std::vector<ValueId>>(&node.args[1]);
  Match m;
  m.value = tensorArg(node, 2);
  if (!indices || m.value == kNoValue) return {};
  for (size_t d = 0; d < indices->size(); ++d) {
    if ((*indices)[d] == kNoValue) continue;
    if (m.index != kNoValue) return {};
    m.dim = int64_t(d);
    m.index = (*indices)[d];
  }
  if (m.index == kNoValue) return {};
  const Value &s = g.value(state), &i = g.value(m.index), &v = g.value(m.value);
  if ((i.dtype != DType::i64 && i.dtype != DType::i32) || i.dims.size() != 1) return {};
  std::vector<ExprId> expected = s.dims;
  expected[size_t(m.dim)] = i.dims[0];
  if (v.dims != expected || v.dtype != s.dtype) return {};
  if (g.storage(m.value) == state || g.storage(m.index) == state) return {};
  return m;
}

}  // namespace

Status stateMutations(Graph& graph) {
  const GraphIndex index(graph);
  NodeEditor editor(graph);
  std::vector<GraphMutation> rest;
  for (const GraphMutation& mutation : graph.mutations) {
    const ValueId result = graph.storage(mutation.value);
    const int32_t at = index.producer(mutation.value);
    bool in_place = at >= 0 && sameDims(graph, result, mutation.value) && !index.leavesGraph(mutation.state);
    std::optional<Match> match;
    if (in_place) match = matchIndexPut(graph, graph.nodes[size_t(at)], mutation.state);
    for (int32_t user : index.users(mutation.state)) in_place = in_place && user <= at;
    int leaves = 0;  // the mutation is one way out; an output of the graph would be another, and needs bytes of its own
    for (const GraphMutation& m : graph.mutations) leaves += graph.storage(m.value) == result;
    for (const GraphOutput& o : graph.outputs) leaves += o.value != kNoValue && graph.storage(o.value) == result;
    if (!in_place || !match || leaves != 1) {
      rest.push_back(mutation);
      continue;
    }
    const Node& old = graph.nodes[size_t(at)];
    Node put;
    put.op = kStateIndexPut;
    put.name = old.name;
    put.args = {mutation.state, IntArg{graph.exprs.constant(match->dim)}, match->index, match->value};
    editor.replace(at, std::move(put));
    graph.value(result).alias_of = mutation.state;  // later readers see the state's new content
  }
  editor.apply();
  graph.mutations = std::move(rest);
  return {};
}

Status materialiseMutations(Graph& graph) {
  std::vector<bool> mutated(graph.values.size(), false);
  for (const GraphMutation& m : graph.mutations) mutated[size_t(m.state)] = true;
  // The old content of a state that is about to be overwritten is saved first, for outputs and for other states.
  std::vector<ValueId> saved(graph.values.size(), kNoValue);
  const auto save = [&](ValueId v) {
    const ValueId s = graph.storage(v);
    if (!mutated[size_t(s)]) return v;
    if (saved[size_t(v)] == kNoValue) {
      const ValueId copy =
          newIntermediate(graph, graph.value(v).dtype, graph.value(v).name + ".old", graph.value(v).dims);
      Node clone;
      clone.op = "aten.clone.default";
      clone.name = graph.value(copy).name;
      clone.args = {v, std::monostate{}};
      clone.outputs = {copy};
      graph.nodes.push_back(std::move(clone));
      saved[size_t(v)] = copy;
    }
    return saved[size_t(v)];
  };
  for (GraphOutput& o : graph.outputs) {
    if (o.value != kNoValue) o.value = save(o.value);
  }
  std::vector<GraphMutation> copies;
  for (const GraphMutation& m : graph.mutations) {
    if (graph.storage(m.value) == m.state) continue;  // unchanged
    copies.push_back({m.state, save(m.value)});
  }
  for (const GraphMutation& m : copies) {
    Node copy;
    copy.op = kStateCopy;
    copy.name = graph.value(m.state).name + ".copy";
    copy.args = {m.state, m.value};
    graph.nodes.push_back(std::move(copy));
  }
  graph.mutations.clear();
  return {};
}

}  // namespace etwgpu
