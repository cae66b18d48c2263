// The prefill / decode loop over a method `ids [1, S], start [1] → logits`, whatever model stands behind it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/core/task.h"
#include "runtime/executor/delegate.h"
#include "runtime/llm/sampler.h"

namespace etwgpu {

/// Runs one method and owns nothing of it: the delegate must outlive the generator. One call at a time.
class Generator {
 public:
  /// `delegate`: of a method with inputs ids i64 [1, S] (S dynamic) and start i64 [1], and one output f32, [1, V] or
  /// [1, S, V]. Anything else is invalid_argument with what was found.
  static Result<std::unique_ptr<Generator>> create(Delegate& delegate);

  /// Runs the tokens at positions position() … and returns the token that follows the last one. Long inputs go in
  /// chunks of at most `chunk` tokens. limit_exceeded, with nothing run, where they do not fit into the cache.
  Task<Result<int32_t>> append(std::vector<int32_t> ids, int64_t chunk = 512);
  /// Tokens in the cache. The token returned by append is not yet in it.
  int64_t position() const { return int64_t(tokens_.size()); }
  /// Positions that the method accepts.
  int64_t capacity() const { return capacity_; }
  int64_t vocabulary() const { return vocabulary_; }
  /// Forgets all but the first `position` tokens; their cache entries stay valid.
  Status rollback(int64_t position);

  void setSampling(const SamplingOptions& options) { sampler_ = Sampler(options); }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const ExecuteStats& lastStats() const { return delegate_.lastStats(); }
  /// From now on each step replaces `*times` by its own; null: off. It must outlive the generator or be taken back.
  void profileInto(std::vector<DispatchTime>* times) {
    profile_ = times;
    delegate_.setProfiling(times != nullptr);
  }

 private:
  Generator(Delegate& delegate) : delegate_(delegate) {}
  Task<Result<int32_t>> step(std::span<const int32_t> ids, bool want_token);

  Delegate& delegate_;
  Sampler sampler_{SamplingOptions{}};
  std::vector<int32_t> tokens_;
  int64_t capacity_ = 0, max_step_ = 0, vocabulary_ = 0;
  bool all_positions_ = false;
  std::vector<DispatchTime>* profile_ = nullptr;
  // buffers of a step, kept so that a token allocates nothing
  std::vector<int64_t> ids_;
  int64_t start_ = 0;
  std::vector<float> logits_;
  std::vector<int32_t> chosen_;
};

}  // namespace etwgpu
