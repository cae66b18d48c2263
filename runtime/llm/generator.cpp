#include "runtime/llm/generator.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/executor/ring_mark.h"

namespace etwgpu {
namespace {

// Tokens of a chunk: the first one of a device that nothing is known of is short, for an abort waits for it.
constexpr int64_t kLeastChunk = 64, kFirstChunk = 128;
constexpr auto kChunkTime = std::chrono::milliseconds(60);
// A step that takes longer keeps the GPU busy with one more waiting behind it.
constexpr auto kLongStep = std::chrono::milliseconds(8);

Status unexpected(const std::string& what) {
  return {Code::invalid_argument,
          "not a language model method: " + what + "; expected ids i64 [1, S], start i64 [1] -> logits f32"};
}

/// As many positions as the smallest state has rows, the third of [1, H, L, D]; rings say themselves for how many they
/// are. INT64_MAX: there is no such state.
int64_t cachePositions(const Graph& g) {
  int64_t positions = INT64_MAX;
  std::set<ValueId> rings;
  for (const RingCache& ring : ringCaches(g)) {
    rings.insert({ring.k, ring.v});
    positions = std::min(positions, ring.positions);
  }
  for (size_t v = 0; v < g.values.size(); ++v) {
    if (g.values[v].kind == ValueKind::state && g.values[v].dims.size() == 4 && !rings.contains(ValueId(v)))
      positions = std::min(positions, g.exprs.bounds(g.values[v].dims[2]).max);
  }
  return positions;
}

}  // namespace

Result<std::unique_ptr<Generator>> Generator::create(Delegate& delegate) {
  const Graph& g = delegate.graph();
  if (g.inputs.size() != 2) return unexpected(format("%zu inputs", g.inputs.size()));
  if (g.outputs.size() != 1 || g.outputs[0].value == kNoValue)
    return unexpected(format("%zu outputs", g.outputs.size()));
  if (g.inputs[0].value == kNoValue || g.inputs[1].value == kNoValue) return unexpected("an integer input");
  const Value& ids = g.value(g.inputs[0].value);
  const Value& start = g.value(g.inputs[1].value);
  const Value& logits = g.value(g.outputs[0].value);
  if (ids.dtype != DType::i64 || ids.dims.size() != 2) return unexpected("the first input is not i64 [1, S]");
  if (start.dtype != DType::i64 || start.dims.size() != 1) return unexpected("the second input is not i64 [1]");
  if (logits.dtype != DType::f32 || logits.dims.size() < 2 || logits.dims.size() > 3)
    return unexpected("the output is not f32 [1, V]");

  std::unique_ptr<Generator> generator(new Generator(delegate));
  generator->max_step_ = g.exprs.bounds(ids.dims[1]).max;
  generator->chunk_ = std::min(delegate.preferredChunk(), kFirstChunk);
  generator->vocabulary_ = g.exprs.bounds(logits.dims.back()).max;
  generator->all_positions_ = logits.dims.size() == 3;
  const int64_t capacity = cachePositions(g);
  if (capacity == INT64_MAX) return unexpected("no KV cache");
  generator->capacity_ = capacity;
  const int64_t rows = generator->all_positions_ ? std::min(generator->max_step_, capacity) : 1;
  generator->logits_.resize(size_t(rows * generator->vocabulary_));
  return generator;
}

Status Generator::rollback(int64_t position) {
  if (position < 0 || position > this->position()) {
    return {Code::invalid_argument,
            format("rollback to position %lld of %lld", (long long)position, (long long)this->position())};
  }
  tokens_.resize(size_t(position));
  return {};
}

Status Generator::checkTokens(std::span<const int32_t> ids) const {
  if (ids.empty()) return Status(Code::invalid_argument, "no tokens to run");
  for (int32_t id : ids) {
    if (id < 0 || id >= vocabulary_) {
      return Status(Code::invalid_argument,
                    format("token id %d is outside of the vocabulary of %lld", id, (long long)vocabulary_));
    }
  }
  return {};
}

// ---- one generation -------------------------------------------------------------------------------------------------

Status Generator::checkOptions(const GenerateOptions& o) const {
  if (o.draft_tokens < 0 || o.draft_tokens >= kVerifyRows || o.draft_ngram < 1) {
    return Status(Code::invalid_argument,
                  format("drafts of %lld tokens after %lld; they have up to %lld, after 1 or more",
                         (long long)o.draft_tokens, (long long)o.draft_ngram, (long long)kVerifyRows - 1));
  }
  if (o.draft_tokens > 0 && !verifier_) return Status(Code::invalid_argument, "nothing to check drafts with was given");
  if (o.overflow == Overflow::stop) return {};
  const int64_t keep = std::max<int64_t>(o.keep, 1);
  if (o.sinks < 0 || o.keep < -1 || o.keep == 0 || o.sinks >= capacity_ / 2 || o.sinks + keep >= capacity_) {
    return Status(Code::invalid_argument, format("%lld first and %lld last tokens cannot be kept in a context of %lld",
                                                 (long long)o.sinks, (long long)o.keep, (long long)capacity_));
  }
  return {};
}

/// What Overflow::sliding keeps of a text.
std::vector<int32_t> Generator::shortened(const std::vector<int32_t>& ids) const {
  const int64_t keep = options_.keep > 0 ? options_.keep : std::max<int64_t>(capacity_ / 2 - options_.sinks, 1);
  std::vector<int32_t> kept(ids.begin(), ids.begin() + ptrdiff_t(options_.sinks));
  kept.insert(kept.end(), ids.end() - ptrdiff_t(keep), ids.end());
  return kept;
}

Result<int64_t> Generator::begin(std::vector<int32_t> ids, GenerateOptions options) {
  if (running_) return Status(Code::invalid_argument, "a generation is under way");
  ETWGPU_TRY(checkTokens(ids));
  ETWGPU_TRY(checkOptions(options));
  const bool too_long = int64_t(ids.size()) >= capacity_;
  if (too_long && options.overflow == Overflow::stop) {
    return Status(Code::limit_exceeded,
                  format("a prompt of %zu tokens does not fit into a context of %lld: a token must follow", ids.size(),
                         (long long)capacity_));
  }
  options_ = std::move(options);
  if (too_long) ids = shortened(ids);
  sampler_ = Sampler(options_.sampling);
  submitted_ = delivered_ = 0;
  last_ = -1;
  aborted_ = false;
  running_ = true;
  mask_.clear();
  speculates_ =
      options_.draft_tokens > 0 && options_.sampling.greedy() && !options_.log_probabilities && !options_.masked;
  draft_length_ = 4;
  pause_drafts_ = 0;
  draft_pause_ = 1;
  accepted_.clear();
  next_accepted_ = 0;
  restarts_ = false;
  counts_ = {};
  const int64_t same = startPrompt(ids);
  limit_ = options_.overflow == Overflow::stop ? std::min(options_.max_tokens, full_) : options_.max_tokens;
  reason_ = limit_ > 0 ? FinishReason::none : FinishReason::length;
  return same;
}

/// Goes on after `ids`: what the cache shares with them stays, the rest will be run. Returns how many stay.
int64_t Generator::startPrompt(const std::vector<int32_t>& ids) {
  size_t same = 0;
  while (same + 1 < ids.size() && same < tokens_.size() && tokens_[same] == ids[same]) ++same;
  // What layers with a window saw there may be overwritten; it depends on all that was before it.
  if (const RingMark* rings = delegate_.rings(); rings && int64_t(same) < rings->oldestStart()) same = 0;
  tokens_.resize(same);
  prompt_.assign(ids.begin() + ptrdiff_t(same), ids.end());
  prompt_due_ = true;
  restarts_ = false;
  full_ = delivered_ + capacity_ - int64_t(ids.size()) + 1;
  const StepChoice choice{options_.sampling, options_.log_probabilities, options_.masked};
  pipelined_ = delegate_.maxSteps() > 0 && delegate_.setSampling(choice, ids).ok();
  return int64_t(same);
}

Status Generator::allow(std::span<const uint32_t> mask) {
  const size_t words = size_t((vocabulary_ + 31) / 32);
  if (mask.size() != words) {
    return Status(Code::invalid_argument,
                  format("a mask of %zu words, but the vocabulary takes %zu", mask.size(), words));
  }
  if (std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; }))
    return Status(Code::invalid_argument, "a mask without any token");
  mask_.assign(mask.begin(), mask.end());
  return {};
}

Task<Result<std::optional<GeneratedToken>>> Generator::next() {
  if (reason_ == FinishReason::none && aborted_) reason_ = FinishReason::aborted;
  if (reason_ != FinishReason::none) co_return std::optional<GeneratedToken>();
  if (options_.masked && mask_.empty()) co_return Status(Code::invalid_argument, "what may come was not named");
  if (delivered_ == full_) {  // nothing is in flight, and the last token does not fit any more
    std::vector<int32_t> text = tokens_;
    text.push_back(last_);
    startPrompt(shortened(text));
  }
  Task<Result<StepResult>> task = prompt_due_ ? runPrompt() : nextToken();
  ETWGPU_CO_ASSIGN(const StepResult result, co_await task);
  const int32_t token = result.token;
  if (token < 0) {  // aborted within the prompt
    reason_ = FinishReason::aborted;
    co_return std::optional<GeneratedToken>();
  }
  last_ = token;
  ++delivered_;
  if (std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), token) != options_.stop_tokens.end()) {
    reason_ = FinishReason::stop;
  } else if (delivered_ == limit_) {
    reason_ = FinishReason::length;
  }
  co_return std::optional(GeneratedToken{token, options_.log_probabilities ? result.log_probability : NAN});
}

Task<Status> Generator::end() {
  Status status;
  while (delegate_.stepsInFlight() > 0) {
    const auto result = co_await delegate_.readStep();
    if (!result.ok() && status.ok()) status = result.status();
  }
  if (reason_ == FinishReason::none) reason_ = FinishReason::aborted;
  running_ = false;
  co_return status;
}

size_t Generator::chunkSize() const {
  return size_t(std::clamp<int64_t>(options_.chunk > 0 ? options_.chunk : chunk_, 1, max_step_));
}

/// An abort waits for a chunk, and every chunk costs a gap between two submits and, if it is short, matrix products
/// that do not fill the GPU.
void Generator::learnChunk(int64_t tokens, std::chrono::steady_clock::duration took) {
  if (tokens < kLeastChunk) return;  // says little
  const double faster = std::chrono::duration<double>(kChunkTime) / took;
  const int64_t fitting = int64_t(double(tokens) * std::clamp(faster, 0.25, 4.0)) / kLeastChunk * kLeastChunk;
  // a short chunk of a fast device does not speak against longer ones
  chunk_ = std::clamp(faster > 1 ? std::max(fitting, chunk_) : fitting, kLeastChunk, std::max(max_step_, kLeastChunk));
}

/// The first token; -1: aborted.
Task<Result<StepResult>> Generator::runPrompt() {
  const std::span<const int32_t> ids(prompt_);
  for (size_t done = 0;;) {
    const size_t n = std::min(chunkSize(), ids.size() - done);
    const bool last = done + n == ids.size();
    const auto part = ids.subspan(done, n);
    const auto began = std::chrono::steady_clock::now();
    Task<Result<StepResult>> task = pipelined_ ? stepAndRead(part, last) : step(part, last);
    ETWGPU_CO_ASSIGN(const StepResult token, co_await task);
    done += n;
    const auto now = std::chrono::steady_clock::now();
    learnChunk(int64_t(n), now - began);
    if (last) {
      prompt_due_ = false;
      delivered_at_ = now;
      co_return token;
    }
    if (!pipelined_ && pause_) co_await pause_();
    if (aborted_) co_return StepResult();
  }
}

Task<Result<StepResult>> Generator::stepAndRead(std::span<const int32_t> ids, bool choose) {
  if (profile_) profile_->clear();
  if (Status s = delegate_.submitStep({ids, position(), choose, mask_}); !s.ok()) co_return s;
  if (choose) {
    ++submitted_;
    after_prompt_ = true;
    if (Status s = fillPipeline(); !s.ok()) co_return s;
  }
  const auto result = co_await delegate_.readStep();
  if (!result.ok()) co_return result.status();
  if (profile_) *profile_ = delegate_.lastProfile();
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  co_return *result;
}

/// Starts steps until enough are in flight.
Status Generator::fillPipeline() {
  const int most = options_.masked ? 1 : std::min(depth_, delegate_.maxSteps());
  while (delegate_.stepsInFlight() < most && submitted_ < std::min(limit_, full_) && !aborted_) {
    if (speculates_ && !after_prompt_ && draft()) return {};  // it is checked when nothing is in flight
    StepRequest request;
    request.mask = mask_;
    // the prompt's token may lie among those of the other positions
    if (restarts_ || (all_positions_ && after_prompt_)) {
      if (delivered_ < submitted_) return {};
      request.ids = std::span(&last_, 1);
      request.start = position();
    }
    ETWGPU_TRY(delegate_.submitStep(request));
    after_prompt_ = restarts_ = false;
    ++submitted_;
  }
  return {};
}

Task<Result<StepResult>> Generator::nextToken() {
  if (next_accepted_ < accepted_.size()) {
    tokens_.push_back(last_);
    co_return StepResult{accepted_[next_accepted_++]};
  }
  if (pause_drafts_ > 0) --pause_drafts_;
  if (speculates_ && delegate_.stepsInFlight() == 0 && draft()) {
    if (!pipelined_ && pause_) co_await pause_();
    if (aborted_) co_return StepResult();
    Task<Result<StepResult>> task = verifyDraft();
    auto result = co_await task;
    co_return result;
  }
  ++counts_.calls;
  if (!pipelined_) {
    if (pause_) co_await pause_();
    if (aborted_) co_return StepResult();
    Task<Result<StepResult>> task = step(std::span(&last_, 1), true);
    auto result = co_await task;
    co_return result;
  }
  if (profile_) profile_->clear();
  if (Status s = fillPipeline(); !s.ok()) co_return s;
  if (delegate_.stepsInFlight() == 0) co_return StepResult();
  const auto result = co_await delegate_.readStep();
  if (!result.ok()) co_return result.status();
  if (profile_) *profile_ = delegate_.lastProfile();
  tokens_.push_back(last_);
  const auto now = std::chrono::steady_clock::now();
  depth_ = now - delivered_at_ > kLongStep ? std::max(depth_ - 1, 2) : std::min(depth_ + 1, 4);
  delivered_at_ = now;
  co_return *result;
}

// ---- drafts
// ----------------------------------------------------------------------------------------------------------

/// Looks for what may come: what followed when the last tokens came before, the latest time. (Prompt lookup: A. Saxena,
/// 2023.) Beyond the end of the text it goes on with itself, as a text that repeats does.
bool Generator::draft() {
  draft_.clear();
  const int64_t most =
      std::min({options_.draft_tokens, draft_length_, limit_ - delivered_ - 1, full_ - delivered_ - 1, max_step_ - 1});
  const int64_t size = position() + 1;  // with last_
  if (most < 1 || pause_drafts_ > 0) return false;
  const auto at = [&](int64_t i) { return i < size - 1 ? tokens_[size_t(i)] : last_; };
  for (int64_t n = std::min(options_.draft_ngram, size - 1), least = std::min<int64_t>(n, 2); n >= least && n > 0;
       --n) {
    for (int64_t from = size - n - 1; from >= 0; --from) {
      int64_t same = 0;
      while (same < n && at(from + n - 1 - same) == at(size - 1 - same)) ++same;
      if (same < n) continue;
      for (int64_t i = from + n; int64_t(draft_.size()) < most; ++i)
        draft_.push_back(i < size ? at(i) : draft_[size_t(i - size)]);
      return true;
    }
  }
  return false;
}

/// Runs the last token and the draft: each position's choice is right as long as the draft before it was.
Task<Result<StepResult>> Generator::verifyDraft() {
  ids_.assign(1, last_);
  ids_.insert(ids_.end(), draft_.begin(), draft_.end());
  start_ = position();
  const DelegateArg inputs[2] = {{{DType::i64, {1, int64_t(ids_.size())}, ids_.data(), {}, nullptr}, false, 0},
                                 {{DType::i64, {1}, &start_, {}, nullptr}, false, 0}};
  DelegateArg outputs[1];
  outputs[0].tensor.dtype = DType::f32;
  ExecuteOptions options;
  options.argmax_output = 0;
  options.ids = &chosen_;
  if (profile_) profile_->clear();
  options.profile = profile_;
  if (Status s = co_await verifier_->execute(inputs, outputs, options); !s.ok()) co_return s;
  if (chosen_.size() != ids_.size()) co_return Status(Code::internal, "not one token for each position");
  size_t right = 0;
  while (right < draft_.size() && chosen_[right] == draft_[right]) ++right;
  accepted_.assign(chosen_.begin() + 1, chosen_.begin() + ptrdiff_t(right) + 1);
  next_accepted_ = 0;
  submitted_ += int64_t(right) + 1;
  restarts_ = true;
  ++counts_.calls;
  counts_.proposed += int64_t(draft_.size());
  counts_.accepted += int64_t(right);
  learnDraft(right);
  tokens_.push_back(last_);
  delivered_at_ = std::chrono::steady_clock::now();
  co_return StepResult{chosen_[0]};
}

/// Drafts that hold get longer. One that fails at once has cost about a token, and a GPU has emptied its queue for it.
void Generator::learnDraft(size_t accepted) {
  constexpr int64_t kLongestPause = 16;
  if (accepted == 0) {
    pause_drafts_ = draft_pause_;
    draft_pause_ = std::min(2 * draft_pause_, kLongestPause);
  } else {
    draft_pause_ = 1;
  }
  draft_length_ = accepted == draft_.size() ? std::min(2 * draft_length_, kVerifyRows) : int64_t(accepted) + 1;
}

Task<Result<StepResult>> Generator::step(std::span<const int32_t> ids, bool want_token) {
  ids_.assign(ids.begin(), ids.end());
  start_ = position();
  const int64_t n = int64_t(ids.size());
  const DelegateArg inputs[2] = {{{DType::i64, {1, n}, ids_.data(), {}, nullptr}, false, 0},
                                 {{DType::i64, {1}, &start_, {}, nullptr}, false, 0}};
  DelegateArg outputs[1];
  outputs[0].tensor = {
      DType::f32, all_positions_ ? Sizes{1, n, vocabulary_} : Sizes{1, vocabulary_}, logits_.data(), {}, nullptr};
  ExecuteOptions options;
  // A chunk whose token nobody wants still has to run; its argmax is the cheapest output.
  const bool greedy = options_.sampling.greedy() && !options_.log_probabilities && !options_.masked;
  const bool on_device = greedy || !want_token;
  if (on_device) {
    options.argmax_output = 0;
    options.ids = &chosen_;
  }
  if (profile_) profile_->clear();
  options.profile = profile_;
  if (Status s = co_await delegate_.execute(inputs, outputs, options); !s.ok()) co_return s;
  if (profile_ && profile_->empty()) *profile_ = delegate_.lastProfile();
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  if (on_device) {
    if (chosen_.empty()) co_return Status(Code::internal, "argmax gave no token");
    co_return StepResult{chosen_.back()};
  }
  const size_t last_row = all_positions_ ? size_t((n - 1) * vocabulary_) : 0;
  const auto row = std::span<const float>(logits_).subspan(last_row, size_t(vocabulary_));
  const int32_t token = sampler_.sample(row, tokens_, mask_);
  co_return StepResult{token, options_.log_probabilities ? logProbability(row, token) : 0};
}

}  // namespace etwgpu
