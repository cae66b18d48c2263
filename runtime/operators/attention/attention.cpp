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

FlashSize flashSize(int64_t head_dim, const GpuCapabilities& caps) {
  const int d = int(head_dim), row = d / 8 + 1;
  if (head_dim % 16 || head_dim > 256) return {};
  const int most = d % 64 == 0 ? 64 : d % 32 == 0 ? 32 : 16;
  // 64 keys of large heads would not leave room for a second workgroup on a processor.
  for (const auto& [keys, slab] : {std::pair(d <= 64 ? 64 : 32, most), std::pair(32, std::min(most, 32))}) {
    FlashSize s{keys, slab};
    s.place_p = std::max(keys * row, kFlashQueries * (keys / 8 + 1));
    s.stride_s = std::max(keys, std::max(slab, 32)) / 4 + 2;
    s.words = std::max(s.place_p + keys * row + kFlashQueries * s.stride_s, kFlashQueries * row);
    if (s.words * 16 <= int(caps.max_workgroup_bytes)) return s;
  }
  return {};
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

WideDecode wideDecode(const WideProblem& p) {
  WideDecode w;
  const int64_t elements = p.half ? 8 : 4, halves = elements / 4;
  const int64_t vectors = p.head_dim / elements;
  if (p.head_dim % elements || p.group > 8 || p.subgroup < 8) return w;
  int lanes = 1;  // of eight elements each: fewer shuffles than with four
  while (2 * lanes <= p.subgroup && 2 * lanes <= 32 && p.head_dim % (16 * lanes) == 0) lanes *= 2;
  if (vectors % lanes) return w;
  w.lanes_of_position = lanes;
  w.vectors_of_lane = int(vectors / lanes);
  // queries and sums stay in registers
  if (2 * 4 * halves * p.group * w.vectors_of_lane > 144) return w;
  // small subgroups are software, whose compilers take seconds for long kernels
  w.ahead = w.vectors_of_lane > 2 ? 1 : p.subgroup <= 8 ? 2 : 4;
  w.invocations = int(std::min<int64_t>(256, p.max_invocations));
  const int64_t subgroups = w.invocations / p.subgroup, small = 8 * p.group * subgroups;
  const auto sums = [&](int64_t heads) { return 4 * subgroups * heads * p.head_dim; };
  // a part that fits is one tile: a second one for its last positions would cost a round of its own
  const auto tile = [&](int64_t bytes) { return std::min<int64_t>(bytes / (4 * p.group), p.part_positions); };
  const int64_t room = p.max_workgroup_bytes - small;
  w.together = tile(room - sums(p.group)) >= std::min<int64_t>(p.part_positions, 256);
  const int64_t left = room - sums(w.together ? p.group : 1);
  if (left < 4 * p.group * 32) return w;
  w.tile = int(std::min<int64_t>(tile(left), 2048));
  w.single = w.tile >= p.part_positions;
  w.usable = w.tile >= 1;
  return w;
}

}  // namespace etwgpu::attention
