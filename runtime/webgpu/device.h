// The GPU device: capabilities, errors, waiting. Everything else in this folder is built on it.
#pragma once

#include <coroutine>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/status.h"
#include "runtime/core/task.h"
#include "runtime/executor/gpu_kernel.h"
#include "runtime/webgpu/api.h"

#ifndef __EMSCRIPTEN__
#include <chrono>
#include <mutex>
#include <thread>
#endif

namespace etwgpu {

class PipelineCache;

/// Several asynchronous operations that are awaited together; keeps the first error. Held by shared_ptr, since
/// callbacks may come when the waiting side is gone.
class Pending {
 public:
  void begin() { ++outstanding_; }
  void finish(Status status);
  bool done() const { return outstanding_ == 0; }
  const Status& status() const { return status_; }
  static Task<Status> wait(std::shared_ptr<Pending> pending);

 private:
  struct Awaiter;
  int outstanding_ = 0;
  Status status_;
  std::vector<std::coroutine_handle<>> waiters_;
};

struct DeviceOptions {
  /// Use this device instead of asking for one. One reference is taken over; the device is not destroyed at the end.
  /// Its loss is noticed in browsers; natively only by the calls that fail.
  WGPUDevice existing = nullptr;
  /// Tests force each tier and the default limits of WebGPU by these.
  bool default_limits = false;
  bool disable_f16 = false;
  bool disable_subgroups = false;  // and their matrices
  bool disable_timestamps = false;
  /// 8 or 16: subgroup matrices of that size by emulation (emulated_matrices.h), where there is shader-f16. Slow.
  int emulate_matrices = 0;
  /// Not 0: no binding may be larger, and no buffer larger than twice that, whatever the device allows.
  uint64_t max_binding_bytes = 0;
  /// A software adapter, where the platform has one.
  bool fallback_adapter = false;
  WGPUBackendType backend = WGPUBackendType_Undefined;
};

class Device {
 public:
  /// Asks for an adapter and a device with the largest useful limits and the features shader-f16, subgroups,
  /// timestamp-query and subgroup matrices where present. no_adapter: no WebGPU, no adapter, or only the null backend
  /// (whose results are garbage).
  static Task<Result<std::unique_ptr<Device>>> create(DeviceOptions options);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const GpuCapabilities& capabilities() const { return capabilities_; }
  int emulatedMatrices() const { return emulated_matrices_; }
  bool hasTimestamps() const { return timestamps_; }
  WGPUDevice handle() const { return device_; }
  WGPUQueue queue() const { return queue_; }
  PipelineCache& pipelines() { return *pipelines_; }

  /// device_lost with the reason once the device is lost.
  Status status() const;
  /// The first error that no scope caught since the last call (validation, out of memory), or the device's loss.
  Status takeError();
  /// Opens scopes for validation and out-of-memory errors; the matching closeErrorScopes reports what they caught as
  /// gpu_error or out_of_memory, with `what` in front of the message.
  void openErrorScopes();
  void closeErrorScopes(const std::shared_ptr<Pending>& into, std::string what);
  /// Ends what `encoder` records and submits it.
  void submit(WGPUCommandEncoder encoder);
  /// Waits until all submitted work is done.
  Task<Status> workDone();
  /// Natively: runs due callbacks. Nothing in a browser.
  void pump();
  /// As a driver reset would: for tests. Every pending and later call fails with device_lost.
  void destroy();

 private:
  struct State;
  Device() = default;
  void setCallbacks(WGPUDeviceDescriptor& descriptor);
  void watchExisting();
  void readCapabilities(const DeviceOptions& options, const WGPUAdapterInfo& info);
  void readSubgroupMatrices();
  std::shared_ptr<State> state_;
  WGPUDevice device_ = nullptr;
  WGPUQueue queue_ = nullptr;
  GpuCapabilities capabilities_;
  bool timestamps_ = false;
  int emulated_matrices_ = 0;
  bool owned_ = true;
  std::unique_ptr<PipelineCache> pipelines_;
};

/// The size of the square matrices (8 or 16, the larger preferred) that multiply f16 and sum in f32; 0: none. `words`:
/// what Dawn writes for `count` configurations, 5 words each (component and result type, M, N, K) or, newer, 7 (and the
/// subgroup's least and largest size, of which `subgroup_size` must be one).
uint32_t subgroupMatrixSize(const uint32_t* words, size_t count, uint32_t subgroup_size);

/// Maps [0, size) of a buffer for reading; unmap it afterwards.
Task<Status> mapForReading(Device& device, WGPUBuffer buffer, uint64_t size);
/// What the end of a mapping says: device_lost where it was aborted, since nobody here destroys or unmaps a buffer that
/// is being mapped.
Status mapStatus(const Device& device, WGPUMapAsyncStatus status, const std::string& message);
/// Copies `size` bytes from `offset` (a multiple of 8) of a mapped buffer.
Status readMapped(const Device& device, WGPUBuffer buffer, uint64_t offset, void* target, uint64_t size);

#ifndef __EMSCRIPTEN__
/// Runs due callbacks of the process's WebGPU instance.
void pumpWebGpu();
/// Held by runBlocking: callbacks of all devices come out of one instance, and must find their coroutine on no other
/// thread.
std::recursive_mutex& webGpuMutex();
/// Runs a task to its end on this thread. Tasks of other threads wait meanwhile.
template <class T>
T runBlocking(Task<T> task) {
  const std::lock_guard<std::recursive_mutex> lock(webGpuMutex());
  task.start();
  const auto start = std::chrono::steady_clock::now();
  while (!task.done()) {
    pumpWebGpu();
    // Short waits are spun, long ones must not take a core from a software adapter.
    if (std::chrono::steady_clock::now() - start < std::chrono::microseconds(500)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return task.take();
}
template <class T>
T runBlocking(Device&, Task<T> task) {
  return runBlocking(std::move(task));
}
#endif

}  // namespace etwgpu
