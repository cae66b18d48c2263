// What a call sends to the GPU: changed bytes of the upload buffer, and a list of dispatches replayed in one go.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "runtime/webgpu/api.h"

namespace etwgpu {

/// One dispatch of a recorded list. In Wasm five 32-bit words (handles are indices), which JavaScript reads as they
/// are.
struct DispatchCommand {
  WGPUComputePipeline pipeline;
  WGPUBindGroup bind_group;
  uint32_t x, y, z;
};

class CommandList {
 public:
  void clear() { commands_.clear(); }
  void add(DispatchCommand command) { commands_.push_back(command); }
  size_t size() const { return commands_.size(); }
  const DispatchCommand& operator[](size_t i) const { return commands_[i]; }
  /// Sets the pipeline only where it changes. One call into JavaScript for commands [begin, end).
  void replay(WGPUComputePassEncoder pass, size_t begin, size_t end) const;

 private:
  std::vector<DispatchCommand> commands_;
};

/// A GPU buffer's content as the host knows it; flush() sends what has changed since the last one.
class ShadowBuffer {
 public:
  /// Where written ranges go: (offset, bytes, size), all multiples of 4.
  using Sink = std::function<void(uint64_t, const void*, size_t)>;

  explicit ShadowBuffer(size_t size = 0) : bytes_((size + 3) / 4 * 4) {}
  size_t size() const { return bytes_.size(); }
  uint8_t* data() { return bytes_.data(); }
  /// Marks [offset, offset + size) as changed, whatever it holds.
  void touch(size_t offset, size_t size);
  /// Sets a word, noting whether it changed.
  void setWord(size_t offset, uint32_t word) {
    if (std::memcmp(&bytes_[offset], &word, 4) == 0) return;
    std::memcpy(&bytes_[offset], &word, 4);
    touch(offset, 4);
  }
  /// Sends the changed ranges, those close to each other as one; returns the bytes sent.
  uint64_t flush(const Sink& sink);

 private:
  struct Range {
    size_t begin, end;
  };
  std::vector<uint8_t> bytes_;
  std::vector<Range> dirty_;
};

}  // namespace etwgpu
