// Integers of the caller that say where a graph reads or writes: rows of a table, positions of a cache. Kernels of the
// CPU refuse those that are out of range where they use them; those of a GPU cannot, so its calls are checked before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/status.h"
#include "runtime/executor/delegate.h"
#include "runtime/graph/graph.h"

namespace etwgpu {

class IndexGuard {
 public:
  explicit IndexGuard(const Graph& graph);
  /// `values`: what the expressions of the graph come to. Inputs without bytes on the host are not looked at.
  /// invalid_argument names the input and the first index that is out of range.
  Status check(std::span<const DelegateArg> inputs, std::span<const int64_t> values) const;

 private:
  /// Input `input` holds indices into `size` rows, or (`rows` is valid) the first of so many of them; wraps: negative
  /// ones count from the end.
  struct Use {
    size_t input;
    ExprId size, rows;
    bool wraps;
    friend bool operator==(Use, Use) = default;
  };
  std::vector<Use> uses_;
};

}  // namespace etwgpu
