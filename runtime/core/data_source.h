// Where the bytes of a file come from: memory, a file, or a download in progress.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/status.h"
#include "runtime/core/task.h"

struct WGPUBufferImpl;

namespace etwgpu {

/// One range of a file and where it goes: exactly one of host and gpu is set.
struct ReadRequest {
  uint64_t offset = 0, size = 0;  // in the file
  void* host = nullptr;
  WGPUBufferImpl* gpu = nullptr;  // a WGPUBuffer with CopyDst
  uint64_t gpu_offset = 0;        // multiple of 4
};

class DataSource {
 public:
  virtual ~DataSource() = default;
  /// For messages: a path or URL.
  virtual std::string name() const = 0;
  /// Bytes of the whole file, or 0 where it isn't known yet (a stream without a length).
  virtual uint64_t size() const = 0;
  /// Non-null where the whole file is addressable (memory, mapped file): then constants are used in place.
  virtual const uint8_t* data() const { return nullptr; }
  /// Serves all requests, sorted by offset. A stream (in the browser: network → GPU, past the Wasm heap) reads forward
  /// once, so callers make few calls with many requests, each call beyond the offsets of the one before.
  virtual Task<Status> read(std::vector<ReadRequest> requests) = 0;
};

}  // namespace etwgpu
