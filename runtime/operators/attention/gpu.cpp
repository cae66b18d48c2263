// rope_cache_write, cached_attention and scaled_dot_product_attention: choose, size, describe.
#include <algorithm>
#include <cmath>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/attention/attention.h"
#include "runtime/operators/common/gpu_builder.h"

namespace etwgpu {
namespace {

using namespace attention;

std::string vectorType(std::string_view storage, int width) {
  return width == 4 ? "vec4<" + std::string(storage) + ">" : std::string(storage);
}
std::string nameOf(const DispatchBuilder& b, ValueId y, const Kernel& kernel) {
  return std::string(b.storage(y)) + "_" + std::string(kernel.name);
}

Status planRopeCacheWrite(GpuPlanContext& c) {
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({kRopeQkv, kRopeTable, kRopeStart, kRopeKCache, kRopeVCache}));
  auto& x = c.exprs;
  const ValueId qkv = a.value(kRopeQkv), k = a.value(kRopeKCache), v = a.value(kRopeVCache), q = a.output();
  const auto heads = constantOf(c, a.integer(kRopeHeads)), kv_heads = constantOf(c, a.integer(kRopeKvHeads));
  const auto& cache = c.graph.value(k).dims;
  if (!heads || !kv_heads || cache.size() != 4) return unsupported(c, "heads must be constant, the cache [1, H, L, D]");
  const auto d = constantOf(c, cache[3]), length = constantOf(c, cache[2]);
  if (!d || !length || *d % 2) return unsupported(c, "the cache must have a constant shape and an even head size");
  const int width = *d % 8 == 0 ? 4 : 1;
  const Kernel* kernel = choose(Role::rope, Tier::baseline);
  DispatchBuilder b(c, "attention/rope_cache_write.wgsl", {});
  b.rename(nameOf(b, q, *kernel));
  b.read("qkv", qkv, width);
  b.read("table", a.value(kRopeTable), width);
  b.read("start", a.value(kRopeStart));
  b.write("k_cache", k, width);
  b.write("v_cache", v, width);
  b.write("q", q, width);
  b.flag("VEC4", width == 4);
  b.define("STORE_Q", vectorType(b.storage(q), width));
  b.define("STORE_K", vectorType(b.storage(k), width));
  const ExprId rows = dimOf(c, qkv, -2), pairs = x.constant(*d / 2 / width);
  b.param("rows", rows);
  b.param("heads", x.constant(*heads));
  b.param("kv_heads", x.constant(*kv_heads));
  b.param("pairs", pairs);
  b.param("length", x.constant(*length));
  const ExprId all = x.mul(x.mul(rows, x.constant(*heads + 2 * *kv_heads)), pairs);
  b.grid(foldedGrid(c, x.ceildiv(all, 64)));
  return b.finish();
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
};

void bindMask(DispatchBuilder& b, GpuPlanContext& c, const Tiles& t) {
  auto& x = c.exprs;
  b.read("mask", t.mask);
  b.define("MASK", c.graph.value(t.mask).dtype == DType::boolean ? "bool" : "float");
  // [.., .., S, T]: a dimension of 1 is broadcast
  const auto& dims = c.graph.value(t.mask).dims;
  const int rank = int(dims.size());
  ExprId stride = x.constant(1);
  const char* names[] = {"mask_t", "mask_s", "mask_h", "mask_b"};
  for (int i = 0; i < 4; i++) {
    const ExprId dim = i < rank ? dims[size_t(rank - 1 - i)] : x.constant(1);
    b.param(names[i], x.isConstant(dim, 1) ? x.constant(0) : stride);
    stride = x.mul(stride, dim);
  }
}

Status describeTiles(GpuPlanContext& c, const Tiles& t, int64_t min_queries) {
  auto& x = c.exprs;
  const Kernel* kernel = choose(Role::tiles, Tier::baseline);
  DispatchBuilder b(c, "attention/tiles.wgsl", {});
  b.rename(nameOf(b, t.y, *kernel) + (t.causal ? "_causal" : "") + (t.mask != kNoValue ? "_mask" : ""));
  b.read("q", t.q, 4);
  b.read("k", t.k, 4);
  b.read("v", t.v, 4);
  if (t.start != kNoValue) b.read("start", t.start);
  const ExprId four = x.constant(4);
  const auto stride = [&](const char* name, ExprId e) { b.param(name, x.floordiv(e, four)); };
  b.param("queries", t.queries);
  b.param("keys", t.keys);
  stride("q_s", t.q_s);
  stride("q_h", t.q_h);
  stride("q_b", t.q_b);
  stride("k_h", t.k_h);
  stride("k_b", t.k_b);
  stride("y_s", t.y_s);
  stride("y_h", t.y_h);
  stride("y_b", t.y_b);
  b.param("scale", t.scale);
  b.param("window", t.window);
  if (t.mask != kNoValue) {
    bindMask(b, c, t);
  } else {
    b.define("MASK", "none");
  }
  b.write("y", t.y, 4);
  b.define("GROUP", t.group);
  b.define("D", t.head_dim);
  b.define("COLUMNS", (t.head_dim + 63) / 64);
  b.flag("CACHED", t.start != kNoValue);
  b.flag("CAUSAL", t.causal);
  b.define("STORE", vectorType(b.storage(t.y), 4));
  b.grid(x.ceildiv(x.mul(t.queries, x.constant(t.group)), kTileRows), t.kv_heads, t.batches);
  if (min_queries > 1) b.when(t.queries, min_queries, INT64_MAX);
  return b.finish();
}

Status describeDecode(GpuPlanContext& c, const Tiles& t, int64_t length, int64_t kv_heads) {
  auto& x = c.exprs;
  const int64_t heads = kv_heads * t.group;
  const ExprId parts = x.constant(splits(length));
  // i32: 4 bytes an element under every precision
  const ValueId partial_o = c.newScratch(DType::i32, {x.constant(heads), parts, x.constant(t.head_dim)});
  const ValueId partial_ml = c.newScratch(DType::i32, {x.constant(heads), parts, x.constant(2)});
  const bool subgroups = c.useSubgroups() && t.head_dim % 16 == 0;
  const Kernel* kernel = choose(Role::decode, subgroups ? Tier::subgroups : Tier::baseline);
  DispatchBuilder b(c, "attention/decode.wgsl", {});
  b.rename(nameOf(b, t.y, *kernel));
  b.read("q", t.q, 4);
  b.read("k_cache", t.k, 4);
  b.read("v_cache", t.v, 4);
  b.read("start", t.start);
  b.bindTyped("partial_o", partial_o, Access::read_write, "vec4<f32>");
  b.bindTyped("partial_ml", partial_ml, Access::read_write, "vec2<f32>");
  b.subgroups(kernel->tier == Tier::subgroups);
  b.define("LANES", kernel->tier == Tier::subgroups ? 4 : 1);
  b.define("GROUP", t.group);
  b.define("D", t.head_dim);
  b.param("length", x.constant(length));
  b.param("parts", parts);
  b.param("scale", t.scale);
  b.param("window", t.window);
  b.grid(x.constant(kv_heads), parts);
  b.when(t.queries, 1, 1);
  ETWGPU_TRY(b.finish());

  const Kernel* combine = choose(Role::combine, Tier::baseline);
  DispatchBuilder last(c, "attention/combine.wgsl", {});
  last.rename(nameOf(last, t.y, *combine));
  last.bindTyped("partial_o", partial_o, Access::read_write, "vec4<f32>");
  last.bindTyped("partial_ml", partial_ml, Access::read_write, "vec2<f32>");
  last.write("y", t.y, 4);
  last.define("D", t.head_dim);
  last.define("STORE", vectorType(last.storage(t.y), 4));
  last.param("parts", parts);
  last.grid(x.constant(heads));
  last.when(t.queries, 1, 1);
  return last.finish();
}

Status planCachedAttention(GpuPlanContext& c) {
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({kAttentionQ, kAttentionKCache, kAttentionVCache, kAttentionStart}));
  auto& x = c.exprs;
  Tiles t;
  t.q = a.value(kAttentionQ);
  t.k = a.value(kAttentionKCache);
  t.v = a.value(kAttentionVCache);
  t.start = a.value(kAttentionStart);
  t.y = a.output();
  const auto &q = c.graph.value(t.q).dims, &k = c.graph.value(t.k).dims;
  if (q.size() != 4 || k.size() != 4) return unsupported(c, "needs q [1, S, Hq, D] and a cache [1, Hkv, L, D]");
  const auto heads = constantOf(c, q[2]), d = constantOf(c, q[3]), kv_heads = constantOf(c, k[1]),
             length = constantOf(c, k[2]);
  if (!heads || !d || !kv_heads || !length || *heads % *kv_heads || *d % 4 || *d > 256)
    return unsupported(c, "heads, cache length and head size (a multiple of 4, at most 256) must be constant");
  t.queries = q[1];
  t.keys = k[2];
  t.kv_heads = k[1];
  t.batches = x.constant(1);
  t.group = *heads / *kv_heads;
  t.head_dim = *d;
  t.causal = true;
  t.scale = a.number(kAttentionScale, 1 / std::sqrt(double(*d)), x);
  t.window = a.integer(kAttentionWindow).valid() ? a.integer(kAttentionWindow) : x.constant(0);
  const ExprId zero = x.constant(0);
  t.q_h = t.y_h = x.constant(*d);
  t.q_s = t.y_s = x.constant(*heads * *d);
  t.k_h = x.constant(*length * *d);
  t.q_b = t.k_b = t.y_b = zero;
  const Bounds s = x.bounds(t.queries);
  const bool split = s.min <= 1 && decodeWorkgroupBytes(t.group, t.head_dim) <= int64_t(c.caps.max_workgroup_bytes);
  if (split) ETWGPU_TRY(describeDecode(c, t, *length, *kv_heads));
  if (s.max > 1 || !split) ETWGPU_TRY(describeTiles(c, t, split ? 2 : 1));
  return {};
}

Status planSdpa(GpuPlanContext& c) {  // query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({0, 1, 2}));
  auto& x = c.exprs;
  Tiles t;
  t.q = a.value(0);
  t.k = a.value(1);
  t.v = a.value(2);
  t.mask = a.value(3);
  t.y = a.output();
  t.causal = a.flag(5);
  const auto &q = c.graph.value(t.q).dims, &k = c.graph.value(t.k).dims, &v = c.graph.value(t.v).dims;
  if (q.size() < 3 || q.size() > 4 || k.size() != q.size() || v != k)
    return unsupported(c, "needs q, k, v of rank 3 or 4, and v like k");
  const bool batched = q.size() == 4;  // rank 3: [H, S, D]
  const size_t h = batched ? 1 : 0;
  const auto heads = constantOf(c, q[h]), kv_heads = constantOf(c, k[h]), d = constantOf(c, q[h + 2]);
  if (!heads || !kv_heads || !d || *kv_heads == 0 || *heads % *kv_heads || *d % 4 || *d > 256 || k[h + 2] != q[h + 2])
    return unsupported(c, "heads and head size (a multiple of 4, at most 256) must be constant");
  if (batched && q[0] != k[0]) return unsupported(c, "q and k must have the same batch");
  if (a.number(4, 0, x) != 0) return unsupported(c, "dropout");
  t.queries = q[h + 1];
  t.keys = k[h + 1];
  t.kv_heads = k[h];
  t.batches = batched ? q[0] : x.constant(1);
  t.group = *heads / *kv_heads;
  t.head_dim = *d;
  t.scale = a.number(6, 1 / std::sqrt(double(*d)), x);
  t.window = x.constant(0);
  t.q_s = t.y_s = x.constant(*d);
  t.q_h = t.y_h = x.mul(t.queries, x.constant(*d));
  t.q_b = t.y_b = x.mul(t.q_h, x.constant(*heads));
  t.k_h = x.mul(t.keys, x.constant(*d));
  t.k_b = x.mul(t.k_h, t.kv_heads);
  return describeTiles(c, t, 1);
}

}  // namespace

void registerAttentionGpu(GpuRegistry& r) {
  r.add(kRopeCacheWrite, planRopeCacheWrite);
  r.add(kCachedAttention, planCachedAttention);
  r.add("aten.scaled_dot_product_attention.default", planSdpa);
}

}  // namespace etwgpu
