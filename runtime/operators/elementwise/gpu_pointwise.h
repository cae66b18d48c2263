// The WGSL generator of pointwise programs: one kernel per program and layout class, sizes and strides as parameters.
#pragma once

#include <vector>

#include "runtime/executor/gpu_kernel.h"
#include "runtime/graph/passes/pointwise.h"

namespace etwgpu::elementwise {

/// A tensor as the program reads it.
struct Operand {
  ValueId value = kNoValue;
  PointwiseInput layout;
};

/// Where the result goes: element i of the program's output index space is written at offset + sum(index[d] *
/// strides[d]). Empty strides: contiguous.
struct Target {
  ValueId value = kNoValue;
  Access access = Access::read_write;
  std::vector<ExprId> strides;
  ExprId offset;
};

/// Describes one dispatch that computes `code` over the index space `dims`. Inputs are i32, f32, f16 or bool tensors
/// (8-bit ones are refused as unsupported_operator).
Status describePointwise(GpuPlanContext& context, const std::vector<ExprId>& dims, std::vector<Operand> operands,
                         const std::vector<PointwiseInstruction>& code, const Target& target);

/// A copy of a strided read: permute, expand, slice, cat's parts.
Status describeCopy(GpuPlanContext& context, const std::vector<ExprId>& dims, const Operand& operand,
                    const Target& target);

/// Strides that read `value` broadcast to `dims`.
PointwiseInput broadcastLayout(GpuPlanContext& context, ValueId value, const std::vector<ExprId>& dims);

}  // namespace etwgpu::elementwise
