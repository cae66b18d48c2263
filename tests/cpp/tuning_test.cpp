// Choices that measuring makes: what is written is read again, and nothing else is.
#include "runtime/core/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/executor/gpu_kernel.h"
#include "runtime/operators/matmul/matmul.h"
#include "tests/cpp/all_variants.h"

namespace etwgpu::testing {
namespace {

TEST(Tuning, TextIsReadAgain) {
  Tuning tuning;
  for (const TunedChoice& choice : tunedChoices()) tuning.set(choice.key, choice.candidates.back());
  const auto read = Tuning::parse(tuning.text());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, tuning);
  EXPECT_TRUE(Tuning::parse("")->empty());
  EXPECT_TRUE(Tuning::parse("\n")->empty());
}

TEST(Tuning, RefusesWhatIsNoCandidate) {
  for (const char* text : {"gemv.nothing.f16 1,8,1,2,0", "processors 3", "processors", "processors 8,8", "processors x",
                           "processors 99999999999999", "gemv.plain.f16 1,8,1,2", "gemv.plain.f16 1;8;1;2;0", "x"}) {
    const auto read = Tuning::parse(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.status().code(), Code::invalid_argument) << text;
  }
}

TEST(Tuning, EveryKindOfGemvHasAKey) {
  using namespace matmul;
  std::set<std::string> keys, known;
  for (const TunedChoice& choice : tunedChoices()) known.insert(choice.key);
  for (const int64_t n : {576, 16384, 128256})
    for (const int64_t k : {576, 8192})
      for (const Weights weights : {Weights::int4, Weights::int8})
        for (const bool half : {false, true})
          for (const RowPairs pairs : {RowPairs::none, RowPairs::gate, RowPairs::rotary})
            keys.insert(gemvKey({n, k, weights, half, pairs}));
  EXPECT_EQ(keys.size(), 14u);
  for (const std::string& key : keys) EXPECT_TRUE(known.contains(key)) << key;
}

TEST(Tuning, ChangesTheKernelsAndSaysOnWhichKeysTheyDepend) {
  KernelCase c = linearCase("l", {.n = 4096, .k = 1024});
  LoadOptions options;
  options.precision = Precision::f16;
  const auto kernels = [&](std::string_view text) {
    options.tuning = Tuning::parse(text).value();
    const GpuCapabilities caps = deviceOf(Tier::subgroups, true);
    GpuPlanContext context(c.builder.graph, caps, options, 0);
    EXPECT_TRUE(findGpuKernel(kFusedLinear)(context).ok());
    EXPECT_THAT(context.tuned_keys, ::testing::ElementsAre("gemv.plain.f16", "processors"));
    std::vector<WgslVariant> all;
    for (const DispatchSpec& d : context.dispatches) all.push_back(d.kernel);
    return all;
  };
  const auto usual = kernels("");
  EXPECT_EQ(kernels("gemv.gate.f16 2,4,1,2,0"), usual);
  EXPECT_NE(kernels("gemv.plain.f16 1,16,1,2,0"), usual);
}

TEST(Tuning, DefaultsOfVendors) {
  GpuCapabilities caps;
  caps.vendor = "apple";
  ASSERT_NE(defaultTuning(caps).find("processors"), nullptr);
  EXPECT_EQ(defaultTuning(caps).find("processors")->front(), 32);
  caps.vendor = "nvidia";
  EXPECT_TRUE(defaultTuning(caps).empty());
}

}  // namespace
}  // namespace etwgpu::testing
