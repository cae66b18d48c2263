// Choice and sizes of attention kernels: pure functions, no device.
#include "runtime/operators/attention/attention.h"

#include <algorithm>

namespace etwgpu::attention {
namespace {

#define KERNEL(name, tier, role) {#name, Tier::tier, Role::role},
constexpr Kernel kKernels[] = {
#include "runtime/operators/attention/variants.inc"
};
#undef KERNEL

}  // namespace

std::span<const Kernel> kernels() { return kKernels; }

const Kernel* choose(Role role, Tier tier) {
  for (const Kernel& k : kKernels)
    if (k.role == role && k.tier <= tier) return &k;
  return nullptr;
}

int splits(int64_t length) { return int(std::clamp<int64_t>((length + 127) / 128, 1, 32)); }

int64_t decodeWorkgroupBytes(int64_t group, int64_t head_dim) {
  // queries, scores, partial maxima, and one vec4 an invocation for sums
  return 4 * (group * head_dim + group * kDecodePositions + group * 16) + 16 * kDecodeInvocations;
}

}  // namespace etwgpu::attention
