// etwgpu.argmax: two dispatches, the parts of a row and then the best of them. etwgpu.sample: up to nine.
#include "runtime/operators/sampling/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>

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

constexpr int64_t kHistogramWords = 3 * 1024 + 3 * 2 * 1024;  // of sampling/border.wgsl
constexpr int64_t kStatsAt = 16;                              // of sampling/sample.wgsl

Status planSample(GpuPlanContext& c) {
  const NodeArgs a(c.node());
  ETWGPU_TRY(a.check({kSampleLogits, kSampleStart, kSampleOptions, kSampleSeen}, 2));
  auto& x = c.exprs;
  const ValueId logits = a.value(kSampleLogits);
  const ExprId count = dimOf(c, logits, -1), rows = dimProduct(c, logits, 0, -1);
  const int64_t parts = std::clamp<int64_t>((x.bounds(count).max + kArgmaxPart - 1) / kArgmaxPart, 1, kArgmaxMaxParts);
  const ValueId work = c.newScratch(DType::i32, {x.constant(kStatsAt + 5 * parts)});
  const ValueId histograms = c.newScratch(DType::i32, {x.constant(kHistogramWords)});

  const auto pass = [&](const char* name, int level, bool weighted) {
    const std::string label = level < 0 ? name : format("%s%d_%s", name, level, weighted ? "top_p" : "top_k");
    const bool last = std::string_view(name) == "final", race = std::string_view(name) == "race";
    DispatchBuilder b(c, "sampling/sample.wgsl", {});
    b.rename(std::string(b.storage(logits)) + "_sample_" + label + "_baseline");
    b.read("logits", logits);
    b.bindTyped("options", a.value(kSampleOptions), Access::read, "u32");
    b.bindTyped("seen", a.value(kSampleSeen), Access::read_write, "u32");
    b.bindTyped("work", work, Access::read_write, "u32");
    if (!last) b.bindTyped("histograms", histograms, Access::read_write, "atomic<u32>");
    if (last || race) b.bindTyped("start", a.value(kSampleStart), Access::read_write, "i32");
    if (last) b.bindTyped("ids", a.output(), Access::read_write, "i32");
    if (last) b.bindTyped("result", a.output(1), Access::read_write, "u32");
    b.define("WG", 256);
    b.define("PASS", std::string(name));
    if (level >= 0) b.define("LEVEL", level);
    if (level >= 0) b.flag("WEIGHTED", weighted);
    b.param("count", count);
    b.param("parts", x.constant(parts));
    b.param("row", x.sub(rows, x.constant(1)));
    b.param("advance", a.integer(kSampleAdvance));
    b.grid(x.constant(last ? 1 : parts));
    return b.finish();
  };
  ETWGPU_TRY(pass("stats", -1, false));
  for (const bool weighted : {false, true})
    for (const int level : {0, 1, 2}) ETWGPU_TRY(pass("select", level, weighted));
  ETWGPU_TRY(pass("race", -1, false));
  return pass("final", -1, false);
}

}  // namespace

std::array<uint32_t, kSampleOptionWords> sampleOptions(const SamplingOptions& o, bool masked) {
  const float min_logit = o.temperature > 0 && o.min_p > 0 ? o.temperature * std::log(o.min_p) : -1e38f;
  return {std::bit_cast<uint32_t>(std::max(o.temperature, 0.0f)),
          std::bit_cast<uint32_t>(o.temperature > 0 ? o.top_p : 1.0f),
          std::bit_cast<uint32_t>(min_logit),
          std::bit_cast<uint32_t>(o.repetition_penalty),
          o.temperature > 0 ? uint32_t(o.top_k) : 0,
          uint32_t(o.seed),
          uint32_t(o.seed >> 32),
          masked};
}

void registerSamplingGpu(GpuRegistry& r) {
  r.add(kArgmax, planArgmax);
  r.add(kSample, planSample);
}

}  // namespace etwgpu
