#include "runtime/webgpu/gpu_delegate.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/webgpu/gpu_cost.h"

namespace etwgpu {
namespace {

constexpr uint32_t kMaxTimed = 2048;  // dispatches; a query set holds 4,096 timestamps
constexpr uint64_t kReadAlignment = 8;
constexpr uint64_t kStepResultBytes = 16;

uint64_t alignedTo(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

/// A parameter as the shader sees it: u32 or i32; what neither can hold (an open end) becomes the largest i32.
uint32_t paramWord(int64_t value) {
  if (value > int64_t(UINT32_MAX)) return uint32_t(INT32_MAX);
  if (value < INT32_MIN) return uint32_t(INT32_MIN);
  return uint32_t(value);
}

}  // namespace

// ---- loading
// ---------------------------------------------------------------------------------------------------------
Status GpuDelegate::prepare(const NamedDataMap& data) {
  Device& device = store_->device();
  ETWGPU_TRY(device.status());
  device.openErrorScopes();
  Status status = makeSharedBuffers(data);
  if (status.ok()) status = makeOwn();
  device.closeErrorScopes(pending_, "preparing the model");
  return status;
}

Status GpuDelegate::makeOwn() {
  ETWGPU_TRY(makeOwnBuffers());
  dispatches_.resize(plan_.dispatches.size());
  // A quarter of the time in which a software adapter compiles a language model is the sampling's.
  ETWGPU_TRY(makeDispatches(!store_->device().capabilities().narrow(), false));
  return findSlices();
}

uint64_t GpuDelegate::uploadBytes() const {
  uint64_t bytes = plan_.input_bytes;
  for (const PlannedDispatch& d : plan_.dispatches) bytes += d.spec.params.empty() ? 0 : kParamSlice;
  return bytes;
}

/// Weights, states and arenas.
Status GpuDelegate::makeSharedBuffers(const NamedDataMap& data) {
  const Graph& graph = plan_.graph;
  ETWGPU_ASSIGN(uint64_t needed, store_->missingBytes(graph, plan_.constants, plan_.states));
  for (const uint64_t bytes : plan_.memory.arena_bytes) needed += bytes;
  needed += uploadBytes() + plan_.step_bytes;
  ETWGPU_TRY(store_->checkCap(needed, describeLargest(graph, plan_.memory)));
  ETWGPU_TRY(store_->addConstants(graph, plan_.constants, data, reads_));
  const size_t states_before = states_->entries.size();
  ETWGPU_TRY(store_->addStates(graph, plan_.states, data, reads_));
  has_new_states_ = states_->entries.size() > states_before;
  for (size_t i = 0; i < plan_.memory.arena_bytes.size(); ++i) {
    ETWGPU_ASSIGN(GpuBuffer arena,
                  store_->allocate(plan_.memory.arena_bytes[i],
                                   WGPUBufferUsage_Storage | WGPUBufferUsage_CopyDst | WGPUBufferUsage_CopySrc,
                                   &MemoryReport::arena, format("arena %zu", i)));
    shared_->arenas.push_back(std::move(arena));
  }
  return {};
}

/// Inputs, parameters, and what steps hand on.
Status GpuDelegate::makeOwnBuffers() {
  const uint64_t upload_bytes = uploadBytes();
  ETWGPU_TRY(store_->checkCap(upload_bytes + plan_.step_bytes, ""));
  shadow_ = ShadowBuffer(size_t(upload_bytes));
  ETWGPU_ASSIGN(upload_, store_->allocate(upload_bytes,
                                          WGPUBufferUsage_Uniform | WGPUBufferUsage_Storage | WGPUBufferUsage_CopyDst |
                                              WGPUBufferUsage_CopySrc,
                                          &MemoryReport::other, "inputs and parameters"));
  if (plan_.step_bytes == 0) return {};
  ETWGPU_ASSIGN(step_, store_->allocate(plan_.step_bytes,
                                        WGPUBufferUsage_Storage | WGPUBufferUsage_CopyDst | WGPUBufferUsage_CopySrc,
                                        &MemoryReport::other, "what steps hand on"));
  if (plan_.feedback.present()) ETWGPU_TRY(ring_.create(*store_, stepDepth(), kStepResultBytes));
  return {};
}

Status GpuDelegate::findSlices() {
  const Graph& graph = plan_.graph;
  for (const GraphOutput& output : graph.outputs) {
    if (output.value != kNoValue) ETWGPU_TRY(sliceOf(output.value));
  }
  for (const PlannedArgmax& a : plan_.argmax) {
    argmax_slices_.emplace_back();
    ETWGPU_ASSIGN(argmax_slices_.back(), sliceOf(a.ids));
  }
  for (const PlannedCopy& copy : plan_.copies) {
    Copy c{};
    ETWGPU_TRY(sliceOf(copy.value));
    ETWGPU_ASSIGN(c.to, sliceOf(copy.state));
    c.bytes = gpuBytes(graph, graph.storage(copy.state), store_->options().precision);
    copies_.push_back(c);
  }
  return {};
}

Result<GpuSlice> GpuDelegate::sliceOf(ValueId id) const {
  const Graph& graph = plan_.graph;
  id = graph.storage(id);
  const Value& value = graph.value(id);
  GpuSlice slice;
  if (const Lent* lent = lentFor(id)) {
    slice = {lent->place.buffer, lent->place.offset};
  } else if (value.kind == ValueKind::constant) {
    slice = store_->constant(graph, id);
  } else if (value.kind == ValueKind::state) {
    slice.buffer = states_->find(value.name);
  } else if (plan_.stepOffset(id) >= 0) {
    slice = {step_.get(), uint64_t(plan_.stepOffset(id))};
  } else if (plan_.input_offsets[size_t(id)] >= 0) {
    slice = {upload_.get(), uint64_t(plan_.input_offsets[size_t(id)])};
  } else if (const Placement& p = plan_.memory.placements[size_t(id)]; p.arena >= 0) {
    slice = {shared_->arenas[size_t(p.arena)].get(), p.offset};
  }
  if (!slice.buffer) return Status(Code::internal, format("%s has no memory", value.name.c_str()));
  return slice;
}

/// Those that are missing; of the ones that draw tokens only with `sampling`. `at_once`: finishLoading() is over.
Status GpuDelegate::makeDispatches(bool sampling, bool at_once) {
  uint64_t params_at = plan_.input_bytes;
  for (size_t i = 0; i < dispatches_.size(); ++i) {
    const PlannedDispatch& planned = plan_.dispatches[i];
    if (!dispatches_[i].pipeline && (sampling || planned.only_sample < 0)) {
      ETWGPU_ASSIGN(dispatches_[i], makeDispatch(planned, params_at, at_once));
    }
    if (!planned.spec.params.empty()) params_at += kParamSlice;
  }
  return {};
}

Result<GpuDelegate::Dispatch> GpuDelegate::makeDispatch(const PlannedDispatch& planned, uint64_t params_at,
                                                        bool at_once) {
  const DispatchSpec& spec = planned.spec;
  BindingLayout layout;
  layout.has_params = !spec.params.empty();
  for (const Binding& binding : spec.bindings) layout.access.push_back(binding.access);
  setParams(spec, params_at);
  Result<std::shared_ptr<Pipeline>> pipeline = store_->device().pipelines().get(spec.kernel, layout, at_once);
  if (!pipeline.ok())
    return Status(pipeline.status().code(), "node " + planned.node + ": " + pipeline.status().message());
  ETWGPU_ASSIGN(BindGroupHandle group, makeBindGroup(spec, params_at, **pipeline));
  return Dispatch{std::move(pipeline).value(), std::move(group)};
}

/// Those that stay as they are into the upload buffer; those that calls compute are noted.
void GpuDelegate::setParams(const DispatchSpec& spec, uint64_t params_at) {
  for (size_t i = 0; i < spec.params.size(); ++i) {
    const size_t at = size_t(params_at) + 4 * i;
    uint32_t word;
    std::memcpy(&word, &spec.params[i].number, 4);
    if (spec.params[i].is_float) {
      shadow_.setWord(at, word);
      if (spec.params[i].adapter >= 0) scales_.push_back({uint32_t(at), spec.params[i].adapter});
    } else {
      params_.push_back({uint32_t(at), spec.params[i].expr});
    }
  }
}

/// Of the memory that the values have now.
Result<BindGroupHandle> GpuDelegate::makeBindGroup(const DispatchSpec& spec, uint64_t params_at,
                                                   const Pipeline& pipeline) const {
  std::vector<WGPUBindGroupEntry> entries;
  const auto add = [&](WGPUBuffer buffer, uint64_t offset, uint64_t size) {
    WGPUBindGroupEntry entry = WGPU_BIND_GROUP_ENTRY_INIT;
    entry.binding = uint32_t(entries.size());
    entry.buffer = buffer;
    entry.offset = offset;
    entry.size = alignedTo(size, 16);  // whole vectors; everything is padded to 256 bytes
    entries.push_back(entry);
  };
  for (const Binding& binding : spec.bindings) {
    ETWGPU_ASSIGN(const GpuSlice slice, sliceOf(binding.value));
    const BindingRange range = bindingRange(plan_.graph, binding, store_->options().precision);
    const Lent* lent = lentFor(plan_.graph.storage(binding.value));
    add(slice.buffer, slice.offset + range.offset, lent ? lent->place.size : range.size);
  }
  if (!spec.params.empty()) add(upload_.get(), params_at, spec.params.size() * 4);
  WGPUBindGroupDescriptor descriptor = WGPU_BIND_GROUP_DESCRIPTOR_INIT;
  descriptor.layout = pipeline.layout;
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  return BindGroupHandle(wg::DeviceCreateBindGroup(store_->device().handle(), &descriptor));
}

void GpuDelegate::applyScales(std::span<const float> scales) {
  for (const ScaleSlot& slot : scales_) {
    if (size_t(slot.adapter) < scales.size())
      shadow_.setWord(slot.offset, std::bit_cast<uint32_t>(scales[size_t(slot.adapter)]));
  }
}

Task<Status> GpuDelegate::finishLoading() {
  Device& device = store_->device();
  ETWGPU_CO_TRY(co_await Pending::wait(pending_));
  for (const Dispatch& d : dispatches_) {
    if (d.pipeline) ETWGPU_CO_TRY(co_await waitForPipeline(d.pipeline));
  }
  for (const auto& conversion : reads_.conversions) ETWGPU_CO_TRY(upload(device, *conversion));
  reads_.conversions.clear();
  if (has_new_states_) ETWGPU_CO_TRY(co_await states_->reset());
  co_return device.takeError();
}

// ---- running
// ---------------------------------------------------------------------------------------------------------
Storage GpuDelegate::storageOf(ValueId id) const {
  const Value& value = plan_.graph.value(plan_.graph.storage(id));
  return gpuStorage(value.dtype, value.kind == ValueKind::constant, store_->options().precision);
}

Sizes GpuDelegate::sizesOf(ValueId id) const {
  Sizes sizes;
  for (const ExprId dim : plan_.graph.value(id).dims) sizes.push_back(values_[size_t(dim.index)]);
  return sizes;
}

Task<Status> GpuDelegate::execute(std::span<const DelegateArg> inputs, std::span<DelegateArg> outputs,
                                  ExecuteOptions options) {
  Device& device = store_->device();
  const bool lent = options.places && options.places->buffers();
  if (lent) device.openErrorScopes();  // buffers tell nothing of themselves
  places_ = options.places;
  Status status = start(inputs, outputs, options);
  places_ = nullptr;
  if (lent) {
    const auto refused = std::make_shared<Pending>();
    device.closeErrorScopes(refused, "with the GPU buffers of this call");
    const Status found = co_await Pending::wait(refused);
    if (status.ok() && !found.ok())
      status = Status(found.code() == Code::gpu_error ? Code::invalid_argument : found.code(), found.message());
    if (!status.ok()) forgetLent();
  }
  ETWGPU_CO_TRY(status);
  if (store_->options().check_values) ETWGPU_CO_TRY(co_await submitChecked());
  if (profiling_) ETWGPU_CO_TRY(co_await readProfile());
  if (read_back_bytes_ > 0) ETWGPU_CO_TRY(co_await readOutputs(outputs, options));
  co_return device.takeError();
}

/// All of a call up to its submit.
Status GpuDelegate::start(std::span<const DelegateArg> inputs, std::span<DelegateArg> outputs,
                          const ExecuteOptions& options) {
  ETWGPU_TRY(store_->device().takeError());
  if (stepsInFlight() > 0) return Status(Code::invalid_argument, "steps are in flight");
  last_step_tokens_ = 0;
  stats_ = {};
  ETWGPU_TRY(lendBuffers());
  ETWGPU_TRY(prepareCall(inputs, options.argmax_output));
  ETWGPU_TRY(describeOutputs(outputs, options));
  ETWGPU_TRY(states_->rings.enter(guard_, inputs, values_));
  ETWGPU_TRY(uploadInputs(inputs));
  if (profiling_) ETWGPU_TRY(prepareProfiling());
  if (!store_->options().check_values) submit(0, commands_.size(), true);
  return {};
}

/// Parameters and commands for these sizes.
Status GpuDelegate::prepareCall(std::span<const DelegateArg> inputs, int mode) {
  std::vector<int64_t> symbols;
  ETWGPU_TRY(bindInputs(inputs, symbols));
  if (symbols != symbols_ || values_.empty() || mode != last_mode_) {
    last_mode_ = -2;  // invalid until all of it has been rebuilt
    symbols_ = std::move(symbols);
    values_.resize(plan_.graph.exprs.size());
    plan_.graph.exprs.evalAll(symbols_, values_);
    ETWGPU_TRY(checkInputs(inputs));
    ETWGPU_TRY(rebuildCommands(mode));
    last_mode_ = mode;
    return {};
  }
  return checkInputs(inputs);
}

Status GpuDelegate::bindInputs(std::span<const DelegateArg> inputs, std::vector<int64_t>& symbols) const {
  const Graph& graph = plan_.graph;
  if (inputs.size() != graph.inputs.size()) {
    return Status(Code::invalid_argument,
                  format("%zu inputs, but the graph takes %zu", inputs.size(), graph.inputs.size()));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId value = graph.inputs[i].value;
    if (inputs[i].is_int != (value == kNoValue)) {
      return Status(Code::invalid_argument,
                    format("input %zu must be %s", i, value == kNoValue ? "an integer" : "a tensor"));
    }
    if (value == kNoValue) continue;
    const bool on_gpu = inputPlace(i) != nullptr;
    const DType dtype = on_gpu ? deviceDType(graph.value(value).dtype, storageOf(value)) : graph.value(value).dtype;
    if (inputs[i].tensor.dtype != dtype || inputs[i].tensor.rank() != graph.value(value).dims.size()) {
      return Status(
          Code::invalid_argument,
          format("input %zu must be %s of rank %zu%s, not %s of rank %zu", i, std::string(dtypeName(dtype)).c_str(),
                 graph.value(value).dims.size(), on_gpu ? " on the GPU" : "",
                 std::string(dtypeName(inputs[i].tensor.dtype)).c_str(), inputs[i].tensor.rank()));
    }
  }
  symbols.resize(graph.exprs.symbolCount());
  for (size_t s = 0; s < symbols.size() && s < graph.symbols.size(); ++s) {
    const SymbolBinding& from = graph.symbols[s];
    if (from.input < 0) continue;
    const DelegateArg& arg = inputs[size_t(from.input)];
    symbols[s] = from.dim < 0 ? arg.integer : arg.tensor.sizes[size_t(from.dim)];
    const Bounds bounds = graph.exprs.symbolBounds(s);
    if (symbols[s] < bounds.min || symbols[s] > bounds.max) {
      return Status(Code::invalid_argument,
                    format("input %d: %s is %lld, but must be between %lld and %lld", int(from.input),
                           graph.exprs.symbolName(s).c_str(), (long long)symbols[s], (long long)bounds.min,
                           (long long)bounds.max));
    }
  }
  return {};
}

Status GpuDelegate::checkInputs(std::span<const DelegateArg> inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_int) continue;
    const Sizes expected = sizesOf(plan_.graph.inputs[i].value);
    if (inputs[i].tensor.sizes != expected) {
      return Status(Code::invalid_argument,
                    format("input %zu has sizes %s, expected %s", i, sizesToString(inputs[i].tensor.sizes).c_str(),
                           sizesToString(expected).c_str()));
    }
    if (const DeviceBuffer* place = inputPlace(i))
      ETWGPU_TRY(checkRoom(*place, inputs[i].tensor, "input", i, plan_.graph.inputs[i].value));
  }
  return indices_.check(inputs, values_);
}

Status GpuDelegate::uploadInputs(std::span<const DelegateArg> inputs) {
  const WGPUQueue queue = store_->device().queue();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_int || inputPlace(i)) continue;
    const ValueId id = plan_.graph.inputs[i].value;
    const TensorView& tensor = inputs[i].tensor;
    if (tensor.dtype == DType::i64 && tensor.sizes == Sizes{1})  // the one such input of a model with caches
      profile_position_ = *static_cast<const int64_t*>(tensor.data);
    const Storage storage = storageOf(id);
    const uint64_t bytes = alignedTo(uint64_t(tensor.count()) * storageSize(storage), 4);
    const int64_t offset = plan_.input_offsets[size_t(id)];
    if (bytes == 0) continue;
    Result<GpuSlice> target = sliceOf(id);
    if (!target.ok()) continue;  // nobody reads it
    const bool direct = offset < 0 && sameRepresentation(tensor.dtype, storage) && tensor.bytes() == bytes;
    if (!direct) {
      scratch_.resize(std::max(scratch_.size(), size_t(bytes)));
      if (const Status status = toGpu(tensor.dtype, tensor.data, storage, scratch_.data(), tensor.count());
          !status.ok()) {
        return Status(status.code(), format("input %zu: %s", i, status.message().c_str()));
      }
    }
    if (offset < 0) {
      wg::QueueWriteBuffer(queue, target->buffer, target->offset, direct ? tensor.data : scratch_.data(),
                           size_t(bytes));
      stats_.upload_bytes += bytes;
    } else if (std::memcmp(shadow_.data() + offset, scratch_.data(), size_t(bytes)) != 0) {
      std::memcpy(shadow_.data() + offset, scratch_.data(), size_t(bytes));
      shadow_.touch(size_t(offset), size_t(bytes));
    }
  }
  flushUploads();
  return {};
}

void GpuDelegate::flushUploads() {
  const WGPUQueue queue = store_->device().queue();
  const WGPUBuffer buffer = upload_.get();
  stats_.upload_bytes += shadow_.flush([queue, buffer](uint64_t offset, const void* data, size_t size) {
    wg::QueueWriteBuffer(queue, buffer, offset, data, size);
  });
}

Status GpuDelegate::rebuildCommands(int mode) {
  commands_.clear();
  command_dispatch_.clear();
  for (const ParamSlot& p : params_) shadow_.setWord(p.offset, paramWord(values_[size_t(p.expr.index)]));
  const int64_t most = store_->device().capabilities().max_workgroups;
  size_t next_copy = 0;
  const auto placeCopies = [&](size_t dispatch) {
    for (; next_copy < copies_.size() && plan_.copies[next_copy].before <= dispatch; ++next_copy) {
      copies_[next_copy].position = commands_.size();
    }
  };
  for (size_t i = 0; i < dispatches_.size(); ++i) {
    placeCopies(i);
    const PlannedDispatch& planned = plan_.dispatches[i];
    const DispatchCondition& when = planned.spec.when;
    if (planned.only_argmax >= 0 && planned.only_argmax != mode) continue;
    if (planned.only_sample >= 0 && (mode < kSampleMode || (planned.only_sample & ~mode))) continue;
    if (when.expr.valid()) {
      const int64_t value = values_[size_t(when.expr.index)];
      if (value < when.min || value > when.max) continue;
    }
    int64_t count[3];
    for (int d = 0; d < 3; ++d) count[d] = values_[size_t(planned.spec.workgroups[size_t(d)].index)];
    if (count[0] <= 0 || count[1] <= 0 || count[2] <= 0) continue;
    if (std::max({count[0], count[1], count[2]}) > most) {
      return Status(Code::limit_exceeded,
                    format("node %s, kernel %s: %lld x %lld x %lld workgroups, but the device allows %lld a dimension",
                           planned.node.c_str(), planned.spec.kernel.name.c_str(), (long long)count[0],
                           (long long)count[1], (long long)count[2], (long long)most));
    }
    const BindGroupHandle& group = lent_ && lent_->groups[i] ? lent_->groups[i] : dispatches_[i].bind_group;
    commands_.add({dispatches_[i].pipeline->handle.get(), group.get(), uint32_t(count[0]), uint32_t(count[1]),
                   uint32_t(count[2])});
    command_dispatch_.push_back(int32_t(i));
  }
  placeCopies(dispatches_.size());
  return {};
}

/// Sets sizes and integers of the outputs, and lists what is to be read back.
Status GpuDelegate::describeOutputs(std::span<DelegateArg> outputs, const ExecuteOptions& options) {
  const Graph& graph = plan_.graph;
  if (outputs.size() != graph.outputs.size()) {
    return Status(Code::invalid_argument,
                  format("%zu outputs, but the graph has %zu", outputs.size(), graph.outputs.size()));
  }
  read_backs_.clear();
  read_back_bytes_ = 0;
  const auto add = [&](int32_t output, ValueId id, GpuSlice from, int64_t count) {
    const Storage storage = storageOf(id);
    const uint64_t bytes = uint64_t(count) * storageSize(storage);
    if (bytes == 0) return;
    const uint64_t offset = alignedTo(read_back_bytes_, kReadAlignment);
    read_backs_.push_back({output, from, storage, offset, bytes, count});
    read_back_bytes_ = offset + alignedTo(bytes, 4);
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueId id = graph.outputs[i].value;
    outputs[i].is_int = id == kNoValue;
    if (id == kNoValue) {
      outputs[i].integer = values_[size_t(graph.outputs[i].expr.index)];
      continue;
    }
    const GpuSlice slice = *sliceOf(id);
    if (places_ && places_->outputs[i]) {
      ETWGPU_TRY(placeOutput(outputs[i].tensor, *places_->outputs[i], i, id, slice));
      continue;
    }
    if (outputs[i].tensor.dtype != graph.value(id).dtype) {
      return Status(Code::invalid_argument,
                    format("output %zu is %s, not %s", i, std::string(dtypeName(graph.value(id).dtype)).c_str(),
                           std::string(dtypeName(outputs[i].tensor.dtype)).c_str()));
    }
    outputs[i].tensor.sizes = sizesOf(id);
    // Only what the caller has memory for is read.
    if (options.argmax_output < 0 && outputs[i].tensor.data) add(int32_t(i), id, slice, outputs[i].tensor.count());
  }
  if (options.argmax_output >= 0) {
    const auto it = std::find_if(plan_.argmax.begin(), plan_.argmax.end(),
                                 [&](const PlannedArgmax& a) { return a.output == options.argmax_output; });
    if (it == plan_.argmax.end() || !options.ids) {
      return Status(Code::unsupported_operator, format("no argmax for output %d", options.argmax_output));
    }
    add(-1, it->ids, argmax_slices_[size_t(it - plan_.argmax.begin())], elementCount(sizesOf(it->ids)));
  }
  return growStaging(read_back_bytes_);
}

Status GpuDelegate::growStaging(uint64_t bytes) {
  if (bytes <= staging_.size()) return {};
  staging_ = {};
  ETWGPU_ASSIGN(staging_, store_->allocate(bytes, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst,
                                           &MemoryReport::other, "read-back"));
  return {};
}

/// Commands [begin, end); with the last of a call the read-back.
void GpuDelegate::submit(size_t begin, size_t end, bool last) {
  Device& device = store_->device();
  const CommandEncoderHandle encoder(wg::DeviceCreateCommandEncoder(device.handle(), nullptr));
  record(encoder.get(), begin, end, last);
  for (const ReadBack& r : read_backs_) {
    if (!last) break;
    wg::CommandEncoderCopyBufferToBuffer(encoder.get(), r.from.buffer, r.from.offset, r.to ? r.to : staging_.get(),
                                         r.offset, alignedTo(r.bytes, 4));
  }
  device.submit(encoder.get());
  stats_.dispatches = int(commands_.size());
  ++stats_.submits;
}

/// Commands [begin, end) and the copies before each of them, with the last also those behind it. One pass, unless a
/// state is copied between dispatches.
void GpuDelegate::record(WGPUCommandEncoder encoder, size_t begin, size_t end, bool last) {
  for (size_t i = 0; i < copies_.size(); ++i) {
    const Copy& copy = copies_[i];
    if (copy.position < begin || (copy.position >= end && !last)) continue;
    recordDispatches(encoder, begin, copy.position);
    begin = copy.position;
    if (copy.bytes == 0) continue;
    const GpuSlice from = *sliceOf(plan_.copies[i].value);
    wg::CommandEncoderCopyBufferToBuffer(encoder, from.buffer, from.offset, copy.to.buffer, copy.to.offset, copy.bytes);
  }
  recordDispatches(encoder, begin, end);
  if (!profiling_ || commands_.size() == 0) return;
  const uint32_t timed = std::min(uint32_t(commands_.size()), kMaxTimed);
  wg::CommandEncoderResolveQuerySet(encoder, queries_.get(), 0, 2 * timed, query_buffer_.get(), 0);
  wg::CommandEncoderCopyBufferToBuffer(encoder, query_buffer_.get(), 0, query_staging_.get(), 0, 16 * timed);
}

void GpuDelegate::recordDispatches(WGPUCommandEncoder encoder, size_t begin, size_t end) {
  if (begin == end) return;
  const size_t step = profiling_ ? 1 : end - begin;
  for (size_t i = begin; i < end; i += step) {
    WGPUPassTimestampWrites writes = WGPU_PASS_TIMESTAMP_WRITES_INIT;
    writes.querySet = queries_.get();
    writes.beginningOfPassWriteIndex = uint32_t(2 * i);
    writes.endOfPassWriteIndex = uint32_t(2 * i + 1);
    WGPUComputePassDescriptor descriptor = WGPU_COMPUTE_PASS_DESCRIPTOR_INIT;
    if (profiling_ && i < kMaxTimed) descriptor.timestampWrites = &writes;
    const ComputePassHandle pass(wg::CommandEncoderBeginComputePass(encoder, &descriptor));
    commands_.replay(pass.get(), i, i + step);
    wg::ComputePassEncoderEnd(pass.get());
  }
}

Status GpuDelegate::prepareProfiling() {
  if (queries_) return {};
  WGPUQuerySetDescriptor descriptor = WGPU_QUERY_SET_DESCRIPTOR_INIT;
  descriptor.type = WGPUQueryType_Timestamp;
  descriptor.count = 2 * kMaxTimed;
  const uint64_t bytes = 16 * kMaxTimed;
  ETWGPU_ASSIGN(query_buffer_, store_->allocate(bytes, WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc,
                                                &MemoryReport::other, "timestamps"));
  ETWGPU_ASSIGN(query_staging_, store_->allocate(bytes, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst,
                                                 &MemoryReport::other, "timestamps read-back"));
  queries_ = QuerySetHandle(wg::DeviceCreateQuerySet(store_->device().handle(), &descriptor));
  return {};
}

Task<Status> GpuDelegate::readOutputs(std::span<DelegateArg> outputs, const ExecuteOptions& options) {
  ETWGPU_CO_TRY(co_await mapForReading(store_->device(), staging_.get(), read_back_bytes_));
  Status status;
  for (const ReadBack& r : read_backs_) {
    const Storage storage = r.storage;
    if (r.to) continue;
    if (r.output < 0) {
      options.ids->resize(size_t(r.count));
      status = readMapped(store_->device(), staging_.get(), r.offset, options.ids->data(), r.bytes);
    } else if (TensorView& tensor = outputs[size_t(r.output)].tensor; sameRepresentation(tensor.dtype, storage)) {
      status = readMapped(store_->device(), staging_.get(), r.offset, tensor.data, r.bytes);
    } else {
      scratch_.resize(std::max(scratch_.size(), size_t(r.bytes)));
      status = readMapped(store_->device(), staging_.get(), r.offset, scratch_.data(), r.bytes);
      toHost(storage, scratch_.data(), tensor.dtype, tensor.data, r.count);
    }
    if (!status.ok()) break;
    stats_.read_back_bytes += r.bytes;
  }
  wg::BufferUnmap(staging_.get());
  co_return status;
}

Task<Status> GpuDelegate::readProfile() {
  profile_.clear();
  const size_t timed = std::min(commands_.size(), size_t(kMaxTimed));
  if (timed == 0) co_return Status();
  ETWGPU_CO_TRY(co_await mapForReading(store_->device(), query_staging_.get(), 16 * timed));
  std::vector<uint64_t> times(2 * timed);
  const Status status = readMapped(store_->device(), query_staging_.get(), 0, times.data(), 16 * timed);
  wg::BufferUnmap(query_staging_.get());
  for (size_t i = 0; i < timed; ++i) {
    const PlannedDispatch& planned = plan_.dispatches[size_t(command_dispatch_[i])];
    // Clocks may be reset between passes: then there is no time.
    const uint64_t begin = times[2 * i], end = times[2 * i + 1];
    const DispatchCost cost =
        dispatchCost(plan_.graph, planned.spec, values_, store_->options().precision, profile_position_);
    profile_.push_back({planned.spec.kernel.name, planned.node, end > begin ? double(end - begin) / 1e3 : 0.0,
                        cost.bytes, cost.flops});
  }
  co_return status;
}

}  // namespace etwgpu
