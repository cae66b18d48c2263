// Choice of the next token where the logits are.
//   etwgpu.argmax: logits [..., V] f32; output i32, one index per row: the largest value's lowest index. NaN never
//   wins, unless all values are NaN: then index 0. With start (i64 [1]) and an integer, the GPU adds the integer to
//   start: the position of the token it has chosen. The planner makes such nodes, the exporter doesn't.
#pragma once

#include <string_view>

namespace etwgpu {

inline constexpr std::string_view kArgmax = "etwgpu.argmax";
enum ArgmaxArg { kArgmaxLogits, kArgmaxStart, kArgmaxAdvance, kArgmaxArgCount };

}  // namespace etwgpu
