// The GEMVs of linears: choose, size, describe.
#include <algorithm>

#include "runtime/operators/matmul/gpu_linear.h"

namespace etwgpu::matmul {
namespace {

bool hasHeadNorm(const Linear& l) { return l.cache_write && l.cache_write->q_norm != kNoValue; }

void describeFusion(DispatchBuilder& b, const GpuPlanContext& c, const Linear& l) {
  b.flag("COMBINE", l.partials != nullptr);
  b.flag("ROPE", l.cache_write != nullptr);
  b.flag("HEAD_NORM", hasHeadNorm(l));
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
  b.define("POSITIONS", w.positions);
  attention::describeRing(b, w.ring());
  b.define("STORE_K", std::string(gpuStorageType(c.graph, w.k, c.options.precision)));
  if (w.q_norm == kNoValue) return;
  b.read("q_norm", w.q_norm);
  b.read("k_norm", w.k_norm);
  b.param("head_eps", w.head_eps);
}

/// The kernel for subgroups of 16 lanes and more, with quantised weights.
bool isWide(const GpuPlanContext& c, const Linear& l) {
  return l.weights != Weights::plain && c.useSubgroups() && !c.narrow();
}

RowPairs pairsOf(const Linear& l) { return l.glu ? RowPairs::gate : l.cache_write ? RowPairs::rotary : RowPairs::none; }

int64_t describeWide(DispatchBuilder& b, GpuPlanContext& c, const Linear& l) {
  const bool fixed = c.caps.subgroup_min == c.caps.subgroup_max;
  GemvProblem p;
  p.n = l.rows_w;
  p.k = l.k;
  p.weights = l.weights;
  p.half = c.options.precision == Precision::f16;
  p.pairs = pairsOf(l);
  p.workgroup_rows = hasHeadNorm(l) ? l.head_dim : 0;
  p.affine = l.weights == Weights::int4 && !l.quantization.symmetric;
  p.lanes = fixed ? int(c.caps.subgroup_max) : 32;
  p.max_invocations = c.caps.max_invocations;
  p.max_workgroup_bytes = c.caps.max_workgroup_bytes;
  p.processors = c.processors();
  p.tuned = c.tuned(gemvKey(p));
  GemvShape g = gemvShape(p);
  // f16 needs the norm's scale before the first chunk is staged
  if (p.half && l.norm && g.chunks > 1) {
    p.half = false;
    p.tuned = c.tuned(gemvKey(p));
    g = gemvShape(p);
  }
  b.subgroups(true);
  b.define("MATH", p.half ? "f16" : "f32");
  b.define("LANES", g.lanes);
  b.define("S", g.s);
  b.define("T", g.t);
  b.define("BLOCKS", g.blocks);
  b.define("AHEAD", g.ahead);
  b.define("ITERATIONS", g.iterations);
  b.define("CHUNKS", g.chunks);
  b.define("PER", g.perInvocation());
  b.flag("STAGE_UNROLLED", !l.partials && g.perInvocation() <= 4);
  b.define("UNITS", l.k / (l.weights == Weights::int4 ? 8 : 4));
  b.flag("PAIRED", g.paired);
  b.flag("FIXED", fixed);
  b.define("WIDTHS", g.lanes / int(std::clamp<uint32_t>(c.caps.subgroup_min, 4, 32)));
  return g.rows();
}

int64_t describeAny(DispatchBuilder& b, const GpuPlanContext& c, const Linear& l, const Kernel& kernel) {
  const bool pairs = pairsOf(l) != RowPairs::none;
  GemvSize size = gemvSize({l.rows_w, l.k, l.weights, pairs, c.narrow()});
  if (hasHeadNorm(l)) {
    const int teams = int(l.head_dim / 4);
    size.team = std::max(std::min(size.team, 256 / teams), 1);
    size.invocations = size.team * teams;
  }
  b.define("WG", size.invocations);
  b.define("TEAM", size.team);
  b.define("UNIT", l.weights == Weights::int4 ? 8 : l.k % 4 == 0 ? 4 : 1);
  b.subgroups(kernel.tier == Tier::subgroups);
  return size.rows(false);
}

}  // namespace

bool canFuse(const GpuPlanContext& c, const Linear& l) {
  if (l.head_dim % 8 != 0) return false;  // a block of four rows holds four whole pairs; a unit of x lies in one head
  // a workgroup owns a head, and has a power of two of invocations
  if (hasHeadNorm(l) && (l.head_dim & (l.head_dim - 1)) != 0) return false;
  const int buffers = 1 + (l.partials ? 2 : 1) + (l.norm_weight != kNoValue) + (l.bias != kNoValue) +
                      (l.residual != kNoValue) + 1 + (l.low_rank ? 2 : 0) + (l.cache_write ? 4 : 0) +
                      (hasHeadNorm(l) ? 2 : 0);
  const uint64_t bytes = gpuBytes(c.graph, l.weight, c.options.precision);
  return buffers <= int(c.caps.max_storage_buffers) &&
         bytes <= std::min(c.caps.max_binding_bytes, c.caps.max_buffer_bytes);
}

Status planGemv(GpuPlanContext& c, const Linear& l, const WeightRows& part, int64_t min_rows, int64_t max_rows) {
  const Tier tier = c.useSubgroups() ? Tier::subgroups : Tier::baseline;
  const bool wide = isWide(c, l);
  const Kernel* kernel = choose(l.weights, wide ? Shape::gemv_wide : Shape::gemv, tier);
  DispatchBuilder b(c, wide ? "matmul/gemv_wide.wgsl" : "matmul/gemv.wgsl", {});
  describeCommon(b, c, l, *kernel, part);
  describeFusion(b, c, l);
  b.param("x_row", l.x_row.valid() ? l.x_row : c.exprs.constant(0));
  const Quantization& q = c.graph.value(part.value).quantization;
  if (q.bits != 0) b.param("constants_at", c.exprs.constant(int64_t(q.constants_offset / 16)));
  b.rename(kernelName(b, l, *kernel) + (l.partials ? "_combine" : "") + (l.cache_write ? "_rope" : "") +
           (l.cache_write && l.cache_write->ring() ? "_ring" : ""));
  // rows of W a workgroup serves, and there are; a gate has two for a column of y
  const int64_t rows = wide ? describeWide(b, c, l) : describeAny(b, c, l, *kernel);
  b.grid(c.exprs.ceildiv(c.exprs.constant(l.rowsOf(part)), rows), l.m);
  b.when(l.m, min_rows, max_rows);
  return b.finish();
}

}  // namespace etwgpu::matmul
