// Normalisations over contiguous rows of x:
//   rms_norm:            y = x · rsqrt(mean(x²) + eps) · weight
//   layer_norm:          y = (x − mean) · rstd · weight + bias,   rstd = rsqrt(mean((x − mean)²) + eps)
//   group_norm:          layer_norm over a group of channels with all their positions, weight and bias per channel
//   batch norm (eval):   y = (x − running_mean) · rsqrt(running_var + eps) · weight + bias, all per channel
// weight and bias may be None. The variance is found in a second pass, since mean(x²) − mean² cancels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/executor/gpu_kernel.h"

namespace etwgpu::normalization {

struct Kernel {
  std::string_view name;
  Tier tier;
};
std::span<const Kernel> kernels();
/// `function`: "rms", "layer", "group" or "batch".
const Kernel* choose(std::string_view function, Tier tier);
/// Invocations per row: short rows would leave most of a large workgroup idle.
int invocations(int64_t row_length);
/// Describes y = rms_norm(x) · weight over rows of `length` elements, as part of another operator's plan. weight may be
/// kNoValue.
Status describeRmsNorm(GpuPlanContext& c, ValueId x, ValueId weight, ValueId y, ExprId rows, ExprId length, double eps,
                       const DispatchCondition& when);

}  // namespace etwgpu::normalization
