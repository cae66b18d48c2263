// Choice of the next token where the logits are.
//   etwgpu.argmax: logits [..., V] f32; output i32, one index per row: the largest value's lowest index. NaN never
//   wins, unless all values are NaN: then index 0. With start (i64 [1]) and an integer, the GPU adds the integer to
//   start: the position of the token it has chosen. The planner makes such nodes, the exporter doesn't.
//   etwgpu.sample: logits [1, V] or [1, S, V] f32 (of several positions, the last one counts), start i64 [1], an
//   integer, options i32 [8] (see sampleOptions), seen i32 [2 * W], W = V / 32 rounded up: a bit for each token that
//   was seen, then one for each that may be chosen; output ids i32 with the token at its position, and i32 [2]: the
//   token, and as f32 bits the logarithm of the probability that the model gives it. start as for argmax, and the
//   token's bit in `seen` is set. Its dispatches are those of kSamplePasses.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "runtime/core/sampling_options.h"

namespace etwgpu {

inline constexpr std::string_view kArgmax = "etwgpu.argmax";
enum ArgmaxArg { kArgmaxLogits, kArgmaxStart, kArgmaxAdvance, kArgmaxArgCount };

inline constexpr std::string_view kSample = "etwgpu.sample";
enum SampleArg { kSampleLogits, kSampleStart, kSampleAdvance, kSampleOptions, kSampleSeen, kSampleArgCount };

/// Filters that need passes of their own.
enum SampleFilter : int8_t { kAnyFilter = 0, kTopKFilter = 1, kTopPFilter = 2 };
/// The dispatches of etwgpu.sample in order, by the filter that must be on for them to be run.
inline constexpr SampleFilter kSamplePasses[] = {kAnyFilter,  kTopKFilter, kTopKFilter, kTopKFilter, kTopPFilter,
                                                 kTopPFilter, kTopPFilter, kAnyFilter,  kAnyFilter};
/// Bits of SampleFilter.
inline int sampleFilters(const SamplingOptions& o) {
  if (o.temperature <= 0) return 0;
  return (o.top_k > 0 ? kTopKFilter : 0) | (o.top_p < 1 ? kTopPFilter : 0);
}
inline constexpr size_t kSampleOptionWords = 8;
/// The words of `options`. masked: only tokens with their bit in the second half of `seen` may be chosen.
std::array<uint32_t, kSampleOptionWords> sampleOptions(const SamplingOptions& options, bool masked);

}  // namespace etwgpu
