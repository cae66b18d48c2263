// rms_norm, layer_norm, native_layer_norm, group_norm and batch norm in evaluation: choose, size, describe.
#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/gpu_builder.h"
#include "runtime/operators/normalization/normalization.h"

namespace etwgpu {
namespace {

using namespace normalization;

struct RowNorm {
  std::string_view function;
  ValueId x = kNoValue, weight = kNoValue, bias = kNoValue, residual = kNoValue;
  ValueId y = kNoValue, means = kNoValue, rstds = kNoValue;
  ExprId rows, length;             // elements of a row
  ExprId inner, channels, groups;  // group: positions of a channel, channels of a group
  double eps = 0;
  DispatchCondition when;
};

Status planRowNorm(GpuPlanContext& c, const RowNorm& n) {
  auto& x = c.exprs;
  const bool group = n.function == "group";
  const bool vec4 = isMultipleOf(c, group ? n.inner : n.length, 4);
  const Kernel* kernel = choose(n.function, c.useSubgroups() ? Tier::subgroups : Tier::baseline);
  DispatchBuilder b(
      c, "normalization/row_norm.wgsl",
      format("%s_%s%s%s", std::string(gpuStorageType(c.graph, n.y, c.options.precision)).c_str(),
             std::string(kernel->name).c_str(), vec4 ? "_vec4" : "", n.residual == kNoValue ? "" : "_residual"));
  const int width = vec4 ? 4 : 1;
  b.read("x", n.x, width);
  if (n.weight != kNoValue) b.read("weight", n.weight, group ? 1 : width);
  if (n.bias != kNoValue) b.read("bias", n.bias, group ? 1 : width);
  if (n.residual != kNoValue) b.read("residual", n.residual, width);
  b.write("y", n.y, width);
  const bool moments = n.means != kNoValue;
  if (moments) {
    b.write("means", n.means);
    b.write("rstds", n.rstds);
  }
  b.subgroups(kernel->tier == Tier::subgroups);
  const std::string store(b.storage(n.y));
  b.define("STORE", vec4 ? "vec4<" + store + ">" : store);
  b.define("MOMENT", moments ? std::string(b.storage(n.means)) : "f32");
  b.define("FUNCTION", std::string(n.function));
  b.define("WG", invocations(x.bounds(n.length).max));
  b.flag("VEC4", vec4);
  b.flag("WEIGHT", n.weight != kNoValue);
  b.flag("BIAS", n.bias != kNoValue);
  b.flag("RESIDUAL", n.residual != kNoValue);
  b.flag("MOMENTS", moments);
  const ExprId unit = x.constant(width);
  b.param("rows", n.rows);
  b.param("length", x.floordiv(n.length, unit));
  b.param("count", n.length);
  b.param("eps", n.eps);
  if (group) {
    b.param("inner", x.floordiv(n.inner, unit));
    b.param("channels", n.channels);
    b.param("groups", n.groups);
  }
  b.grid(foldedGrid(c, n.rows));
  if (n.when.expr.valid()) b.when(n.when.expr, n.when.min, n.when.max);
  return b.finish();
}

/// rows and length of a normalisation over the last dimensions.
void lastDimensions(GpuPlanContext& c, RowNorm& n, size_t count) {
  const int rank = int(c.graph.value(n.x).dims.size()), split = rank - int(count);
  n.rows = dimProduct(c, n.x, 0, split);
  n.length = dimProduct(c, n.x, split, rank);
}

/// aten.rms_norm and etwgpu.norm_residual.
Status planRmsNorm(GpuPlanContext& c) {  // input, normalized_shape, weight, eps [, residual]
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({0}));
  RowNorm n;
  n.function = "rms";
  n.x = a.value(0);
  n.weight = a.value(2);
  n.eps = a.number(3, 1.1920928955078125e-07, c.exprs);  // torch: eps of the dtype
  n.residual = a.value(kNormResidualAdded);
  n.y = a.output();
  const size_t dims = a.integers(1).size();
  if (dims == 0 || dims > c.graph.value(n.x).dims.size()) return unsupported(c, "bad normalized_shape");
  lastDimensions(c, n, dims);
  return planRowNorm(c, n);
}

Status planLayerNorm(GpuPlanContext& c) {  // input, normalized_shape, weight, bias, eps [, cudnn_enable]
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({0}));
  RowNorm n;
  n.function = "layer";
  n.x = a.value(0);
  n.weight = a.value(2);
  n.bias = a.value(3);
  n.eps = a.number(4, 1e-5, c.exprs);
  n.y = a.output();
  if (c.node().outputs.size() >= 3 && a.output(1) != kNoValue && a.output(2) != kNoValue) {
    n.means = a.output(1);
    n.rstds = a.output(2);
  }
  const size_t dims = a.integers(1).size();
  if (dims == 0 || dims > c.graph.value(n.x).dims.size()) return unsupported(c, "bad normalized_shape");
  lastDimensions(c, n, dims);
  return planRowNorm(c, n);
}

Status planGroupNorm(GpuPlanContext& c) {  // input [N, C, …], num_groups, weight, bias, eps, cudnn_enabled
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({0}));
  auto& x = c.exprs;
  RowNorm n;
  n.function = "group";
  n.x = a.value(0);
  n.weight = a.value(2);
  n.bias = a.value(3);
  n.eps = a.number(4, 1e-5, c.exprs);
  n.y = a.output();
  n.groups = a.integer(1);
  const int rank = int(c.graph.value(n.x).dims.size());
  if (rank < 2 || !n.groups.valid()) return unsupported(c, "group_norm needs [N, C, …] and a number of groups");
  n.inner = dimProduct(c, n.x, 2, rank);
  n.channels = x.floordiv(dimOf(c, n.x, 1), n.groups);
  n.rows = x.mul(dimOf(c, n.x, 0), n.groups);
  n.length = x.mul(n.channels, n.inner);
  return planRowNorm(c, n);
}

Status planBatchNorm(GpuPlanContext& c) {  // input, weight, bias, running_mean, running_var, momentum, eps
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({0, 3, 4}));
  auto& x = c.exprs;
  const ValueId in = a.value(0), y = a.output();
  const int rank = int(c.graph.value(in).dims.size());
  if (rank < 2) return unsupported(c, "batch norm needs [N, C, …]");
  const Kernel* kernel = choose("batch", Tier::baseline);
  DispatchBuilder b(c, "normalization/batch_norm.wgsl", {});
  b.rename(std::string(b.storage(y)) + "_" + std::string(kernel->name));
  b.read("x", in);
  b.read("mean", a.value(3));
  b.read("variance", a.value(4));
  if (a.value(1) != kNoValue) b.read("weight", a.value(1));
  if (a.value(2) != kNoValue) b.read("bias", a.value(2));
  b.write("y", y);
  b.flag("WEIGHT", a.value(1) != kNoValue);
  b.flag("BIAS", a.value(2) != kNoValue);
  b.define("STORE", std::string(b.storage(y)));
  const ExprId count = elementCount(c, in);
  b.param("count", count);
  b.param("channels", dimOf(c, in, 1));
  b.param("inner", dimProduct(c, in, 2, rank));
  b.param("eps", a.number(6, 1e-5, x));
  b.grid(foldedGrid(c, x.ceildiv(count, 256)));
  return b.finish();
}

}  // namespace

namespace normalization {

Status describeRmsNorm(GpuPlanContext& c, ValueId x, ValueId weight, ValueId y, ExprId rows, ExprId length, double eps,
                       const DispatchCondition& when) {
  RowNorm n;
  n.function = "rms";
  n.x = x;
  n.weight = weight;
  n.y = y;
  n.rows = rows;
  n.length = length;
  n.eps = eps;
  n.when = when;
  return planRowNorm(c, n);
}

}  // namespace normalization

void registerNormalizationGpu(GpuRegistry& r) {
  r.add("aten.rms_norm.default", planRmsNorm);
  r.add(kNormResidual, planRmsNorm);
  r.add("aten.layer_norm.default", planLayerNorm);
  r.add("aten.native_layer_norm.default", planLayerNorm);
  r.add("aten.group_norm.default", planGroupNorm);
  r.add("aten._native_batch_norm_legit_no_training.default", planBatchNorm);
}

}  // namespace etwgpu
