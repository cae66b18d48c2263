// Small staging buffers, made once, through which the results of several submits in flight are read back in order.
#pragma once

#include <coroutine>
#include <memory>
#include <string>
#include <vector>

#include "runtime/webgpu/gpu_store.h"

namespace etwgpu {

class StepRing {
 public:
  StepRing() = default;
  StepRing(StepRing&& other) noexcept : slots_(std::move(other.slots_)) {}
  StepRing& operator=(StepRing&&) = delete;
  ~StepRing();
  /// `depth` buffers of `bytes`.
  Status create(GpuStore& store, int depth, uint64_t bytes);

  int depth() const { return int(slots_.size()); }
  int inFlight() const { return in_flight_; }
  /// Where the next submit has to copy its result. Only while inFlight() < depth().
  WGPUBuffer target() const;
  /// After that submit: starts reading `bytes`.
  void submitted(uint64_t bytes);
  /// Waits for the oldest submit in flight and copies its result of `bytes`.
  Task<Status> read(Device& device, void* result, uint64_t bytes);

 private:
  /// Outlives the ring where a mapping does.
  struct Slot {
    GpuBuffer staging;
    bool mapping = false, done = false, orphaned = false;
    WGPUMapAsyncStatus status = WGPUMapAsyncStatus_Success;
    std::string message;
    std::coroutine_handle<> waiter;
  };
  struct Awaiter {
    Slot* slot;
    bool await_ready() const { return slot->done; }
    void await_suspend(std::coroutine_handle<> handle) { slot->waiter = handle; }
    void await_resume() {}
  };
  std::vector<Slot*> slots_;
  int next_ = 0, in_flight_ = 0;
};

}  // namespace etwgpu
