// etwgpu.argmax: two dispatches, the parts of a row and then the best of them.
#include "runtime/operators/sampling/sampling.h"

#include <algorithm>

#include "runtime/operators/common/gpu_builder.h"

namespace etwgpu {
namespace {

/// Values of a row that a workgroup of the first dispatch looks at, and the most workgroups a row.
constexpr int64_t kArgmaxPart = 1024, kArgmaxMaxParts = 256;

Status planArgmax(GpuPlanContext& c) {
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({kArgmaxLogits}));
  auto& x = c.exprs;
  const ValueId logits = a.value(kArgmaxLogits), ids = a.output();
  if (c.graph.value(logits).dims.empty()) return unsupported(c, "argmax of a scalar");
  const ExprId count = dimOf(c, logits, -1), rows = dimProduct(c, logits, 0, -1);
  const int64_t parts = std::clamp<int64_t>((x.bounds(count).max + kArgmaxPart - 1) / kArgmaxPart, 1, kArgmaxMaxParts);
  const ExprId parts_e = x.constant(parts);
  const ValueId values = c.newScratch(DType::i32, {rows, parts_e}), indices = c.newScratch(DType::i32, {rows, parts_e});

  DispatchBuilder first(c, "sampling/argmax.wgsl", {});
  first.rename(std::string(first.storage(logits)) + "_argmax_parts_baseline");
  first.read("logits", logits);
  first.bindTyped("values", values, Access::read_write, "f32");
  first.bindTyped("indices", indices, Access::read_write, "u32");
  first.define("WG", 256);
  first.flag("FINAL", false);
  first.flag("FEEDBACK", false);
  first.param("count", count);
  first.param("parts", parts_e);
  first.grid(parts_e, rows);
  ETWGPU_TRY(first.finish());

  const bool feedback = !a.isNone(kArgmaxStart);
  DispatchBuilder last(c, "sampling/argmax.wgsl",
                       feedback ? "i32_argmax_feedback_baseline" : "i32_argmax_final_baseline");
  last.bindTyped("values", values, Access::read_write, "f32");
  last.bindTyped("indices", indices, Access::read_write, "u32");
  last.bindTyped("ids", ids, Access::read_write, "i32");
  last.define("WG", 256);
  if (feedback) last.bindTyped("start", a.value(kArgmaxStart), Access::read_write, "i32");
  last.flag("FINAL", true);
  last.flag("FEEDBACK", feedback);
  last.param("count", parts_e);
  last.param("parts", x.constant(1));
  if (feedback) last.param("advance", a.integer(kArgmaxAdvance));
  last.grid(x.constant(1), rows);
  return last.finish();
}

}  // namespace

void registerSamplingGpu(GpuRegistry& r) { r.add(kArgmax, planArgmax); }

}  // namespace etwgpu
