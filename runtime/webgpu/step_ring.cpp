#include "runtime/webgpu/step_ring.h"

namespace etwgpu {

StepRing::~StepRing() {
  for (Slot* slot : slots_) {
    slot->waiter = {};
    if (!slot->mapping) {
      delete slot;
      continue;
    }
    slot->orphaned = true;  // its callback deletes it, which this may bring about
    GpuBuffer staging = std::move(slot->staging);
  }
}

Status StepRing::create(GpuStore& store, int depth, uint64_t bytes) {
  for (int i = 0; i < depth; ++i) {
    ETWGPU_ASSIGN(GpuBuffer staging, store.allocate(bytes, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst,
                                                    &MemoryReport::other, "read-back of a step"));
    slots_.push_back(new Slot);
    slots_.back()->staging = std::move(staging);
  }
  return {};
}

WGPUBuffer StepRing::target() const { return slots_[size_t(next_)]->staging.get(); }

void StepRing::submitted(uint64_t bytes) {
  Slot* slot = slots_[size_t(next_)];
  next_ = (next_ + 1) % depth();
  ++in_flight_;
  slot->mapping = true;
  slot->done = false;
  WGPUBufferMapCallbackInfo info = WGPU_BUFFER_MAP_CALLBACK_INFO_INIT;
  info.mode = wg::kCallbackMode;
  info.userdata1 = slot;
  info.callback = [](WGPUMapAsyncStatus status, WGPUStringView message, void* user, void*) {
    auto* s = static_cast<Slot*>(user);
    if (s->orphaned) {
      delete s;
      return;
    }
    s->mapping = false;
    s->done = true;
    s->status = status;
    if (status != WGPUMapAsyncStatus_Success) s->message = toString(message);
    if (s->waiter) std::exchange(s->waiter, {}).resume();
  };
  wg::BufferMapAsync(slot->staging.get(), WGPUMapMode_Read, 0, size_t((bytes + 3) / 4 * 4), info);
}

Task<Status> StepRing::read(Device& device, void* result, uint64_t bytes) {
  if (in_flight_ == 0) co_return Status(Code::invalid_argument, "no step is in flight");
  Slot* slot = slots_[size_t((next_ + depth() - in_flight_) % depth())];
  Awaiter awaiter{slot};
  co_await awaiter;
  --in_flight_;
  ETWGPU_CO_TRY(mapStatus(device, slot->status, slot->message));
  const Status status = readMapped(device, slot->staging.get(), 0, result, bytes);
  wg::BufferUnmap(slot->staging.get());
  co_return status;
}

}  // namespace etwgpu
