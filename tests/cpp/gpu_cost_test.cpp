// Bytes and operations that a profile states for a dispatch, against what the shapes say.
#include "runtime/webgpu/gpu_cost.h"

#include <gtest/gtest.h>

#include "tests/cpp/all_variants.h"
#include "tests/cpp/kernel_cases.h"

namespace etwgpu::testing {
namespace {

/// Costs of the dispatches that run with the symbols' values.
std::vector<DispatchCost> costs(KernelCase c, std::vector<int64_t> symbols, int64_t position = 0,
                                Precision precision = Precision::f32,
                                const GpuCapabilities& capabilities = deviceOf(Tier::f16, true)) {
  LoadOptions options;
  options.precision = precision;
  auto dispatches = planCase(c, capabilities, options);
  if (!dispatches.ok()) return {};
  const Graph& graph = c.builder.graph;
  std::vector<int64_t> values(graph.exprs.size());
  graph.exprs.evalAll(symbols, values);
  std::vector<DispatchCost> out;
  for (const DispatchSpec& d : *dispatches) {
    const int64_t value = d.when.expr.valid() ? values[size_t(d.when.expr.index)] : 0;
    if (d.when.expr.valid() && (value < d.when.min || value > d.when.max)) continue;
    out.push_back(dispatchCost(graph, d, values, precision, position));
  }
  return out;
}

TEST(GpuCost, LinearReadsItsWeightsOnceAndMultipliesEveryRow) {
  // [256, 128] int4 by 64, symmetric: 16,384 bytes of words, 1,024 of scales
  for (const int64_t rows : {1, 7, 300}) {
    const auto cost = costs(linearCase("l", {.n = 256, .k = 128, .bits = 4}), {rows});
    ASSERT_EQ(cost.size(), 1u);
    EXPECT_EQ(cost[0].flops, 2.0 * double(rows) * 256 * 128);
    EXPECT_EQ(cost[0].bytes, 16384 + 1024 + double(rows) * (256 + 128) * 4);
  }
}

TEST(GpuCost, HalfPrecisionHalvesActivationsOnly) {
  const auto cost = costs(linearCase("l", {.n = 256, .k = 128, .bits = 4}), {7}, 0, Precision::f16);
  ASSERT_EQ(cost.size(), 1u);
  EXPECT_EQ(cost[0].bytes, 16384 + 1024 + 7 * (256 + 128) * 2);
}

TEST(GpuCost, ANormThatGoesThroughScratchIsAnInputToo) {
  const auto cost = costs(linearCase("l", {.n = 256, .k = 128, .bits = 4, .norm = true}), {300}, 0, Precision::f16,
                          deviceOf(Tier::subgroup_matrix));
  ASSERT_EQ(cost.size(), 2u);  // the norm, the product
  EXPECT_EQ(cost[1].flops, 2.0 * 300 * 256 * 128);
  EXPECT_EQ(cost[1].bytes, 16384 + 1024 + 300.0 * (256 + 128) * 2);
}

TEST(GpuCost, AttentionReadsTheLivePartOfTheCache) {
  const int64_t heads = 9, kv = 3, d = 64, length = 2048, position = 100;
  const auto decode = costs(cachedAttentionCase("a", heads, kv, d, length), {1}, position);
  ASSERT_EQ(decode.size(), 2u);  // splits, combine
  EXPECT_EQ(decode[0].flops, 4.0 * heads * d * (position + 1));
  const auto prefill = costs(cachedAttentionCase("a", heads, kv, d, length), {11}, position);
  ASSERT_EQ(prefill.size(), 1u);
  EXPECT_EQ(prefill[0].flops, 4.0 * heads * d * 11 * (position + 6));
  const double cache = 2.0 * kv * d * (position + 11) * 4, activations = 2.0 * 11 * heads * d * 4, start = 4;
  EXPECT_EQ(prefill[0].bytes, cache + activations + start);
}

}  // namespace
}  // namespace etwgpu::testing
