#include "runtime/executor/ring_mark.h"

#include <algorithm>

namespace etwgpu {

RingMark::RingMark(const Graph& graph) : rings_(ringCaches(graph)) {
  for (size_t i = 0; i < graph.inputs.size() && present(); ++i)
    if (graph.inputs[i].value == rings_[0].start) start_input_ = i;
}

int64_t RingMark::oldestStart() const {
  int64_t oldest = 0;
  for (const RingCache& r : rings_) {
    // The row of position j holds j until j + rows is written; a query at p sees p - window + 1 … p, its call writes p.
    if (written_ > r.rows) oldest = std::max(oldest, written_ - r.rows + r.window - 1);
  }
  return oldest;
}

Status RingMark::enter(int64_t start, int64_t n) {
  if (!present()) return {};
  if (start != 0 && start < oldestStart()) {
    return {Code::invalid_argument,
            format("a call from position %lld on sees what is no longer in the caches of layers with a window, which "
                   "have been written up to position %lld: it may begin at %lld, or again at 0",
                   (long long)start, (long long)written_, (long long)oldestStart())};
  }
  written_ = start == 0 ? n : std::max(written_, start + n);
  return {};
}

Status RingMark::enter(const RingMark& of_graph, std::span<const DelegateArg> inputs, std::span<const int64_t> values) {
  if (!present() || !of_graph.present()) return {};
  const TensorView& start = inputs[of_graph.start_input_].tensor;
  const int64_t at = start.dtype == DType::i32 ? *start.as<const int32_t>() : *start.as<const int64_t>();
  return enter(at, values[size_t(of_graph.rings_[0].queries.index)]);
}

}  // namespace etwgpu
