// etwgpu.linear and aten.linear: what both shapes of kernels share. GEMVs: gpu_gemv.cpp, GEMMs: gpu_gemm.cpp.
#include <algorithm>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/gpu_builder.h"
#include "runtime/operators/matmul/gpu_linear.h"

namespace etwgpu {
namespace {

using namespace matmul;

}  // namespace

namespace matmul {

void bindWeights(DispatchBuilder& b, const Linear& l, const WeightRows& part, bool vec4, Shape shape) {
  if (l.weights == Weights::plain) {
    b.read("words", part.value, vec4 ? 4 : 1);
    return;
  }
  if (shape != Shape::gemm) {
    b.bindTyped("words", part.value, Access::read, "vec4<u32>");
    return;
  }
  b.bindTyped("words", part.value, Access::read, "vec4<u32>", Part::quant_words);
  const bool affine = l.weights == Weights::int4 && !l.quantization.symmetric;
  const char* type = affine ? "vec4<u32>" : l.weights == Weights::int8 ? "vec4<f32>" : "vec2<u32>";
  b.bindTyped("constants", part.value, Access::read, type, Part::quant_constants);
}

std::string kernelName(const DispatchBuilder& b, const Linear& l, const Kernel& kernel) {
  std::string name = std::string(b.storage(l.y)) + "_" + std::string(kernel.name);
  if (l.norm) name += "_norm";
  if (l.glu) name += "_glu";
  if (l.activation != "none") name += "_" + l.activation;
  if (l.residual != kNoValue) name += "_residual";
  if (l.low_rank) name += "_adapters";
  return name;
}

void describeCommon(DispatchBuilder& b, GpuPlanContext& c, const Linear& l, const Kernel& kernel,
                    const WeightRows& part) {
  const bool vec4 = l.k % 4 == 0, vec_n = l.n % 4 == 0 && kernel.shape == Shape::gemm;
  const int width_n = vec_n ? 4 : 1;
  const int unit = l.weights == Weights::int4 ? 8 : vec4 ? 4 : 1;
  if (l.partials) {
    const bool packed = b.storage(l.partials->o) == "f16";
    b.bindTyped("partial_o", l.partials->o, Access::read, packed ? "vec4<u32>" : "vec4<f32>");
    b.flag("PACKED", packed);
    b.bindTyped("partial_ml", l.partials->ml, Access::read, "vec2<f32>");
  } else {
    b.read("x", l.x, vec4 ? 4 : 1);
  }
  bindWeights(b, l, part, vec4, kernel.shape);
  if (l.norm_weight != kNoValue) b.read("norm_weight", l.norm_weight, vec4 ? 4 : 1);
  if (l.bias != kNoValue) b.read("bias", l.bias, width_n);
  if (l.residual != kNoValue) b.read("residual", l.residual, width_n);
  describeLowRank(b, c, l, width_n);
  b.write("y", l.y, width_n);
  b.define("WEIGHTS", l.weights == Weights::int4 ? "int4" : l.weights == Weights::int8 ? "int8" : "plain");
  b.define("ACTIVATION", l.activation);
  b.define("STORE", std::string(b.storage(l.y)));
  b.flag("VEC4", vec4);
  b.flag("NORM", l.norm);
  b.flag("NORM_WEIGHT", l.norm_weight != kNoValue);
  b.flag("BIAS", l.bias != kNoValue);
  b.flag("GLU", l.glu);
  b.flag("RESIDUAL", l.residual != kNoValue);
  b.flag("AFFINE", l.weights == Weights::int4 && !l.quantization.symmetric);
  b.define("GROUP", l.weights == Weights::int4 ? l.quantization.group : 0);
  const int64_t rows = l.rowsOf(part);
  auto& x = c.exprs;
  b.param("n", x.constant(part.count));
  b.param("n0", x.constant(part.first));
  b.param("n_total", x.constant(l.n));
  b.param("k", x.constant(l.k));
  b.param("units", x.constant(l.k / unit));
  b.param("last", x.constant(l.weights == Weights::plain ? rows - 1 : (rows + 3) / 4 - 1));
  b.param("eps", l.eps);
}

void describeLowRank(DispatchBuilder& b, GpuPlanContext& c, const Linear& l, int width) {
  b.flag("LOW_RANK", false);
  if (!l.low_rank) return;
  const LowRank& r = *l.low_rank;
  b.read("low_rank_t", l.low_rank_t, 4);
  b.read("low_rank_b", r.b, width);
  b.define("LOW_RANK", r.rank);
  b.flag("LOW_RANK_VEC", width == 4);
  b.define("LOW_RANK_PARTS", int64_t(r.first_rows.size()));
  b.define("LOW_RANK_ADAPTERS", int64_t(r.adapters.size()));
  b.param("low_rank_n", c.exprs.constant(l.rows_w));
  for (size_t p = 1; p < r.first_rows.size(); ++p)
    b.param(format("low_rank_first%zu", p), c.exprs.constant(r.first_rows[p]));
  for (size_t i = 0; i < r.adapters.size(); ++i) b.adapterScale(format("low_rank_scale%zu", i), r.adapters[i]);
}

Status planLowRank(GpuPlanContext& c, Linear& l, int64_t min_rows, bool single) {
  if (!l.low_rank) return {};
  if (l.low_rank_t == kNoValue) l.low_rank_t = c.newScratch(DType::f32, {l.m, c.exprs.constant(l.low_rank->width())});
  Linear a;
  a.x = l.x;
  a.x_row = l.x_row;
  a.weight = l.low_rank->a;
  a.norm = l.norm;
  a.norm_weight = l.norm_weight;
  a.eps = l.eps;
  a.y = l.low_rank_t;
  if (!single) return planLinear(c, a, min_rows);
  a.partials = l.partials;
  a.head_dim = l.head_dim;
  ETWGPU_TRY(describeLinear(c, a));
  return planGemv(c, a, a.all(), 1, 1);
}

Status describeLinear(GpuPlanContext& c, Linear& l) {
  const Value& w = c.graph.value(l.weight);
  l.low_rank = w.low_rank;
  l.quantization = w.quantization;
  l.weights = w.quantization.bits == 4 ? Weights::int4 : w.quantization.bits == 8 ? Weights::int8 : Weights::plain;
  if (w.dims.size() != 2 || c.graph.value(l.x).dims.empty()) return unsupported(c, "linear needs a matrix as weight");
  const auto n = constantOf(c, w.dims[0]), k = constantOf(c, w.dims[1]);
  if (!n || !k || *n < 1 || *k < 1) return unsupported(c, "the weight's shape must be constant and not empty");
  l.rows_w = *n;
  l.k = *k;
  l.n = l.glu ? *n / 2 : *n;
  if (l.glu && (*n % 2 || (l.weights != Weights::plain && l.n % 8)))
    return unsupported(c, "a quantised gate needs a multiple of 8 rows");
  if (l.weights != Weights::plain && l.k % 32)
    return unsupported(c, "a quantised weight needs a multiple of 32 columns");
  if (l.weights == Weights::int4 && (l.quantization.group < 8 || l.k % l.quantization.group))
    return unsupported(c, "the group of an int4 weight must divide its columns");
  l.m = l.x_row.valid() ? c.exprs.constant(1) : dimProduct(c, l.x, 0, -1);
  return {};
}

Status planLinear(GpuPlanContext& c, Linear l, int64_t min_rows) {
  ETWGPU_TRY(describeLinear(c, l));
  ETWGPU_TRY(planLowRank(c, l, min_rows));
  std::vector<WeightRows> parts;
  ETWGPU_TRY(splitRows(c, l.weight, l.glu, parts));
  const Bounds m = c.exprs.bounds(l.m);
  if (std::max(m.min, min_rows) <= kGemvMaxRows)
    for (const WeightRows& part : parts) ETWGPU_TRY(planGemv(c, l, part, min_rows, kGemvMaxRows));
  return m.max > kGemvMaxRows ? planGemm(c, l, parts, std::max(min_rows, kGemvMaxRows + 1)) : Status();
}

}  // namespace matmul

namespace {

Status planFusedLinear(GpuPlanContext& c) {
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({kLinearX, kLinearWeight}));
  Linear l;
  l.x = a.value(kLinearX);
  l.weight = a.value(kLinearWeight);
  l.bias = a.value(kLinearBias);
  l.residual = a.value(kLinearResidual);
  l.norm = a.flag(kLinearHasNorm);
  if (l.norm) l.norm_weight = a.value(kLinearNormWeight);
  l.eps = a.number(kLinearNormEps, 0);
  l.activation = a.text(kLinearActivation, "none");
  l.glu = a.flag(kLinearGlu);
  l.x_row = a.integer(kLinearRow);
  l.y = a.output();
  return planLinear(c, l);
}

Status planAtenLinear(GpuPlanContext& c) {
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({0, 1}));
  Linear l;
  l.x = a.value(0);
  l.weight = a.value(1);
  l.bias = a.value(2);
  l.y = a.output();
  return planLinear(c, l);
}

}  // namespace

void registerMatmulGpu(GpuRegistry& r) {
  r.add(kFusedLinear, planFusedLinear);
  r.add("aten.linear.default", planAtenLinear);
  registerMatrixProductsGpu(r);
}

}  // namespace etwgpu
