// etwgpu.pointwise, into which the graph passes turn every elementwise operator and strided read.
#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/gpu_builder.h"
#include "runtime/operators/elementwise/gpu_pointwise.h"

namespace etwgpu {
namespace {

Status planPointwise(GpuPlanContext& c) {
  const Node& node = c.node();
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

}  // namespace

void registerElementwiseGpu(GpuRegistry& registry) { registry.add(kPointwise, planPointwise); }

}  // namespace etwgpu
