// scaled_dot_product_attention, and the tile kernel that cached attention uses too: choose, size, describe.
#include <algorithm>
#include <cmath>

#include "runtime/operators/attention/gpu_attention.h"
#include "runtime/operators/common/gpu_builder.h"

namespace etwgpu {
namespace {

using namespace attention;

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

}  // namespace

namespace attention {

Status describeTiles(GpuPlanContext& c, const Tiles& t, int64_t min_queries) {
  auto& x = c.exprs;
  ETWGPU_ASSIGN(const bool done, describeFlash(c, t, min_queries));
  if (done) return {};
  const bool wide = !c.narrow() && t.head_dim <= kWideTileMaxHead;
  const bool half = wide && c.useF16() && readsHalves(c, t);
  const Kernel* kernel = choose(wide ? Role::tiles_wide : Role::tiles, Tier::baseline);
  DispatchBuilder b(c, wide ? "attention/tiles_wide.wgsl" : "attention/tiles.wgsl", {});
  b.rename(nameOf(b, t.y, *kernel) + (t.causal ? "_causal" : "") + (t.ring ? "_ring" : "") +
           (t.mask != kNoValue ? "_mask" : "") + (half ? "_half" : ""));
  b.read("q", t.q, 4);
  b.read("k", t.k, 4);
  b.read("v", t.v, 4);
  if (t.start != kNoValue) b.read("start", t.start);
  addTileParams(b, c, t, 4, t.scale);
  if (t.mask != kNoValue) {
    bindMask(b, c, t);
  } else {
    b.define("MASK", "none");
  }
  b.write("y", t.y, 4);
  b.define("GROUP", t.group);
  b.define("D", t.head_dim);
  b.define("COLUMNS", wide ? (t.head_dim + 31) / 32 : (t.head_dim + 63) / 64);
  if (wide) {
    b.flag("HALF", half);
    b.define("SUM", half ? "h" : "o");
    b.define("STEPS", (t.head_dim + 15) / 16);
    b.define("TILE_B", std::max<int64_t>(256, 4 * t.head_dim));
  }
  b.flag("CACHED", t.start != kNoValue);
  b.flag("CAUSAL", t.causal);
  describeRing(b, t.ring);
  b.define("STORE", vectorType(b.storage(t.y), 4));
  b.grid(x.ceildiv(x.mul(t.queries, x.constant(t.group)), wide ? kWideTileRows : kTileRows), t.kv_heads, t.batches);
  if (min_queries > 1) b.when(t.queries, min_queries, INT64_MAX);
  return b.finish();
}

}  // namespace attention

namespace {

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
  registerCachedAttentionGpu(r);
  r.add("aten.scaled_dot_product_attention.default", planSdpa);
}

}  // namespace etwgpu
