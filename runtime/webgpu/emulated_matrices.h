// Subgroup matrices in plain WGSL, for tests of the kernels that use them on devices that have none.
#pragma once

#include <string>
#include <string_view>

#include "runtime/core/status.h"

namespace etwgpu {

/// Invocations of a subgroup of the emulation, whatever the device's subgroups are.
inline constexpr int kEmulatedLanes = 32;

/// The text of a kernel with its subgroup matrices of `size` (8 or 16) replaced by functions over the 32 lanes of a
/// subgroup, each of which holds a piece of a row of a result. Our kernels keep to these conventions: the types'
/// aliases are Left, Right (f16) and Sums (f32), matrices lie in workgroup arrays of vec4u, vec2u or vec4f, and the
/// entry point takes `li`, `sg` and `lane` in this order. Text without subgroup matrices is returned as it is.
Result<std::string> emulateMatrices(std::string text, int size);

}  // namespace etwgpu
