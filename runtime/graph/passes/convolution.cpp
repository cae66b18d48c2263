// convolution: aten.convolution (not transposed) → etwgpu.convolution with what follows it:
//   hardtanh(0, 6) / clamp(0, 6), relu, silu, hardswish, and the addition of a value of the same shape.
#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {
namespace {

std::string activationOf(const Graph& g, const Node& n) {
  if (n.op == "aten.relu.default") return "relu";
  if (n.op == "aten.silu.default") return "silu";
  if (n.op == "aten.hardswish.default") return "hardswish";
  if (n.op == "aten.hardtanh.default" || n.op == "aten.clamp.default") {
    if (numberArg(g, n, 1) == 0.0 && numberArg(g, n, 2) == 6.0) return "relu6";
  }
  return {};
}

void convert(Graph& g) {
  for (Node& n : g.nodes) {
    if (n.op != "aten.convolution.default" || n.args.size() != kConvActivation || flagArg(n, kConvTransposed)) continue;
    n.op = kFusedConvolution;
    n.args.push_back(std::string("none"));
    n.args.push_back(std::monostate{});
  }
}

/// The convolution that produces v, v being its only use; -1 otherwise.
int32_t soleConvolution(const Graph& g, const GraphIndex& index, const NodeEditor& editor, ValueId v) {
  if (v == kNoValue || !index.usedOnce(v) || !index.produced(v, kFusedConvolution)) return -1;
  const int32_t p = index.producer(v);
  return editor.erased(p) || readsState(g, g.nodes[size_t(p)]) ? -1 : p;  // it moves to where v is used
}

void fuseActivations(Graph& g) {
  const GraphIndex index(g);
  NodeEditor editor(g);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& act = g.nodes[i];
    const std::string name = activationOf(g, act);
    const int32_t conv = name.empty() ? -1 : soleConvolution(g, index, editor, tensorArg(act, 0));
    if (conv < 0 || textArg(g.nodes[size_t(conv)], kConvActivation) != "none") continue;
    Node fused = g.nodes[size_t(conv)];
    if (!isNoneArg(fused, kConvResidual) || !sameDims(g, fused.outputs[0], act.outputs[0])) continue;
    fused.name += "+" + act.name;
    fused.args[kConvActivation] = name;
    fused.outputs = act.outputs;
    editor.erase(conv);
    editor.replace(int32_t(i), std::move(fused));
  }
  editor.apply();
}

void fuseResiduals(Graph& g) {
  const GraphIndex index(g);
  NodeEditor editor(g);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& add = g.nodes[i];
    if (add.op != "aten.add.Tensor" || numberArg(g, add, 2).value_or(1) != 1) continue;
    for (size_t a : {size_t(0), size_t(1)}) {
      const ValueId residual = tensorArg(add, 1 - a), y = tensorArg(add, a);
      const int32_t conv = soleConvolution(g, index, editor, y);
      if (conv < 0 || residual == kNoValue || g.value(residual).dtype != DType::f32) continue;
      Node fused = g.nodes[size_t(conv)];
      if (!isNoneArg(fused, kConvResidual) || !sameDims(g, residual, y) || !sameDims(g, y, add.outputs[0])) continue;
      fused.name += "+" + add.name;
      fused.args[kConvResidual] = residual;
      fused.outputs = add.outputs;
      editor.erase(conv);
      editor.replace(int32_t(i), std::move(fused));
      break;
    }
  }
  editor.apply();
}

}  // namespace

Status fuseConvolution(Graph& graph) {
  convert(graph);
  fuseActivations(graph);
  fuseResiduals(graph);  // after the activations: the sum is added to their result
  return {};
}

}  // namespace etwgpu
