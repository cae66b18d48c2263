// What caches that are rings (graph/ring.h) still hold of the past.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/status.h"
#include "runtime/executor/delegate.h"
#include "runtime/graph/ring.h"

namespace etwgpu {

class RingMark {
 public:
  RingMark() = default;
  explicit RingMark(const Graph& graph);

  bool present() const { return !rings_.empty(); }
  /// Calls may begin at 0, or at this position and behind it: what they see before that has not been overwritten.
  int64_t oldestStart() const;
  /// Positions below it have been written since a call last began at 0.
  int64_t written() const { return written_; }
  void setWritten(int64_t written) { written_ = written; }
  /// A call writes positions start … start + n − 1. invalid_argument, with nothing noted, if it begins too early.
  Status enter(int64_t start, int64_t n);
  /// The same of a call with these inputs, `values` being what the expressions of its graph come to; of_graph: the mark
  /// that was made of that graph.
  Status enter(const RingMark& of_graph, std::span<const DelegateArg> inputs, std::span<const int64_t> values);

 private:
  std::vector<RingCache> rings_;
  size_t start_input_ = 0;
  int64_t written_ = 0;
};

}  // namespace etwgpu
