// Linear layers with plain or quantised weights: what etwgpu.linear and aten.linear share.
#pragma once

#include "runtime/executor/cpu_kernel.h"
#include "runtime/operators/common/cpu_math.h"

namespace etwgpu::cpu {

struct LinearArgs {
  TensorView x, weight, bias, residual, norm_weight;  // data null where absent
  bool has_norm = false;
  float norm_eps = 0;
  Act activation = Act::none;
  bool glu = false;
};

/// See etwgpu.linear in fused_ops.h.
Status runLinear(CpuCall& call, const LinearArgs& args);

}  // namespace etwgpu::cpu
