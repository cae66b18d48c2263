#include "runtime/program/head_reader.h"

#include <cstring>

namespace etwgpu {

Task<Result<std::span<const uint8_t>>> HeadReader::take(uint64_t size) {
  if (source_.size() && size > source_.size()) {
    co_return Status(Code::io_error, format("%s: %llu bytes wanted of a file of %llu", source_.name().c_str(),
                                            (unsigned long long)size, (unsigned long long)source_.size()));
  }
  // flatbuffers wants 16 bytes of alignment
  if (source_.data() && reinterpret_cast<uintptr_t>(source_.data()) % 16 == 0) {
    co_return std::span<const uint8_t>(source_.data(), size);
  }
  if (size > have_) {
    std::shared_ptr<uint8_t[]> bytes(new uint8_t[size]);  // operator new aligns to 16
    if (have_) std::memcpy(bytes.get(), owned_.get(), have_);
    std::vector<ReadRequest> requests(1);
    requests[0].offset = have_;
    requests[0].size = size - have_;
    requests[0].host = bytes.get() + have_;
    ETWGPU_CO_TRY(co_await source_.read(std::move(requests)));
    owned_ = std::move(bytes);
    have_ = size;
  }
  co_return std::span<const uint8_t>(owned_.get(), size);
}

}  // namespace etwgpu
