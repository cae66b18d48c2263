// From the operators that programs call (out variants, "aten::add.out") to our kernels ("aten.add.Tensor"), which have
// the arguments of the functional schema.
#pragma once

#include <string>
#include <string_view>

namespace etwgpu {

struct KernelName {
  std::string_view name, overload;  // in the program; empty where there is no out variant
  std::string_view kernel;          // ours
  /// One letter per argument of the functional schema, and `?` where None is allowed: T tensor, L tensors, O tensors
  /// each of which may be None, i integer, I integers, s scalar (integer, float or bool), d float, b bool, S text, D
  /// dtype, x ignored (layout, device, memory format).
  std::string_view kinds;
  /// Per argument of the functional schema its position among the program's arguments, or '-' where the out variant
  /// lacks it. The out arguments follow, then the return value.
  std::string_view places;
  int outs;
};

/// nullptr: no kernel of ours serves this operator.
const KernelName* findKernelName(std::string_view name, std::string_view overload);
/// By our name; nullptr for operators that are not in schema/operators.yaml (fused ones).
const KernelName* findKernelSchema(std::string_view kernel);
/// The name of the functional operator by the usual rule ("aten::topk", "values" → "aten.topk.values"): for messages.
std::string functionalName(std::string_view name, std::string_view overload);

}  // namespace etwgpu
