// etwgpu.pointwise, into which the graph passes turn every elementwise operator and strided read. The operators
// themselves are registered too, for graphs on which those passes were switched off.
#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/pointwise.h"
#include "runtime/operators/common/gpu_builder.h"
#include "runtime/operators/elementwise/gpu_pointwise.h"

namespace etwgpu {
namespace {

Status describeNode(GpuPlanContext& c, const Node& node) {
  if (!node.pointwise || node.outputs.empty())
    return Status(Code::invalid_program, "a pointwise node without a program");
  const NodeArgs args(node);
  std::vector<elementwise::Operand> operands;
  for (size_t i = 0; i < node.pointwise->inputs.size(); ++i) {
    ETWGPU_TRY(args.check({i}));
    operands.push_back({args.value(i), node.pointwise->inputs[i]});
  }
  const ValueId y = args.output();
  const std::vector<ExprId> dims = c.graph.value(y).dims;
  return elementwise::describePointwise(c, dims, std::move(operands), node.pointwise->code,
                                        {y, Access::read_write, {}, {}});
}

Status planPointwise(GpuPlanContext& c) { return describeNode(c, c.node()); }

Status planSingle(GpuPlanContext& c) {
  const std::optional<Node> lowered = loweredToPointwise(c.graph, c.node());
  if (!lowered) return unsupported(c, "no pointwise form for these arguments");
  return describeNode(c, *lowered);
}

/// A view that is no alias: the same elements in the same order.
Status planView(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0}));
  const std::vector<ExprId> flat{elementCount(c, args.value(0))};
  const PointwiseInput layout{{c.exprs.constant(1)}, c.exprs.constant(0)};
  return elementwise::describeCopy(c, flat, {args.value(0), layout}, {args.output(), Access::read_write, {}, {}});
}

constexpr std::string_view kElementwise[] = {
    "aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar", "aten.mul.Tensor", "aten.mul.Scalar",
    "aten.minimum.default", "aten.maximum.default", "aten.div.Tensor", "aten.div.Scalar", "aten.pow.Tensor_Scalar",
    "aten.pow.Tensor_Tensor", "aten.neg.default", "aten.abs.default", "aten.relu.default", "aten.clamp.default",
    "aten.exp.default", "aten.log.default", "aten.sqrt.default", "aten.rsqrt.default", "aten.reciprocal.default",
    "aten.sin.default", "aten.cos.default", "aten.tanh.default", "aten.erf.default", "aten.sigmoid.default",
    "aten.silu.default", "aten.gelu.default", "aten.hardtanh.default", "aten.hardswish.default",
    "aten.hardsigmoid.default", "aten.leaky_relu.default", "aten.elu.default", "aten.floor.default", "aten.eq.Tensor",
    "aten.ne.Tensor", "aten.lt.Tensor", "aten.le.Tensor", "aten.gt.Tensor", "aten.ge.Tensor", "aten.eq.Scalar",
    "aten.ne.Scalar", "aten.lt.Scalar", "aten.le.Scalar", "aten.gt.Scalar", "aten.ge.Scalar",
    "aten.logical_and.default", "aten.logical_or.default", "aten.logical_not.default", "aten.bitwise_and.Tensor",
    "aten.bitwise_or.Tensor", "aten.bitwise_not.default", "aten.where.self", "aten._to_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
    // layout
    "aten.permute_copy.default", "aten.expand_copy.default", "aten.slice_copy.Tensor", "aten.select_copy.int",
    "aten.full.default", "aten.full_like.default", "aten.arange.start_step", "aten.scalar_tensor.default"};
constexpr std::string_view kViews[] = {"aten.view_copy.default", "aten.unsqueeze_copy.default",
                                       "aten.squeeze_copy.dims", "aten.alias_copy.default",
                                       "aten.clone.default",     "dim_order_ops._clone_dim_order.default"};

}  // namespace

void registerElementwiseGpu(GpuRegistry& registry) {
  registry.add(kPointwise, planPointwise);
  for (std::string_view op : kElementwise) registry.add(op, planSingle);
  for (std::string_view op : kViews) registry.add(op, planView);
}

}  // namespace etwgpu
