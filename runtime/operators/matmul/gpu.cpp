// etwgpu.linear, aten.linear and the matrix products of plain tensors: choose, size, describe.
#include <algorithm>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/gpu_builder.h"
#include "runtime/operators/matmul/matmul.h"

namespace etwgpu {
namespace {

using namespace matmul;

struct Linear {
  ValueId x = kNoValue, weight = kNoValue, bias = kNoValue, residual = kNoValue, norm_weight = kNoValue, y = kNoValue;
  bool norm = false, glu = false;
  double eps = 0;
  std::string activation = "none";
  // found from the above:
  Quantization quantization;
  Weights weights = Weights::plain;
  int64_t rows_w = 0, n = 0, k = 0;  // rows of W; columns of y
  ExprId m;
};

/// Columns [first, first + count) of y, whose weights fit into a binding.
struct PartOfColumns {
  int64_t first, count;
};

Status describe(GpuPlanContext& c, Linear& l) {
  const Value& w = c.graph.value(l.weight);
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
  l.m = dimProduct(c, l.x, 0, -1);
  return {};
}

uint64_t bytesOfRow(const GpuPlanContext& c, const Linear& l) {
  if (l.weights == Weights::plain)
    return uint64_t(l.k) * (gpuStorageType(c.graph, l.weight, c.options.precision) == "f16" ? 2 : 4);
  return uint64_t(l.k) * uint64_t(l.quantization.bits) / 8;
}

/// Bytes of the plane of constants that belong to `rows` rows (a multiple of 4).
uint64_t bytesOfConstants(const Linear& l, int64_t rows) {
  if (l.weights == Weights::int8) return uint64_t(rows) * 4;
  return uint64_t(rows) * uint64_t(l.k / l.quantization.group) * (l.quantization.symmetric ? 2 : 4);
}

Status splitColumns(const GpuPlanContext& c, const Linear& l, std::vector<PartOfColumns>& parts) {
  const uint64_t row = bytesOfRow(c, l), limit = c.caps.max_binding_bytes;
  if (row * uint64_t(l.rows_w + 7) <= limit) {
    parts.push_back({0, l.n});
    return {};
  }
  // Offsets of bindings must be multiples of 256 bytes, in words as in constants: 512 rows are, whatever K and group.
  const int64_t step = int64_t(limit / row) / 512 * 512;
  if (l.glu || step == 0)
    return Status(Code::limit_exceeded,
                  format("%s: weight %s of %llu bytes does not fit into the device's bindings of %llu bytes",
                         c.node().name.c_str(), c.graph.value(l.weight).name.c_str(),
                         (unsigned long long)(row * uint64_t(l.rows_w)), (unsigned long long)limit));
  for (int64_t first = 0; first < l.n; first += step) parts.push_back({first, std::min(step, l.n - first)});
  return {};
}

std::string kernelName(const DispatchBuilder& b, const Linear& l, const Kernel& kernel) {
  std::string name = std::string(b.storage(l.y)) + "_" + std::string(kernel.name);
  if (l.norm) name += "_norm";
  if (l.glu) name += "_glu";
  if (l.activation != "none") name += "_" + l.activation;
  if (l.residual != kNoValue) name += "_residual";
  return name;
}

void bindWeights(DispatchBuilder& b, const GpuPlanContext& c, const Linear& l, const PartOfColumns& part, bool vec4,
                 Shape shape) {
  const bool all = part.count == l.n;
  const int64_t rows = all ? l.rows_w : part.count, padded = (rows + 7) / 8 * 8;
  const uint64_t row = bytesOfRow(c, l), offset = row * uint64_t(part.first);
  const uint64_t first_constant = l.weights == Weights::plain ? 0 : bytesOfConstants(l, part.first);
  if (l.weights == Weights::plain) {
    b.bind("words", l.weight, Access::read, vec4 ? 4 : 1, Part::data, offset, all ? 0 : row * uint64_t(rows));
    return;
  }
  b.bindTyped("words", l.weight, Access::read, "vec4<u32>", Part::quant_words, offset,
              all ? 0 : row * uint64_t(padded));
  const bool affine = l.weights == Weights::int4 && !l.quantization.symmetric;
  std::string type = affine ? "vec4<u32>" : "vec2<u32>";
  if (l.weights == Weights::int8) type = shape == Shape::gemm ? "vec4<f32>" : "f32";
  b.bindTyped("constants", l.weight, Access::read, type, Part::quant_constants, first_constant,
              all ? 0 : bytesOfConstants(l, padded));
}

/// What both shapes have in common: bindings, epilogue, parameters.
void describeCommon(DispatchBuilder& b, GpuPlanContext& c, const Linear& l, const Kernel& kernel,
                    const PartOfColumns& part) {
  const bool vec4 = l.k % 4 == 0, vec_n = l.n % 4 == 0 && kernel.shape == Shape::gemm;
  const int width_n = vec_n ? 4 : 1;
  const int unit = l.weights == Weights::int4 ? 8 : vec4 ? 4 : 1;
  b.read("x", l.x, vec4 ? 4 : 1);
  bindWeights(b, c, l, part, vec4, kernel.shape);
  if (l.norm_weight != kNoValue) b.read("norm_weight", l.norm_weight, vec4 ? 4 : 1);
  if (l.bias != kNoValue) b.read("bias", l.bias, width_n);
  if (l.residual != kNoValue) b.read("residual", l.residual, width_n);
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
  const int64_t rows = l.glu ? l.rows_w : part.count;
  auto& x = c.exprs;
  b.param("n", x.constant(part.count));
  b.param("n0", x.constant(part.first));
  b.param("n_total", x.constant(l.n));
  b.param("k", x.constant(l.k));
  b.param("units", x.constant(l.k / unit));
  b.param("last", x.constant(l.weights == Weights::plain ? rows - 1 : (rows + 3) / 4 - 1));
  b.param("eps", l.eps);
}

Status describeGemv(GpuPlanContext& c, const Linear& l, const PartOfColumns& part) {
  const Kernel* kernel = choose(l.weights, Shape::gemv, c.useSubgroups() ? Tier::subgroups : Tier::baseline);
  DispatchBuilder b(c, "matmul/gemv.wgsl", {});
  describeCommon(b, c, l, *kernel, part);
  b.rename(kernelName(b, l, *kernel));
  const GemvSize size = gemvSize({l.rows_w, l.k, l.weights, l.glu, c.caps.narrow()});
  b.define("WG", size.invocations);
  b.define("TEAM", size.team);
  b.define("UNIT", l.weights == Weights::int4 ? 8 : l.k % 4 == 0 ? 4 : 1);
  b.subgroups(kernel->tier == Tier::subgroups);
  b.grid(c.exprs.ceildiv(c.exprs.constant(part.count), size.rows(l.glu)), l.m);
  b.when(l.m, 1, kGemvMaxRows);
  return b.finish();
}

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

Status planLinear(GpuPlanContext& c, Linear l) {
  ETWGPU_TRY(describe(c, l));
  std::vector<PartOfColumns> parts;
  ETWGPU_TRY(splitColumns(c, l, parts));
  const Bounds m = c.exprs.bounds(l.m);
  for (const PartOfColumns& part : parts) {
    if (m.min <= kGemvMaxRows) ETWGPU_TRY(describeGemv(c, l, part));
    const int64_t large_from = c.caps.narrow() ? INT64_MAX : kLargeTileMinRows;
    if (m.max > kGemvMaxRows && m.min < large_from)
      ETWGPU_TRY(describeGemm(c, l, part, false, kGemvMaxRows + 1, large_from - 1));
    if (m.max >= large_from) ETWGPU_TRY(describeGemm(c, l, part, true, large_from, INT64_MAX));
  }
  return {};
}

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

void registerMatmulGpu(GpuRegistry& r) {
  r.add(kFusedLinear, planFusedLinear);
  r.add("aten.linear.default", planAtenLinear);
  r.add("aten.mm.default", planMatmul);
  r.add("aten.bmm.default", planMatmul);
  r.add("aten.matmul.default", planMatmul);
  r.add("aten.addmm.default", planAddmm);
}

}  // namespace etwgpu
