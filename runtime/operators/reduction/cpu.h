#pragma once

#include "runtime/operators/common/cpu_simd.h"

namespace etwgpu::cpu {

/// p[i] = exp(p[i] − max) in place; returns the sum. max is that of the row, so that the sum is at least 1.
float expRow(float* p, int64_t n, float max);
/// The largest value; NaN if there is one; -inf for n = 0.
float maxOf(const float* p, int64_t n);
/// Softmax (or its logarithm) of a row; out may be x.
void softmaxRow(const float* x, float* out, int64_t n, bool log);

}  // namespace etwgpu::cpu
