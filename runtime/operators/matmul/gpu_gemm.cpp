// The tiled GEMM of linears, and the products of two plain tensors: choose, size, describe.
#include <algorithm>

#include "runtime/operators/matmul/gpu_linear.h"
#include "runtime/operators/normalization/normalization.h"

namespace etwgpu {
namespace {

using namespace matmul;
using normalization::describeRmsNorm;

void describeTile(DispatchBuilder& b, const GpuPlanContext& c, Weights weights, const GemmSize& size, bool half) {
  b.define("TILE_M", size.tile_m);
  b.define("TILE_N", size.tile_n);
  b.define("PER_M", size.per_m);
  b.define("STEP", size.step);
  b.flag("AHEAD", !c.narrow());
  b.flag("HALF", half);
  const auto loads = [&](int tasks) { return (tasks + size.invocations() - 1) / size.invocations(); };
  b.define("LOADS_X", loads(gemmTasksOfX(size)));
  b.define("LOADS_W", loads(gemmTasksOfW(weights, size)));
}

/// half: l.x is normalised already.
Status describeGemm(GpuPlanContext& c, const Linear& l, const WeightRows& part, const GemmRange& range, bool half) {
  const Kernel* kernel = choose(l.weights, Shape::gemm, Tier::baseline);
  const GemmSize& size = range.size;
  DispatchBuilder b(c, "matmul/gemm.wgsl", {});
  describeCommon(b, c, l, *kernel, part);
  b.param("m", l.m);
  b.rename(kernelName(b, l, *kernel) + format("_%dx%d", size.tile_m, size.tile_n) + (half ? "_half" : ""));
  describeTile(b, c, l.weights, size, half);
  b.flag("VEC_N", l.n % 4 == 0);
  b.grid(c.exprs.ceildiv(c.exprs.constant(part.count), size.columns(l.glu)), c.exprs.ceildiv(l.m, size.tile_m));
  b.when(l.m, range.min, range.max);
  return b.finish();
}

/// Whether subgroup matrices can compute it: f16 activations, whole vectors of four columns.
bool suitsMatrices(const GpuPlanContext& c, const Linear& l, const std::vector<WeightRows>& parts) {
  if (!c.useSubgroupMatrix()) return false;
  if (gpuStorageType(c.graph, l.x, c.options.precision) != "f16") return false;
  return std::all_of(parts.begin(), parts.end(), [](const WeightRows& p) { return p.count % 4 == 0; });
}

void describeMatrixTile(DispatchBuilder& b, const MatrixTile& t, int matrix) {
  const int workgroup = t.invocations(), chunks = t.tile_k / 8, tasks = t.tile_n / 4 * chunks;
  b.define("BM", t.tile_m);
  b.define("BN", t.tile_n);
  b.define("BK", t.tile_k);
  b.define("SM", t.sub_m);
  b.define("SN", t.sub_n);
  b.define("WG", workgroup);
  b.define("TILE", t.words(matrix));
  b.define("LOADS_X", t.tile_m * chunks / workgroup);
  b.define("LOADS_W", (tasks + workgroup - 1) / workgroup);
  b.flag("EVEN_W", tasks % workgroup == 0);
  b.define("MATRICES_M", t.sub_m / matrix);
  b.define("MATRICES_K", t.tile_k / matrix);
  b.define("BLOCKS", t.sub_n / 32);
  b.define("MATRICES_B", 32 / matrix);
}

/// l.x is normalised already.
Status describeMatrixGemm(GpuPlanContext& c, const Linear& l, const WeightRows& part, const MatrixRange& range) {
  auto& x = c.exprs;
  const MatrixTile& t = range.tile;
  const Kernel* kernel = choose(l.weights, Shape::gemm, Tier::subgroup_matrix);
  DispatchBuilder b(c, "matmul/gemm_matrix.wgsl", {});
  b.bindTyped("x", l.x, Access::read, "vec4<u32>");
  bindWeights(b, l, part, true, Shape::gemm);
  if (l.bias != kNoValue) b.read("bias", l.bias, 4);
  if (l.residual != kNoValue) b.read("residual", l.residual, 4);
  describeLowRank(b, c, l, 4);
  b.write("y", l.y, 4);
  b.subgroupMatrices();
  b.rename(kernelName(b, l, *kernel) + format("_%dx%d", t.tile_m, t.tile_n));
  describeMatrixTile(b, t, int(c.caps.matrix_size));
  b.define("WEIGHTS", l.weights == Weights::int4 ? "int4" : l.weights == Weights::int8 ? "int8" : "plain");
  b.define("GROUP", l.weights == Weights::int4 ? l.quantization.group : 0);
  b.flag("AFFINE", l.weights == Weights::int4 && !l.quantization.symmetric);
  b.define("ACTIVATION", l.activation);
  b.define("STORE", std::string(b.storage(l.y)));
  b.flag("BIAS", l.bias != kNoValue);
  b.flag("GLU", l.glu);
  b.flag("RESIDUAL", l.residual != kNoValue);
  const int64_t rows = l.rowsOf(part);
  b.param("m", l.m);
  b.param("n", x.constant(part.count));
  b.param("n0", x.constant(part.first));
  b.param("n_total", x.constant(l.n));
  b.param("k", x.constant(l.k));
  b.param("units", x.constant(l.k / (l.weights == Weights::int4 ? 8 : 4)));
  b.param("last", x.constant(l.weights == Weights::plain ? rows - 1 : (rows + 3) / 4 - 1));
  b.grid(x.ceildiv(x.constant(rows), t.tile_n), x.ceildiv(l.m, t.tile_m));
  b.when(l.m, range.min, range.max);
  return b.finish();
}

/// Where x is to be normalised, a dispatch of its own does it for calls with min_rows to max_rows rows: factors in f16
/// must not overflow.
Status normaliseFirst(GpuPlanContext& c, Linear& l, int64_t min_rows, int64_t max_rows) {
  if (!l.norm) return {};
  const ValueId normalised = c.newScratch(DType::f32, {l.m, c.exprs.constant(l.k)});
  const DispatchCondition when{l.m, min_rows, max_rows};
  ETWGPU_TRY(describeRmsNorm(c, l.x, l.norm_weight, normalised, l.m, c.exprs.constant(l.k), l.eps, when));
  l.x = normalised;
  l.norm = false;
  l.norm_weight = kNoValue;
  return {};
}

/// Whether the tiles compute in f16: not of int8 weights, whose products have no scale yet.
bool suitsHalf(const GpuPlanContext& c, const Linear& l) {
  return c.useF16() && !c.narrow() && l.weights != Weights::int8 &&
         gpuStorageType(c.graph, l.x, c.options.precision) == "f16";
}

// ---- products of two tensors ---------------------------------------------------------------------------------------

struct Product {
  ValueId a = kNoValue, b = kNoValue, bias = kNoValue, y = kNoValue;
  ExprId m, n, k, batch, batch_a, batch_b;  // strides of batches in elements
  double alpha = 1, beta = 1;
};

Status describeProduct(GpuPlanContext& c, const Product& p, const GemmRange& range) {
  auto& x = c.exprs;
  const Kernel* kernel = choose(Weights::transposed, Shape::gemm, Tier::baseline);
  const GemmSize& size = range.size;
  const bool vec4 = isMultipleOf(c, p.k, 4), vec_n = isMultipleOf(c, p.n, 4);
  DispatchBuilder b(c, "matmul/gemm.wgsl",
                    format("%s_%s_%dx%d", std::string(gpuStorageType(c.graph, p.y, c.options.precision)).c_str(),
                           std::string(kernel->name).c_str(), size.tile_m, size.tile_n));
  b.read("x", p.a, vec4 ? 4 : 1);
  b.read("words", p.b, vec_n ? 4 : 1);
  if (p.bias != kNoValue) b.read("bias", p.bias);
  b.write("y", p.y, vec_n ? 4 : 1);
  for (const char* off : {"AFFINE", "NORM", "NORM_WEIGHT", "GLU", "RESIDUAL", "LOW_RANK"}) b.flag(off, false);
  b.flag("BIAS", p.bias != kNoValue);
  b.flag("VEC4", vec4);
  b.flag("VEC_N", vec_n);
  b.define("WEIGHTS", "transposed");
  b.define("ACTIVATION", "none");
  b.define("STORE", std::string(b.storage(p.y)));
  b.define("GROUP", 0);
  describeTile(b, c, Weights::transposed, size, false);
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
  b.when(p.m, range.min, range.max);
  return b.finish();
}

Status planProduct(GpuPlanContext& c, const Product& p) {
  const Bounds m = c.exprs.bounds(p.m);
  Problem problem;
  problem.n = c.exprs.bounds(p.n).max;
  problem.processors = c.processors();
  for (const GemmRange& range : gemmRanges(problem, std::max<int64_t>(m.min, 1), m.max))
    ETWGPU_TRY(describeProduct(c, p, range));
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

Status planGemm(GpuPlanContext& c, Linear l, const std::vector<WeightRows>& parts, int64_t min_rows) {
  const Bounds m = c.exprs.bounds(l.m);
  const int64_t least = std::max(m.min, min_rows);
  const Problem problem{l.rows_w, l.k, l.weights, l.glu, c.narrow(), c.processors(), suitsHalf(c, l)};
  std::vector<MatrixRange> matrices;
  if (suitsMatrices(c, l, parts)) matrices = matrixRanges(problem, c.caps, least, m.max);
  if (!matrices.empty() || problem.half) ETWGPU_TRY(normaliseFirst(c, l, least, m.max));
  for (const WeightRows& part : parts)
    for (const MatrixRange& range : matrices) ETWGPU_TRY(describeMatrixGemm(c, l, part, range));
  if (!matrices.empty()) return {};
  for (const WeightRows& part : parts)
    for (const GemmRange& range : gemmRanges(problem, least, m.max))
      ETWGPU_TRY(describeGemm(c, l, part, range, problem.half));
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
