#pragma once

#include <cstdint>

namespace etwgpu::cpu {

/// Index of the largest of n > 0 values, the first of equals; NaN counts as largest, as in PyTorch.
int64_t argmaxRow(const float* p, int64_t n);

}  // namespace etwgpu::cpu
