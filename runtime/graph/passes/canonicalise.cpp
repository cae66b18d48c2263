// canonicalise: operators that move no bytes become aliases; what nobody uses goes.
//   view, unsqueeze, squeeze                       → alias with other dimensions
//   clone, alias, detach, cast to the same dtype   → alias
//   expand to the same shape, slice of everything  → alias
//   permute that moves only dimensions of size 1   → alias;  permute of permute → one permute
#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {
namespace {

constexpr std::array kViews = {"aten.view_copy.default",
                               "aten.view.default",
                               "aten.reshape.default",
                               "aten.unsqueeze_copy.default",
                               "aten.unsqueeze.default",
                               "aten.squeeze_copy.dims",
                               "aten.squeeze_copy.dim",
                               "aten.squeeze.dims",
                               "aten.squeeze.dim",
                               "aten.flatten.using_ints",
                               "aten.alias_copy.default",
                               "aten.alias.default",
                               "aten.detach_copy.default",
                               "aten.detach.default",
                               "aten.lift_fresh_copy.default",
                               "aten.clone.default",
                               "aten.contiguous.default",
                               "dim_order_ops._clone_dim_order.default",
                               "aten._to_copy.default",
                               "dim_order_ops._to_dim_order_copy.default"};
constexpr std::array kReads = {"aten.expand_copy.default", "aten.expand.default", "aten.slice_copy.Tensor",
                               "aten.slice.Tensor"};

template <size_t N>
bool isOneOf(std::string_view op, const std::array<const char*, N>& list) {
  return std::find(list.begin(), list.end(), op) != list.end();
}
bool isPermute(std::string_view op) { return op == "aten.permute_copy.default" || op == "aten.permute.default"; }

/// The permutation's source dimensions, or empty if it is not one.
std::vector<size_t> permutation(const Graph& g, const Node& node) {
  const auto* ints = node.args.size() > 1 ? std::get_if<std::vector<IntArg>>(&node.args[1]) : nullptr;
  const size_t rank = g.value(node.outputs[0]).dims.size();
  if (!ints || ints->size() != rank) return {};
  std::vector<size_t> perm;
  std::vector<bool> seen(rank, false);
  for (IntArg a : *ints) {
    if (!g.exprs.isConstant(a.expr)) return {};
    const int64_t d = normalizedDim(g.exprs.constantValue(a.expr), rank);
    if (d < 0 || size_t(d) >= rank || seen[size_t(d)]) return {};
    seen[size_t(d)] = true;
    perm.push_back(size_t(d));
  }
  return perm;
}

/// The bytes stay in place if the dimensions that are not 1 keep their order.
bool keepsOrder(const Graph& g, const std::vector<ExprId>& source_dims, const std::vector<size_t>& perm) {
  size_t last = 0;
  bool first = true;
  for (size_t d : perm) {
    if (g.exprs.isConstant(source_dims[d], 1)) continue;
    if (!first && d < last) return false;
    last = d, first = false;
  }
  return true;
}

class Canonicaliser {
 public:
  explicit Canonicaliser(Graph& graph)
      : g_(graph), written_(graph.values.size(), false), output_(graph.values.size(), false) {
    for (const Node& n : g_.nodes) {
      for (ValueId s : writtenStates(n)) written_[size_t(g_.storage(s))] = true;
    }
    producer_.assign(g_.values.size(), -1);
    for (const GraphOutput& o : g_.outputs) {
      if (o.value != kNoValue) output_[size_t(o.value)] = true;
    }
    for (const GraphMutation& m : g_.mutations) output_[size_t(m.value)] = true;
  }

  void run() {
    NodeEditor editor(g_);
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      Node& node = g_.nodes[i];
      if (node.outputs.size() == 1 && node.outputs[0] != kNoValue && tensorArg(node, 0) != kNoValue) {
        if (isPermute(node.op)) joinPermutes(node);
        const ValueId in = tensorArg(node, 0);
        if (staysInPlace(node, in) && mayAlias(node.outputs[0], in)) {
          g_.value(node.outputs[0]).alias_of = in;
          if (output_[size_t(node.outputs[0])]) output_[size_t(g_.storage(in))] = true;
          editor.erase(int32_t(i));
          continue;
        }
      }
      for (ValueId v : node.outputs) {
        if (v != kNoValue) producer_[size_t(v)] = int32_t(i);
      }
    }
    editor.apply();
  }

 private:
  bool staysInPlace(const Node& node, ValueId in) const {
    const ValueId out = node.outputs[0];
    if (g_.value(in).dtype != g_.value(out).dtype || g_.value(in).quantization.bits != 0) return false;
    if (isOneOf(node.op, kViews)) return true;
    if (isOneOf(node.op, kReads))
      return sameDims(g_, in, out);  // no value has negative steps: same size is the same bytes
    if (!isPermute(node.op)) return false;
    const std::vector<size_t> perm = permutation(g_, node);
    return perm.size() == g_.value(in).dims.size() && keepsOrder(g_, g_.value(in).dims, perm);
  }

  /// An output of the graph stays a value of its own where its bytes are an input's, a constant's, a state's or another
  /// output's. A state that is overwritten in place has no lasting aliases.
  bool mayAlias(ValueId out, ValueId in) const {
    const ValueId s = g_.storage(in);
    if (written_[size_t(s)]) return false;
    return !output_[size_t(out)] || (producer_[size_t(s)] >= 0 && !output_[size_t(s)]);
  }

  void joinPermutes(Node& node) const {
    const ValueId in = tensorArg(node, 0);
    const ValueId s = g_.storage(in);
    if (producer_[size_t(s)] < 0 || !sameDims(g_, s, in)) return;
    const Node& first = g_.nodes[size_t(producer_[size_t(s)])];
    if (!isPermute(first.op)) return;
    const ValueId source = tensorArg(first, 0);
    if (source == kNoValue || written_[size_t(g_.storage(source))]) return;
    const std::vector<size_t> inner = permutation(g_, first), outer = permutation(g_, node);
    if (inner.empty() || inner.size() != outer.size()) return;
    std::vector<IntArg> joined;
    for (size_t d : outer) joined.push_back({g_.exprs.constant(int64_t(inner[d]))});
    node.args[0] = source;
    node.args[1] = std::move(joined);
  }

  Graph& g_;
  std::vector<bool> written_;      // by storage: a state that a node writes
  std::vector<bool> output_;       // by value and storage: leaves the graph
  std::vector<int32_t> producer_;  // by value
};

}  // namespace

Status canonicalise(Graph& graph) {
  Canonicaliser(graph).run();
  removeDeadNodes(graph);
  return {};
}

}  // namespace etwgpu
