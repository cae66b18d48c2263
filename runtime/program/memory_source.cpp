#include <cstring>

#include "runtime/program/sources.h"

namespace etwgpu {
namespace {

/// The address of no bytes: null would mean that the bytes are not addressable.
alignas(16) constexpr uint8_t kNothing[16] = {};

class MemorySource final : public DataSource {
 public:
  MemorySource(std::string name, std::vector<uint8_t> bytes)
      : name_(std::move(name)), owned_(std::move(bytes)), bytes_(owned_) {}
  MemorySource(std::string name, std::span<const uint8_t> bytes) : name_(std::move(name)), bytes_(bytes) {}
  std::string name() const override { return name_; }
  uint64_t size() const override { return bytes_.size(); }
  const uint8_t* data() const override { return bytes_.data() ? bytes_.data() : kNothing; }
  Task<Status> read(std::vector<ReadRequest> requests) override {
    for (const ReadRequest& r : requests) {
      if (r.offset > bytes_.size() || r.size > bytes_.size() - r.offset) {
        co_return Status(Code::io_error, format("%s: bytes %llu + %llu are beyond its %llu bytes", name_.c_str(),
                                                (unsigned long long)r.offset, (unsigned long long)r.size,
                                                (unsigned long long)bytes_.size()));
      }
      if (!r.host) co_return Status(Code::internal, name_ + ": a GPU read was not taken over by the GPU layer");
      if (r.size) std::memcpy(r.host, bytes_.data() + r.offset, r.size);
    }
    co_return Status();
  }

 private:
  std::string name_;
  std::vector<uint8_t> owned_;
  std::span<const uint8_t> bytes_;
};

}  // namespace

std::unique_ptr<DataSource> makeMemorySource(std::string name, std::vector<uint8_t> bytes) {
  return std::make_unique<MemorySource>(std::move(name), std::move(bytes));
}
std::unique_ptr<DataSource> makeMemoryView(std::string name, std::span<const uint8_t> bytes) {
  return std::make_unique<MemorySource>(std::move(name), bytes);
}

}  // namespace etwgpu
