#include "runtime/executor/method_state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/executor/program_kernels.h"

namespace etwgpu {
namespace {

using ull = unsigned long long;
constexpr uint64_t kAlignment = 64;
/// What empty tensors point to: kernels may form, but not follow, the address of their first element.
alignas(kAlignment) uint8_t g_nothing[kAlignment];

}  // namespace

HostBuffer::HostBuffer(uint64_t bytes) {
  if (bytes > SIZE_MAX - 2 * kAlignment) return;
  base_ = std::calloc(1, size_t(bytes) + 2 * kAlignment);
  if (!base_) return;
  data_ =
      reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(base_) + kAlignment - 1) & ~uintptr_t(kAlignment - 1));
  size_ = bytes;
}
HostBuffer::~HostBuffer() { std::free(base_); }

Result<HostBuffer> MemoryBudget::allocate(uint64_t bytes, const std::string& what) {
  if (bytes > cap || used > cap - bytes) {
    return {Code::limit_exceeded, format("%s needs %llu bytes, %llu are in use and the memory cap is %llu",
                                         what.c_str(), ull(bytes), ull(used), ull(cap))};
  }
  HostBuffer buffer(bytes);
  if (!buffer.data()) return {Code::out_of_memory, format("%s: no memory for %llu bytes", what.c_str(), ull(bytes))};
  used += bytes;
  return buffer;
}

void MemoryBudget::release(HostBuffer& buffer) {
  used -= buffer.size();
  buffer = HostBuffer();
}

ResolvedOperator resolveOperator(const OperatorName& op) {
  ResolvedOperator r;
  r.primitive = findPrimitive(op.name, op.overload);
  if (r.primitive) return r;
  r.name = findKernelName(op.name, op.overload);
  if (r.name) r.kernel = findCpuKernel(r.name->kernel);
  if (r.kernel) return r;
  if (const ProgramKernel* k = findProgramKernel(op.name, op.overload)) {
    r.name = &k->name;
    r.kernel = k->kernel;
  }
  return r;
}

std::vector<bool> usedTensors(const Method& method) {
  std::vector<bool> used(method.tensors.size());
  const auto use = [&](int32_t value) {
    if (const auto* ref = std::get_if<TensorRef>(&method.values[size_t(value)])) used[size_t(ref->index)] = true;
    const auto* list = std::get_if<TensorList>(&method.values[size_t(value)]);
    for (int32_t item : list ? list->items : std::span<const int32_t>()) {
      const auto* ref = item < 0 ? nullptr : std::get_if<TensorRef>(&method.values[size_t(item)]);
      if (ref) used[size_t(ref->index)] = true;
    }
  };
  for (int32_t value : method.inputs) use(value);
  for (int32_t value : method.outputs) use(value);
  for (const Instruction& in : method.instructions) {
    for (int32_t value : in.args) use(value);
    if (in.kind == InstructionKind::move) use(in.index), use(in.target);
  }
  return used;
}

MethodState::MethodState(const Method& method, ProgramData& data)
    : method_(method), data_(data), values_(method.values) {
  tensors_.resize(method.tensors.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].info = &method.tensors[i];
    tensors_[i].sizes.assign(method.tensors[i].sizes.begin(), method.tensors[i].sizes.end());
  }
  for (const OperatorName& op : method.operators) operators_.push_back(resolveOperator(op));
}

Status MethodState::error(Code code, const std::string& message) const {
  return {code, "method " + std::string(method_.name) + ": " + message};
}

std::string MethodState::describe(int32_t index) const {
  if (const auto* ref = std::get_if<TensorRef>(&values_[size_t(index)])) {
    const std::string_view name = tensors_[size_t(ref->index)].info->name;
    if (!name.empty()) return format("tensor '%.*s' (value %d)", int(name.size()), name.data(), index);
  }
  return format("value %d", index);
}

RuntimeTensor* MethodState::tensor(int32_t index) {
  const auto* ref = std::get_if<TensorRef>(&values_[size_t(index)]);
  return ref ? &tensors_[size_t(ref->index)] : nullptr;
}

const uint8_t* MethodState::storedData(const TensorInfo& info) const {
  if (info.external) {
    const auto it = data_.external.find(info.name);
    return it == data_.external.end() ? nullptr : it->second.first;
  }
  if (info.inline_data) return info.inline_data;
  if (info.segment < 0) return nullptr;
  if (const uint8_t* segment = data_.segments[size_t(info.segment)]) return segment + info.segment_offset;
  const auto it = data_.pieces.find({info.segment, info.segment_offset});
  return it == data_.pieces.end() ? nullptr : it->second;
}

void MethodState::fillInitial(RuntimeTensor& t) {
  const uint8_t* stored = storedData(*t.info);
  if (stored && t.info->bytes) std::memcpy(t.data, stored, t.info->bytes);
}

Status MethodState::placeTensor(RuntimeTensor& t, bool used) {
  const TensorInfo& info = *t.info;
  if (info.planned) {
    t.data = arenas_[info.arena].data() + info.arena_offset;
    t.capacity = info.bytes;
    if (const auto state = data_.shared_states.find(info.name); state != data_.shared_states.end())
      t.data = state->second.data();
    fillInitial(t);
  } else if (info.isConstant() && used) {
    t.data = const_cast<uint8_t*>(storedData(info));  // never written: see `writable`
    t.capacity = info.bytes;
    t.writable = false;
    if (reinterpret_cast<uintptr_t>(t.data) % 16) {  // kernels count on the alignment that exporters give
      ETWGPU_ASSIGN(t.own, data_.budget.allocate(info.bytes, "constant"));
      if (info.bytes) std::memcpy(t.own.data(), t.data, info.bytes);
      t.data = t.own.data();
    }
  }
  if (t.data == nullptr && info.bytes == 0 && info.shape != ShapeKind::unbounded) t.data = g_nothing;
  return {};
}

Status MethodState::prepare() {
  if (prepared_) return {};
  arenas_.resize(method_.arenas.size());
  for (size_t i = 1; i < arenas_.size(); ++i) {
    if (arenas_[i].data()) continue;
    ETWGPU_ASSIGN(arenas_[i], data_.budget.allocate(
                                  uint64_t(method_.arenas[i]),
                                  format("method %.*s: arena %zu", int(method_.name.size()), method_.name.data(), i)));
  }
  const std::vector<bool> used = usedTensors(method_);
  for (size_t i = 0; i < tensors_.size(); ++i) ETWGPU_TRY(placeTensor(tensors_[i], used[i]));
  prepared_ = true;
  return {};
}

void MethodState::resetStates() {
  if (!prepared_) return;
  for (size_t i = 1; i < arenas_.size(); ++i) {
    if (arenas_[i].size()) std::memset(arenas_[i].data(), 0, arenas_[i].size());
  }
  for (RuntimeTensor& t : tensors_) {
    if (t.info->planned) fillInitial(t);
  }
}

void MethodState::beginCall() {
  values_ = method_.values;
  for (RuntimeTensor& t : tensors_) {
    const TensorInfo& info = *t.info;
    t.sizes.assign(info.sizes.begin(), info.sizes.end());
    if (info.planned || info.isConstant()) continue;
    // views and borrowed inputs of the last call may be gone
    t.data = t.own.data() ? t.own.data() : info.bytes == 0 && info.shape != ShapeKind::unbounded ? g_nothing : nullptr;
    t.capacity = t.own.size();
    t.writable = true;
  }
}

Status MethodState::resize(RuntimeTensor& t, std::span<const int64_t> sizes, const std::string& what) {
  const TensorInfo& info = *t.info;
  uint64_t bytes = info.element_size;
  if (sizes.size() != info.sizes.size()) {
    return error(Code::invalid_argument, format("%s has rank %zu, got sizes %s", what.c_str(), info.sizes.size(),
                                                sizesToString(sizes).c_str()));
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    const bool fits = info.shape == ShapeKind::fixed     ? sizes[d] == info.sizes[d]
                      : info.shape == ShapeKind::bounded ? sizes[d] >= 0 && sizes[d] <= info.sizes[d]
                                                         : sizes[d] >= 0;
    if (!fits) {
      return error(Code::invalid_argument,
                   format("%s: dimension %zu is %lld, %s %d", what.c_str(), d, (long long)sizes[d],
                          info.shape == ShapeKind::fixed ? "it must be" : "allowed are 0 to", int(info.sizes[d])));
    }
    if (__builtin_mul_overflow(bytes, uint64_t(sizes[d]), &bytes)) bytes = UINT64_MAX;
  }
  const uint64_t wanted = info.shape == ShapeKind::unbounded ? bytes : info.bytes;
  if (!t.data || (info.shape == ShapeKind::unbounded && bytes > t.capacity)) {
    data_.budget.release(t.own);
    t.data = nullptr;
    ETWGPU_ASSIGN(t.own, data_.budget.allocate(wanted, what));
    t.data = t.own.data();
    t.capacity = wanted;
  }
  if (bytes > t.capacity) {
    return error(Code::invalid_argument, format("%s: %s is %llu bytes, there is room for %llu", what.c_str(),
                                                sizesToString(sizes).c_str(), ull(bytes), ull(t.capacity)));
  }
  t.sizes.assign(sizes.begin(), sizes.end());
  return {};
}

Status MethodState::resize(int32_t index, std::span<const int64_t> sizes) {
  RuntimeTensor* t = tensor(index);
  if (!t) return error(Code::invalid_program, describe(index) + " is no tensor");
  return resize(*t, sizes, describe(index));
}

void MethodState::free(int32_t index) {
  RuntimeTensor* t = tensor(index);
  if (!t || t->info->shape != ShapeKind::unbounded) return;
  if (t->data == t->own.data()) t->data = nullptr;
  data_.budget.release(t->own);
  t->capacity = 0;
}

}  // namespace etwgpu
