#include "runtime/llm/generator.h"

#include <algorithm>

namespace etwgpu {
namespace {

Status unexpected(const std::string& what) {
  return {Code::invalid_argument,
          "not a language model method: " + what + "; expected ids i64 [1, S], start i64 [1] -> logits f32"};
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
  generator->vocabulary_ = g.exprs.bounds(logits.dims.back()).max;
  generator->all_positions_ = logits.dims.size() == 3;
  // The cache holds as many positions as the smallest state has rows: the third of [1, H, L, D].
  int64_t capacity = INT64_MAX;
  for (const Value& v : g.values) {
    if (v.kind == ValueKind::state && v.dims.size() == 4) capacity = std::min(capacity, g.exprs.bounds(v.dims[2]).max);
  }
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

Task<Result<int32_t>> Generator::append(std::vector<int32_t> ids, int64_t chunk) {
  if (ids.empty()) co_return Status(Code::invalid_argument, "no tokens to run");
  if (position() + int64_t(ids.size()) > capacity_) {
    co_return Status(Code::limit_exceeded, format("%zu tokens at position %lld do not fit into a context of %lld",
                                                  ids.size(), (long long)position(), (long long)capacity_));
  }
  for (int32_t id : ids) {
    if (id < 0 || id >= vocabulary_) {
      co_return Status(Code::invalid_argument,
                       format("token id %d is outside of the vocabulary of %lld", id, (long long)vocabulary_));
    }
  }
  const size_t step_size = size_t(std::clamp<int64_t>(chunk, 1, max_step_));
  int32_t next = 0;
  for (size_t done = 0; done < ids.size();) {
    const size_t n = std::min(step_size, ids.size() - done);
    const bool last = done + n == ids.size();
    auto result = co_await step(std::span(ids).subspan(done, n), last);
    if (!result.ok()) co_return result.status();
    next = *result;
    done += n;
  }
  co_return next;
}

Task<Result<int32_t>> Generator::step(std::span<const int32_t> ids, bool want_token) {
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
  const bool on_device = sampler_.options().greedy() || !want_token;
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
    co_return chosen_.back();
  }
  const size_t last_row = all_positions_ ? size_t((n - 1) * vocabulary_) : 0;
  co_return sampler_.sample(std::span(logits_).subspan(last_row, size_t(vocabulary_)), tokens_);
}

}  // namespace etwgpu
