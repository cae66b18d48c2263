// The states of a GpuDelegate: from and to the host, in parts, and the delegate once more over others.
#include "runtime/webgpu/gpu_delegate.h"

namespace etwgpu {

std::vector<StateLayout> GpuDelegate::states() const {
  std::vector<StateLayout> out;
  for (const ValueId id : plan_.states) {
    const Value& value = plan_.graph.value(id);
    // packed bytes are u8 to the host, whether the program calls them i8 or u8
    StateLayout& layout = out.emplace_back(StateLayout{value.name, deviceDType(DType::u8, storageOf(id)), {}});
    for (const ExprId dim : value.dims) layout.sizes.push_back(plan_.graph.exprs.bounds(dim).max);
  }
  return out;
}

Result<std::unique_ptr<Delegate>> GpuDelegate::withStates(std::shared_ptr<StateSet> states) {
  Device& device = store_->device();
  ETWGPU_TRY(device.status());
  std::unique_ptr<GpuDelegate> made(
      new GpuDelegate(store_, shared_, std::static_pointer_cast<GpuStates>(std::move(states))));
  device.openErrorScopes();
  const Status status = made->makeOwn();
  device.closeErrorScopes(made->pending_, "preparing a sequence");
  ETWGPU_TRY(status);
  return std::unique_ptr<Delegate>(std::move(made));
}

Result<WGPUBuffer> GpuDelegate::stateBuffer(const StateRange& range) const {
  if (stepsInFlight() > 0) return Status(Code::invalid_argument, "steps are in flight");
  const ValueId id = range.state < plan_.states.size() ? plan_.states[range.state] : kNoValue;
  const WGPUBuffer buffer = id == kNoValue ? nullptr : states_->find(plan_.graph.value(id).name);
  if (!buffer) return Status(Code::internal, format("no state %zu", range.state));
  return buffer;
}

Task<Status> GpuDelegate::readStates(std::span<const StateRange> ranges, std::span<uint8_t> to) {
  Device& device = store_->device();
  ETWGPU_CO_TRY(device.takeError());
  if (to.empty()) co_return Status();
  ETWGPU_CO_TRY(growStaging(to.size()));
  const CommandEncoderHandle encoder(wg::DeviceCreateCommandEncoder(device.handle(), nullptr));
  uint64_t at = 0;
  for (const StateRange& range : ranges) {
    ETWGPU_CO_ASSIGN(const WGPUBuffer buffer, stateBuffer(range));
    wg::CommandEncoderCopyBufferToBuffer(encoder.get(), buffer, range.offset, staging_.get(), at, range.size);
    at += range.size;
  }
  device.submit(encoder.get());
  ETWGPU_CO_TRY(co_await mapForReading(device, staging_.get(), to.size()));
  const Status status = readMapped(device, staging_.get(), 0, to.data(), to.size());
  wg::BufferUnmap(staging_.get());
  co_return status.ok() ? device.takeError() : status;
}

Task<Status> GpuDelegate::writeStates(std::span<const StateRange> ranges, std::span<const uint8_t> from) {
  Device& device = store_->device();
  ETWGPU_CO_TRY(device.takeError());
  for (const StateRange& range : ranges) {
    ETWGPU_CO_ASSIGN(const WGPUBuffer buffer, stateBuffer(range));
    wg::QueueWriteBuffer(device.queue(), buffer, range.offset, from.data(), size_t(range.size));
    from = from.subspan(size_t(range.size));
  }
  co_return device.takeError();
}

}  // namespace etwgpu
