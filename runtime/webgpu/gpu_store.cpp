#include "runtime/webgpu/gpu_store.h"

#include <algorithm>
#include <set>

#include "runtime/webgpu/gpu_plan.h"

namespace etwgpu {
namespace {

constexpr auto kStateUsage = WGPUBufferUsage_Storage | WGPUBufferUsage_CopyDst | WGPUBufferUsage_CopySrc;

uint64_t aligned(uint64_t bytes) {
  return std::max<uint64_t>((bytes + kGpuAlignment - 1) / kGpuAlignment, 1) * kGpuAlignment;
}

/// Two constants are the same bytes if they consist of the same pieces, read as the same type.
std::string constantKey(const Value& value) {
  std::string key = format("%d %d %llu", int(value.dtype), value.quantization.bits,
                           (unsigned long long)value.quantization.constants_offset);
  const auto add = [&](const ConstantPiece& p) {
    key += format("|%llu+%llu ", (unsigned long long)p.offset, (unsigned long long)p.size) + p.key;
  };
  for (const ConstantPiece& piece : value.pieces) add(piece);
  key += "||";
  for (const ConstantPiece& piece : value.constants_pieces) add(piece);
  key.append(reinterpret_cast<const char*>(value.literal.data()), value.literal.size());
  return key;
}

Status tooLarge(const std::string& name, uint64_t bytes, uint64_t limit) {
  return Status(Code::limit_exceeded, format("%s takes %llu bytes, but the device's buffers hold %llu at most",
                                             name.c_str(), (unsigned long long)bytes, (unsigned long long)limit));
}

int64_t maxCount(const Graph& graph, const Value& value) {
  int64_t n = 1;
  for (const ExprId dim : value.dims) n *= std::max<int64_t>(graph.exprs.bounds(dim).max, 0);
  return n;
}

}  // namespace

// ---- GpuBuffer
// -------------------------------------------------------------------------------------------------------
GpuBuffer::GpuBuffer(BufferHandle handle, uint64_t size, std::shared_ptr<MemoryReport> report,
                     uint64_t MemoryReport::*kind)
    : handle_(std::move(handle)), size_(size), report_(std::move(report)), kind_(kind) {
  (*report_).*kind_ += size_;
}
GpuBuffer& GpuBuffer::operator=(GpuBuffer&& other) noexcept {
  if (this != &other) {
    free();
    handle_ = std::move(other.handle_);
    size_ = std::exchange(other.size_, 0);
    report_ = std::move(other.report_);
    kind_ = other.kind_;
  }
  return *this;
}
void GpuBuffer::free() {
  if (!handle_) return;
  (*report_).*kind_ -= size_;
  wg::BufferDestroy(handle_.get());  // now, not when the last command or the garbage collector lets go of it
  handle_.reset();
}

// ---- GpuStates
// -------------------------------------------------------------------------------------------------------
WGPUBuffer GpuStates::find(const std::string& name) const {
  const auto it = entries.find(name);
  return it == entries.end() ? nullptr : it->second.buffer.get();
}

uint64_t GpuStates::bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, state] : entries) sum += state.buffer.size();
  return sum;
}

Task<Status> GpuStates::reset() {
  ETWGPU_CO_TRY(device_.status());
  rings.setWritten(0);
  if (entries.empty()) co_return Status();
  const CommandEncoderHandle encoder(wg::DeviceCreateCommandEncoder(device_.handle(), nullptr));
  for (const auto& [name, state] : entries) {
    const WGPUBuffer to = state.buffer.get();
    if (state.initial) {
      wg::CommandEncoderCopyBufferToBuffer(encoder.get(), state.initial->get(), 0, to, 0, state.buffer.size());
    } else {
      wg::CommandEncoderClearBuffer(encoder.get(), to, 0, state.buffer.size());
    }
  }
  device_.submit(encoder.get());
  co_return Status();
}

// ---- GpuStore
// --------------------------------------------------------------------------------------------------------
Status GpuStore::checkCap(uint64_t needed, const std::string& hint) const {
  const uint64_t total = needed + report_->weights + report_->state + report_->arena + report_->other;
  if (total <= options_.memory_cap) return {};
  return Status(Code::limit_exceeded,
                format("the program needs %llu bytes, but the memory cap is %llu%s", (unsigned long long)total,
                       (unsigned long long)options_.memory_cap, hint.c_str()));
}

Result<GpuBuffer> GpuStore::allocate(uint64_t size, WGPUBufferUsage usage, uint64_t MemoryReport::*kind,
                                     const std::string& label) {
  size = aligned(size);
  if (size > device_.capabilities().max_buffer_bytes)
    return tooLarge(label, size, device_.capabilities().max_buffer_bytes);
  WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
  descriptor.label = toStringView(label);
  descriptor.size = size;
  descriptor.usage = usage;
  BufferHandle handle(wg::DeviceCreateBuffer(device_.handle(), &descriptor));
  if (!handle) {
    return Status(Code::out_of_memory,
                  format("no memory for %s (%llu bytes)", label.c_str(), (unsigned long long)size));
  }
  return GpuBuffer(std::move(handle), size, report_, kind);
}

Result<uint64_t> GpuStore::missingBytes(const Graph& graph, std::span<const ValueId> constants,
                                        std::span<const ValueId> states) {
  uint64_t sum = 0;
  std::set<std::string> seen;
  const uint64_t limit = device_.capabilities().max_buffer_bytes;
  const auto add = [&](ValueId id) -> Status {
    const uint64_t bytes = aligned(gpuBytes(graph, id, options_.precision));
    if (bytes > limit) return tooLarge(graph.value(id).name, bytes, limit);
    sum += bytes;
    if (sum + report_->weights + report_->state + report_->arena + report_->other > options_.memory_cap) {
      return Status(
          Code::limit_exceeded,
          format("the program does not fit the memory cap of %llu bytes, which is reached at %s (%llu bytes)",
                 (unsigned long long)options_.memory_cap, graph.value(id).name.c_str(), (unsigned long long)bytes));
    }
    return {};
  };
  for (const ValueId id : constants) {
    std::string key = constantKey(graph.value(id));
    if (!constants_.contains(key) && seen.insert(std::move(key)).second) ETWGPU_TRY(add(id));
  }
  for (const ValueId id : states) {
    if (!states_->find(graph.value(id).name)) ETWGPU_TRY(add(id));
  }
  return sum;
}

Status GpuStore::addConstants(const Graph& graph, std::span<const ValueId> ids, const NamedDataMap& data,
                              PendingReads& reads) {
  const GpuCapabilities& caps = device_.capabilities();
  // Larger constants get a buffer of their own.
  const uint64_t chunk = std::min(caps.max_binding_bytes, caps.max_buffer_bytes);
  struct New {
    ValueId id;
    uint64_t bytes, offset;
  };
  std::vector<New> group;
  uint64_t size = 0;
  const auto close = [&]() -> Status {
    if (group.empty()) return {};
    ETWGPU_ASSIGN(GpuBuffer buffer,
                  allocate(size, WGPUBufferUsage_Storage | WGPUBufferUsage_CopyDst | WGPUBufferUsage_CopySrc,
                           &MemoryReport::weights, group.size() == 1 ? graph.value(group[0].id).name : "weights"));
    for (const New& n : group) {
      const GpuSlice slice{buffer.get(), n.offset};
      constants_[constantKey(graph.value(n.id))] = slice;
      ETWGPU_TRY(fill(graph, n.id, slice, data, reads));
    }
    constant_buffers_.push_back(std::move(buffer));
    group.clear();
    size = 0;
    return {};
  };
  for (const ValueId id : ids) {
    // The empty slice holds the place until close(): the graph may have a constant twice.
    if (!constants_.emplace(constantKey(graph.value(id)), GpuSlice{}).second) continue;
    const uint64_t bytes = aligned(gpuBytes(graph, id, options_.precision));
    if (size + bytes > chunk) ETWGPU_TRY(close());
    group.push_back({id, bytes, size});
    size += bytes;
  }
  return close();
}

Status GpuStore::addStates(const Graph& graph, std::span<const ValueId> ids, const NamedDataMap& data,
                           PendingReads& reads) {
  for (const ValueId id : ids) {
    const Value& value = graph.value(id);
    const uint64_t bytes = gpuBytes(graph, id, options_.precision);
    auto& states = states_->entries;
    if (const auto it = states.find(value.name); it != states.end()) {
      if (it->second.dtype == value.dtype && it->second.bytes == bytes) continue;
      return Status(Code::invalid_program, "two methods disagree about the state " + value.name);
    }
    GpuStates::State state{{}, nullptr, value.dtype, bytes};
    ETWGPU_ASSIGN(state.buffer, allocateState(value.name, bytes));
    if (!value.pieces.empty() || !value.literal.empty()) {
      ETWGPU_ASSIGN(GpuBuffer initial, allocate(bytes, kStateUsage, &MemoryReport::other, value.name + " (initial)"));
      state.initial = std::make_shared<GpuBuffer>(std::move(initial));
      ETWGPU_TRY(fill(graph, id, {state.initial->get(), 0}, data, reads));
    }
    states.emplace(value.name, std::move(state));
  }
  return {};
}

Result<GpuBuffer> GpuStore::allocateState(const std::string& name, uint64_t bytes) {
  return allocate(bytes, kStateUsage, &MemoryReport::state, "state " + name);
}

Result<std::shared_ptr<GpuStates>> GpuStore::makeStates() {
  ETWGPU_TRY(checkCap(states_->bytes(), " (another sequence's states)"));
  auto made = std::make_shared<GpuStates>(device_);
  made->rings = states_->rings;
  made->rings.setWritten(0);
  for (const auto& [name, state] : states_->entries) {
    GpuStates::State copy{{}, state.initial, state.dtype, state.bytes};
    ETWGPU_ASSIGN(copy.buffer, allocateState(name, state.bytes));
    made->entries.emplace(name, std::move(copy));
  }
  return made;
}

Status GpuStore::fill(const Graph& graph, ValueId id, GpuSlice target, const NamedDataMap& data, PendingReads& reads) {
  const Value& value = graph.value(id);
  const bool constant = value.kind == ValueKind::constant;
  if (value.quantization.bits == 0 && !value.literal.empty()) {
    const Storage storage = gpuStorage(value.dtype, constant, options_.precision);
    return upload(device_, {value.literal, value.dtype, storage, int64_t(value.literal.size() / dtypeSize(value.dtype)),
                            target, value.name});
  }
  const int64_t count = value.quantization.bits == 0 ? maxCount(graph, value) : -1;
  ETWGPU_TRY(read(value.pieces, value, constant, count, target, data, reads));
  if (value.quantization.bits == 0) return {};
  target.offset += value.quantization.constants_offset;
  return read(value.constants_pieces, value, constant, -1, target, data, reads);
}

/// count: elements, -1: bytes as they are.
Status GpuStore::read(const std::vector<ConstantPiece>& pieces, const Value& value, bool constant, int64_t count,
                      GpuSlice target, const NamedDataMap& data, PendingReads& reads) {
  uint64_t total = 0;
  bool whole_words = true;
  for (const ConstantPiece& piece : pieces) {
    total += piece.size;
    whole_words = whole_words && piece.size % 4 == 0;
  }
  const Storage storage = gpuStorage(value.dtype, constant, options_.precision);
  const bool direct = count < 0 || sameRepresentation(value.dtype, storage);
  HostRead* host = nullptr;
  if (!direct || !whole_words) {
    if (count >= 0 && total < uint64_t(count) * dtypeSize(value.dtype)) {
      return Status(Code::invalid_program,
                    format("%s has %llu bytes of data, too few", value.name.c_str(), (unsigned long long)total));
    }
    auto conversion = std::make_unique<HostRead>(
        HostRead{std::vector<uint8_t>(size_t(total)), direct ? DType::u8 : value.dtype,
                 direct ? Storage::packed : storage, direct ? int64_t(total) : count, target, value.name});
    host = conversion.get();
    reads.conversions.push_back(std::move(conversion));
  }
  uint64_t at = 0;
  for (const ConstantPiece& piece : pieces) {
    const NamedData* found = data.find(piece.key);
    if (!found || !found->source) {
      return Status(Code::data_missing, format("%s: there is no data named %s", value.name.c_str(), piece.key.c_str()));
    }
    const NamedData& named = *found;
    if (piece.offset > named.size || piece.size > named.size - piece.offset) {
      return Status(Code::invalid_program,
                    format("%s: its data %s is too short", value.name.c_str(), piece.key.c_str()));
    }
    if (named.in_memory && !host) {
      wg::QueueWriteBuffer(device_.queue(), target.buffer, target.offset + at,
                           named.source->data() + named.offset + piece.offset, size_t(piece.size));
      at += piece.size;
      continue;
    }
    ReadRequest request;
    request.offset = named.offset + piece.offset;
    request.size = piece.size;
    if (host) {
      request.host = host->bytes.data() + at;
    } else {
      request.gpu = target.buffer;
      request.gpu_offset = target.offset + at;
    }
    at += piece.size;
    if (request.size) reads.requests.emplace_back(named.source, request);
  }
  return {};
}

GpuSlice GpuStore::constant(const Graph& graph, ValueId id) const {
  const auto it = constants_.find(constantKey(graph.value(id)));
  return it == constants_.end() ? GpuSlice{} : it->second;
}

Status upload(Device& device, const HostRead& read) {
  std::vector<uint8_t> bytes((size_t(read.count) * storageSize(read.storage) + 3) / 4 * 4);
  if (bytes.empty()) return {};
  if (const Status status = toGpu(read.dtype, read.bytes.data(), read.storage, bytes.data(), read.count);
      !status.ok()) {
    return Status(status.code(), read.name + ": " + status.message());
  }
  wg::QueueWriteBuffer(device.queue(), read.target.buffer, read.target.offset, bytes.data(), bytes.size());
  return {};
}

}  // namespace etwgpu
