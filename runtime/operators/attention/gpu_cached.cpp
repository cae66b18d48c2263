// rope_cache_write and cached_attention: choose, size, describe.
#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/attention/gpu_attention.h"

namespace etwgpu {
namespace attention {

Status checkCacheWrite(GpuPlanContext& c, ExprId heads, ExprId kv_heads, CacheWrite& w) {
  const auto hq = constantOf(c, heads), hk = constantOf(c, kv_heads);
  const auto& cache = c.graph.value(w.k).dims;
  if (!hq || !hk || cache.size() != 4) return unsupported(c, "heads must be constant, the cache [1, H, L, D]");
  const auto d = constantOf(c, cache[3]), length = constantOf(c, cache[2]),
             positions = constantOf(c, dimOf(c, w.table, 0));
  if (!d || !length || !positions || *positions < *length || *d % 2)
    return unsupported(c, "cache and table must have constant shapes, the head an even size");
  w.heads = *hq;
  w.kv_heads = *hk;
  w.head_dim = *d;
  w.length = *length;
  w.positions = *positions;
  if ((w.q_norm == kNoValue) != (w.k_norm == kNoValue)) return unsupported(c, "a norm of queries or keys alone");
  return {};
}

Status describeCacheWrite(GpuPlanContext& c, const CacheWrite& w, int64_t min_rows) {
  auto& x = c.exprs;
  const int width = w.head_dim % 8 == 0 ? 4 : 1;
  const Kernel* kernel = choose(Role::rope, Tier::baseline);
  DispatchBuilder b(c, "attention/rope_cache_write.wgsl", {});
  b.rename(nameOf(b, w.q, *kernel) + (w.ring() ? "_ring" : ""));
  b.read("qkv", w.qkv, width);
  b.read("table", w.table, width);
  b.read("start", w.start);
  b.write("k_cache", w.k, width);
  b.write("v_cache", w.v, width);
  b.write("q", w.q, width);
  b.flag("VEC4", width == 4);
  b.define("STORE_Q", vectorType(b.storage(w.q), width));
  b.define("STORE_K", vectorType(b.storage(w.k), width));
  const ExprId rows = dimOf(c, w.qkv, -2), pairs = x.constant(w.head_dim / 2 / width);
  b.param("rows", rows);
  b.param("heads", x.constant(w.heads));
  b.param("kv_heads", x.constant(w.kv_heads));
  b.param("pairs", pairs);
  b.param("length", x.constant(w.length));
  b.param("positions", x.constant(w.positions));
  describeRing(b, w.ring());
  const bool normed = w.q_norm != kNoValue;
  b.flag("HEAD_NORM", normed);
  const ExprId all = x.mul(rows, x.constant(w.heads + 2 * w.kv_heads));
  if (normed) {
    b.read("q_norm", w.q_norm, width);
    b.read("k_norm", w.k_norm, width);
    b.param("head_eps", w.head_eps);
    b.subgroups(false);
    b.define("WG", 64);
  }
  // a head of a row takes as many invocations as it has pairs, with a norm a workgroup
  b.grid(foldedGrid(c, normed ? all : x.ceildiv(x.mul(all, pairs), 64)));
  if (min_rows > 1) b.when(rows, min_rows, INT64_MAX);
  return b.finish();
}

Status readCached(GpuPlanContext& c, Cached& out) {
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({kAttentionQ, kAttentionKCache, kAttentionVCache, kAttentionStart}));
  out.q = a.value(kAttentionQ);
  out.k = a.value(kAttentionKCache);
  out.v = a.value(kAttentionVCache);
  out.start = a.value(kAttentionStart);
  const auto &q = c.graph.value(out.q).dims, &k = c.graph.value(out.k).dims;
  if (q.size() != 4 || k.size() != 4) return unsupported(c, "needs q [1, S, Hq, D] and a cache [1, Hkv, L, D]");
  const auto heads = constantOf(c, q[2]), d = constantOf(c, q[3]), kv_heads = constantOf(c, k[1]),
             length = constantOf(c, k[2]);
  if (!heads || !d || !kv_heads || !length || *heads % *kv_heads || *d % 4 || *d > 256)
    return unsupported(c, "heads, cache length and head size (a multiple of 4, at most 256) must be constant");
  out.heads = *heads;
  out.kv_heads = *kv_heads;
  out.head_dim = *d;
  out.length = *length;
  out.queries = q[1];
  out.scale = a.number(kAttentionScale, 1 / std::sqrt(double(*d)), c.exprs);
  out.window = a.integer(kAttentionWindow).valid() ? a.integer(kAttentionWindow) : c.exprs.constant(0);
  const int64_t window = constantOf(c, out.window).value_or(0);
  out.positions = constantOf(c, a.integer(kAttentionPositions)).value_or(out.length);
  if (out.ring() &&
      (window < 1 || window + c.exprs.bounds(out.queries).max - 1 > out.length || out.length % kRingAlignment != 0))
    return unsupported(c, "a ring must hold the window and what a call brings");
  out.most_visible = out.ring() ? window : out.length;
  return {};
}

bool canSplit(const GpuPlanContext& c, const Cached& a) {
  return c.exprs.bounds(a.queries).min <= 1 &&
         decodeWorkgroupBytes(a.group(), a.head_dim) <= int64_t(c.caps.max_workgroup_bytes);
}

Status describeCachedTiles(GpuPlanContext& c, const Cached& a, ValueId y, int64_t min_queries) {
  auto& x = c.exprs;
  Tiles t;
  t.q = a.q;
  t.k = a.k;
  t.v = a.v;
  t.start = a.start;
  t.y = y;
  t.queries = a.queries;
  t.keys = x.constant(a.length);
  t.kv_heads = x.constant(a.kv_heads);
  t.batches = x.constant(1);
  t.group = a.group();
  t.head_dim = a.head_dim;
  t.causal = true;
  t.scale = a.scale;
  t.window = a.window;
  t.ring = a.ring();
  t.q_h = t.y_h = x.constant(a.head_dim);
  t.q_s = t.y_s = x.constant(a.heads * a.head_dim);
  t.k_h = x.constant(a.length * a.head_dim);
  t.q_b = t.k_b = t.y_b = x.constant(0);
  return describeTiles(c, t, min_queries);
}

namespace {

/// What only decode_wide.wgsl binds and defines; describeAny: decode.wgsl.
void describeWide(DispatchBuilder& b, const GpuPlanContext& c, const Cached& a, const WideDecode& w, int subgroup) {
  const bool half = gpuStorageType(c.graph, a.k, c.options.precision) == "f16";
  b.bindTyped("k_cache", a.k, Access::read, half ? "vec4<u32>" : "vec4<f32>");
  b.bindTyped("v_cache", a.v, Access::read, half ? "vec4<u32>" : "vec4<f32>");
  b.subgroups(true);
  b.define("WG", w.invocations);
  b.define("LP", w.lanes_of_position);
  b.define("VP", w.vectors_of_lane);
  b.define("AHEAD", w.ahead);
  b.define("HALVES", half ? 2 : 1);
  b.define("TILE", w.tile);
  b.flag("SINGLE", w.single);
  b.define("LOG_LP", std::countr_zero(uint32_t(w.lanes_of_position)));
  b.define("LOG_LANES", std::countr_zero(uint32_t(subgroup)));
  b.flag("TOGETHER", w.together);
  b.flag("FIXED", c.caps.subgroup_min == c.caps.subgroup_max);
  b.define("LANES", subgroup);
}

void describeAny(DispatchBuilder& b, const Cached& a, bool subgroups) {
  b.read("k_cache", a.k, 4);
  b.read("v_cache", a.v, 4);
  b.subgroups(subgroups);
  b.define("LANES", subgroups ? 4 : 1);
}

}  // namespace

Status describeDecode(GpuPlanContext& c, const Cached& a, Partials& out) {
  auto& x = c.exprs;
  out.size = splitSize(a.most_visible, a.kv_heads, c.narrow());
  if (const Tuning::Values* most = c.narrow() ? nullptr : c.tuned("attention.parts"))
    out.size.parts =
        int(std::clamp<int64_t>((a.most_visible + out.size.positions - 1) / out.size.positions, 1, most->front()));
  const ExprId parts = x.constant(out.size.parts), heads = x.constant(a.heads);
  out.o = c.newScratch(DType::f32, {heads, parts, x.constant(a.head_dim)});
  out.ml = c.newScratch(DType::i32, {heads, parts, x.constant(2)});  // 4 bytes an element under every precision
  const int subgroup = int(std::max<uint32_t>(c.caps.subgroup_min, 4));
  WideProblem problem{a.group(), a.head_dim, gpuStorageType(c.graph, a.k, c.options.precision) == "f16"};
  problem.part_positions =
      std::max<int64_t>((a.most_visible + out.size.parts - 1) / out.size.parts, out.size.positions);
  problem.subgroup = subgroup;
  problem.max_invocations = c.caps.max_invocations;
  problem.max_workgroup_bytes = c.caps.max_workgroup_bytes;
  const WideDecode w = wideDecode(problem);
  const bool wide = w.usable && c.useSubgroups() && !c.narrow();
  const bool subgroups = c.useSubgroups() && a.head_dim % 16 == 0;
  const Kernel* kernel =
      choose(wide ? Role::decode_wide : Role::decode, subgroups || wide ? Tier::subgroups : Tier::baseline);
  DispatchBuilder b(c, wide ? "attention/decode_wide.wgsl" : "attention/decode.wgsl", {});
  b.rename(nameOf(b, out.o, *kernel) + (a.ring() ? "_ring" : ""));
  b.read("q", a.q, 4);
  if (wide) {
    describeWide(b, c, a, w, subgroup);
  } else {
    describeAny(b, a, subgroups);
  }
  b.read("start", a.start);
  b.bind("partial_o", out.o, Access::read_write, 4);
  b.bindTyped("partial_ml", out.ml, Access::read_write, "vec2<f32>");
  b.define("GROUP", a.group());
  b.define("D", a.head_dim);
  b.define("STORE", vectorType(b.storage(out.o), 4));
  describeRing(b, a.ring());
  b.param("length", x.constant(a.length));
  b.param("parts", parts);
  b.param("part_positions", x.constant(out.size.positions));
  b.param("scale", a.scale);
  b.param("window", a.window);
  b.grid(x.constant(a.kv_heads), parts);
  b.when(a.queries, 1, 1);
  return b.finish();
}

namespace {

Status describeCombine(GpuPlanContext& c, const Cached& a, const Partials& p, ValueId y) {
  auto& x = c.exprs;
  const Kernel* combine = choose(Role::combine, Tier::baseline);
  DispatchBuilder b(c, "attention/combine.wgsl", {});
  b.rename(nameOf(b, y, *combine));
  b.bind("partial_o", p.o, Access::read_write, 4);
  b.bindTyped("partial_ml", p.ml, Access::read_write, "vec2<f32>");
  b.write("y", y, 4);
  b.define("D", a.head_dim);
  b.define("STORE", vectorType(b.storage(y), 4));
  b.param("parts", x.constant(p.size.parts));
  b.grid(x.constant(a.heads));
  b.when(a.queries, 1, 1);
  return b.finish();
}

}  // namespace

Status describeCached(GpuPlanContext& c, const Cached& a, ValueId y) {
  const bool split = canSplit(c, a);
  if (split) {
    Partials partials;
    ETWGPU_TRY(describeDecode(c, a, partials));
    ETWGPU_TRY(describeCombine(c, a, partials, y));
  }
  return c.exprs.bounds(a.queries).max > 1 || !split ? describeCachedTiles(c, a, y, split ? 2 : 1) : Status();
}

}  // namespace attention

namespace {

using namespace attention;

Status planRopeCacheWrite(GpuPlanContext& c) {
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({kRopeQkv, kRopeTable, kRopeStart, kRopeKCache, kRopeVCache}));
  CacheWrite w;
  w.qkv = a.value(kRopeQkv);
  w.table = a.value(kRopeTable);
  w.start = a.value(kRopeStart);
  w.k = a.value(kRopeKCache);
  w.v = a.value(kRopeVCache);
  w.q = a.output();
  w.q_norm = a.value(kRopeQNorm);
  w.k_norm = a.value(kRopeKNorm);
  w.head_eps = a.number(kRopeHeadEps, 0);
  ETWGPU_TRY(checkCacheWrite(c, a.integer(kRopeHeads), a.integer(kRopeKvHeads), w));
  return describeCacheWrite(c, w, 1);
}

Status planCachedAttention(GpuPlanContext& c) {
  Cached a;
  ETWGPU_TRY(readCached(c, a));
  return describeCached(c, a, c.node().outputs[0]);
}

}  // namespace

namespace attention {

void registerCachedAttentionGpu(GpuRegistry& r) {
  r.add(kRopeCacheWrite, planRopeCacheWrite);
  r.add(kCachedAttention, planCachedAttention);
}

}  // namespace attention
}  // namespace etwgpu
