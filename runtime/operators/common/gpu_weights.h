// Constant matrices that are larger than what the device binds: as several constants of some of the rows each.
#pragma once

#include <vector>

#include "runtime/executor/gpu_kernel.h"

namespace etwgpu {

/// Rows [first, first + count) of a constant; `value` holds these and nothing else. With a gate: rows first … of the
/// first half and, behind them, the same rows of the second half.
struct WeightRows {
  int64_t first, count;
  ValueId value;
};

/// The rows of a constant [N, …] as the device binds and allocates them: the constant itself where it fits, else new
/// values whose bytes are slices of its named data, of multiples of 8 rows, all about equally large. What is split in
/// the same way by several nodes is stored once (GpuStore compares the slices). gate: [2 N, K], both halves together.
/// limit_exceeded where 8 rows are too large.
Status splitRows(GpuPlanContext& context, ValueId weight, bool gate, std::vector<WeightRows>& parts);

}  // namespace etwgpu
