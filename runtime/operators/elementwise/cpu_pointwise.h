// The interpreter of pointwise programs: blocks of 256 elements, one vector loop per instruction and block, so that the
// cost of interpretation vanishes and one set of loops serves every elementwise operator and fused group.
#pragma once

#include "runtime/operators/common/cpu_common.h"

namespace etwgpu::cpu {

struct StridedInput {
  const TensorView* tensor = nullptr;
  Sizes strides;  // one per dimension of the output, in elements
  int64_t offset = 0;
};

/// out (contiguous) = the program's last value. f32 is computed as f32, integers as i64 (wrapped to the type of each
/// instruction), bool as 0 / 1. Fails with invalid_argument on dtypes other than f32, integers and bool, and where an
/// input would be read outside of its tensor.
Status runPointwise(const char* op, const TensorView& out, std::span<const StridedInput> inputs,
                    std::span<const PointwiseInstruction> code, ThreadPool& pool);

}  // namespace etwgpu::cpu
