// The generator on a delegate made of arithmetic: what it starts, when it stops, and what it leaves in the cache.
#include <gtest/gtest.h>

#include <deque>

#include "runtime/llm/generator.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu::testing {
namespace {

/// 0: after token t at position p comes (t + p) % 31; else (t + 1) % period.
int period = 0;

/// Steps end when the test says so.
class FakeDelegate final : public Delegate {
 public:
  /// rows: most tokens of a call.
  explicit FakeDelegate(int depth, bool all_positions = false, int rows = 8) : depth_(depth) {
    const ExprId s = b_.symbol("s", 1, rows, 0, 1);
    const ValueId ids = b_.input("ids", DType::i64, {1, s});
    b_.input("start", DType::i64, {1});
    b_.state("cache", {1, 1, 4 * rows, 4});
    b_.output(all_positions ? b_.node("test.decoder", {ids}, "logits", {1, s, 31})
                            : b_.node("test.decoder", {ids}, "logits", {1, 31}));
  }
  const Graph& graph() const override { return b_.graph; }
  std::vector<std::pair<DataSource*, ReadRequest>> takeReads() override { return {}; }
  Task<Status> finishLoading() override { co_return Status(); }
  Task<Status> execute(std::span<const DelegateArg> inputs, std::span<DelegateArg>, ExecuteOptions options) override {
    const int64_t* ids = inputs[0].tensor.as<const int64_t>();
    const int64_t n = inputs[0].tensor.sizes[1];
    calls.push_back({std::vector<int32_t>(ids, ids + n), *inputs[1].tensor.as<const int64_t>(), true});
    options.ids->clear();
    for (int64_t i = every_row ? 0 : n - 1; i < n; ++i)
      options.ids->push_back(next(int32_t(ids[i]), calls.back().start + i));
    co_return Status();
  }
  const ExecuteStats& lastStats() const override { return stats_; }

  int64_t preferredChunk() const override { return 2048; }
  int maxSteps() const override { return depth_; }
  Status setSampling(const StepChoice& choice, std::span<const int32_t>) override {
    const bool greedy = choice.sampling.greedy() && !choice.log_probabilities && !choice.masked;
    return greedy ? Status() : Status(Code::unsupported_operator, "greedy only");
  }
  int stepsInFlight() const override { return int(results_.size()); }
  Status submitStep(const StepRequest& r) override {
    if (stepsInFlight() >= depth_) return {Code::invalid_argument, "too many"};
    Call call{{r.ids.begin(), r.ids.end()}, r.start, r.choose};
    if (r.ids.empty()) call = {{chosen_}, position_, r.choose};
    calls.push_back(call);
    position_ = call.start + int64_t(call.ids.size());
    chosen_ = next(call.ids.back(), position_ - 1);
    results_.push_back(chosen_);
    most_in_flight = std::max(most_in_flight, stepsInFlight());
    return {};
  }
  Task<Result<StepResult>> readStep() override {
    auto awaiter = awaitCallback<int>([this](Completion<int>* c) {
      waiting_ = c;
      if (!hold) release();
    });
    co_await awaiter;
    StepResult result;
    result.token = results_.front();
    results_.pop_front();
    if (fail_after-- == 0) co_return Status(Code::device_lost, "gone");
    co_return result;
  }
  void release() { std::exchange(waiting_, nullptr)->resolve(0); }

  static int32_t next(int32_t token, int64_t position) {
    return period ? (token + 1) % period : int32_t((token + position) % 31);
  }

  struct Call {
    std::vector<int32_t> ids;
    int64_t start;
    bool choose;
  };
  std::vector<Call> calls;
  int most_in_flight = 0, fail_after = 1000;
  bool hold = false, every_row = false;

 private:
  GraphBuilder b_;
  const int depth_;
  int32_t chosen_ = 0;
  int64_t position_ = 0;
  std::deque<int32_t> results_;
  Completion<int>* waiting_ = nullptr;
  ExecuteStats stats_;
};

template <class T>
T finish(Task<T> task) {
  task.start();
  EXPECT_TRUE(task.done());
  return task.take();
}

std::vector<int32_t> expected(std::vector<int32_t> prompt, size_t count) {
  std::vector<int32_t> all = std::move(prompt), out;
  while (out.size() < count) {
    out.push_back(FakeDelegate::next(all.back(), int64_t(all.size()) - 1));
    all.push_back(out.back());
  }
  return out;
}

std::vector<int32_t> generate(Generator& g, std::vector<int32_t> prompt, GenerateOptions options = {}) {
  std::vector<int32_t> out;
  const auto reused = g.begin(std::move(prompt), std::move(options));
  EXPECT_TRUE(reused.ok()) << reused.status().message();
  for (;;) {
    const auto token = finish(g.next());
    EXPECT_TRUE(token.ok()) << token.status().message();
    if (!token.ok() || !*token) break;
    out.push_back((*token)->id);
  }
  EXPECT_TRUE(finish(g.end()).ok());
  return out;
}

std::unique_ptr<Generator> make(FakeDelegate& d) {
  auto g = Generator::create(d);
  EXPECT_TRUE(g.ok()) << g.status().message();
  return std::move(g).value();
}

TEST(Generator, SameTokensAtEveryDepth) {
  const std::vector<int32_t> prompt{3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  for (const int depth : {0, 1, 2, 4}) {
    for (const bool all : {false, true}) {
      FakeDelegate d(depth, all);
      const auto g = make(d);
      EXPECT_EQ(generate(*g, prompt, {.max_tokens = 9}), expected(prompt, 9)) << depth << all;
      EXPECT_EQ(g->finishReason(), FinishReason::length);
      EXPECT_EQ(d.most_in_flight, std::min(depth, 4));
      EXPECT_EQ(d.calls.size(), 2u + 8u);  // the prompt in two chunks; no step for a token that nobody wants
      EXPECT_EQ(g->position(), 10 + 8);
    }
  }
}

TEST(Generator, StopsLoseAtMostTheStepsInFlight) {
  FakeDelegate d(4);
  const auto g = make(d);
  const std::vector<int32_t> prompt{7, 2};
  const auto all = expected(prompt, 20);
  EXPECT_EQ(generate(*g, prompt, {.stop_tokens = {all[5]}}), (std::vector<int32_t>{all.begin(), all.begin() + 6}));
  EXPECT_EQ(g->finishReason(), FinishReason::stop);
  EXPECT_LE(d.calls.size(), 6u + 3u);
  // the cache holds what was delivered but the last, and goes on from there
  EXPECT_EQ(g->tokens().size(), 2u + 5u);
  std::vector<int32_t> longer = prompt;
  longer.insert(longer.end(), all.begin(), all.begin() + 6);
  d.calls.clear();
  EXPECT_EQ(generate(*g, longer, {.max_tokens = 4}), (std::vector<int32_t>{all.begin() + 6, all.begin() + 10}));
  EXPECT_EQ(d.calls[0].ids, (std::vector<int32_t>{all[5]}));
  EXPECT_EQ(d.calls[0].start, 7);
}

TEST(Generator, FillsTheContextToItsEnd) {
  FakeDelegate d(4);
  const auto g = make(d);
  EXPECT_EQ(generate(*g, {1, 2, 3}), expected({1, 2, 3}, 32 - 3 + 1));
  EXPECT_EQ(g->position(), 32);
  const auto full = g->begin(std::vector<int32_t>(32, 1), {});
  EXPECT_EQ(full.status().code(), Code::limit_exceeded);
  EXPECT_EQ(g->begin({31}, {}).status().code(), Code::invalid_argument);
  EXPECT_EQ(g->begin({}, {}).status().code(), Code::invalid_argument);
}

TEST(Generator, AnAbortWithinThePromptRunsNoFurtherChunk) {
  for (const int depth : {1, 4}) {
    FakeDelegate d(depth);
    const auto g = make(d);
    ASSERT_TRUE(g->begin(std::vector<int32_t>(20, 5), {.chunk = 4}).ok());
    d.hold = true;
    auto task = g->next();
    task.start();
    ASSERT_FALSE(task.done());
    d.release();  // the first chunk; the second is started
    ASSERT_EQ(d.calls.size(), 2u);
    g->abort();
    d.release();
    ASSERT_TRUE(task.done());
    EXPECT_EQ(d.calls.size(), 2u);
    EXPECT_FALSE(task.take()->has_value());
    EXPECT_EQ(g->finishReason(), FinishReason::aborted);
    EXPECT_EQ(g->position(), 8);
    d.hold = false;
    EXPECT_TRUE(finish(g->end()).ok());
    EXPECT_EQ(generate(*g, std::vector<int32_t>(20, 5), {.max_tokens = 3}), expected(std::vector<int32_t>(20, 5), 3));
  }
}

TEST(Generator, TheFirstChunkOfAnUnknownDeviceIsShort) {
  FakeDelegate d(4, false, 1024);
  const auto g = make(d);
  generate(*g, std::vector<int32_t>(2000, 5), {.max_tokens = 1});
  ASSERT_GE(d.calls.size(), 3u);  // this device is fast
  EXPECT_EQ(d.calls[0].ids.size(), 128u);
  EXPECT_EQ(d.calls[1].ids.size(), 512u);
  EXPECT_EQ(d.calls[2].ids.size(), 1024u);
}

TEST(Generator, AnAbortBetweenTokensStartsNothing) {
  FakeDelegate d(4);
  const auto g = make(d);
  ASSERT_TRUE(g->begin({1}, {}).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(finish(g->next())->has_value());
  const size_t calls = d.calls.size();
  g->abort();
  EXPECT_FALSE(finish(g->next())->has_value());
  EXPECT_EQ(d.calls.size(), calls);
  EXPECT_EQ(g->begin({1}, {}).status().code(), Code::invalid_argument);  // not ended yet
  EXPECT_TRUE(finish(g->end()).ok());
  EXPECT_EQ(d.stepsInFlight(), 0);
  EXPECT_EQ(generate(*g, {1}, {.max_tokens = 5}), expected({1}, 5));
}

TEST(Generator, ErrorsEndItAndLeaveNothingInFlight) {
  FakeDelegate d(4);
  const auto g = make(d);
  d.fail_after = 2;
  ASSERT_TRUE(g->begin({1}, {}).ok());
  EXPECT_TRUE(finish(g->next()).ok());
  EXPECT_TRUE(finish(g->next()).ok());
  EXPECT_EQ(finish(g->next()).status().code(), Code::device_lost);
  EXPECT_TRUE(finish(g->end()).ok());
  EXPECT_EQ(d.stepsInFlight(), 0);
}

TEST(Generator, SlidesOverTheEndOfTheContext) {
  const std::vector<int32_t> prompt{3, 1, 4, 1, 5};
  for (const int depth : {0, 1, 4}) {
    for (const bool all : {false, true}) {
      FakeDelegate d(depth, all);
      const auto g = make(d);
      GenerateOptions options{.max_tokens = 70};
      options.overflow = Overflow::sliding;
      options.sinks = 2;
      options.keep = 9;
      const auto found = generate(*g, prompt, options);
      // as generations one after another, each over what is kept of the text
      std::vector<int32_t> text = prompt, wanted;
      while (wanted.size() < 70) {
        const auto part = expected(text, 32 - text.size() + 1);
        wanted.insert(wanted.end(), part.begin(), part.end());
        text.insert(text.end(), part.begin(), part.end());
        std::vector<int32_t> kept(text.begin(), text.begin() + 2);
        kept.insert(kept.end(), text.end() - 9, text.end());
        text = kept;
      }
      wanted.resize(70);
      EXPECT_EQ(found, wanted) << depth << all;
      for (const auto& call : d.calls) EXPECT_LE(call.start + int64_t(call.ids.size()), 32);
      EXPECT_EQ(g->finishReason(), FinishReason::length);
      // a prompt that is too long, with the default of what is kept: 4 + 12
      std::vector<int32_t> longer(50);
      for (size_t i = 0; i < longer.size(); ++i) longer[i] = int32_t(i % 31);
      options.sinks = 4;
      options.keep = -1;
      options.max_tokens = 5;
      std::vector<int32_t> kept(longer.begin(), longer.begin() + 4);
      kept.insert(kept.end(), longer.end() - 12, longer.end());
      EXPECT_EQ(generate(*g, longer, options), expected(kept, 5));
      for (const auto& [sinks, keep] : {std::pair<int64_t, int64_t>{-1, 5}, {4, 28}, {20, 1}, {4, 0}}) {
        options.sinks = sinks;
        options.keep = keep;
        EXPECT_EQ(g->begin(prompt, options).status().code(), Code::invalid_argument) << sinks << " " << keep;
      }
    }
  }
}

/// Drafts that mostly fail (n-grams of one token), and a text that repeats.
TEST(Generator, DraftsChangeNoToken) {
  const std::vector<int32_t> prompt{0, 1, 2, 3, 4, 0, 1};
  for (const int repeats : {0, 5}) {
    period = repeats;
    for (const int depth : {0, 1, 4}) {
      for (const bool all : {false, true}) {
        for (const int64_t tokens : {1, 5, 15}) {
          FakeDelegate d(depth, all), verifier(0);
          verifier.every_row = true;
          const auto g = make(d);
          g->setVerifier(&verifier);
          GenerateOptions options{.max_tokens = 24};
          options.draft_tokens = tokens;
          options.draft_ngram = 1;
          EXPECT_EQ(generate(*g, prompt, options), expected(prompt, 24)) << repeats << depth << all << tokens;
          EXPECT_EQ(g->finishReason(), FinishReason::length);
          EXPECT_EQ(g->position(), 7 + 23);
          const SpeculationCounts& counts = g->speculation();
          EXPECT_EQ(counts.calls + counts.accepted, 23);
          EXPECT_GT(counts.proposed, 0);
          for (const auto& call : verifier.calls) {
            EXPECT_GE(call.ids.size(), 2u);
            EXPECT_LE(int64_t(call.ids.size()), tokens + 1);
            EXPECT_LE(call.start + int64_t(call.ids.size()), 32);
          }
          if (repeats) {
            EXPECT_EQ(counts.accepted, counts.proposed);
            EXPECT_LE(counts.calls, tokens == 1 ? 15 : tokens == 5 ? 8 : 7);
          } else {
            EXPECT_LT(counts.calls, 24);
          }
          // to the end of the context, and what comes after a stop within a draft
          options.max_tokens = INT64_MAX;
          EXPECT_EQ(generate(*g, prompt, options), expected(prompt, 32 - 7 + 1));
          const auto text = expected(prompt, 20);
          ASSERT_TRUE(g->begin(prompt, options).ok());
          for (int i = 0; i < 6; ++i) EXPECT_EQ((*finish(g->next()))->id, text[size_t(i)]);
          EXPECT_TRUE(finish(g->end()).ok());
          EXPECT_EQ(g->position(), 7 + 5);
        }
      }
    }
  }
  period = 0;
}

TEST(Generator, DraftsThatCannotBeChecked) {
  FakeDelegate d(4), verifier(0);
  const auto g = make(d);
  GenerateOptions options;
  options.draft_tokens = 4;
  EXPECT_EQ(g->begin({1}, options).status().code(), Code::invalid_argument);
  g->setVerifier(&verifier);
  for (const auto& [tokens, ngram] : {std::pair<int64_t, int64_t>{16, 3}, {-1, 3}, {4, 0}}) {
    options.draft_tokens = tokens;
    options.draft_ngram = ngram;
    EXPECT_EQ(g->begin({1}, options).status().code(), Code::invalid_argument) << tokens;
  }
}

TEST(Generator, AMaskIsAskedForBeforeEachToken) {
  FakeDelegate d(4);
  const auto g = make(d);
  GenerateOptions options{.max_tokens = 3};
  options.masked = true;
  ASSERT_TRUE(g->begin({1, 2}, options).ok());
  EXPECT_EQ(finish(g->next()).status().code(), Code::invalid_argument);
  EXPECT_EQ(g->allow(std::vector<uint32_t>(2, 1)).code(), Code::invalid_argument);
  EXPECT_EQ(g->allow(std::vector<uint32_t>(1, 0)).code(), Code::invalid_argument);
  EXPECT_TRUE(d.calls.empty());
  EXPECT_TRUE(g->allow(std::vector<uint32_t>(1, 1)).ok());
  EXPECT_TRUE(finish(g->end()).ok());
}

}  // namespace
}  // namespace etwgpu::testing
