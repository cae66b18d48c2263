#pragma once

#include "runtime/operators/common/cpu_simd.h"

namespace etwgpu::cpu {

float sumOf(const float* p, int64_t n);
float sumOfSquares(const float* p, int64_t n);

struct Moments {
  float mean, variance;
};
/// Mean and biased variance of n > 0 values, in two passes.
Moments momentsOf(const float* p, int64_t n);

/// out = (x · scale + shift) · weight + bias; weight and bias may be null, out may be x.
void scaleRow(const float* x, float scale, float shift, const float* weight, const float* bias, float* out, int64_t n);

/// out = x / sqrt(mean(x²) + eps) · weight; weight may be null, out may be x.
void rmsNormRow(const float* x, const float* weight, float eps, float* out, int64_t n);

}  // namespace etwgpu::cpu
