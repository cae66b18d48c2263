// The GEMVs of linears: choose, size, describe.
#include <algorithm>

#include "runtime/operators/matmul/gpu_linear.h"

namespace etwgpu::matmul {
namespace {

/// One binding for words and constants, where the weight is bound as a whole.
bool mergesConstants(const GpuPlanContext& c, const Linear& l, const PartOfColumns& part) {
  return l.weights != Weights::plain && part.count == l.n &&
         gpuBytes(c.graph, l.weight, c.options.precision) <= c.caps.max_binding_bytes;
}

void describeFusion(DispatchBuilder& b, const GpuPlanContext& c, const Linear& l) {
  b.flag("COMBINE", l.partials != nullptr);
  b.flag("ROPE", l.cache_write != nullptr);
  if (l.partials || l.cache_write) b.define("HEAD_DIM", l.head_dim);
  if (l.partials) b.define("PARTS", l.partials->size.parts);
  if (!l.cache_write) return;
  const attention::CacheWrite& w = *l.cache_write;
  b.read("table", w.table);
  b.read("start", w.start);
  b.write("k_cache", w.k);
  b.write("v_cache", w.v);
  b.define("HEADS", w.heads);
  b.define("KV_HEADS", w.kv_heads);
  b.define("LENGTH", w.length);
  b.define("STORE_K", std::string(gpuStorageType(c.graph, w.k, c.options.precision)));
}

}  // namespace

bool canFuse(const GpuPlanContext& c, const Linear& l) {
  if (l.head_dim % 8 != 0) return false;  // a block of four rows holds four whole pairs; a unit of x lies in one head
  const bool merged = mergesConstants(c, l, {0, l.n});
  const int weights = l.weights == Weights::plain || merged ? 1 : 2;
  const int buffers = weights + (l.partials ? 2 : 1) + (l.norm_weight != kNoValue) + (l.bias != kNoValue) +
                      (l.residual != kNoValue) + 1 + (l.cache_write ? 4 : 0);
  std::vector<PartOfColumns> parts;
  return buffers <= int(c.caps.max_storage_buffers) && splitColumns(c, l, parts).ok() && parts.size() == 1;
}

Status planGemv(GpuPlanContext& c, const Linear& l, const PartOfColumns& part, int64_t min_rows, int64_t max_rows) {
  const Kernel* kernel = choose(l.weights, Shape::gemv, c.useSubgroups() ? Tier::subgroups : Tier::baseline);
  const bool merged = mergesConstants(c, l, part), pairs = l.glu || l.cache_write;
  DispatchBuilder b(c, "matmul/gemv.wgsl", {});
  describeCommon(b, c, l, *kernel, part, merged);
  describeFusion(b, c, l);
  b.flag("MERGED", merged);
  if (merged) b.param("constants_at", c.exprs.constant(int64_t(l.quantization.constants_offset / 16)));
  b.rename(kernelName(b, l, *kernel) + (l.partials ? "_combine" : "") + (l.cache_write ? "_rope" : ""));
  const GemvSize size = gemvSize({l.rows_w, l.k, l.weights, pairs, c.caps.narrow()});
  b.define("WG", size.invocations);
  b.define("TEAM", size.team);
  b.define("UNIT", l.weights == Weights::int4 ? 8 : l.k % 4 == 0 ? 4 : 1);
  b.subgroups(kernel->tier == Tier::subgroups);
  // rows of W, of which a pair's are two: columns of y with a gate
  const int64_t columns = l.cache_write ? part.count / 2 : part.count;
  b.grid(c.exprs.ceildiv(c.exprs.constant(columns), size.rows(pairs)), l.m);
  b.when(l.m, min_rows, max_rows);
  return b.finish();
}

}  // namespace etwgpu::matmul
