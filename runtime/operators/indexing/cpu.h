#pragma once

#include <cstdint>

namespace etwgpu::cpu {

/// Row n of a quantised weight as K floats.
void dequantiseRow(const void* words, const void* constants, int bits, int group, bool symmetric, int64_t K, int64_t n,
                   float* out);

}  // namespace etwgpu::cpu
