#include "runtime/bindings/python/native_generator.h"

#include <utility>

#include "runtime/program/sources.h"

namespace etwgpu {

NativeGenerator::NativeGenerator(NativeSession& session, const std::string& method) : NativeGenerator(session) {
  method_ = method;
  generator_ = unwrap(Generator::create(session.soleDelegate(method)));
}

NativeGenerator::~NativeGenerator() {
  close();
  session_.remove(this);
}

NativeGenerator* NativeGenerator::newSequence() {
  session_.soleDelegate(method_);
  std::unique_ptr<NativeGenerator> made(new NativeGenerator(session_));
  made->method_ = method_;
  made->sequence_ = unwrap(session_.exclusive([&] { return session_.session().newSequence({method_}); }));
  made->generator_ = unwrap(Generator::create(*made->sequence_->soleDelegate(method_)));
  return made.release();
}

void NativeGenerator::close() {
  if (sequence_) session_.free(std::exchange(sequence_, nullptr));
  closed_ = true;
}

uint64_t NativeGenerator::stateBytes() const {
  open();
  return sequence_ ? sequence_->stateBytes() : session_.session().stateBytes();
}

void NativeGenerator::reset() {
  open();
  if (generator_->running()) throw RuntimeFailure{{Code::invalid_argument, "a generation is under way"}};
  check(generator_->rollback(0));
  check(session_.exclusive([&] { return sequence_ ? sequence_->reset() : session_.session().reset(); }));
}

int64_t NativeGenerator::begin(std::vector<int32_t> ids, int64_t max_tokens, std::vector<int32_t> stop_tokens,
                               float temperature, int32_t top_k, float top_p, float min_p, float repetition_penalty,
                               uint64_t seed, bool logprobs, int64_t chunk, bool masked, bool sliding, int64_t sinks,
                               int64_t keep, int64_t draft_tokens, int64_t draft_ngram) {
  open();
  if (draft_tokens > 0) {
    generator_->setVerifier(unwrap(session_.exclusive([&] {
      return sequence_ ? sequence_->verifier(method_, kVerifyRows) : session_.session().verifier(method_, kVerifyRows);
    })));
  }
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.stop_tokens = std::move(stop_tokens);
  options.sampling = {temperature, top_k, top_p, min_p, repetition_penalty, seed};
  options.log_probabilities = logprobs;
  options.chunk = chunk;
  options.masked = masked;
  options.overflow = sliding ? Overflow::sliding : Overflow::stop;
  options.sinks = sinks;
  options.keep = keep;
  options.draft_tokens = draft_tokens;
  options.draft_ngram = draft_ngram;
  return unwrap(generator_->begin(std::move(ids), std::move(options)));
}

void NativeGenerator::allow(const nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& mask) {
  check(generator_->allow({reinterpret_cast<const uint32_t*>(mask.data()), mask.shape(0)}));
}

nb::object NativeGenerator::next() {
  open();
  const auto token = unwrap(session_.exclusive([&] { return generator_->next(); }));
  if (!token) return nb::none();
  return nb::make_tuple(token->id, token->log_probability);
}

void NativeGenerator::end() {
  if (closed_ || session_.closed()) return;  // with it went what was in flight
  check(session_.exclusive([&] { return generator_->end(); }));
}

const char* NativeGenerator::finishReason() const {
  static constexpr const char* kNames[] = {"", "stop", "length", "aborted"};
  return kNames[size_t(generator_->finishReason())];
}

nb::dict NativeGenerator::speculation() const {
  const SpeculationCounts& c = generator_->speculation();
  nb::dict d;
  d["proposed"] = c.proposed;
  d["accepted"] = c.accepted;
  d["calls"] = c.calls;
  return d;
}

nb::bytes NativeGenerator::save() {
  open();
  std::vector<uint8_t> bytes;
  check(session_.exclusive([&] {
    return generator_->save([&](std::span<const uint8_t> piece) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
      return Status();
    });
  }));
  return nb::bytes(bytes.data(), bytes.size());
}

void NativeGenerator::restore(const nb::bytes& bytes) {
  open();
  const auto source = makeMemoryView("this", {static_cast<const uint8_t*>(bytes.data()), bytes.size()});
  check(session_.exclusive([&] { return generator_->restore(*source); }));
}

nb::dict NativeGenerator::stats() const {
  open();
  return statsOf(generator_->lastStats());
}

void NativeGenerator::setProfiling(bool on) {
  open();
  generator_->profileInto(on ? &profile_ : nullptr);
}

void NativeGenerator::open() const {
  session_.session();
  if (closed_) throw RuntimeFailure({Code::invalid_argument, "the sequence is closed"});
}

}  // namespace etwgpu
