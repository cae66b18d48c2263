// cat and pad: several strided copies into one output. All other layout operators are views or strided reads of
// pointwise programs.
#include <algorithm>

#include "runtime/operators/common/gpu_builder.h"
#include "runtime/operators/elementwise/gpu_pointwise.h"

namespace etwgpu {
namespace {

using elementwise::describeCopy;
using elementwise::Target;

elementwise::Operand contiguousOperand(GpuPlanContext& c, ValueId value) {
  return {value, {contiguousStrides(c.exprs, c.graph.value(value).dims), c.exprs.constant(0)}};
}

/// cat(tensors, dim)
Status planCat(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  const auto* tensors = c.node().args.empty() ? nullptr : std::get_if<std::vector<ValueId>>(&c.node().args[0]);
  const ValueId y = args.output();
  if (!tensors || y == kNoValue) return Status(Code::invalid_program, "cat without tensors");
  const std::vector<ValueId> parts =
      *tensors;  // newValue may move the node's neighbours, not the node; keep a copy anyway
  const std::vector<ExprId> out = c.graph.value(y).dims;
  int64_t dim = args.integer(1).valid() ? constantOf(c, args.integer(1)).value_or(0) : 0;
  if (dim < 0) dim += int64_t(out.size());
  if (dim < 0 || dim >= int64_t(out.size()))
    return unsupported(c, "cat along a dimension that the tensors do not have");
  const std::vector<ExprId> strides = contiguousStrides(c.exprs, out);
  ExprId start = c.exprs.constant(0);
  for (ValueId part : parts) {
    const std::vector<ExprId> dims = c.graph.value(part).dims;
    if (dims.size() != out.size()) {
      // PyTorch lets an empty tensor of one dimension join any cat
      if (dims.size() == 1 && c.exprs.isConstant(dims[0], 0)) continue;
      return unsupported(c, "cat of tensors of different ranks");
    }
    const Target target{y, Access::read_write, strides, c.exprs.mul(start, strides[size_t(dim)])};
    ETWGPU_TRY(describeCopy(c, dims, contiguousOperand(c, part), target));
    start = c.exprs.add(start, dims[size_t(dim)]);
  }
  return {};
}

/// constant_pad_nd(x, pad, value): the last dimension's pair of pad comes first; negative amounts crop.
Status planPad(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0}));
  const ValueId x = args.value(0), y = args.output();
  const std::vector<ExprId> pad = args.integers(1), in = c.graph.value(x).dims, out = c.graph.value(y).dims;
  if (pad.size() % 2 || pad.size() > 2 * in.size()) return unsupported(c, "pad needs a pair of amounts per dimension");
  PointwiseInstruction fill{PointwiseOp::constant};
  fill.imm = args.number(2, 0, c.exprs);
  fill.dtype = c.graph.value(y).dtype;
  ETWGPU_TRY(elementwise::describePointwise(c, out, {}, {fill}, {y, Access::read_write, {}, {}}));

  Exprs& e = c.exprs;
  const ExprId zero = e.constant(0);
  elementwise::Operand operand = contiguousOperand(c, x);
  Target target{y, Access::read_write, contiguousStrides(e, out), zero};
  std::vector<ExprId> region = in;
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    const size_t d = in.size() - 1 - k;
    const ExprId before = pad[2 * k], after = pad[2 * k + 1];
    const ExprId crop_before = e.binary(ExprOp::max, e.sub(zero, before), zero);
    const ExprId crop_after = e.binary(ExprOp::max, e.sub(zero, after), zero);
    region[d] = e.sub(e.sub(region[d], crop_before), crop_after);
    operand.layout.offset = e.add(operand.layout.offset, e.mul(crop_before, operand.layout.strides[d]));
    target.offset = e.add(target.offset, e.mul(e.binary(ExprOp::max, before, zero), target.strides[d]));
  }
  return describeCopy(c, region, operand, target);
}

}  // namespace

void registerLayoutGpu(GpuRegistry& registry) {
  registry.add("aten.cat.default", planCat);
  registry.add("aten.constant_pad_nd.default", planPad);
}

}  // namespace etwgpu
