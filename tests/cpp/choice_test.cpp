// Which kernel each shape gets at each tier, by name, without a device; and that every kernel of the lists is reachable
// and expands to WGSL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "runtime/operators/attention/attention.h"
#include "runtime/operators/matmul/matmul.h"
#include "runtime/operators/normalization/normalization.h"
#include "tests/cpp/all_variants.h"

namespace etwgpu::testing {
namespace {

using ::testing::ElementsAre;

LoadOptions options(Precision precision = Precision::f32, Tier max_tier = Tier::subgroup_matrix) {
  LoadOptions o;
  o.precision = precision;
  o.max_tier = max_tier;
  return o;
}

/// Names of the kernels that run with the symbols' values.
std::vector<std::string> running(KernelCase c, const GpuCapabilities& caps, const LoadOptions& o,
                                 std::vector<int64_t> symbols) {
  auto dispatches = planCase(c, caps, o);
  if (!dispatches.ok()) return {dispatches.status().message()};
  std::vector<std::string> names;
  for (const DispatchSpec& d : *dispatches) {
    const int64_t value = d.when.expr.valid() ? c.builder.graph.exprs.eval(d.when.expr, symbols) : 0;
    if (!d.when.expr.valid() || (value >= d.when.min && value <= d.when.max)) names.push_back(d.kernel.name);
  }
  return names;
}

TEST(Choice, LinearByRowsAndTier) {
  const auto kernel = [](int64_t rows, Tier tier) {
    return running(linearCase("l", {.bits = 4}), deviceOf(tier), options(), {rows});
  };
  EXPECT_THAT(kernel(1, Tier::baseline), ElementsAre("f32_linear_int4_gemv_baseline"));
  EXPECT_THAT(kernel(4, Tier::subgroups), ElementsAre("f32_linear_int4_gemv_wide"));
  EXPECT_THAT(running(linearCase("l", {.bits = 4}), deviceOf(Tier::subgroups, false, false, 8), options(), {1}),
              ElementsAre("f32_linear_int4_gemv_subgroups"));
  EXPECT_THAT(kernel(5, Tier::subgroups), ElementsAre("f32_linear_int4_gemm_baseline_32x64"));
  EXPECT_THAT(kernel(96, Tier::baseline), ElementsAre("f32_linear_int4_gemm_baseline_32x64"));
  EXPECT_THAT(kernel(97, Tier::baseline), ElementsAre("f32_linear_int4_gemm_baseline_64x64"));
  EXPECT_THAT(kernel(300, Tier::subgroups), ElementsAre("f32_linear_int4_gemm_baseline_64x64"));
}

TEST(Choice, LinearBySubgroupMatrices) {
  const auto kernel = [](int64_t rows, LinearOptions o, GpuCapabilities caps = deviceOf(Tier::subgroup_matrix)) {
    o.max_rows = 4096;
    return running(linearCase("l", o), caps, options(Precision::f16), {rows});
  };
  const LinearOptions down{.n = 2048, .k = 8192}, gate{.n = 8192, .k = 2048, .norm = true, .glu = true};
  EXPECT_THAT(kernel(4, down), ElementsAre("f16_linear_int4_gemv_wide"));
  EXPECT_THAT(kernel(5, down), ElementsAre("f16_linear_int4_gemm_matrix_64x32"));
  EXPECT_THAT(kernel(512, down), ElementsAre("f16_linear_int4_gemm_matrix_64x64"));
  EXPECT_THAT(kernel(2048, down), ElementsAre("f16_linear_int4_gemm_matrix_128x256"));
  EXPECT_THAT(kernel(2048, gate),
              ElementsAre("f16_rms_norm_row_subgroups_vec4", "f16_linear_int4_gemm_matrix_glu_128x256"));
  GpuCapabilities little = deviceOf(Tier::subgroup_matrix);
  little.max_workgroup_bytes = 16384;
  EXPECT_THAT(kernel(2048, down, little), ElementsAre("f16_linear_int4_gemm_matrix_128x64"));
  // columns that are no whole vectors, K that is no whole step
  EXPECT_THAT(kernel(2048, {.n = 2046}), ElementsAre("f16_linear_int4_gemm_baseline_64x128_half"));
  EXPECT_THAT(kernel(2048, {.k = 40, .bits = 0}), ElementsAre("f16_linear_plain_gemm_baseline_64x64_half"));
  EXPECT_THAT(running(linearCase("l", down), deviceOf(Tier::subgroup_matrix), options(Precision::f32), {300}),
              ElementsAre("f32_linear_int4_gemm_baseline_64x64"));
}

TEST(Choice, TilesComputeInF16WhereTheDeviceCan) {
  const auto kernel = [](Tier tier, bool narrow = false) {
    LinearOptions gate{.n = 8192, .k = 2048, .norm = true, .glu = true};
    gate.max_rows = 4096;
    return running(linearCase("l", gate), deviceOf(Tier::subgroups, true, narrow), options(Precision::f16, tier),
                   {2048});
  };
  EXPECT_THAT(kernel(Tier::subgroups),
              ElementsAre("f16_rms_norm_row_subgroups_vec4", "f16_linear_int4_gemm_baseline_glu_64x128_half"));
  EXPECT_THAT(kernel(Tier::baseline), ElementsAre("f16_linear_int4_gemm_baseline_norm_glu_64x128"));
  EXPECT_THAT(kernel(Tier::subgroups, true), ElementsAre("f16_linear_int4_gemm_baseline_norm_glu_32x64"));
}

TEST(Choice, GemmTilesGrowWithTheNumberOfWorkgroups) {
  const auto tiles = [](int64_t n, bool narrow, int64_t min, int64_t max) {
    std::vector<std::array<int64_t, 3>> all;
    for (const auto& r : matmul::gemmRanges({.n = n, .narrow = narrow}, min, max))
      all.push_back({r.min, r.max, r.size.tile_n * r.size.tile_m});
    return all;
  };
  using Range = std::array<int64_t, 3>;
  EXPECT_THAT(tiles(2048, false, 5, 2048),
              ElementsAre(Range{5, 96, 32 * 64}, Range{97, 960, 64 * 64}, Range{961, 2048, 64 * 128}));
  EXPECT_THAT(tiles(128256, false, 5, 512), ElementsAre(Range{5, 96, 32 * 64}, Range{97, 512, 64 * 128}));
  EXPECT_THAT(tiles(2048, true, 5, 2048), ElementsAre(Range{5, 2048, 32 * 64}));
  EXPECT_THAT(tiles(64, false, 200, 300), ElementsAre(Range{200, 300, 64 * 64}));
}

TEST(Choice, MatrixRangesCoverAllRows) {
  GpuCapabilities caps = deviceOf(Tier::subgroup_matrix);
  for (uint32_t bytes : {16384u, 32768u})
    for (int64_t n : {64, 3072, 16384, 128256})
      for (int64_t most : {5, 64, 65, 2000, 5000, 100000}) {
        caps.max_workgroup_bytes = bytes;
        const auto ranges = matmul::matrixRanges({.n = n, .k = 2048}, caps, 5, most);
        ASSERT_FALSE(ranges.empty());
        EXPECT_EQ(ranges.front().min, 5);
        EXPECT_EQ(ranges.back().max, most);
        for (size_t i = 0; i < ranges.size(); i++) {
          if (i > 0) {
            EXPECT_EQ(ranges[i].min, ranges[i - 1].max + 1);
          }
          EXPECT_LE(ranges[i].min, ranges[i].max);
          EXPECT_LE(ranges[i].tile.words(16) * 16, int(bytes));
          EXPECT_LE(ranges[i].tile.invocations(), 256);
        }
      }
}

TEST(Choice, ForcedTierAndPrecision) {
  const KernelCase c = linearCase("l", {.bits = 8, .norm = true, .glu = true, .activation = "silu"});
  EXPECT_THAT(running(c, deviceOf(Tier::subgroups), options(Precision::f32, Tier::baseline), {1}),
              ElementsAre("f32_linear_int8_gemv_baseline_norm_glu_silu"));
  EXPECT_THAT(running(c, deviceOf(Tier::subgroups, true), options(Precision::f16), {1}),
              ElementsAre("f16_linear_int8_gemv_wide_norm_glu_silu"));
}

TEST(Choice, AttentionDecodesInTwoDispatches) {
  const KernelCase c = cachedAttentionCase("a", 9, 3, 64, 2048);
  EXPECT_THAT(running(c, deviceOf(Tier::subgroups), options(), {1}),
              ElementsAre("f32_attention_decode_split_wide", "f32_attention_decode_combine_baseline"));
  EXPECT_THAT(running(c, deviceOf(Tier::subgroups, false, false, 8), options(), {1}),
              ElementsAre("f32_attention_decode_split_subgroups", "f32_attention_decode_combine_baseline"));
  EXPECT_THAT(running(c, deviceOf(Tier::baseline), options(), {1}),
              ElementsAre("f32_attention_decode_split_baseline", "f32_attention_decode_combine_baseline"));
  EXPECT_THAT(running(c, deviceOf(Tier::subgroups), options(), {2}),
              ElementsAre("f32_attention_tiles_64x64_wide_causal"));
}

TEST(Choice, DecoderOperatorsOfOneRowAndOfMore) {
  const KernelCase qkv = qkvCase("qkv", 64, 2048, 4, true, false);
  const KernelCase out = attentionLinearCase("o", 32, 8, 64, 2048, 2048, 4, true);
  const GpuCapabilities baseline = deviceOf(Tier::baseline);
  EXPECT_THAT(running(qkv, baseline, options(), {1}), ElementsAre("f32_linear_int4_gemv_baseline_norm_rope"));
  EXPECT_THAT(running(qkv, baseline, options(), {3}),
              ElementsAre("f32_linear_int4_gemv_baseline_norm", "f32_rope_cache_write_baseline"));
  EXPECT_THAT(running(out, baseline, options(), {1}),
              ElementsAre("f32_attention_decode_split_baseline", "f32_linear_int4_gemv_baseline_residual_combine"));
  EXPECT_THAT(running(out, baseline, options(), {3}),
              ElementsAre("f32_attention_tiles_64x64_wide_causal", "f32_linear_int4_gemv_baseline_residual"));
  // a head size that blocks of four rotary pairs do not divide, and a device with too few bindings for both
  EXPECT_THAT(running(qkvCase("odd", 20, 256, 4, true, false), baseline, options(), {1}),
              ElementsAre("f32_linear_int4_gemv_baseline_norm", "f32_rope_cache_write_baseline"));
  GpuCapabilities few = baseline;
  few.max_storage_buffers = 8;
  EXPECT_THAT(running(qkvCase("bias", 64, 256, 4, true, true), few, options(), {1}),
              ElementsAre("f32_linear_int4_gemv_baseline_norm", "f32_rope_cache_write_baseline"));
  EXPECT_THAT(running(attentionLinearCase("odd", 3, 3, 20, 64, 60, 0, true), baseline, options(), {1}),
              ElementsAre("f32_attention_decode_split_baseline", "f32_attention_decode_combine_baseline",
                          "f32_linear_plain_gemv_baseline_residual"));
}

TEST(Choice, AnAdapterCostsOneDispatchMore) {
  const GpuCapabilities baseline = deviceOf(Tier::baseline);
  const auto kernels = [&](size_t i, int64_t rows) {
    const KernelCase c = adapterCases()[i];
    return running(c, c.on(baseline), options(), {rows});
  };
  EXPECT_THAT(kernels(4, 1),
              ElementsAre("f32_linear_plain_gemv_baseline_norm", "f32_linear_int4_gemv_baseline_norm_adapters_rope"));
  EXPECT_THAT(kernels(4, 3),
              ElementsAre("f32_linear_plain_gemv_baseline_norm", "f32_linear_int4_gemv_baseline_norm_adapters",
                          "f32_rope_cache_write_baseline"));
  EXPECT_THAT(kernels(5, 1),
              ElementsAre("f32_attention_decode_split_baseline", "f32_linear_plain_gemv_baseline_combine",
                          "f32_linear_int4_gemv_baseline_residual_adapters_combine"));
  EXPECT_THAT(kernels(1, 1), ElementsAre("f32_linear_plain_gemv_baseline_norm",
                                         "f32_linear_int4_gemv_baseline_norm_glu_silu_adapters"));
  EXPECT_THAT(kernels(2, 50), ElementsAre("f32_linear_plain_gemm_baseline_32x64",
                                          "f32_linear_int8_gemm_baseline_residual_adapters_32x64"));
}

TEST(Choice, GemvShapes) {
  using matmul::GemvProblem, matmul::GemvShape, matmul::RowPairs, matmul::Weights;
  const auto shape = [](GemvProblem p) { return matmul::gemvShape(p); };
  const auto text = [](const GemvShape& g) {
    return format("s%d t%d b%d ahead%d, %d x %d%s", g.s, g.t, g.blocks, g.ahead, g.chunks, g.iterations,
                  g.paired ? " paired" : "");
  };
  GemvProblem p{3072, 2048, Weights::int4, true, RowPairs::rotary};
  p.max_invocations = 1024;
  p.max_workgroup_bytes = 49152;
  EXPECT_EQ(text(shape(p)), "s4 t2 b2 ahead2, 1 x 2 paired");
  p.pairs = RowPairs::none, p.n = 2048;
  EXPECT_EQ(text(shape(p)), "s2 t4 b1 ahead4, 1 x 4");
  p.pairs = RowPairs::gate, p.n = 16384;
  EXPECT_EQ(text(shape(p)), "s1 t16 b1 ahead2, 1 x 8");
  p.pairs = RowPairs::none, p.n = 2048, p.k = 8192;
  EXPECT_EQ(text(shape(p)), "s4 t4 b1 ahead2, 1 x 8");
  p.half = false;
  EXPECT_EQ(text(shape(p)), "s4 t4 b1 ahead2, 1 x 8");
  p.max_invocations = 256, p.max_workgroup_bytes = 16384;  // WebGPU's default limits
  EXPECT_EQ(text(shape(p)), "s4 t2 b1 ahead2, 3 x 3");
}

/// Lanes of a team with candidates of Tuning; nullptr: the table.
std::vector<std::pair<int, const Tuning::Values*>> shapesToFit(matmul::RowPairs pairs) {
  std::vector<std::pair<int, const Tuning::Values*>> all;
  const std::string_view key = pairs == matmul::RowPairs::none ? "gemv.plain.f16" : "gemv.gate.f16";
  for (const int lanes : {8, 16, 32, 64}) {
    all.push_back({lanes, nullptr});
    for (const TunedChoice& choice : tunedChoices())
      for (const Tuning::Values& values : choice.candidates)
        if (choice.key == key) all.push_back({lanes, &values});
  }
  return all;
}

// Whatever the problem: within the limits, every unit of x staged and read, every row owned by one team.
TEST(Choice, GemvShapesFit) {
  using namespace matmul;
  for (const int64_t k : {32, 96, 576, 896, 2048, 4864, 8192, 14336})
    for (const int64_t n : {8, 72, 2048, 16384, 128256})
      for (const Weights weights : {Weights::int4, Weights::int8})
        for (const bool half : {false, true})
          for (const RowPairs pairs : {RowPairs::none, RowPairs::gate, RowPairs::rotary})
            for (const auto& [lanes, tuned] : shapesToFit(pairs)) {
              GemvProblem p{n, k, weights, half, pairs, true, lanes};
              p.tuned = tuned;
              const GemvShape g = gemvShape(p);
              EXPECT_LE(g.invocations(), p.max_invocations);
              EXPECT_LE(gemvWorkgroupBytes(p, g), p.max_workgroup_bytes);
              EXPECT_GE(int64_t(g.chunks) * g.chunkUnits(), k / (weights == Weights::int4 ? 8 : 4));
              EXPECT_TRUE(g.ahead >= 1 && g.ahead <= g.iterations);
              EXPECT_TRUE(pairs == RowPairs::none || (g.paired ? g.blocks : g.t) % 2 == 0);
              EXPECT_GE(g.perInvocation() * g.invocations(), g.chunkUnits());
            }
}

TEST(Choice, WideDecodeFits) {
  using namespace attention;
  int usable = 0;
  for (const int64_t group : {1, 3, 4, 7, 8})
    for (const int64_t d : {64, 80, 96, 128, 256})
      for (const bool half : {false, true})
        for (const int subgroup : {8, 16, 32}) {
          const WideDecode w = wideDecode({group, d, half, 1024, subgroup});
          if (!w.usable) continue;
          ++usable;
          EXPECT_EQ(w.lanes_of_position * w.vectors_of_lane * (half ? 8 : 4), d);
          EXPECT_LE(w.lanes_of_position, subgroup);
          const int64_t subgroups = w.invocations / subgroup;
          EXPECT_LE(4 * (group * (w.tile + 2 * subgroups) + subgroups * (w.together ? group : 1) * d), 16384);
          EXPECT_GE(w.tile, 32);
        }
  EXPECT_GT(usable, 60);
}

// The grid is the same for every position, and a part is never shorter than a round of the kernel.
TEST(Choice, PartsOfTheCache) {
  for (const int64_t kv_heads : {1, 2, 3, 8, 32})
    for (const int64_t length : {1, 32, 33, 999, 8192, 131072}) {
      const attention::SplitSize size = attention::splitSize(length, kv_heads, false);
      EXPECT_GE(size.parts, 1);
      EXPECT_LE(size.parts, 32);
      EXPECT_TRUE(size.parts >= 8 || size.parts * size.positions >= length);
    }
  EXPECT_EQ(attention::splitSize(8192, 8, false).parts, 16);
}

TEST(Choice, GridsCoverTheShape) {
  KernelCase c = linearCase("l", {.n = 200, .k = 64, .bits = 4});
  const auto dispatches = planCase(c, deviceOf(Tier::baseline), options());
  ASSERT_TRUE(dispatches.ok()) << dispatches.status().message();
  ASSERT_EQ(dispatches->size(), 3u);
  const auto workgroups = [&](size_t i, int64_t rows) {
    std::vector<int64_t> out;
    for (ExprId e : (*dispatches)[i].workgroups)
      out.push_back(c.builder.graph.exprs.eval(e, std::vector<int64_t>{rows}));
    return out;
  };
  EXPECT_THAT(workgroups(0, 3), ElementsAre(13, 3, 1));   // 16 columns a workgroup, one row each
  EXPECT_THAT(workgroups(1, 33), ElementsAre(4, 2, 1));   // 64 columns, 32 rows
  EXPECT_THAT(workgroups(2, 129), ElementsAre(4, 3, 1));  // 64 columns, 64 rows
}

TEST(Choice, GridsBeyondADimensionAreFolded) {
  KernelCase c{"relu", {}};
  GraphBuilder& b = c.builder;
  const ExprId m = b.symbol("m", 1, 30'000'001, 0, 0);
  b.node("aten.relu.default", {b.value("x", DType::f32, {m}, ValueKind::intermediate)}, "y", {m});
  const auto dispatches = planCase(c, deviceOf(Tier::baseline), options());
  ASSERT_TRUE(dispatches.ok()) << dispatches.status().message();
  ASSERT_EQ(dispatches->size(), 1u);
  for (const int64_t count : {1, 256, 257, 65'535 * 256, 65'535 * 256 + 1, 30'000'001}) {
    const auto size = [&](size_t i) {
      return c.builder.graph.exprs.eval((*dispatches)[0].workgroups[i], std::vector<int64_t>{count});
    };
    EXPECT_GE(size(0) * size(1) * 256, count);
    EXPECT_LE(std::max(size(0), size(1)), 65'535);
    EXPECT_EQ(size(2), 1);
  }
}

TEST(Choice, WeightsBeyondABindingAreSplit) {
  KernelCase c = linearCase("l", {.max_rows = 1, .n = 1500, .k = 256, .bits = 4});
  GpuCapabilities caps = deviceOf(Tier::baseline);
  caps.max_binding_bytes = 600 * 128;
  const auto dispatches = planCase(c, caps, options());
  ASSERT_TRUE(dispatches.ok()) << dispatches.status().message();
  ASSERT_EQ(dispatches->size(), 3u);
  uint64_t words = 0, constants = 1504 * 128;  // of the file: where the next slice begins
  for (const DispatchSpec& d : *dispatches) {
    const Value& part = c.builder.graph.value(d.bindings[1].value);
    ASSERT_EQ(part.pieces.size(), 1u);
    EXPECT_EQ(part.pieces[0].offset, words);
    EXPECT_EQ(part.constants_pieces[0].offset, constants);
    words += part.pieces[0].size;
    constants += part.constants_pieces[0].size;
    EXPECT_EQ(part.quantization.constants_offset, (part.pieces[0].size + 255) / 256 * 256);
    EXPECT_LE(gpuBytes(c.builder.graph, d.bindings[1].value, Precision::f32), caps.max_binding_bytes);
  }
  EXPECT_EQ(words, 1504u * 128);
  EXPECT_EQ(constants, 1504u * 128 + 1504 * 256 / 64 * 2);
  caps.max_binding_bytes = 1000;
  EXPECT_EQ(planCase(c, caps, options()).status().code(), Code::limit_exceeded);
}

TEST(Choice, PartsOfAGateHoldTheSameRowsOfBothHalves) {
  KernelCase c = linearCase("l", {.max_rows = 1, .n = 1024, .k = 256, .bits = 8, .glu = true});
  GpuCapabilities caps = deviceOf(Tier::baseline);
  caps.max_binding_bytes = 300 << 10;
  const auto dispatches = planCase(c, caps, options());
  ASSERT_TRUE(dispatches.ok()) << dispatches.status().message();
  ASSERT_EQ(dispatches->size(), 2u);
  const Value& second = c.builder.graph.value((*dispatches)[1].bindings[1].value);
  EXPECT_THAT(second.pieces,
              ElementsAre(ConstantPiece{"w", 512 * 256, 512 * 256}, ConstantPiece{"w", 1536 * 256, 512 * 256}));
  EXPECT_EQ(c.builder.graph.exprs.constantValue(second.dims[0]), 1024);
}

TEST(Choice, RefusesWhatNoKernelServes) {
  EXPECT_EQ(planCase(*std::make_unique<KernelCase>(cachedAttentionCase("a", 2, 2, 6, 64)), deviceOf(Tier::baseline),
                     options())
                .status()
                .code(),
            Code::unsupported_operator);
  EXPECT_EQ(planCase(*std::make_unique<KernelCase>(cachedAttentionCase("a", 2, 2, 512, 64)), deviceOf(Tier::baseline),
                     options())
                .status()
                .code(),
            Code::unsupported_operator);
  EXPECT_EQ(planCase(*std::make_unique<KernelCase>(linearCase("l", {.n = 12, .bits = 4, .glu = true})),
                     deviceOf(Tier::baseline), options())
                .status()
                .code(),
            Code::unsupported_operator);
}

bool anyStartsWith(const std::set<std::string>& names, std::string_view start) {
  const auto it = names.lower_bound(std::string(start));
  return it != names.end() && it->starts_with(start);
}

TEST(Variants, EveryListedKernelIsReachable) {
  const Variants v = allVariants(32, true);
  for (const auto& k : matmul::kernels()) EXPECT_TRUE(anyStartsWith(v.names, k.name)) << k.name;
  for (const auto& k : attention::kernels()) EXPECT_TRUE(anyStartsWith(v.names, k.name)) << k.name;
  for (const auto& k : normalization::kernels()) EXPECT_TRUE(anyStartsWith(v.names, k.name)) << k.name;
}

// With ETWGPU_WGSL_OUT the texts are written there, for tools/validate_wgsl.py.
TEST(Variants, Expand) {
  const char* folder = std::getenv("ETWGPU_WGSL_OUT");
  const Variants v = allVariants(32, true);
  EXPECT_GT(v.all.size(), 100u);
  int number = 0;
  for (const WgslVariant& variant : v.all) {
    const Result<std::string> text = expandWgsl(variant);
    ASSERT_TRUE(text.ok()) << variant.name << ": " << text.status().message();
    EXPECT_EQ(text->find("${"), std::string::npos) << variant.name;
    if (folder)
      std::ofstream(std::string(folder) + "/" + std::to_string(number++) + "_" + variant.name + ".wgsl") << *text;
  }
}

}  // namespace
}  // namespace etwgpu::testing
