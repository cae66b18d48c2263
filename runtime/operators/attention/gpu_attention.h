// What the files of attention's GPU planning share: gpu.cpp (tiles), gpu_cached.cpp (cache write, decoding), and the
// fused operators of decoder/gpu.cpp.
#pragma once

#include <string>

#include "runtime/graph/graph.h"
#include "runtime/operators/attention/attention.h"
#include "runtime/operators/common/gpu_builder.h"

namespace etwgpu::attention {

inline std::string vectorType(std::string_view storage, int width) {
  return width == 4 ? "vec4<" + std::string(storage) + ">" : std::string(storage);
}
inline std::string nameOf(const DispatchBuilder& b, ValueId y, const Kernel& kernel) {
  return std::string(b.storage(y)) + "_" + std::string(kernel.name);
}

/// The defines of ring.wgsl. rows: of caches that are rings; 0: they are not.
inline void describeRing(DispatchBuilder& b, int64_t rows) {
  b.flag("RING", rows > 0);
  if (rows > 0) b.define("ROWS", rows);
}

/// What both kinds of attention ask of the tile kernel. Strides in elements.
struct Tiles {
  ValueId q = kNoValue, k = kNoValue, v = kNoValue, start = kNoValue, mask = kNoValue, y = kNoValue;
  ExprId queries, keys, kv_heads, batches;
  ExprId q_s, q_h, q_b, k_h, k_b, y_s, y_h, y_b;
  int64_t group = 1, head_dim = 0;
  bool causal = false;
  double scale = 1;
  ExprId window;
  int64_t ring = 0;  // rows of caches that are rings; 0: they are not
};

/// Whether queries, keys and values are stored as f16.
inline bool readsHalves(const GpuPlanContext& c, const Tiles& t) {
  for (const ValueId v : {t.q, t.k, t.v})
    if (gpuStorageType(c.graph, v, c.options.precision) != "f16") return false;
  return true;
}

/// The parameters that every kernel of tiles begins with; strides in vectors of `width` elements.
inline void addTileParams(DispatchBuilder& b, GpuPlanContext& c, const Tiles& t, int64_t width, double scale) {
  const ExprId vector = c.exprs.constant(width);
  b.param("queries", t.queries);
  b.param("keys", t.keys);
  for (const auto& [name, stride] : {std::pair("q_s", t.q_s),
                                     {"q_h", t.q_h},
                                     {"q_b", t.q_b},
                                     {"k_h", t.k_h},
                                     {"k_b", t.k_b},
                                     {"y_s", t.y_s},
                                     {"y_h", t.y_h},
                                     {"y_b", t.y_b}})
    b.param(name, c.exprs.floordiv(stride, vector));
  b.param("scale", scale);
  b.param("window", t.window);
}
/// Describes the dispatch for calls with at least min_queries queries.
Status describeTiles(GpuPlanContext& c, const Tiles& t, int64_t min_queries);

/// The same by subgroup matrices, where they suit; false where they do not, with nothing described.
Result<bool> describeFlash(GpuPlanContext& c, const Tiles& t, int64_t min_queries);

/// etwgpu.cached_attention over constant shapes.
struct Cached {
  ValueId q = kNoValue, k = kNoValue, v = kNoValue, start = kNoValue;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t length = 0, positions = 0;  // rows of the caches, positions that there are
  double scale = 1;
  ExprId window, queries;
  int64_t most_visible = 0;  // positions, to a query
  int64_t group() const { return heads / kv_heads; }
  int64_t ring() const { return positions > length ? length : 0; }
};
/// Reads the arguments of the context's node, which begin with those of etwgpu.cached_attention.
Status readCached(GpuPlanContext& c, Cached& out);
/// Can a single query be served by the kernel that splits the cache?
bool canSplit(const GpuPlanContext& c, const Cached& a);
/// The tile kernel with output y, for calls with at least min_queries queries.
Status describeCachedTiles(GpuPlanContext& c, const Cached& a, ValueId y, int64_t min_queries);

/// Results of the parts of the cache: o [Hq, parts, D], each divided by its sum, and ml [Hq, parts, 2]: maximum and
/// sum.
struct Partials {
  ValueId o = kNoValue, ml = kNoValue;
  SplitSize size;
};
/// Describes the dispatch that computes the parts, for calls with one query.
Status describeDecode(GpuPlanContext& c, const Cached& a, Partials& out);

/// All dispatches of the attention, with output y.
Status describeCached(GpuPlanContext& c, const Cached& a, ValueId y);

/// Rotation and cache write of etwgpu.rope_cache_write.
struct CacheWrite {
  ValueId qkv = kNoValue, table = kNoValue, start = kNoValue, k = kNoValue, v = kNoValue, q = kNoValue;
  ValueId q_norm = kNoValue, k_norm = kNoValue;  // weights of the heads' norms, both or neither
  double head_eps = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t length = 0, positions = 0;  // rows of the caches, positions that there are
  int64_t ring() const { return positions > length ? length : 0; }
};
/// Takes the shapes from cache and table; fails where they are not constant.
Status checkCacheWrite(GpuPlanContext& c, ExprId heads, ExprId kv_heads, CacheWrite& w);
/// Describes the dispatch for calls with at least min_rows rows.
Status describeCacheWrite(GpuPlanContext& c, const CacheWrite& w, int64_t min_rows);

/// etwgpu.rope_cache_write and etwgpu.cached_attention.
void registerCachedAttentionGpu(GpuRegistry& r);

}  // namespace etwgpu::attention
