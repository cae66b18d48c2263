// The logits of every position, of a graph that gives those of the last one: what checks several drafted tokens in one
// call. Between the selection of the last row and the output, exporters have operators that treat rows alike (a norm,
// the head, a scale); without the selection they give all rows.
#include <algorithm>
#include <array>

#include "runtime/graph/graph.h"

namespace etwgpu {
namespace {

constexpr std::array<std::string_view, 9> kRowWise = {
    "aten.rms_norm.default", "aten.linear.default", "aten.mul.Tensor",       "aten.mul.Scalar",   "aten.div.Tensor",
    "aten.div.Scalar",       "aten.add.Tensor",     "aten._to_copy.default", "aten.tanh.default",
};

Status refuse(const std::string& why) {
  return {Code::unsupported_operator,
          "the graph gives no logits of all positions, since " + why + "; a program exported with --logits all does"};
}

std::optional<int64_t> integer(const Graph& graph, const Node& node, size_t arg) {
  const auto* i = arg < node.args.size() ? std::get_if<IntArg>(&node.args[arg]) : nullptr;
  return i && graph.exprs.isConstant(i->expr) ? std::optional(graph.exprs.constantValue(i->expr)) : std::nullopt;
}

ValueId tensor(const Node& node, size_t arg) {
  const auto* id = arg < node.args.size() ? std::get_if<ValueId>(&node.args[arg]) : nullptr;
  return id ? *id : kNoValue;
}

/// The one computed tensor that a node reads, as its first argument; kNoValue: it reads others.
ValueId onlyOperand(const Graph& graph, const Node& node) {
  for (size_t a = 0; a < node.args.size(); ++a) {
    if (std::holds_alternative<std::vector<ValueId>>(node.args[a])) return kNoValue;
    const ValueId id = tensor(node, a);
    if (a > 0 && id != kNoValue && graph.value(id).kind != ValueKind::constant) return kNoValue;
  }
  return tensor(node, 0);
}

int uses(const Graph& graph, ValueId id) {
  int count = 0;
  for (const Node& node : graph.nodes) {
    for (const Arg& arg : node.args) {
      if (const auto* one = std::get_if<ValueId>(&arg)) count += *one == id;
      if (const auto* many = std::get_if<std::vector<ValueId>>(&arg))
        count += int(std::count(many->begin(), many->end(), id));
    }
  }
  for (const GraphMutation& m : graph.mutations) count += m.value == id;
  return count;
}

}  // namespace

Status keepAllRows(Graph& graph) {
  if (graph.outputs.size() != 1 || graph.outputs[0].value == kNoValue) return refuse("it has other outputs");
  ValueId id = graph.outputs[0].value;
  if (graph.value(id).dims.size() == 3) return {};  // they are there
  if (graph.value(id).dims.size() != 2) return refuse("its output is no row");
  std::vector<ValueId> rows;
  for (int allowed = 0;; allowed = 1) {
    const auto node = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
      return std::find(n.outputs.begin(), n.outputs.end(), id) != n.outputs.end();
    });
    if (node == graph.nodes.end() || node->outputs.size() != 1) return refuse("no row is selected");
    if (uses(graph, id) != allowed) return refuse(graph.value(id).name + " is used elsewhere, too");
    rows.push_back(id);
    const ValueId from = onlyOperand(graph, *node);
    if (from == kNoValue) return refuse(node->name + " combines rows");
    if (node->op == "aten.select_copy.int") {
      const std::vector<ExprId> dims = graph.value(from).dims;
      const bool last = integer(graph, *node, 1) == 1 && integer(graph, *node, 2) == -1;
      if (!last || dims.size() != 3 || !graph.exprs.isConstant(dims[0], 1))
        return refuse(node->name + " does not select the last position");
      for (const ValueId row : rows) graph.value(row).dims[0] = dims[1];
      node->op = "aten.view_copy.default";
      node->args = {from, std::vector<IntArg>{{dims[1]}, {dims[2]}}};
      return {};
    }
    if (std::find(kRowWise.begin(), kRowWise.end(), node->op) == kRowWise.end() || graph.value(id).dims.size() != 2 ||
        !graph.exprs.isConstant(graph.value(id).dims[0], 1)) {
      return refuse(node->op + " ('" + node->name + "') may need the last row alone");
    }
    id = from;
  }
}

}  // namespace etwgpu
