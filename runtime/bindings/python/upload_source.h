// Native reads into GPU buffers: of a file that is mapped into memory, through the queue.
#pragma once

#include <algorithm>
#include <memory>

#include "runtime/core/data_source.h"
#include "runtime/webgpu/device.h"

namespace etwgpu {

/// Serves requests for GPU buffers from the bytes of an addressable source, all others by the source itself.
class UploadSource final : public DataSource {
 public:
  UploadSource(std::unique_ptr<DataSource> source, Device& device) : source_(std::move(source)), device_(device) {}
  std::string name() const override { return source_->name(); }
  uint64_t size() const override { return source_->size(); }
  const uint8_t* data() const override { return source_->data(); }

  Task<Status> read(std::vector<ReadRequest> requests) override {
    constexpr uint64_t kChunk = 16 << 20;  // a write is staged by the implementation: not a whole model at once
    uint64_t staged = 0;
    std::vector<ReadRequest> rest;
    for (const ReadRequest& r : requests) {
      if (!r.gpu) {
        rest.push_back(r);
        continue;
      }
      if (r.offset > size() || r.size > size() - r.offset) {
        co_return Status(Code::io_error,
                         format("%s: bytes %llu + %llu are beyond its %llu bytes", name().c_str(),
                                (unsigned long long)r.offset, (unsigned long long)r.size, (unsigned long long)size()));
      }
      for (uint64_t at = 0; at < r.size; at += kChunk) {
        const uint64_t bytes = std::min(kChunk, r.size - at);
        wg::QueueWriteBuffer(device_.queue(), r.gpu, r.gpu_offset + at, data() + r.offset + at, size_t(bytes));
        staged += bytes;
        if (staged < 4 * kChunk) continue;
        ETWGPU_CO_TRY(co_await device_.workDone());
        staged = 0;
      }
    }
    if (!rest.empty()) ETWGPU_CO_TRY(co_await source_->read(std::move(rest)));
    co_return device_.status();
  }

 private:
  std::unique_ptr<DataSource> source_;
  Device& device_;
};

}  // namespace etwgpu
