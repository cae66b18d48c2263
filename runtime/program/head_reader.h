// The front of a file: the few bytes that say what it is, then the flatbuffer.
#pragma once

#include <memory>
#include <span>

#include "runtime/core/data_source.h"

namespace etwgpu {

/// Enough for both extended headers.
constexpr uint64_t kProbeBytes = 64;

/// Forward reads of the front of a file; in place where the file is addressable and aligned.
class HeadReader {
 public:
  explicit HeadReader(DataSource& source) : source_(source) {}
  /// The first `size` bytes of the file; io_error where it has less. Earlier views become invalid.
  Task<Result<std::span<const uint8_t>>> take(uint64_t size);
  /// Keeps the bytes alive; null where they are the source's.
  std::shared_ptr<uint8_t[]> owned() const { return owned_; }

 private:
  DataSource& source_;
  std::shared_ptr<uint8_t[]> owned_;
  uint64_t have_ = 0;
};

}  // namespace etwgpu
