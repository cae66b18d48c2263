// Counts the bytes that are allocated, to prove that a damaged file can't make the runtime take more than it may.
#pragma once

#include <cstdint>

namespace etwgpu::fuzz {

void startCounting();
/// Highest sum of live bytes since startCounting(), beyond what was live then.
uint64_t peakBytes();

}  // namespace etwgpu::fuzz
