// Buffers of the caller's in the place of a GpuDelegate's own memory: kernels read inputs and write outputs there.
#include <algorithm>

#include "runtime/webgpu/gpu_delegate.h"

namespace etwgpu {
namespace {

constexpr uint64_t kVector = 16;  // kernels read and write whole vectors
using ull = unsigned long long;

uint64_t wholeVectors(uint64_t bytes) { return std::max((bytes + kVector - 1) / kVector * kVector, kVector); }

}  // namespace

const DeviceBuffer* GpuDelegate::inputPlace(size_t input) const {
  return places_ && input < places_->inputs.size() && places_->inputs[input] ? &*places_->inputs[input] : nullptr;
}

const GpuDelegate::Lent* GpuDelegate::lentFor(ValueId storage) const {
  if (!lent_) return nullptr;
  for (const Lent& lent : lent_->lent)
    if (lent.value == storage) return &lent;
  return nullptr;
}

void GpuDelegate::useOwnMemory() {
  if (lent_) last_mode_ = -2;  // the commands name bind groups
  lent_ = nullptr;
}

void GpuDelegate::forgetLent() {
  useOwnMemory();
  for (LentSet& set : lent_sets_) set = {};
}

/// That the places can be what they are meant for. WebGPU allows no other use of a buffer beside writing it.
Status GpuDelegate::checkPlaces() const {
  const auto uses = [&](WGPUBuffer buffer) {
    int count = 0;
    for (const auto* list : {&places_->inputs, &places_->outputs})
      for (const auto& place : *list) count += place && place->buffer == buffer;
    return count;
  };
  for (size_t i = 0; i < places_->outputs.size(); ++i) {
    const auto& place = places_->outputs[i];
    if (place && place->buffer && uses(place->buffer) > 1)
      return Status(Code::invalid_argument, format("output %zu: its buffer serves an input or another output, too", i));
  }
  for (const GpuBuffer& arena : shared_->arenas) {
    if (uses(arena.get())) {
      return Status(Code::invalid_argument,
                    "a buffer of the model's own, which holds an output until the next call, cannot serve that call: "
                    "let outputs be written into buffers of yours");
    }
  }
  if (!plan_.feedback.present() && !guard_.present()) return {};
  for (size_t i = 0; i < plan_.graph.inputs.size(); ++i) {
    const ValueId id = plan_.graph.inputs[i].value;
    if (inputPlace(i) && id != kNoValue && plan_.graph.value(id).dtype == DType::i64)
      return Status(Code::invalid_argument, "tokens and positions are needed on the CPU, too, not in GPU buffers");
  }
  return {};
}

/// Decides what the values of this call lie in: the callers' buffers, else the delegate's memory.
Status GpuDelegate::lendBuffers() {
  if (!places_) {
    useOwnMemory();
    return {};
  }
  ETWGPU_TRY(checkPlaces());
  const Graph& graph = plan_.graph;
  std::vector<Lent> wanted;
  const auto lend = [&](ValueId id, const std::optional<DeviceBuffer>& place) {
    if (!place || !place->buffer || id == kNoValue) return;
    id = graph.storage(id);
    for (const Lent& lent : wanted)
      if (lent.value == id) return;
    const uint64_t most = wholeVectors(gpuBytes(graph, id, store_->options().precision));
    wanted.push_back({id, {place->buffer, place->offset, std::min(most, place->size / kVector * kVector)}});
  };
  for (size_t i = 0; i < std::min(places_->inputs.size(), graph.inputs.size()); ++i)
    lend(graph.inputs[i].value, places_->inputs[i]);
  for (size_t i = 0; i < places_->outputs.size(); ++i) {
    const ValueId id = graph.outputs[i].value;
    // inputs, constants and states stay where they are: they are copied
    if (id != kNoValue && graph.value(graph.storage(id)).kind == ValueKind::intermediate) lend(id, places_->outputs[i]);
  }
  if (lent_ && lent_->lent == wanted) return {};
  useOwnMemory();
  if (wanted.empty()) return {};
  last_mode_ = -2;
  for (LentSet& set : lent_sets_) {
    if (set.lent != wanted) continue;
    lent_ = &set;
    return {};
  }
  lent_ = &lent_sets_[next_lent_++ % lent_sets_.size()];
  *lent_ = {std::move(wanted), {}, {}};
  return makeGroups(*lent_);
}

/// The bind groups of what such a call may run; `lent_` is the set.
Status GpuDelegate::makeGroups(LentSet& set) {
  for (const Lent& lent : set.lent) {
    wg::BufferAddRef(lent.place.buffer);
    set.buffers.emplace_back(lent.place.buffer);
  }
  set.groups.resize(dispatches_.size());
  uint64_t params_at = plan_.input_bytes;
  for (size_t i = 0; i < dispatches_.size(); ++i) {
    const PlannedDispatch& planned = plan_.dispatches[i];
    const auto& bindings = planned.spec.bindings;
    if (planned.only_argmax < 0 && planned.only_sample < 0 &&
        std::any_of(bindings.begin(), bindings.end(),
                    [&](const Binding& b) { return lentFor(plan_.graph.storage(b.value)) != nullptr; })) {
      ETWGPU_ASSIGN(set.groups[i], makeBindGroup(planned.spec, params_at, *dispatches_[i].pipeline));
    }
    params_at += planned.spec.params.empty() ? 0 : kParamSlice;
  }
  return {};
}

/// invalid_argument where a tensor, in whole vectors, does not fit its place.
Status GpuDelegate::checkRoom(const DeviceBuffer& place, const TensorView& tensor, const char* role, size_t index,
                              ValueId id) const {
  const uint64_t needed = wholeVectors(uint64_t(tensor.count()) * storageSize(storageOf(id)));
  if (place.offset % kGpuAlignment == 0 && place.size >= needed) return {};
  return Status(Code::invalid_argument,
                format("%s %zu needs %llu bytes from a multiple of %llu on, but its buffer has %llu from %llu on", role,
                       index, ull(needed), ull(kGpuAlignment), ull(place.size), ull(place.offset)));
}

/// Sets the tensor's dtype and sizes; own: where it lies now. What could not be lent is copied behind the dispatches.
Status GpuDelegate::placeOutput(TensorView& tensor, DeviceBuffer& place, size_t index, ValueId id,
                                const GpuSlice& own) {
  const Storage storage = storageOf(id);
  tensor.dtype = deviceDType(plan_.graph.value(id).dtype, storage);
  tensor.sizes = sizesOf(id);
  const uint64_t bytes = uint64_t(tensor.count()) * storageSize(storage), words = (bytes + 3) / 4 * 4;
  if (!place.buffer) {
    place = {own.buffer, own.offset, words};
    return {};
  }
  ETWGPU_TRY(checkRoom(place, tensor, "output", index, id));
  if (place.buffer != own.buffer && bytes > 0)
    read_backs_.push_back({int32_t(index), own, storage, place.offset, bytes, tensor.count(), place.buffer});
  place.size = words;
  return {};
}

}  // namespace etwgpu
