#include "runtime/executor/index_guard.h"

#include <algorithm>

#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {

IndexGuard::IndexGuard(const Graph& graph) {
  const auto add = [&](ValueId indices, ExprId size, ExprId rows = {}, bool wraps = false) {
    if (indices == kNoValue) return;
    const DType dtype = graph.value(indices).dtype;
    if (dtype != DType::i64 && dtype != DType::i32) return;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      if (graph.inputs[i].value != graph.storage(indices)) continue;
      const Use use{i, size, rows, wraps};
      if (std::find(uses_.begin(), uses_.end(), use) == uses_.end()) uses_.push_back(use);
    }
  };
  for (const Node& node : graph.nodes) {
    if (node.op == "aten.embedding.default") {
      add(tensorArg(node, 1), graph.value(tensorArg(node, 0)).dims[0]);
    } else if (node.op == "aten.index_select.default") {
      const auto& dims = graph.value(tensorArg(node, 0)).dims;
      const int64_t dim = intArg(graph, node, 1).value_or(0);
      add(tensorArg(node, 2), dims[size_t(dim < 0 ? dim + int64_t(dims.size()) : dim)]);
    } else if (node.op == "aten.index.Tensor" || node.op == "aten.index_put.default") {
      const auto* indices = std::get_if<std::vector<ValueId>>(&node.args[1]);
      const auto& dims = graph.value(tensorArg(node, 0)).dims;
      for (size_t d = 0; indices && d < indices->size() && d < dims.size(); ++d) add((*indices)[d], dims[d], {}, true);
    } else if (node.op == kCachedAttention || node.op == kAttentionLinear) {
      const auto* positions =
          node.args.size() > kAttentionPositions ? std::get_if<IntArg>(&node.args[kAttentionPositions]) : nullptr;
      const ExprId length = positions ? positions->expr : graph.value(tensorArg(node, kAttentionKCache)).dims[2];
      add(tensorArg(node, kAttentionStart), length, graph.value(tensorArg(node, kAttentionQ)).dims[1]);
    }
  }
}

Status IndexGuard::check(std::span<const DelegateArg> inputs, std::span<const int64_t> values) const {
  for (const Use& use : uses_) {
    const TensorView& tensor = inputs[use.input].tensor;
    if (!tensor.data) continue;
    const int64_t rows = use.rows.valid() ? values[size_t(use.rows.index)] : 1;
    const int64_t size = values[size_t(use.size.index)];
    for (int64_t i = 0, n = tensor.count(); i < n; ++i) {
      const int64_t at = tensor.dtype == DType::i32 ? tensor.as<const int32_t>()[i] : tensor.as<const int64_t>()[i];
      if (at >= (use.wraps ? -size : 0) && at <= size - rows) continue;
      return Status(Code::invalid_argument,
                    use.rows.valid() ? format("input %zu: positions %lld to %lld don't fit into a cache of %lld",
                                              use.input, (long long)at, (long long)(at + rows - 1), (long long)size)
                                     : format("input %zu: index %lld is out of range for a dimension of %lld",
                                              use.input, (long long)at, (long long)size));
    }
  }
  return {};
}

}  // namespace etwgpu
