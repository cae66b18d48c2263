// norm_residual: a norm whose only use is a sum becomes one operator with it (norms behind attention and MLP).
//   add(rms_norm(x), r), r of the sizes of x → etwgpu.norm_residual
#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {
namespace {

bool fuse(Graph& g, const GraphIndex& index, NodeEditor& editor, int32_t at) {
  const Node& add = g.nodes[size_t(at)];
  if (add.op != "aten.add.Tensor" || numberArg(g, add, 2).value_or(1) != 1) return false;
  for (size_t i : {size_t(1), size_t(0)}) {
    const ValueId normed = tensorArg(add, i), residual = tensorArg(add, 1 - i);
    if (normed == kNoValue || residual == kNoValue || g.storage(normed) == g.storage(residual)) continue;
    const Node* norm = index.produced(normed, "aten.rms_norm.default");
    const int32_t producer = index.producer(normed);
    if (!norm || !index.usedOnce(normed) || editor.erased(producer) || readsState(g, *norm)) continue;
    if (g.value(residual).dtype != DType::f32 || !sameDims(g, normed, add.outputs[0]) ||
        !sameDims(g, residual, add.outputs[0]))
      continue;
    Node fused = *norm;
    fused.op = kNormResidual;
    fused.name += "+" + add.name;
    fused.args.resize(kNormResidualArgCount);
    fused.args[kNormResidualAdded] = residual;
    fused.outputs = add.outputs;
    editor.erase(producer);
    editor.replace(at, std::move(fused));
    return true;
  }
  return false;
}

}  // namespace

Status fuseNormResidual(Graph& graph) {
  applyToAll(graph, fuse);
  return {};
}

}  // namespace etwgpu
