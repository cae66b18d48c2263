// Attention: y = softmax(scale · q kᵀ + mask) v per head; query heads share key heads in groups of Hq / Hkv.
//   etwgpu.rope_cache_write, etwgpu.cached_attention   contract: graph/fused_ops.h
//   aten.scaled_dot_product_attention                  q [B, Hq, S, D], k and v [B, Hkv, T, D], mask broadcast to [B,
//   Hq, S, T]
// One query (decode): the used part of the cache is split over a fixed number of workgroups per key head, so that the
// grid does not depend on the position, and a second dispatch combines their maxima, sums and outputs. More queries
// (prefill): tiles of 32 (query, head of the group) rows against tiles of 64 keys with a running softmax. Rows without
// any visible key give 0.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/executor/gpu_kernel.h"

namespace etwgpu::attention {

enum class Role : uint8_t { rope, decode_wide, decode, combine, tiles, tiles_wide };
struct Kernel {
  std::string_view name;
  Tier tier;
  Role role;
};
std::span<const Kernel> kernels();
const Kernel* choose(Role role, Tier tier);

/// Of the tile kernel for GPUs that are not narrow.
constexpr int kWideTileRows = 64, kWideTileMaxHead = 128;
constexpr int kTileRows = 32, kTileKeys = 64;
/// The kernel by subgroup matrices: 64 queries a workgroup, `keys` at a time, the output in slabs of `slab` columns;
/// keys 0: it does not fit into the device's workgroup memory, or the head's size is no multiple of 16.
struct FlashSize {
  int keys = 0, slab = 0;
  int place_p = 0, stride_s = 0, words = 0;  // vec4u: of the keys' place, between rows of scores, in all
};
constexpr int kFlashQueries = 64;
FlashSize flashSize(int64_t head_dim, const GpuCapabilities& caps);
/// Invocations and positions at a time of the decode kernel.
constexpr int kDecodeInvocations = 128, kDecodePositions = 128;

/// How decoding splits the visible positions of a cache: into at most `parts` parts of ceil(visible / parts), but at
/// least `positions` positions; parts beyond them are empty. The grid does not depend on the position.
struct SplitSize {
  int parts, positions;
};
SplitSize splitSize(int64_t length, int64_t kv_heads, bool narrow);
/// Bytes of workgroup memory of the decode kernel; above the device's limit the tile kernel decodes.
int64_t decodeWorkgroupBytes(int64_t group, int64_t head_dim);

/// The shape of decode_wide.wgsl; usable false where its registers or shuffles don't fit, and decode.wgsl serves.
struct WideDecode {
  bool usable = false;
  int invocations = 256;
  int lanes_of_position = 8, vectors_of_lane = 1;  // vectors of 16 bytes
  int ahead = 4;                                   // positions in flight
  int tile = 512;                                  // positions
  bool single = true;                              // every part fits a tile
  bool together = true;
};
struct WideProblem {
  int64_t group = 1, head_dim = 64;
  bool half = false;             // the caches are f16
  int64_t part_positions = 512;  // at most
  int subgroup = 32;             // at least
  int64_t max_invocations = 256, max_workgroup_bytes = 16384;
};
WideDecode wideDecode(const WideProblem& problem);

}  // namespace etwgpu::attention
