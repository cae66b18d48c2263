// Reductions and softmax: the tensor is viewed as [outer, size, inner]; reduced dimensions that are no neighbours are
// moved to the end first.
#include <algorithm>

#include "runtime/operators/common/gpu_builder.h"
#include "runtime/operators/elementwise/gpu_pointwise.h"

namespace etwgpu {
namespace {

struct View {
  ExprId outer, size, inner;
};

/// Which dimensions `dims` (empty: all) names.
Result<std::vector<bool>> reducedDims(GpuPlanContext& c, ValueId x, const std::vector<ExprId>& dims) {
  const int64_t rank = int64_t(c.graph.value(x).dims.size());
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
  return reduced;
}

/// The reduced dimensions as one where they are neighbours (dimensions of size 1 do not count), else nullopt.
std::optional<View> viewOf(GpuPlanContext& c, ValueId x, const std::vector<bool>& reduced) {
  const auto& shape = c.graph.value(x).dims;
  const int rank = int(shape.size());
  const auto first = std::find(reduced.begin(), reduced.end(), true) - reduced.begin();
  const auto last = rank - (std::find(reduced.rbegin(), reduced.rend(), true) - reduced.rbegin());
  for (auto d = first; d < last; ++d) {
    if (!reduced[size_t(d)] && !c.exprs.isConstant(shape[size_t(d)], 1)) return std::nullopt;
  }
  const int a = int(first), b = int(std::max(first, last));
  return View{dimProduct(c, x, 0, a), dimProduct(c, x, a, b), dimProduct(c, x, b, rank)};
}

/// x with the reduced dimensions moved to the end, in scratch.
Result<ValueId> reducedLast(GpuPlanContext& c, ValueId x, const std::vector<bool>& reduced) {
  const std::vector<ExprId> dims = c.graph.value(x).dims, strides = contiguousStrides(c.exprs, dims);
  std::vector<ExprId> moved;
  PointwiseInput layout{{}, c.exprs.constant(0)};
  for (const bool last : {false, true}) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (reduced[d] != last) continue;
      moved.push_back(dims[d]);
      layout.strides.push_back(strides[d]);
    }
  }
  const ValueId y = c.newScratch(c.graph.value(x).dtype, moved);
  ETWGPU_TRY(elementwise::describeCopy(c, moved, {x, layout}, {y, Access::read_write, {}, {}}));
  return y;
}

void describeView(DispatchBuilder& b, GpuPlanContext& c, const View& v, bool rows, int64_t invocations) {
  b.param("outer", v.outer);
  b.param("size", v.size);
  if (!rows) b.param("inner", v.inner);
  b.grid(foldedGrid(c, rows ? v.outer : c.exprs.ceildiv(c.exprs.mul(v.outer, v.inner), invocations)));
}

/// The reduction of the node's first argument over `dims` (empty: all).
Status describeReduction(GpuPlanContext& c, std::string op, const std::vector<ExprId>& dims) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0}));
  ValueId x = args.value(0);
  const ValueId y = args.output();
  ETWGPU_ASSIGN(const std::vector<bool> reduced, reducedDims(c, x, dims));
  std::optional<View> neighbours = viewOf(c, x, reduced);
  if (!neighbours) {
    ETWGPU_ASSIGN(x, reducedLast(c, x, reduced));
    const int kept = int(std::count(reduced.begin(), reduced.end(), false));
    neighbours = View{dimProduct(c, x, 0, kept), dimProduct(c, x, kept, int(reduced.size())), c.exprs.constant(1)};
  }
  const View view = *neighbours;
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
  return describeReduction(c, kOp, NodeArgs(c.node()).integers(1));
}
constexpr const char* kSum = "sum";
constexpr const char* kMean = "mean";
constexpr const char* kMax = "max";
constexpr const char* kMin = "min";

Status planArgmax(GpuPlanContext& c) {
  const ExprId dim = NodeArgs(c.node()).integer(1);
  return describeReduction(c, "argmax", dim.valid() ? std::vector<ExprId>{dim} : std::vector<ExprId>());
}

template <bool kLog>
Status planSoftmax(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0}));
  if (!args.integer(1).valid()) return Status(Code::invalid_program, "softmax without a dimension");
  const ValueId x = args.value(0), y = args.output();
  ETWGPU_ASSIGN(const std::vector<bool> reduced, reducedDims(c, x, {args.integer(1)}));
  const View view = *viewOf(c, x, reduced);  // one dimension has no gaps
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
