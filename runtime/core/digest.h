// A checksum that finds damage, not forgery.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace etwgpu {

/// 64 bits over bytes that come in pieces of any length; a function of the bytes alone. A word is mixed in by steps
/// that can be undone, so that two inputs that differ in one word never agree.
class Digest {
 public:
  void add(std::span<const uint8_t> bytes) {
    length_ += bytes.size();
    size_t at = 0;
    for (; carried_ > 0 && at < bytes.size(); ++at) push(bytes[at]);
    for (; at + 8 <= bytes.size(); at += 8) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + at, 8);
      mix(word);
    }
    for (; at < bytes.size(); ++at) push(bytes[at]);
  }
  uint64_t value() const {
    Digest end = *this;
    end.mix(carry_);
    end.mix(length_);
    return end.hash_;
  }

 private:
  void push(uint8_t byte) {
    carry_ |= uint64_t(byte) << 8 * carried_;
    if (++carried_ < 8) return;
    mix(carry_);
    carry_ = 0;
    carried_ = 0;
  }
  void mix(uint64_t word) {
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15u;
    hash_ ^= hash_ >> 32;
  }
  uint64_t hash_ = 0x243f6a8885a308d3u, carry_ = 0, length_ = 0;
  int carried_ = 0;
};

inline uint64_t digestOf(std::span<const uint8_t> bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.value();
}

}  // namespace etwgpu
