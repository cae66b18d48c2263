// Steps on a device (native Dawn): the token that the GPU chooses and feeds to itself is the one that the CPU's Sampler
// draws from the same logits.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "runtime/llm/generator.h"
#include "runtime/llm/sampler.h"
#include "runtime/webgpu/device.h"
#include "runtime/webgpu/gpu_backend.h"
#include "tests/cpp/dawn.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu::testing {
namespace {

constexpr int kVocabulary = 2500, kContext = 200;

/// logits = table[last token]; a row of every kind that filters meet: normal, flat, peaked, with ties, with NaN.
class TableModel final : public DataSource {
 public:
  explicit TableModel(bool all_positions) {
    const ExprId s = b_.symbol("s", 1, 8, 0, 1);
    const ValueId ids = b_.input("ids", DType::i64, {1, s});
    b_.input("start", DType::i64, {1});
    const ValueId table = b_.constant("table", {kVocabulary, kVocabulary});
    const ValueId x = b_.node("aten.embedding.default", {table, ids, b_.i(-1), false, false}, "x", {1, s, kVocabulary});
    const ValueId cache = b_.state("cache", {1, 1, kContext, 4});
    b_.mutate(cache, b_.binary("mul", cache, cache, "kept", {1, 1, kContext, 4}));
    b_.output(all_positions ? x : b_.node("aten.select_copy.int", {x, b_.i(1), b_.i(-1)}, "logits", {1, kVocabulary}));
    std::mt19937 rng(5);
    std::normal_distribution<float> normal;
    auto* values = reinterpret_cast<float*>(b_.data["table"].data());
    for (int r = 0; r < kVocabulary; ++r) {
      float* row = values + size_t(r) * kVocabulary;
      const float scale = r % 3 == 0 ? 3 : r % 3 == 1 ? 0.3f : 8;
      for (int i = 0; i < kVocabulary; ++i) row[i] = scale * normal(rng);
      if (r % 5 == 0)
        for (int i = 0; i < kVocabulary; ++i) row[i] = std::round(row[i]);
      if (r % 7 == 0) row[r] = std::nanf("");
    }
  }
  std::string name() const override { return "table"; }
  uint64_t size() const override { return b_.data.at("table").size(); }
  Task<Status> read(std::vector<ReadRequest> requests) override {
    for (const ReadRequest& r : requests) {
      const uint8_t* from = b_.data["table"].data() + r.offset;
      if (r.host) std::memcpy(r.host, from, r.size);
      if (r.gpu) wg::QueueWriteBuffer(device->queue(), r.gpu, r.gpu_offset, from, r.size);
    }
    co_return Status();
  }
  std::span<const float> row(int32_t token) const {
    const auto* values = reinterpret_cast<const float*>(b_.data.at("table").data());
    return {values + size_t(token) * kVocabulary, size_t(kVocabulary)};
  }
  Status load() {
    NamedDataMap map;
    map.entries["table"] = {this, 0, size()};
    backend = makeGpuBackend(*device, {});
    ETWGPU_ASSIGN(delegate, backend->createDelegate(serialize(b_.graph), map));
    std::vector<ReadRequest> requests;
    for (auto& [from, request] : delegate->takeReads()) requests.push_back(request);
    ETWGPU_TRY(runBlocking(read(requests)));
    return runBlocking(delegate->finishLoading());
  }

  Device* device = nullptr;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Delegate> delegate;

 private:
  GraphBuilder b_;
};

class Steps : public ::testing::TestWithParam<bool> {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(test::loadDawn().ok());
    auto made = runBlocking(Device::create({}));
    ASSERT_TRUE(made.ok()) << made.status().message();
    device_ = std::move(made).value();
  }
  static void TearDownTestSuite() { device_.reset(); }
  void SetUp() override {
    model_ = std::make_unique<TableModel>(GetParam());
    model_->device = device_.get();
    const Status status = model_->load();
    ASSERT_TRUE(status.ok()) << status.message();
    auto generator = Generator::create(*model_->delegate);
    ASSERT_TRUE(generator.ok()) << generator.status().message();
    generator_ = std::move(generator).value();
  }

  /// What the GPU generates must be what the CPU draws, given the GPU's own tokens so far; at a filter's border or
  /// between two scores that are equal within rounding another token may come, seldom.
  void check(const std::vector<int32_t>& prompt, const SamplingOptions& sampling, bool masked = false) {
    GenerateOptions options{.max_tokens = 60, .sampling = sampling, .log_probabilities = true};
    options.masked = masked;
    std::vector<uint32_t> mask(masked ? size_t(kVocabulary + 31) / 32 : 0);
    std::mt19937 rng(7);
    ASSERT_TRUE(generator_->begin(prompt, options).ok());
    std::vector<int32_t> history = prompt;
    Sampler sampler(sampling);
    int different = 0;
    for (int i = 0; i < 60; ++i) {
      for (uint32_t& word : mask) word = rng() & rng() & rng();  // an eighth of the tokens
      if (masked) ASSERT_TRUE(generator_->allow(mask).ok());
      const auto token = runBlocking(generator_->next());
      ASSERT_TRUE(token.ok()) << token.status().message();
      ASSERT_TRUE(token->has_value());
      const auto logits = model_->row(history.back());
      const int32_t expected = sampler.sample(logits, history, mask);
      if (masked) ASSERT_TRUE(mask[size_t((*token)->id) / 32] >> (*token)->id % 32 & 1) << (*token)->id;
      different += (*token)->id != expected;
      ASSERT_FALSE(std::isnan(logits[size_t((*token)->id)]));
      EXPECT_NEAR((*token)->log_probability, logProbability(logits, (*token)->id), 2e-4f);
      history.push_back((*token)->id);
    }
    EXPECT_EQ(model_->delegate->lastStats().submits, 1);
    EXPECT_EQ(model_->delegate->lastStats().read_back_bytes, 8u);
    ASSERT_TRUE(runBlocking(generator_->end()).ok());
    EXPECT_LE(different, 1);
  }

  static inline std::unique_ptr<Device> device_;
  std::unique_ptr<TableModel> model_;
  std::unique_ptr<Generator> generator_;
};

TEST_P(Steps, GreedyFollowsTheLogits) {
  ASSERT_TRUE(generator_->begin({3, 17, 4}, {.max_tokens = 40}).ok());
  int32_t last = 4;
  for (int i = 0; i < 40; ++i) {
    const auto token = runBlocking(generator_->next());
    ASSERT_TRUE(token.ok() && token->has_value()) << token.status().message();
    ASSERT_EQ((*token)->id, argmax(model_->row(last)));
    last = (*token)->id;
  }
  EXPECT_EQ(model_->delegate->lastStats().read_back_bytes, 4u);
  EXPECT_EQ(model_->delegate->lastStats().upload_bytes, 0u);
  ASSERT_TRUE(runBlocking(generator_->end()).ok());
}

TEST_P(Steps, DrawsAsTheSamplerDoes) {
  const std::vector<SamplingOptions> settings = {
      {.temperature = 0, .repetition_penalty = 1},
      {.temperature = 0, .repetition_penalty = 1.5f},
      {.temperature = 1, .seed = 1},
      {.temperature = 0.7f, .top_k = 40, .seed = 2},
      {.temperature = 1.3f, .top_p = 0.9f, .seed = 3},
      {.temperature = 1, .min_p = 0.05f, .seed = uint64_t(4) << 40},
      {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .min_p = 0.01f, .repetition_penalty = 1.2f, .seed = 5},
      {.temperature = 2, .top_k = 1, .seed = 6},
      {.temperature = 2, .top_p = 0, .seed = 7},
      {.temperature = 1, .top_k = 100000, .top_p = 0.3f, .seed = 8},
      {.temperature = 100, .top_k = 3, .seed = 9},
  };
  for (size_t i = 0; i < settings.size(); ++i) {
    SCOPED_TRACE(i);
    check({int32_t(10 * i + 1), 2, int32_t(3 + i)}, settings[i]);
  }
}

TEST_P(Steps, MaskedDrawsAsTheSamplerDoes) {
  const std::vector<SamplingOptions> settings = {
      {.temperature = 0},
      {.temperature = 0, .repetition_penalty = 1.5f},
      {.temperature = 1, .seed = 1},
      {.temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .min_p = 0.01f, .repetition_penalty = 1.2f, .seed = 2},
  };
  for (size_t i = 0; i < settings.size(); ++i) {
    SCOPED_TRACE(i);
    check({int32_t(10 * i + 1), 2, int32_t(3 + i)}, settings[i], true);
  }
  check({4, 5}, {.temperature = 1, .top_k = 30, .seed = 3});  // no trace of a mask afterwards
}

TEST_P(Steps, ASeedGivesTheSameTokensWhereverTheyAreDrawn) {
  const SamplingOptions sampling{.temperature = 1, .top_p = 0.9f, .seed = 11};
  const auto run = [&](std::vector<int32_t> prompt, int64_t count) {
    std::vector<int32_t> ids;
    EXPECT_TRUE(generator_->begin(std::move(prompt), {.max_tokens = count, .sampling = sampling}).ok());
    for (;;) {
      const auto token = runBlocking(generator_->next());
      if (!token.ok() || !token->has_value()) break;
      ids.push_back((*token)->id);
    }
    EXPECT_TRUE(runBlocking(generator_->end()).ok());
    return ids;
  };
  const auto whole = run({5, 6}, 20);
  ASSERT_EQ(whole.size(), 20u);
  const auto part = run({5, 6}, 7);
  EXPECT_EQ(part, std::vector<int32_t>(whole.begin(), whole.begin() + 7));
  std::vector<int32_t> longer{5, 6};
  longer.insert(longer.end(), whole.begin(), whole.begin() + 12);
  EXPECT_EQ(run(longer, 8), std::vector<int32_t>(whole.begin() + 12, whole.end()));
}

INSTANTIATE_TEST_SUITE_P(LastAndAllPositions, Steps, ::testing::Bool());

}  // namespace
}  // namespace etwgpu::testing
