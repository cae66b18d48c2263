// executorch_webgpu._native.Generator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/bindings/python/native_session.h"
#include "runtime/llm/generator.h"

namespace etwgpu {

/// A Generator with its session, on the session's own states or on those of a sequence: see runtime/llm/generator.h.
class NativeGenerator {
 public:
  NativeGenerator(NativeSession& session, const std::string& method);
  ~NativeGenerator();
  NativeGenerator(const NativeGenerator&) = delete;
  NativeGenerator& operator=(const NativeGenerator&) = delete;

  /// Another conversation on the same session.
  NativeGenerator* newSequence();
  /// Of a sequence: frees its states; later calls are invalid_argument.
  void close();
  uint64_t stateBytes() const;
  /// Forgets the conversation: states are as after loading.
  void reset();
  int64_t begin(std::vector<int32_t> ids, int64_t max_tokens, std::vector<int32_t> stop_tokens, float temperature,
                int32_t top_k, float top_p, float min_p, float repetition_penalty, uint64_t seed, bool logprobs,
                int64_t chunk, bool masked, bool sliding, int64_t sinks, int64_t keep, int64_t draft_tokens,
                int64_t draft_ngram);
  void allow(const nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& mask);
  /// (id, log probability), or None at the end.
  nb::object next();
  void end();
  void abort() { generator_->abort(); }
  /// nullptr once it is closed.
  Generator* generator() const { return closed_ ? nullptr : generator_.get(); }
  /// It is a sequence, with states of its own.
  bool ownsStates() const { return sequence_ != nullptr; }
  const char* finishReason() const;
  nb::dict speculation() const;
  void rollback(int64_t position) { check(generator_->rollback(position)); }
  nb::bytes save();
  void restore(const nb::bytes& bytes);
  int64_t position() const { return generator_->position(); }
  int64_t capacity() const { return generator_->capacity(); }
  int64_t vocabulary() const { return generator_->vocabulary(); }
  const std::vector<int32_t>& tokens() const { return generator_->tokens(); }
  nb::dict stats() const;
  void setProfiling(bool on);
  nb::list profile() const { return profileOf(profile_); }

 private:
  explicit NativeGenerator(NativeSession& session) : session_(session) { session_.add(this); }
  /// invalid_argument where what it runs on is gone.
  void open() const;

  NativeSession& session_;  // kept alive by Python
  std::string method_;
  Sequence* sequence_ = nullptr;  // the session's; null: the session's own states
  bool closed_ = false;
  std::vector<DispatchTime> profile_;
  std::unique_ptr<Generator> generator_;
};

}  // namespace etwgpu
