// Steps of a GpuDelegate: calls of a language model method in flight, one submit each. The GPU writes the token it has
// chosen and its position over the inputs of the next call (PlannedFeedback); only copies of the tokens come back.
#include <algorithm>
#include <bit>

#include "runtime/operators/sampling/sampling.h"
#include "runtime/webgpu/gpu_delegate.h"

namespace etwgpu {
namespace {

constexpr uint64_t kTokenBytes = 4, kDrawBytes = 8;

}  // namespace

/// A GPU process needs three steps queued before the GPU never waits. A software adapter shares our cores: there a step
/// that nobody wanted costs more than a gap.
int GpuDelegate::stepDepth() const { return store_->device().capabilities().narrow() ? 2 : 4; }

int64_t GpuDelegate::preferredChunk() const {
  const GpuCapabilities& caps = store_->device().capabilities();
  const LoadOptions& options = store_->options();
  if (caps.narrow()) return 64;
  return caps.subgroup_matrix && options.max_tier >= Tier::subgroup_matrix && options.precision == Precision::f16
             ? 2048
             : 1024;
}

int GpuDelegate::maxSteps() const {
  if (store_->options().check_values) return 0;
  return profiling_ ? std::min(ring_.depth(), 1) : ring_.depth();
}

Status GpuDelegate::setSampling(const StepChoice& choice, std::span<const int32_t> history) {
  if (stepsInFlight() > 0) return Status(Code::invalid_argument, "steps are in flight");
  step_mode_ = 0;
  mask_bytes_ = 0;
  const SamplingOptions& options = choice.sampling;
  if (options.greedy() && !choice.log_probabilities && !choice.masked) return {};
  const PlannedSampling& s = plan_.sampling;
  if (!s.present()) return Status(Code::unsupported_operator, "the graph's tokens cannot be drawn on the GPU");
  useOwnMemory();  // of which bind groups may be made now
  ETWGPU_TRY(makeDispatches(true, true));
  step_mode_ = kSampleMode | sampleFilters(options);
  const auto words = sampleOptions(options, choice.masked);
  for (size_t i = 0; i < words.size(); ++i)
    shadow_.setWord(size_t(plan_.input_offsets[size_t(s.options)]) + 4 * i, words[i]);
  const uint64_t bitmap = gpuBytes(plan_.graph, s.seen, Precision::f32) / 2;
  if (choice.masked) mask_bytes_ = bitmap;
  if (options.repetition_penalty == 1) return {};  // nobody looks
  std::vector<uint32_t> seen(bitmap / 4);
  for (const int32_t id : history) {
    if (id >= 0 && size_t(id) / 32 < seen.size()) seen[size_t(id) / 32] |= uint32_t(1) << id % 32;
  }
  wg::QueueWriteBuffer(store_->device().queue(), step_.get(), uint64_t(plan_.stepOffset(s.seen)), seen.data(),
                       seen.size() * 4);
  return {};
}

Status GpuDelegate::uploadMask(const StepRequest& request) {
  if (mask_bytes_ == 0 || !request.choose) return {};
  if (request.mask.size_bytes() != mask_bytes_) {
    return Status(Code::invalid_argument, format("a mask of %zu words, but the vocabulary takes %llu",
                                                 request.mask.size(), (unsigned long long)(mask_bytes_ / 4)));
  }
  wg::QueueWriteBuffer(store_->device().queue(), step_.get(),
                       uint64_t(plan_.stepOffset(plan_.sampling.seen)) + mask_bytes_, request.mask.data(),
                       size_t(mask_bytes_));
  stats_.upload_bytes += mask_bytes_;
  return {};
}

Status GpuDelegate::enterRings(const StepRequest& request) {
  if (request.ids.empty()) return states_->rings.enter(profile_position_ + last_step_tokens_, 1);
  return states_->rings.enter(request.start, int64_t(request.ids.size()));
}

Status GpuDelegate::prepareStep(const StepRequest& request) {
  const int mode = request.choose ? step_mode_ : -1;
  const bool continues = request.ids.empty();
  useOwnMemory();
  if (continues && last_step_tokens_ != 1 && !(last_step_tokens_ > 1 && plan_.feedback.last_row_only))
    return Status(Code::invalid_argument, "there is no step to continue");
  ETWGPU_TRY(enterRings(request));
  if (continues) profile_position_ += last_step_tokens_;
  if (continues && last_step_tokens_ == 1 && mode == last_mode_) return {};
  const int64_t tokens = continues ? 1 : int64_t(request.ids.size());
  step_ids_.assign(request.ids.begin(), request.ids.end());
  int64_t start = request.start;
  const DelegateArg inputs[2] = {{{DType::i64, {1, tokens}, step_ids_.data(), {}, nullptr}, false, 0},
                                 {{DType::i64, {1}, &start, {}, nullptr}, false, 0}};
  ETWGPU_TRY(prepareCall(inputs, mode));
  return continues ? Status() : uploadInputs(inputs);
}

Status GpuDelegate::submitStep(const StepRequest& request) {
  Device& device = store_->device();
  ETWGPU_TRY(device.takeError());
  if (!plan_.feedback.present())
    return Status(Code::unsupported_operator, "the graph is not ids i64 [1, S], start i64 [1] -> logits");
  if (stepsInFlight() >= maxSteps())
    return Status(Code::invalid_argument, format("%d steps are in flight", stepsInFlight()));
  stats_ = {};
  ETWGPU_TRY(prepareStep(request));
  ETWGPU_TRY(uploadMask(request));
  flushUploads();
  if (profiling_) ETWGPU_TRY(prepareProfiling());

  const CommandEncoderHandle encoder(wg::DeviceCreateCommandEncoder(device.handle(), nullptr));
  record(encoder.get(), 0, commands_.size(), true);
  last_step_tokens_ = request.ids.empty() ? 1 : int64_t(request.ids.size());
  const uint64_t row = plan_.feedback.last_row_only ? 0 : uint64_t(last_step_tokens_ - 1);
  if (!request.choose) last_step_tokens_ = 0;
  // Where nobody wants the token its old value is read: that the step is done is worth knowing.
  uint64_t from = uint64_t(plan_.stepOffset(plan_.feedback.ids)) + row * kTokenBytes, bytes = kTokenBytes;
  if (step_mode_ >= kSampleMode) {
    from = uint64_t(plan_.stepOffset(plan_.sampling.result));
    bytes = kDrawBytes;
  }
  wg::CommandEncoderCopyBufferToBuffer(encoder.get(), step_.get(), from, ring_.target(), 0, bytes);
  device.submit(encoder.get());
  ring_.submitted(bytes);
  stats_.dispatches = int(commands_.size());
  stats_.submits = 1;
  stats_.read_back_bytes = bytes;
  return {};
}

Task<Result<StepResult>> GpuDelegate::readStep() {
  Device& device = store_->device();
  StepResult result;
  uint32_t words[2] = {};
  const Status read = co_await ring_.read(device, words, step_mode_ >= kSampleMode ? kDrawBytes : kTokenBytes);
  result = {int32_t(words[0]), std::bit_cast<float>(words[1])};
  if (Status s = read; !s.ok()) {
    last_step_tokens_ = 0;
    co_return s;
  }
  if (profiling_) ETWGPU_CO_TRY(co_await readProfile());
  if (Status s = device.takeError(); !s.ok()) co_return s;
  co_return result;
}

}  // namespace etwgpu
