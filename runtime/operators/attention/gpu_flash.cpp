// Attention of many queries by subgroup matrices: when, and described.
#include <cmath>

#include "runtime/operators/attention/gpu_attention.h"

namespace etwgpu::attention {
namespace {

void describeSizes(DispatchBuilder& b, const FlashSize& s, int d, int matrix) {
  const int chunks = s.keys * d / 8;
  b.define("D", d);
  b.define("KEYS", s.keys);
  b.define("SLAB", s.slab);
  b.define("MATRICES_ROWS", 16 / matrix);
  b.define("MATRICES_D", d / matrix);
  b.define("MATRICES_KEYS", s.keys / matrix);
  b.define("MATRICES_SLAB", s.slab / matrix);
  b.define("PAIRS_KEYS", s.keys / 16);
  b.define("PAIRS_SLAB", s.slab / 16);
  b.define("SLABS", d / s.slab);
  b.define("LOADS", (chunks + 127) / 128);
  b.flag("EVEN", chunks % 128 == 0);
  b.define("PLACE_P", s.place_p);
  b.define("STRIDE_S", s.stride_s);
  b.define("TILE", s.words);
}

}  // namespace

Result<bool> describeFlash(GpuPlanContext& c, const Tiles& t, int64_t min_queries) {
  auto& x = c.exprs;
  if (!c.useSubgroupMatrix() || t.mask != kNoValue || !readsHalves(c, t)) return false;
  const FlashSize size = flashSize(t.head_dim, c.caps);
  if (size.keys == 0) return false;
  const Kernel* kernel = choose(Role::tiles, Tier::subgroup_matrix);
  DispatchBuilder b(c, "attention/flash_matrix.wgsl", {});
  b.rename(nameOf(b, t.y, *kernel) + format("_%d", int(t.head_dim)) + (t.causal ? "_causal" : "") +
           (t.ring ? "_ring" : ""));
  for (const auto& [name, v] : {std::pair("q", t.q), {"k", t.k}, {"v", t.v}})
    b.bindTyped(name, v, Access::read, "vec4<u32>");
  if (t.start != kNoValue) b.read("start", t.start);
  addTileParams(b, c, t, 8, t.scale * 1.4426950408889634);  // log2(e): the kernel takes powers of 2
  b.write("y", t.y, 4);
  b.subgroupMatrices();
  describeSizes(b, size, int(t.head_dim), int(c.caps.matrix_size));
  b.define("GROUP", t.group);
  b.flag("CACHED", t.start != kNoValue);
  b.flag("CAUSAL", t.causal);
  describeRing(b, t.ring);
  b.define("STORE", std::string(b.storage(t.y)));
  b.grid(x.ceildiv(t.queries, kFlashQueries), x.mul(t.kv_heads, x.constant(t.group)), t.batches);
  if (min_queries > 1) b.when(t.queries, min_queries, INT64_MAX);
  ETWGPU_TRY(b.finish());
  return true;
}

}  // namespace etwgpu::attention
