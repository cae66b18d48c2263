// Convolution of NCHW tensors: an implicit matrix product whose panels are columns of the input, and a direct kernel
// for depthwise layers.
#pragma once

#include "runtime/operators/common/cpu_math.h"
#include "runtime/operators/matmul/cpu_gemm.h"

namespace etwgpu::cpu {

/// A two-dimensional convolution; one-dimensional ones have height 1.
struct ConvShape {
  int64_t images = 1, groups = 1;
  int64_t channels = 1, height = 1, width = 1;  // of one image; channels over all groups
  int64_t out_channels = 1, out_height = 1, out_width = 1;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;

  int64_t inPlane() const { return height * width; }
  int64_t outPlane() const { return out_height * out_width; }
  int64_t depth() const { return channels / groups * kernel_h * kernel_w; }
};

struct ConvOperands {
  const float *x = nullptr, *weight = nullptr, *bias = nullptr, *residual = nullptr;
  float* out = nullptr;
  Act activation = Act::none;
};

void convolve(const ConvShape& shape, const ConvOperands& operands, ThreadPool& pool);

}  // namespace etwgpu::cpu
