// Pointwise programs as text: for toText, tests and names of generated kernels.
#pragma once

#include <string>
#include <string_view>

#include "runtime/graph/graph.h"

namespace etwgpu {

/// "add", "gelu_tanh" …
std::string_view pointwiseOpName(PointwiseOp op);
/// "x@[4, 1], y@[0, 1] -> %0=load in0; %1=load in1; %2=add %0 %1"
std::string pointwiseText(const Graph& graph, const Node& node);

}  // namespace etwgpu
