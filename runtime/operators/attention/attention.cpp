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

SplitSize splitSize(int64_t length, int64_t kv_heads, bool narrow) {
  // A part costs a workgroup here and a read of its result in every workgroup of the product behind: 16 parts of 8
  // heads were best on a GPU of 132 processors, 32 cost more in the product than they save.
  const int64_t positions = narrow ? 128 : 32;
  const int64_t most = narrow ? 32 : std::clamp<int64_t>(128 / kv_heads, 8, 32);
  return {int(std::clamp<int64_t>((length + positions - 1) / positions, 1, most)), int(positions)};
}

int64_t decodeWorkgroupBytes(int64_t group, int64_t head_dim) {
  // queries, scores, partial maxima, and one vec4 an invocation for sums
  return 4 * (group * head_dim + group * kDecodePositions + group * 16) + 16 * kDecodeInvocations;
}

}  // namespace etwgpu::attention
