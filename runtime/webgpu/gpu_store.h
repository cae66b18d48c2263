// The GPU memory of one program: weights and states, shared by name between its methods, and the account of all bytes.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/executor/delegate.h"
#include "runtime/executor/ring_mark.h"
#include "runtime/webgpu/device.h"
#include "runtime/webgpu/gpu_storage.h"

namespace etwgpu {

/// A buffer that is counted in a MemoryReport while it lives.
class GpuBuffer {
 public:
  GpuBuffer() = default;
  GpuBuffer(BufferHandle handle, uint64_t size, std::shared_ptr<MemoryReport> report, uint64_t MemoryReport::*kind);
  GpuBuffer(GpuBuffer&&) noexcept = default;
  GpuBuffer& operator=(GpuBuffer&& other) noexcept;
  ~GpuBuffer() { free(); }
  WGPUBuffer get() const { return handle_.get(); }
  uint64_t size() const { return size_; }
  explicit operator bool() const { return bool(handle_); }

 private:
  void free();
  BufferHandle handle_;
  uint64_t size_ = 0;
  std::shared_ptr<MemoryReport> report_;
  uint64_t MemoryReport::*kind_ = nullptr;
};

/// A part of a buffer.
struct GpuSlice {
  WGPUBuffer buffer = nullptr;
  uint64_t offset = 0;
};

/// Host bytes that must be converted before they are what the GPU reads (i64, bool, f16 states …).
struct HostRead {
  std::vector<uint8_t> bytes;
  DType dtype;
  Storage storage;
  int64_t count;
  GpuSlice target;
  std::string name;
};

/// What remains to be read for a delegate before it can run.
struct PendingReads {
  std::vector<std::pair<DataSource*, ReadRequest>> requests;
  std::vector<std::unique_ptr<HostRead>> conversions;
};

class GpuStates final : public StateSet {
 public:
  struct State {
    GpuBuffer buffer;
    std::shared_ptr<GpuBuffer> initial;  // null: zeros
    DType dtype;
    uint64_t bytes;
  };
  /// The device must outlive it.
  explicit GpuStates(Device& device) : device_(device) {}

  std::map<std::string, State> entries;
  RingMark rings;
  WGPUBuffer find(const std::string& name) const;
  Task<Status> reset() override;
  uint64_t bytes() const override;

 private:
  Device& device_;
};

class GpuStore {
 public:
  GpuStore(Device& device, const LoadOptions& options) : device_(device), options_(options) {}

  Device& device() const { return device_; }
  const LoadOptions& options() const { return options_; }
  void setTuning(const Tuning& tuning) { options_.tuning = tuning; }
  const MemoryReport& report() const { return *report_; }
  void noteArenaWithoutReuse(uint64_t bytes) { report_->arena_without_reuse += bytes; }
  void forgetArenaWithoutReuse(uint64_t bytes) { report_->arena_without_reuse -= bytes; }

  /// limit_exceeded where `needed` bytes more exceed the memory cap; `hint` ends the message.
  Status checkCap(uint64_t needed, const std::string& hint) const;
  /// `size` is rounded up to 256. limit_exceeded, out_of_memory: name `label`.
  Result<GpuBuffer> allocate(uint64_t size, WGPUBufferUsage usage, uint64_t MemoryReport::*kind,
                             const std::string& label);
  /// Bytes that the store would add for these values; checks each against the device's limits.
  Result<uint64_t> missingBytes(const Graph& graph, std::span<const ValueId> constants,
                                std::span<const ValueId> states);
  /// Makes buffers for those that the program has not yet, and says what to read into them.
  Status addConstants(const Graph& graph, std::span<const ValueId> constants, const NamedDataMap& data,
                      PendingReads& reads);
  Status addStates(const Graph& graph, std::span<const ValueId> states, const NamedDataMap& data, PendingReads& reads);

  GpuSlice constant(const Graph& graph, ValueId id) const;
  const std::shared_ptr<GpuStates>& states() const { return states_; }
  /// Buffers of the same kind once more, with any contents.
  Result<std::shared_ptr<GpuStates>> makeStates();

 private:
  Result<GpuBuffer> allocateState(const std::string& name, uint64_t bytes);
  Status read(const std::vector<ConstantPiece>& pieces, const Value& value, bool constant, int64_t count,
              GpuSlice target, const NamedDataMap& data, PendingReads& reads);
  Status fill(const Graph& graph, ValueId id, GpuSlice target, const NamedDataMap& data, PendingReads& reads);

  Device& device_;
  LoadOptions options_;
  std::shared_ptr<MemoryReport> report_ = std::make_shared<MemoryReport>();
  std::vector<GpuBuffer> constant_buffers_;
  std::map<std::string, GpuSlice> constants_;  // by what they consist of
  std::shared_ptr<GpuStates> states_ = std::make_shared<GpuStates>(device_);
};

/// Converts and uploads.
Status upload(Device& device, const HostRead& read);

}  // namespace etwgpu
