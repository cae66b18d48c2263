// LoadOptions::check_values on the GPU.
#include <algorithm>

#include "runtime/executor/check_values.h"
#include "runtime/webgpu/gpu_delegate.h"

namespace etwgpu {
namespace {

constexpr uint64_t kPiece = 4 << 20;  // bytes that are read at once

}  // namespace

/// A part of a value to where it is read; false: it has no memory, since nobody reads it.
bool GpuDelegate::copyOut(ValueId id, uint64_t offset, uint64_t bytes) {
  Result<GpuSlice> from = sliceOf(id);
  if (!from.ok()) return false;
  Device& device = store_->device();
  const CommandEncoderHandle encoder(wg::DeviceCreateCommandEncoder(device.handle(), nullptr));
  wg::CommandEncoderCopyBufferToBuffer(encoder.get(), from->buffer, from->offset + offset, staging_.get(), 0,
                                       (bytes + 3) / 4 * 4);
  device.submit(encoder.get());
  return true;
}

/// A submit for every node, after which what it has written is read; the read-back when all is well.
Task<Status> GpuDelegate::submitChecked() {
  ETWGPU_CO_TRY(growStaging(kPiece));
  scratch_.resize(std::max(scratch_.size(), size_t(kPiece)));
  const auto nodeOf = [&](size_t i) { return plan_.dispatches[size_t(command_dispatch_[i])].node_index; };
  for (size_t at = 0, end = 0; at < commands_.size(); at = end) {
    const size_t node = nodeOf(at);
    for (end = at + 1; end < commands_.size() && nodeOf(end) == node;) ++end;
    submit(at, end, false);
    if (node >= plan_.graph.nodes.size()) continue;  // what chooses a token is none of the model's
    OperatorCheck check(plan_.graph, plan_.graph.nodes[node]);
    for (size_t i = 0; check.wants(i); ++i) {
      ScannedValue& v = check.values[i];
      v.dtype = storageOf(v.id) == Storage::f16 ? DType::f16 : DType::f32;
      const Sizes sizes = sizesOf(v.id);
      v.setSizes(sizes);
      const uint64_t size = dtypeSize(v.dtype), total = uint64_t(elementCount(sizes)) * size;
      for (uint64_t done = 0; done < total; done += kPiece) {
        const uint64_t bytes = std::min(kPiece, total - done);
        if (!copyOut(v.id, done, bytes)) break;
        Status read = co_await mapForReading(store_->device(), staging_.get(), bytes);
        if (read.ok()) {
          read = readMapped(store_->device(), staging_.get(), 0, scratch_.data(), bytes);
          wg::BufferUnmap(staging_.get());
        }
        ETWGPU_CO_TRY(read);
        v.scan(scratch_.data(), done / size, bytes / size);
      }
    }
    ETWGPU_CO_TRY(check.verdict());
  }
  submit(commands_.size(), commands_.size(), true);
  co_return Status();
}

}  // namespace etwgpu
