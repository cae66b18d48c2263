// Reductions over adjacent dimensions and softmax: the tensor is viewed as [outer, size, inner].
#include <algorithm>

#include "runtime/operators/common/gpu_builder.h"

namespace etwgpu {
namespace {

struct View {
  ExprId outer, size, inner;
};

/// The dimensions `dims` (empty: all) as one; fails where they are not neighbours (dimensions of size 1 do not count).
Result<View> viewOf(GpuPlanContext& c, ValueId x, const std::vector<ExprId>& dims) {
  const auto& shape = c.graph.value(x).dims;
  const int rank = int(shape.size());
  std::vector<bool> reduced(size_t(rank), dims.empty());
  for (ExprId e : dims) {
    int64_t d = constantOf(c, e).value_or(0);
    if (d < 0) d += rank;
    if (d >= rank || d < 0) {
      if (rank == 0) continue;
      return unsupported(c, "a reduced dimension is out of range");
    }
    reduced[size_t(d)] = true;
  }
  const auto first = std::find(reduced.begin(), reduced.end(), true) - reduced.begin();
  const auto last = rank - (std::find(reduced.rbegin(), reduced.rend(), true) - reduced.rbegin());
  for (auto d = first; d < last; ++d) {
    if (!reduced[size_t(d)] && !c.exprs.isConstant(shape[size_t(d)], 1))
      return unsupported(c, "the reduced dimensions are not neighbours");
  }
  const int a = int(first), b = int(std::max(first, last));
  return View{dimProduct(c, x, 0, a), dimProduct(c, x, a, b), dimProduct(c, x, b, rank)};
}

void describeView(DispatchBuilder& b, GpuPlanContext& c, const View& v, bool rows, int64_t invocations) {
  b.param("outer", v.outer);
  b.param("size", v.size);
  if (!rows) b.param("inner", v.inner);
  b.grid(foldedGrid(c, rows ? v.outer : c.exprs.ceildiv(c.exprs.mul(v.outer, v.inner), invocations)));
}

Status describeReduction(GpuPlanContext& c, std::string op, const View& view) {
  const NodeArgs args(c.node());
  const ValueId x = args.value(0), y = args.output();
  const bool rows = c.exprs.isConstant(view.inner, 1), real = isFloating(c.graph.value(x).dtype);
  if (!real && op == "mean") return unsupported(c, "mean of integers");
  const std::string store(gpuStorageType(c.graph, y, c.options.precision));
  DispatchBuilder b(c, "reduction/reduce.wgsl", store + "_" + op + (rows ? "_rows" : "_columns") + "_baseline");
  b.read("x", x);
  b.write("y", y);
  b.define("OP", op);
  b.define("ACC", real ? "f32" : "i32");
  if (op != "argmax") b.define("STORE", store);
  b.flag("ROWS", rows);
  describeView(b, c, view, rows, 256);
  return b.finish();
}

template <const char* const& kOp>
Status planReduction(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0}));
  ETWGPU_ASSIGN(const View view, viewOf(c, args.value(0), args.integers(1)));
  return describeReduction(c, kOp, view);
}
constexpr const char* kSum = "sum";
constexpr const char* kMean = "mean";
constexpr const char* kMax = "max";
constexpr const char* kMin = "min";

Status planArgmax(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0}));
  std::vector<ExprId> dims;
  if (args.integer(1).valid()) dims.push_back(args.integer(1));
  ETWGPU_ASSIGN(const View view, viewOf(c, args.value(0), dims));
  return describeReduction(c, "argmax", view);
}

template <bool kLog>
Status planSoftmax(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0}));
  if (!args.integer(1).valid()) return Status(Code::invalid_program, "softmax without a dimension");
  const ValueId x = args.value(0), y = args.output();
  ETWGPU_ASSIGN(const View view, viewOf(c, x, {args.integer(1)}));
  const bool rows = c.exprs.isConstant(view.inner, 1), subgroups = rows && c.useSubgroups();
  const std::string store(gpuStorageType(c.graph, y, c.options.precision));
  DispatchBuilder b(c, "reduction/softmax.wgsl",
                    store + (kLog ? "_log_softmax" : "_softmax") + (rows ? "_rows" : "_columns") +
                        (subgroups ? "_subgroups" : "_baseline"));
  b.read("x", x);
  b.write("y", y);
  const int64_t invocations = rows ? 256 : 64;
  b.define("WG", invocations);
  b.define("STORE", store);
  b.flag("ROWS", rows);
  b.flag("LOG", kLog);
  if (rows) b.subgroups(subgroups);
  describeView(b, c, view, rows, invocations);
  return b.finish();
}

}  // namespace

void registerReductionGpu(GpuRegistry& registry) {
  registry.add("aten.sum.dim_IntList", planReduction<kSum>);
  registry.add("aten.mean.dim", planReduction<kMean>);
  registry.add("aten.amax.default", planReduction<kMax>);
  registry.add("aten.amin.default", planReduction<kMin>);
  registry.add("aten.argmax.default", planArgmax);
  registry.add("aten.softmax.int", planSoftmax<false>);
  registry.add("aten._softmax.default", planSoftmax<false>);
  registry.add("aten._log_softmax.default", planSoftmax<true>);
}

}  // namespace etwgpu
