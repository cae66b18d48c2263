#include "runtime/llm/tuner.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "runtime/executor/ring_mark.h"
#include "runtime/llm/generator.h"

namespace etwgpu {
namespace {

using Clock = std::chrono::steady_clock;

double msSince(Clock::time_point began) {
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

/// A candidate must be that much faster than the best: what repeats differ by.
constexpr double kGain = 0.98;
constexpr int kLead = 4;  // tokens before the clock: by then as many are in flight as ever will be

class Tuner {
 public:
  Tuner(Session& session, std::string method, TuneOptions options)
      : session_(session), method_(std::move(method)), options_(options) {}

  Task<Result<TuneReport>> run() {
    Delegate* delegate = session_.soleDelegate(method_);
    if (!delegate || delegate->maxSteps() < 1)
      co_return Status(Code::unsupported_operator, "only language models on a GPU can be tuned");
    ETWGPU_CO_TRY(findSizes(*delegate));
    const std::vector<std::string> keys = delegate->tunedKeys();
    if (keys.empty()) co_return std::move(report_);  // a software adapter: its kernels are of one kind
    ETWGPU_CO_TRY(co_await growChunk(*delegate));
    ETWGPU_CO_ASSIGN(double best_token, co_await tokenTime(std::numeric_limits<double>::infinity()));
    ETWGPU_CO_ASSIGN(double best_chunk, co_await chunkTime());
    began_ = Clock::now();
    for (const TunedChoice& choice : tunedChoices()) {
      if (std::find(keys.begin(), keys.end(), choice.key) == keys.end()) continue;
      ETWGPU_CO_TRY(co_await tryAll(choice, choice.prefill ? best_chunk : best_token));
    }
    ETWGPU_CO_TRY(co_await compare());
    co_return std::move(report_);
  }

 private:
  Status findSizes(Delegate& delegate) {
    ETWGPU_ASSIGN(const std::unique_ptr<Generator> generator, Generator::create(delegate));
    const Graph& graph = delegate.graph();
    const int64_t rows = graph.exprs.bounds(graph.value(graph.inputs[0].value).dims[1]).max;
    most_ = std::min({rows, generator->capacity(), delegate.preferredChunk()});
    chunk_.assign(size_t(std::min<int64_t>(most_, 32)), 1);
    context_ = std::clamp<int64_t>(generator->capacity() - kLead - kMaxTokens, 0, options_.context);
    return {};
  }

  /// To as many tokens as a device runs in a short while: those that a prompt's chunk has on it.
  Task<Status> growChunk(Delegate& delegate) {
    for (bool warm = false;; warm = true) {
      ETWGPU_CO_ASSIGN(const double ms, co_await chunk(delegate, chunk_.size()));
      if (warm && (8 * ms > kChunkMs || int64_t(4 * chunk_.size()) > most_)) co_return Status();
      if (warm) chunk_.resize(4 * chunk_.size(), 1);
    }
  }

  Task<Result<double>> chunk(Delegate& delegate, size_t tokens) {
    StepRequest step;
    step.ids = std::span(chunk_).first(std::max<size_t>(tokens, 1));
    const Clock::time_point began = Clock::now();
    ETWGPU_CO_TRY(delegate.submitStep(step));
    ETWGPU_CO_ASSIGN([[maybe_unused]] const StepResult result, co_await delegate.readStep());
    co_return msSince(began);
  }

  Task<Result<double>> measure(bool prefill, double best) {
    if (prefill) return chunkTime();
    return tokenTime(best);
  }

  /// Milliseconds of a token, the best of some repeats; no more repeats once it is clear that it is above `best`.
  Task<Result<double>> tokenTime(double best) {
    Delegate& delegate = *session_.soleDelegate(method_);
    ETWGPU_CO_TRY(delegate.setSampling({}, {}));
    double least = std::numeric_limits<double>::infinity();
    const Clock::time_point began = Clock::now();
    for (int i = 0; i < 2 || (i < 8 && msSince(began) < 60); ++i) {
      ETWGPU_CO_ASSIGN(const double ms, co_await tokens(delegate));
      least = std::min(least, ms);
      if (i > 0 && least > 1.1 * best) break;  // the first repeat warms up
    }
    co_return least;
  }

  Task<Result<double>> tokens(Delegate& delegate) {
    const std::vector<int32_t> first = {1};
    if (RingMark* rings = delegate.rings()) rings->setWritten(0);  // it does not matter what the caches hold
    const int count = kLead + tokens_;
    int submitted = 0;
    Clock::time_point began = Clock::now();
    for (int read = 0; read < count; ++read) {
      while (submitted < count && delegate.stepsInFlight() < delegate.maxSteps()) {
        StepRequest step;
        step.start = context_;
        if (submitted == 0) step.ids = first;
        ETWGPU_CO_TRY(delegate.submitStep(step));
        ++submitted;
      }
      ETWGPU_CO_ASSIGN([[maybe_unused]] const StepResult result, co_await delegate.readStep());
      if (read + 1 == kLead) began = Clock::now();
    }
    const double ms = msSince(began) / tokens_;
    tokens_ = int(std::clamp(30 / ms, 2.0, double(kMaxTokens)));
    co_return ms;
  }

  /// Milliseconds of a chunk of a prompt and of an eighth of it.
  Task<Result<double>> chunkTime() {
    Delegate& delegate = *session_.soleDelegate(method_);
    double whole = std::numeric_limits<double>::infinity(), part = whole;
    const Clock::time_point began = Clock::now();
    for (int i = 0; i < 2 || (i < 4 && msSince(began) < 2 * kChunkMs); ++i) {
      ETWGPU_CO_ASSIGN(const double long_ms, co_await chunk(delegate, chunk_.size()));
      ETWGPU_CO_ASSIGN(const double short_ms, co_await chunk(delegate, chunk_.size() / 8));
      whole = std::min(whole, long_ms);
      part = std::min(part, short_ms);
    }
    co_return whole + part;
  }

  Task<Status> tryAll(const TunedChoice& choice, double& best) {
    for (const Tuning::Values& values : choice.candidates) {
      if (msSince(began_) > options_.budget_ms) co_return Status();
      Tuning tuning = report_.tuning;
      tuning.set(choice.key, values);
      ETWGPU_CO_TRY(co_await session_.rebuild(method_, tuning));
      ++report_.candidates;
      ETWGPU_CO_ASSIGN(const double ms, co_await measure(choice.prefill, best));
      if (ms >= kGain * best) continue;
      best = ms;
      report_.tuning = std::move(tuning);
    }
    co_return Status();
  }

  /// Before and after, with the same noise around them; what did not help is not kept.
  Task<Status> compare() {
    ETWGPU_CO_TRY(co_await session_.rebuild(method_, {}));
    ETWGPU_CO_ASSIGN(report_.token_ms_before, co_await tokenTime(std::numeric_limits<double>::infinity()));
    ETWGPU_CO_ASSIGN(report_.chunk_ms_before, co_await chunkTime());
    report_.token_ms = report_.token_ms_before;
    report_.chunk_ms = report_.chunk_ms_before;
    if (report_.tuning.empty()) co_return co_await rebuildAll();
    ETWGPU_CO_TRY(co_await session_.rebuild(method_, report_.tuning));
    ETWGPU_CO_ASSIGN(report_.token_ms, co_await tokenTime(std::numeric_limits<double>::infinity()));
    ETWGPU_CO_ASSIGN(report_.chunk_ms, co_await chunkTime());
    if (report_.token_ms > report_.token_ms_before) dropChoices(false, report_.token_ms, report_.token_ms_before);
    if (report_.chunk_ms > report_.chunk_ms_before) dropChoices(true, report_.chunk_ms, report_.chunk_ms_before);
    co_return co_await rebuildAll();
  }

  Task<Status> rebuildAll() {
    for (const MethodSpec& m : session_.methods()) {
      if (!m.constant) ETWGPU_CO_TRY(co_await session_.rebuild(m.name, report_.tuning));
    }
    co_return Status();
  }

  void dropChoices(bool prefill, double& ms, double before) {
    Tuning kept;
    for (const TunedChoice& choice : tunedChoices()) {
      const Tuning::Values* values = report_.tuning.find(choice.key);
      if (values && choice.prefill != prefill) kept.set(choice.key, *values);
    }
    report_.tuning = std::move(kept);
    ms = before;
  }

  static constexpr int kMaxTokens = 64;
  static constexpr double kChunkMs = 200;
  Session& session_;
  const std::string method_;
  const TuneOptions options_;
  Clock::time_point began_;  // to try candidates
  std::vector<int32_t> chunk_;
  int64_t context_ = 0, most_ = 0;
  int tokens_ = 2;
  TuneReport report_;
};

}  // namespace

Task<Result<TuneReport>> tune(Session& session, std::string method, TuneOptions options) {
  Tuner tuner(session, std::move(method), options);
  co_return co_await tuner.run();
}

}  // namespace etwgpu
