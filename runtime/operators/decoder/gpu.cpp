// The operators of the pass `decoder` on the GPU: with one row one dispatch (attention: two), with more those of the
// two parts, which hand over a scratch value.
#include "runtime/graph/fused_ops.h"
#include "runtime/operators/attention/gpu_attention.h"
#include "runtime/operators/matmul/gpu_linear.h"

namespace etwgpu {
namespace {

using namespace attention;
using matmul::Linear;

Status planQkvCacheWrite(GpuPlanContext& c) {
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({kQkvX, kQkvWeight, kQkvTable, kQkvStart, kQkvKCache, kQkvVCache}));
  CacheWrite w;
  w.table = a.value(kQkvTable);
  w.start = a.value(kQkvStart);
  w.k = a.value(kQkvKCache);
  w.v = a.value(kQkvVCache);
  w.q = a.output();
  w.q_norm = a.value(kQkvQNorm);
  w.k_norm = a.value(kQkvKNorm);
  w.head_eps = a.number(kQkvHeadEps, 0);
  ETWGPU_TRY(checkCacheWrite(c, a.integer(kQkvHeads), a.integer(kQkvKvHeads), w));
  Linear l;
  l.x = a.value(kQkvX);
  l.weight = a.value(kQkvWeight);
  l.bias = a.value(kQkvBias);
  l.norm = a.flag(kQkvHasNorm);
  if (l.norm) l.norm_weight = a.value(kQkvNormWeight);
  l.eps = a.number(kQkvNormEps, 0);
  l.y = w.q;
  l.head_dim = w.head_dim;
  l.cache_write = &w;
  ETWGPU_TRY(describeLinear(c, l));
  if (l.n != (w.heads + 2 * w.kv_heads) * w.head_dim) return unsupported(c, "the weight's rows don't fit the heads");
  const Bounds rows = c.exprs.bounds(l.m);
  const bool fused = rows.min <= 1 && canFuse(c, l);
  if (fused) {
    ETWGPU_TRY(planLowRank(c, l, 1, true));
    ETWGPU_TRY(planGemv(c, l, l.all(), 1, 1));
  }
  if (fused && rows.max == 1) return {};
  std::vector<ExprId> dims = c.graph.value(l.x).dims;
  dims.back() = c.exprs.constant(l.n);
  l.y = w.qkv = c.newScratch(DType::f32, dims);
  l.cache_write = nullptr;
  ETWGPU_TRY(planLinear(c, l, fused ? 2 : 1));
  return describeCacheWrite(c, w, fused ? 2 : 1);
}

Status planAttentionLinear(GpuPlanContext& c) {
  Cached a;
  ETWGPU_TRY(readCached(c, a));
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({kAttentionLinearWeight}));
  Linear l;
  l.weight = args.value(kAttentionLinearWeight);
  l.bias = args.value(kAttentionLinearBias);
  l.residual = args.value(kAttentionLinearResidual);
  l.y = args.output();
  l.head_dim = a.head_dim;
  std::vector<ExprId> dims = c.graph.value(l.y).dims;
  dims.back() = c.exprs.constant(a.heads * a.head_dim);
  l.x = c.newScratch(DType::f32, dims);
  ETWGPU_TRY(describeLinear(c, l));
  Partials partials;
  l.partials = &partials;
  if (!canSplit(c, a) || !canFuse(c, l)) {
    l.partials = nullptr;
    ETWGPU_TRY(describeCached(c, a, l.x));
    return planLinear(c, l);
  }
  ETWGPU_TRY(describeDecode(c, a, partials));
  ETWGPU_TRY(planLowRank(c, l, 1, true));
  ETWGPU_TRY(planGemv(c, l, l.all(), 1, 1));
  if (c.exprs.bounds(a.queries).max == 1) return {};
  l.partials = nullptr;
  ETWGPU_TRY(describeCachedTiles(c, a, l.x, 2));
  return planLinear(c, l, 2);
}

}  // namespace

void registerDecoderGpu(GpuRegistry& r) {
  r.add(kQkvCacheWrite, planQkvCacheWrite);
  r.add(kAttentionLinear, planAttentionLinear);
}

}  // namespace etwgpu
