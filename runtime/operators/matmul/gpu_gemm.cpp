// The tiled GEMM of linears, and the products of two plain tensors: choose, size, describe.
#include <algorithm>

#include "runtime/operators/matmul/gpu_linear.h"

namespace etwgpu {
namespace {

using namespace matmul;

Status describeGemm(GpuPlanContext& c, const Linear& l, const PartOfColumns& part, bool many_rows, int64_t min,
                    int64_t max) {
  const Kernel* kernel = choose(l.weights, Shape::gemm, Tier::baseline);
  const GemmSize size = gemmSize(many_rows);
  DispatchBuilder b(c, "matmul/gemm.wgsl", {});
  describeCommon(b, c, l, *kernel, part);
  b.param("m", l.m);
  b.rename(kernelName(b, l, *kernel) + format("_%dx%d", size.tile_m, size.tile_n));
  b.define("TILE_M", size.tile_m);
  b.define("TILE_N", size.tile_n);
  b.define("PER_M", size.per_m);
  b.flag("VEC_N", l.n % 4 == 0);
  b.grid(c.exprs.ceildiv(c.exprs.constant(part.count), size.columns(l.glu)), c.exprs.ceildiv(l.m, size.tile_m));
  b.when(l.m, min, max);
  return b.finish();
}

// ---- products of two tensors ---------------------------------------------------------------------------------------

struct Product {
  ValueId a = kNoValue, b = kNoValue, bias = kNoValue, y = kNoValue;
  ExprId m, n, k, batch, batch_a, batch_b;  // strides of batches in elements
  double alpha = 1, beta = 1;
};

Status describeProduct(GpuPlanContext& c, const Product& p, bool many_rows, int64_t min, int64_t max) {
  auto& x = c.exprs;
  const Kernel* kernel = choose(Weights::transposed, Shape::gemm, Tier::baseline);
  const GemmSize size = gemmSize(many_rows);
  const bool vec4 = isMultipleOf(c, p.k, 4), vec_n = isMultipleOf(c, p.n, 4);
  DispatchBuilder b(c, "matmul/gemm.wgsl",
                    format("%s_%s_%dx%d", std::string(gpuStorageType(c.graph, p.y, c.options.precision)).c_str(),
                           std::string(kernel->name).c_str(), size.tile_m, size.tile_n));
  b.read("x", p.a, vec4 ? 4 : 1);
  b.read("words", p.b, vec_n ? 4 : 1);
  if (p.bias != kNoValue) b.read("bias", p.bias);
  b.write("y", p.y, vec_n ? 4 : 1);
  for (const char* off : {"AFFINE", "NORM", "NORM_WEIGHT", "GLU", "RESIDUAL"}) b.flag(off, false);
  b.flag("BIAS", p.bias != kNoValue);
  b.flag("VEC4", vec4);
  b.flag("VEC_N", vec_n);
  b.define("WEIGHTS", "transposed");
  b.define("ACTIVATION", "none");
  b.define("STORE", std::string(b.storage(p.y)));
  b.define("GROUP", 0);
  b.define("TILE_M", size.tile_m);
  b.define("TILE_N", size.tile_n);
  b.define("PER_M", size.per_m);
  b.param("m", p.m);
  b.param("n", p.n);
  b.param("n0", x.constant(0));
  b.param("n_total", p.n);
  b.param("k", p.k);
  b.param("batch_a", p.batch_a);
  b.param("batch_b", p.batch_b);
  b.param("batch_y", x.mul(p.m, p.n));
  b.param("alpha", p.alpha);
  if (p.bias != kNoValue) {
    const auto& dims = c.graph.value(p.bias).dims;
    const ExprId columns = dims.empty() ? x.constant(1) : dims.back();
    const ExprId rows = dims.size() < 2 ? x.constant(1) : dims[dims.size() - 2];
    b.param("bias_m", x.isConstant(rows, 1) ? x.constant(0) : columns);
    b.param("bias_n", x.constant(x.isConstant(columns, 1) && !x.isConstant(p.n, 1) ? 0 : 1));
    b.param("beta", p.beta);
  }
  b.grid(x.ceildiv(p.n, size.columns(false)), x.ceildiv(p.m, size.tile_m), p.batch);
  b.when(p.m, min, max);
  return b.finish();
}

Status planProduct(GpuPlanContext& c, const Product& p) {
  const Bounds m = c.exprs.bounds(p.m);
  if (m.min < kLargeTileMinRows) ETWGPU_TRY(describeProduct(c, p, false, 1, kLargeTileMinRows - 1));
  if (m.max >= kLargeTileMinRows) ETWGPU_TRY(describeProduct(c, p, true, kLargeTileMinRows, INT64_MAX));
  return {};
}

/// aten.matmul, mm and bmm by torch's rules; batches must be equal, or all of one side.
Status planMatmulOf(GpuPlanContext& c, ValueId a, ValueId b, ValueId bias, double alpha, double beta) {
  auto& x = c.exprs;
  const auto &da = c.graph.value(a).dims, &db = c.graph.value(b).dims;
  if (da.empty() || db.empty()) return unsupported(c, "a factor has no dimensions");
  if (c.graph.value(a).quantization.bits || c.graph.value(b).quantization.bits)
    return unsupported(c, "quantised factor");
  const ExprId one = x.constant(1), zero = x.constant(0);
  Product p;
  p.a = a;
  p.b = b;
  p.bias = bias;
  p.y = c.node().outputs[0];
  p.alpha = alpha;
  p.beta = beta;
  p.k = da.back();
  p.n = db.size() == 1 ? one : db.back();
  p.m = da.size() == 1 ? one : da[da.size() - 2];
  const ExprId count_a = dimProduct(c, a, 0, -2), count_b = dimProduct(c, b, 0, -2);
  const ExprId size_a = x.mul(p.m, p.k), size_b = x.mul(p.k, p.n);
  p.batch = one;
  p.batch_a = p.batch_b = zero;
  if (x.isConstant(count_b, 1)) {
    p.m = x.mul(p.m, count_a);  // the batches of a are more rows
  } else if (x.isConstant(count_a, 1)) {
    p.batch = count_b;
    p.batch_b = size_b;
  } else {
    const size_t batches = da.size() - 2;
    if (db.size() != da.size() || !std::equal(da.begin(), da.begin() + long(batches), db.begin()))
      return unsupported(c, "batches of both factors must be equal, or one of them 1");
    p.batch = count_a;
    p.batch_a = size_a;
    p.batch_b = size_b;
  }
  return planProduct(c, p);
}

Status planMatmul(GpuPlanContext& c) {
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({0, 1}));
  return planMatmulOf(c, a.value(0), a.value(1), kNoValue, 1, 1);
}

Status planAddmm(GpuPlanContext& c) {  // self, mat1, mat2, beta, alpha
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({0, 1, 2}));
  return planMatmulOf(c, a.value(1), a.value(2), a.value(0), a.number(4, 1, c.exprs), a.number(3, 1, c.exprs));
}

}  // namespace

namespace matmul {

Status planGemm(GpuPlanContext& c, const Linear& l, const PartOfColumns& part, int64_t min_rows) {
  const Bounds m = c.exprs.bounds(l.m);
  const int64_t large_from = c.narrow() ? INT64_MAX : kLargeTileMinRows;
  if (m.min < large_from) ETWGPU_TRY(describeGemm(c, l, part, false, min_rows, large_from - 1));
  if (m.max >= large_from) ETWGPU_TRY(describeGemm(c, l, part, true, large_from, INT64_MAX));
  return {};
}

void registerMatrixProductsGpu(GpuRegistry& r) {
  r.add("aten.mm.default", planMatmul);
  r.add("aten.bmm.default", planMatmul);
  r.add("aten.matmul.default", planMatmul);
  r.add("aten.addmm.default", planAddmm);
}

}  // namespace matmul

}  // namespace etwgpu
