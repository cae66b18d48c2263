// Gathers and scatters along one dimension, embedding of plain and quantised tables.
#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/gpu_builder.h"
#include "runtime/operators/common/gpu_weights.h"
#include "runtime/operators/elementwise/gpu_pointwise.h"

namespace etwgpu {
namespace {

/// x viewed as [outer, size, inner] around a dimension.
struct Around {
  ExprId outer, size, inner;
};
Around around(GpuPlanContext& c, ValueId value, int dim) {
  return {dimProduct(c, value, 0, dim), dimOf(c, value, dim),
          dimProduct(c, value, dim + 1, int(c.graph.value(value).dims.size()))};
}

/// What a dispatch reads of a table: some of its rows, or all. The one with the first row writes zeros for ids of no
/// row.
void describeRows(DispatchBuilder& b, GpuPlanContext& c, const WeightRows& part, bool all) {
  b.flag("SOME_ROWS", !all);
  if (all) return;
  b.param("first", c.exprs.constant(part.first));
  b.param("count_rows", c.exprs.constant(part.count));
}

/// table is read (gather) or written (scatter) at index; dense is the other side. part: the rows that are read.
Status describeIndexed(GpuPlanContext& c, bool gather, ValueId table, int dim, ValueId index, ValueId dense,
                       const WeightRows* part) {
  Exprs& e = c.exprs;
  const Around a = around(c, table, dim);
  if (part) table = part->value;
  const ExprId positions = elementCount(c, index);
  const ExprId count = e.mul(e.mul(a.outer, positions), a.inner);
  // a table of constants stays f32 where intermediates are f16
  const std::string type(gpuStorageType(c.graph, gather ? dense : table, c.options.precision));
  DispatchBuilder b(c, "indexing/gather.wgsl", type + (gather ? "_gather_baseline" : "_scatter_baseline"));
  b.read("x", gather ? table : dense);
  b.read("index", index);
  b.write("y", gather ? dense : table);
  b.flag("GATHER", gather);
  b.define("TYPE", type);
  b.param("count", count);
  b.param("inner", a.inner);
  b.param("positions", positions);
  b.param("size", a.size);
  if (gather) describeRows(b, c, part ? *part : WeightRows{}, !part);
  b.grid(foldedGrid(c, e.ceildiv(count, 256)));
  return b.finish();
}

Status gather(GpuPlanContext& c, ValueId table, int dim, ValueId index, ValueId dense) {
  std::vector<WeightRows> parts;
  if (dim == 0) ETWGPU_TRY(splitRows(c, table, false, parts));
  if (parts.size() < 2) return describeIndexed(c, true, table, dim, index, dense, nullptr);
  for (const WeightRows& part : parts) ETWGPU_TRY(describeIndexed(c, true, table, dim, index, dense, &part));
  return {};
}

Status scatter(GpuPlanContext& c, ValueId table, int dim, ValueId index, ValueId dense) {
  return describeIndexed(c, false, table, dim, index, dense, nullptr);
}

/// The dimension of the only index tensor of index / index_put, or -1.
int soleIndex(const Node& node, size_t arg, ValueId* index) {
  const auto* list = std::get_if<std::vector<ValueId>>(&node.args[arg]);
  int dim = -1;
  for (size_t i = 0; list && i < list->size(); ++i) {
    if ((*list)[i] == kNoValue) continue;
    if (dim >= 0) return -1;
    dim = int(i);
    *index = (*list)[i];
  }
  return dim;
}

bool isIntegerIndex(const GpuPlanContext& c, ValueId index) {
  const DType t = c.graph.value(index).dtype;
  return t == DType::i64 || t == DType::i32;
}

int constantDim(const GpuPlanContext& c, ExprId e, ValueId of) {
  const int64_t rank = int64_t(c.graph.value(of).dims.size()), d = constantOf(c, e).value_or(0);
  return int(d < 0 ? d + rank : d);
}

Status copyWhole(GpuPlanContext& c, ValueId from, ValueId to) {
  const std::vector<ExprId> dims = c.graph.value(to).dims;
  return elementwise::describeCopy(c, dims, {from, elementwise::broadcastLayout(c, from, dims)},
                                   {to, Access::read_write, {}, {}});
}

/// y[j] = the row ids[j] of a quantised table of `rows` rows, if it is one of the part's.
Status describeEmbedding(GpuPlanContext& c, const Quantization& q, ExprId rows, const WeightRows& part, bool all,
                         ValueId ids, ValueId y) {
  DispatchBuilder b(c, "indexing/embedding.wgsl",
                    format("%s_embedding_int%d_r4_baseline",
                           std::string(gpuStorageType(c.graph, y, c.options.precision)).c_str(), q.bits));
  b.bindTyped("words", part.value, Access::read, "u32", Part::quant_words);
  b.bindTyped("constants", part.value, Access::read, q.bits == 4 ? "u32" : "f32", Part::quant_constants);
  b.read("ids", ids);
  b.write("y", y, 4);
  b.define("BITS", q.bits);
  b.define("STORE", std::string(b.storage(y)));
  if (q.bits == 4) {
    b.define("GROUP", q.group);
    b.flag("AFFINE", !q.symmetric);
  }
  Exprs& e = c.exprs;
  const int64_t columns = e.constantValue(dimOf(c, part.value, 1));
  const ExprId units = e.constant(columns / (q.bits == 4 ? 8 : 4)), count = e.mul(elementCount(c, ids), units);
  b.param("count", count);
  b.param("units", units);
  b.param("rows", rows);
  describeRows(b, c, part, all);
  b.grid(foldedGrid(c, e.ceildiv(count, 64)));
  return b.finish();
}

Status planEmbedding(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0, 1}));
  const ValueId weight = args.value(0), ids = args.value(1), y = args.output();
  const Quantization q = c.graph.value(weight).quantization;
  if (q.bits == 0) return gather(c, weight, 0, ids, y);
  const auto rows = constantOf(c, dimOf(c, weight, 0)), columns = constantOf(c, dimOf(c, weight, 1));
  if (!rows || !columns || *columns % 32)
    return unsupported(c, "a quantised embedding needs constant sizes, columns a multiple of 32");
  std::vector<WeightRows> parts;
  ETWGPU_TRY(splitRows(c, weight, false, parts));
  for (const WeightRows& part : parts)
    ETWGPU_TRY(describeEmbedding(c, q, dimOf(c, weight, 0), part, parts.size() == 1, ids, y));
  return {};
}

Status planIndex(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0}));
  ValueId index = kNoValue;
  const int dim = args.count() > 1 ? soleIndex(c.node(), 1, &index) : -1;
  if (dim < 0 || !isIntegerIndex(c, index)) return unsupported(c, "index takes one integer index tensor");
  return gather(c, args.value(0), dim, index, args.output());
}

Status planIndexSelect(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0, 2}));
  return gather(c, args.value(0), constantDim(c, args.integer(1), args.value(0)), args.value(2), args.output());
}

/// Elements of `value` as the scatter reads them; a value that needs broadcasting is expanded into scratch first.
Result<ValueId> expanded(GpuPlanContext& c, ValueId value, const std::vector<ExprId>& dims) {
  if (c.graph.value(value).dims == dims) return value;
  const ValueId full = c.newScratch(c.graph.value(value).dtype, dims);
  ETWGPU_TRY(copyWhole(c, value, full));
  return full;
}

/// Dims of the values that index_put(table, [index at dim]) takes.
std::vector<ExprId> indexedDims(const GpuPlanContext& c, ValueId table, int dim, ValueId index) {
  std::vector<ExprId> dims = c.graph.value(table).dims;
  const auto& index_dims = c.graph.value(index).dims;
  dims.erase(dims.begin() + dim);
  dims.insert(dims.begin() + dim, index_dims.begin(), index_dims.end());
  return dims;
}

Status planIndexPut(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0, 2}));
  ValueId index = kNoValue;
  const int dim = soleIndex(c.node(), 1, &index);
  if (dim < 0 || !isIntegerIndex(c, index)) return unsupported(c, "index_put takes one integer index tensor");
  if (args.flag(3)) return unsupported(c, "index_put with accumulate");
  const ValueId table = args.value(0), y = args.output();
  ETWGPU_TRY(copyWhole(c, table, y));
  ETWGPU_ASSIGN(const ValueId value, expanded(c, args.value(2), indexedDims(c, table, dim, index)));
  return scatter(c, y, dim, index, value);
}

Status planStateIndexPut(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({kStateIndexPutState, kStateIndexPutIndex, kStateIndexPutValue}, 0));
  const ValueId state = args.value(kStateIndexPutState), index = args.value(kStateIndexPutIndex);
  const int dim = constantDim(c, args.integer(kStateIndexPutDim), state);
  ETWGPU_ASSIGN(const ValueId value, expanded(c, args.value(kStateIndexPutValue), indexedDims(c, state, dim, index)));
  return scatter(c, state, dim, index, value);
}

/// slice_scatter(x, source, dim, start, end, step): end follows from the source's size.
Status planSliceScatter(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0, 1}));
  const ValueId x = args.value(0), source = args.value(1), y = args.output();
  Exprs& e = c.exprs;
  const int dim = args.integer(2).valid() ? constantDim(c, args.integer(2), x) : 0;
  ExprId start = args.integer(3).valid() ? args.integer(3) : e.constant(0);
  if (e.bounds(start).min < 0) {
    if (e.bounds(start).max >= 0) return unsupported(c, "slice_scatter with a start that may be of either sign");
    start = e.binary(ExprOp::max, e.add(start, dimOf(c, x, dim)), e.constant(0));
  }
  const ExprId step = args.integer(5).valid() ? args.integer(5) : e.constant(1);
  ETWGPU_TRY(copyWhole(c, x, y));
  const std::vector<ExprId> dims = c.graph.value(source).dims;
  std::vector<ExprId> strides = contiguousStrides(e, c.graph.value(y).dims);
  const ExprId offset = e.mul(start, strides[size_t(dim)]);
  strides[size_t(dim)] = e.mul(strides[size_t(dim)], step);
  return elementwise::describeCopy(c, dims, {source, elementwise::broadcastLayout(c, source, dims)},
                                   {y, Access::read_write, strides, offset});
}

/// copy(x, source): source broadcast to x's shape, in x's dtype.
Status planCopy(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0, 1}));
  return copyWhole(c, args.value(1), args.output());
}

}  // namespace

void registerIndexingGpu(GpuRegistry& registry) {
  registry.add("aten.embedding.default", planEmbedding);
  registry.add("aten.index.Tensor", planIndex);
  registry.add("aten.index_select.default", planIndexSelect);
  registry.add("aten.index_put.default", planIndexPut);
  registry.add("aten.slice_scatter.default", planSliceScatter);
  registry.add("aten.copy.default", planCopy);
  registry.add(kStateIndexPut, planStateIndexPut);
}

}  // namespace etwgpu
