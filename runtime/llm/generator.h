// Generating tokens with a method `ids [1, S], start [1] → logits`, whatever model stands behind it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/task.h"
#include "runtime/executor/delegate.h"
#include "runtime/llm/sampler.h"
#include "runtime/llm/saved_state.h"

namespace etwgpu {

/// stop: the generation ends. sliding: it goes on as if the text were its first tokens and its last ones only, which is
/// also what becomes of a prompt that is too long. Since keys lie in the cache with their positions, the kept part is
/// run again (all but its sinks): exactly what a new generation after that text would give, at the price of a prompt of
/// `keep` tokens each time that the context has filled up.
enum class Overflow : uint8_t { stop, sliding };

/// Of one generation.
struct GenerateOptions {
  int64_t max_tokens = INT64_MAX;
  /// Tokens that end it; they are delivered.
  std::vector<int32_t> stop_tokens = {};
  SamplingOptions sampling = {};
  bool log_probabilities = false;  // of each token; costs a greedy token a little
  /// Most tokens of the prompt that run between two looks at abort(); 0: as many as take about 60 ms, as far as that is
  /// known from the chunks before.
  int64_t chunk = 0;
  /// Each token is one of those that allow() has named before it; then one is in flight.
  bool masked = false;
  /// What comes at the end of the context.
  Overflow overflow = Overflow::stop;
  /// With Overflow::sliding: how many of the first tokens stay (attention sinks), and how many of the last; -1: as many
  /// as fill half of the context together. Their sum is less than the context.
  int64_t sinks = 4, keep = -1;
  /// Speculative decoding by prompt lookup: where the text's last tokens (`draft_ngram` of them, or fewer down to 2)
  /// came before, up to `draft_tokens` of those that followed are drafted and checked in one call (setVerifier). The
  /// tokens stay the model's own choice. Greedy generations without log probabilities and masks only; others ignore it.
  /// 0: off.
  int64_t draft_tokens = 0, draft_ngram = 3;
};
/// Most positions that a call checks: a draft and the token before it.
inline constexpr int64_t kVerifyRows = 16;

/// Of one generation.
struct SpeculationCounts {
  int64_t proposed = 0, accepted = 0;  // drafted tokens
  int64_t calls = 0;                   // of the model, after the prompt
};
/// Why a generation has ended: a stop token, max_tokens or the end of the context, or abort().
enum class FinishReason : uint8_t { none, stop, length, aborted };

struct GeneratedToken {
  int32_t id;
  /// Natural logarithm of the probability that the model gives it, before any filter; NaN unless asked for.
  float log_probability;
};

/// Runs one method and owns nothing of it: the delegate must outlive the generator. One call at a time.
///
///   reused = begin(prompt, options);  while (token = co_await next()) …;  co_await end();
///
/// Where the delegate has steps (the GPU), several tokens are in flight: the device feeds the token it has chosen to
/// the next step, so that next() waits for the oldest of them only.
class Generator {
 public:
  /// `delegate`: of a method with inputs ids i64 [1, S] (S dynamic) and start i64 [1], and one output f32, [1, V] or
  /// [1, S, V]. Anything else is invalid_argument with what was found.
  static Result<std::unique_ptr<Generator>> create(Delegate& delegate);

  /// Begins a generation after the prompt `ids`. What the cache shares with it is not run again, unless caches of
  /// layers with a window have lost what it needs (graph/ring.h); returns how many tokens those are (at least one is
  /// left to run). limit_exceeded, with nothing changed, where the prompt and one token more do not fit into the
  /// context (Overflow::stop); invalid_argument for ids outside of the vocabulary. Runs nothing yet.
  Result<int64_t> begin(std::vector<int32_t> ids, GenerateOptions options);
  /// The next token, or nothing at the end: then finishReason() says why. The first call runs the prompt.
  Task<Result<std::optional<GeneratedToken>>> next();
  /// Of a masked generation: what the next token may be, a bit for each of the vocabulary. invalid_argument: a mask of
  /// another size, or without any token.
  Status allow(std::span<const uint32_t> mask);
  /// Ends the generation, wherever it is: waits for the steps in flight (maxSteps() − 1 at most), and forgets what they
  /// did. The cache then holds the prompt, as far as it was run, and all tokens that next() gave but the last.
  Task<Status> end();
  /// From anywhere, also while next() waits: no more tokens and no more chunks of the prompt are started.
  void abort() { aborted_ = true; }
  FinishReason finishReason() const { return reason_; }
  /// What checks drafts: over the same states, of calls of kVerifyRows positions (Session::verifier). It must outlive
  /// the generator.
  void setVerifier(Delegate* verifier) { verifier_ = verifier; }
  /// Of the generation under way or the last one.
  const SpeculationCounts& speculation() const { return counts_; }

  /// Tokens in the cache. The token that next() gave last is not yet in it.
  int64_t position() const { return int64_t(tokens_.size()); }
  /// Positions that the method accepts.
  int64_t capacity() const { return capacity_; }
  int64_t vocabulary() const { return vocabulary_; }
  /// Forgets all but the first `position` tokens; begin() runs those again whose cache entries did not stay valid.
  Status rollback(int64_t position);
  /// Writes the tokens in the cache and the rows of the states that they fill, in the format of saved_state.h, piece by
  /// piece. invalid_argument while a generation is under way.
  Task<Status> save(StateSink sink);
  /// Goes on from what save() wrote, on the same model and with states of the same type: the next prompt that begins
  /// with its tokens pays for its new ones only. saved_state, with nothing changed, where it is damaged or of another
  /// model; an error of the source while states are written leaves an empty cache. Reads twice.
  Task<Status> restore(DataSource& source);

  const std::vector<int32_t>& tokens() const { return tokens_; }
  /// Between begin() and end().
  bool running() const { return running_; }
  const ExecuteStats& lastStats() const { return delegate_.lastStats(); }
  /// From now on each step replaces `*times` by its own; null: off. It must outlive the generator or be taken back.
  void profileInto(std::vector<DispatchTime>* times) {
    profile_ = times;
    delegate_.setProfiling(times != nullptr);
  }
  /// Awaited between steps of a delegate that computes in place: a browser's worker handles its messages meanwhile.
  using Pause = std::function<Task<void>()>;
  void setPause(Pause pause) { pause_ = std::move(pause); }

 private:
  Generator(Delegate& delegate) : delegate_(delegate) {}
  Status checkTokens(std::span<const int32_t> ids) const;
  Status checkOptions(const GenerateOptions& options) const;
  std::vector<int32_t> shortened(const std::vector<int32_t>& ids) const;
  int64_t startPrompt(const std::vector<int32_t>& ids);
  Task<Result<StepResult>> step(std::span<const int32_t> ids, bool want_token);
  size_t chunkSize() const;
  void learnChunk(int64_t tokens, std::chrono::steady_clock::duration took);
  Task<Result<StepResult>> runPrompt();
  Task<Result<StepResult>> stepAndRead(std::span<const int32_t> ids, bool choose);
  Status fillPipeline();
  Task<Result<StepResult>> nextToken();
  bool draft();
  Task<Result<StepResult>> verifyDraft();
  void learnDraft(size_t accepted);

  Delegate& delegate_;
  Delegate* verifier_ = nullptr;
  Sampler sampler_{SamplingOptions{}};
  std::vector<int32_t> tokens_;
  int64_t capacity_ = 0, max_step_ = 0, vocabulary_ = 0;
  bool all_positions_ = false;
  std::vector<DispatchTime>* profile_ = nullptr;
  Pause pause_;

  // the generation under way
  GenerateOptions options_;
  std::vector<int32_t> prompt_;  // what is to be run before the first token
  int64_t limit_ = 0;            // of tokens
  int64_t full_ = 0;             // how many of them fill up the context
  bool prompt_due_ = false;      // prompt_ is to be run
  bool after_prompt_ = false;    // the step submitted last was the prompt's
  std::vector<uint32_t> mask_;
  int64_t submitted_ = 0;  // tokens that were asked for
  int64_t delivered_ = 0;
  int32_t last_ = -1;     // the token delivered last, which is not in the cache
  bool running_ = false;  // between begin() and end()
  bool pipelined_ = false;
  bool aborted_ = false;
  FinishReason reason_ = FinishReason::none;
  int64_t chunk_ = 512;  // of prompts, where the caller names none
  // How many steps are worth being in flight: few where a step takes long, since a stop loses them.
  int depth_ = 4;
  std::chrono::steady_clock::time_point delivered_at_;

  // drafts
  bool speculates_ = false;
  bool restarts_ = false;     // the steps in flight do not lead to what comes: the next one brings its token itself
  int64_t draft_length_ = 4;  // that is worth trying, as far as the last ones tell
  int64_t pause_drafts_ = 0;  // tokens to go without
  int64_t draft_pause_ = 1;   // after the next draft that fails from its first token on
  std::vector<int32_t> draft_;
  std::vector<int32_t> accepted_;  // to be delivered; their rows are in the cache
  size_t next_accepted_ = 0;
  SpeculationCounts counts_;

  // buffers of a step, kept so that a token allocates nothing
  std::vector<int64_t> ids_;
  int64_t start_ = 0;
  std::vector<float> logits_;
  std::vector<int32_t> chosen_;
};

}  // namespace etwgpu
