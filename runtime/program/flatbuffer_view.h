// Views of flatbuffers vectors. flatbuffers' verifier checks that vectors lie in the buffer, but neither that their
// elements are aligned nor how often they are shared: a small file in which a million lists share one vector would keep
// us busy for hours.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <span>
#include <string_view>

#include "runtime/core/status.h"

namespace etwgpu {

class FlatbufferView {
 public:
  /// `what`: for messages. All vectors together may have no more bytes than the buffer.
  FlatbufferView(std::string what, uint64_t buffer_bytes)
      : what_(std::move(what)), budget_(buffer_bytes), total_(buffer_bytes) {}

  /// Null gives an empty span. T: the element type of the span, of the size of the vector's.
  template <class T, class U>
  std::span<const T> span(const flatbuffers::Vector<U>* vector) {
    static_assert(sizeof(T) == sizeof(U));
    if (!vector) return {};
    charge(uint64_t(vector->size()) * sizeof(T));
    if (reinterpret_cast<uintptr_t>(vector->Data()) % alignof(T)) {
      fail(what_ + ": a vector is misaligned for its elements");
      return {};
    }
    if (!status_.ok()) return {};
    return {reinterpret_cast<const T*>(vector->Data()), vector->size()};
  }
  std::string_view text(const flatbuffers::String* s) {
    if (!s) return {};
    charge(s->size());
    return {s->c_str(), s->size()};
  }
  /// Number of tables of a vector; each counts with the least that a table takes.
  template <class T>
  uint32_t tables(const flatbuffers::Vector<flatbuffers::Offset<T>>* vector) {
    if (!vector) return 0;
    charge(uint64_t(vector->size()) * 8);
    return status_.ok() ? vector->size() : 0;
  }
  void charge(uint64_t bytes) {
    if (bytes > budget_) {
      fail(format("%s: its lists have more items than the %llu bytes of the flatbuffer can hold", what_.c_str(),
                  (unsigned long long)total_));
      budget_ = 0;
    } else {
      budget_ -= bytes;
    }
  }
  void fail(std::string message) {
    if (status_.ok()) status_ = Status(Code::invalid_program, std::move(message));
  }
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

 private:
  std::string what_;
  uint64_t budget_, total_;
  Status status_;
};

/// Little-endian number of a header, whatever its alignment.
inline uint64_t littleEndian(const uint8_t* p, int bytes) {
  uint64_t v = 0;
  for (int i = bytes - 1; i >= 0; --i) v = v << 8 | p[i];
  return v;
}

}  // namespace etwgpu
