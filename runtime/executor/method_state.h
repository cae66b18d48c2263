// The memory and values of one method between calls, and the means to execute its instructions one by one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/core/tensor.h"
#include "runtime/executor/cpu_kernel.h"
#include "runtime/program/kernel_names.h"
#include "runtime/program/program.h"

namespace etwgpu {

/// Zero-initialised, aligned to 64 bytes, readable 64 bytes beyond its end (vector kernels). What is never touched
/// costs no memory where the system maps pages lazily.
class HostBuffer {
 public:
  HostBuffer() = default;
  /// Empty (data() is null) where the memory is not to be had.
  explicit HostBuffer(uint64_t bytes);
  HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~HostBuffer();
  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  void* base_ = nullptr;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

/// Counts what one program allocates on the host against its cap.
struct MemoryBudget {
  uint64_t used = 0, cap = 0;
  /// limit_exceeded with both numbers, or out_of_memory; `what` for the message.
  Result<HostBuffer> allocate(uint64_t bytes, const std::string& what);
  void release(HostBuffer& buffer);
};

/// Data of the program that all methods share.
struct ProgramData {
  MemoryBudget budget;
  bool check_values = false;             // LoadOptions
  std::vector<const uint8_t*> segments;  // those with constants and initial values, if all of them is here; else null
  std::map<std::pair<int32_t, uint64_t>, const uint8_t*> pieces;  // by segment and offset: what was read of the others
  std::map<std::string, std::pair<const uint8_t*, uint64_t>, std::less<>> external;  // of .ptd files, by name
  std::vector<HostBuffer> owned;                                                     // what the two above point to
  /// Mutable buffers that several methods name: one memory for all.
  std::map<std::string, HostBuffer, std::less<>> shared_states;
};

/// A tensor at run time.
struct RuntimeTensor {
  const TensorInfo* info = nullptr;
  Sizes sizes;              // of now; the bounds at first
  uint8_t* data = nullptr;  // null: not yet (inputs, outputs without a place)
  uint64_t capacity = 0;
  bool writable = true;
  HostBuffer own;
  uint64_t bytes() const { return uint64_t(elementCount(sizes)) * info->element_size; }
  TensorView view() const { return {info->dtype(), sizes, data, {}, nullptr}; }
};

/// Per tensor of a method whether anything refers to it. Exporters leave constants in programs that nothing uses since
/// a delegate has taken them over.
std::vector<bool> usedTensors(const Method& method);

class MethodState;
/// A primitive works on values directly.
using Primitive = Status (*)(MethodState& m, std::span<const int32_t> args);
Primitive findPrimitive(std::string_view name, std::string_view overload);

/// What serves an operator of the program; all null: missing.
struct ResolvedOperator {
  CpuKernel kernel = nullptr;
  const KernelName* name = nullptr;
  Primitive primitive = nullptr;
  bool missing() const { return !kernel && !primitive; }
};
ResolvedOperator resolveOperator(const OperatorName& op);

class MethodState {
 public:
  /// `method` and `data` must outlive it. Allocates nothing of size.
  MethodState(const Method& method, ProgramData& data);

  const Method& method() const { return method_; }
  const std::vector<ResolvedOperator>& operators() const { return operators_; }
  /// Places in arenas, initial values. Idempotent; run() of a session calls it at a method's first call.
  Status prepare();
  /// Initial values and zeros again.
  void resetStates();
  /// Frees what FreeCalls and unbounded tensors own, and starts a call: values as the file has them.
  void beginCall();

  // Values. Indices are those of the file and in range.
  ProgramValue& value(int32_t index) { return values_[size_t(index)]; }
  const ProgramValue& value(int32_t index) const { return values_[size_t(index)]; }
  RuntimeTensor* tensor(int32_t value_index);
  RuntimeTensor& tensorAt(TensorRef ref) { return tensors_[size_t(ref.index)]; }
  /// "tensor 'x' (value 3)": for messages.
  std::string describe(int32_t value_index) const;
  Status error(Code code, const std::string& message) const;

  /// New sizes within the bounds of every dimension; makes sure that there is memory for them.
  Status resize(RuntimeTensor& t, std::span<const int64_t> sizes, const std::string& what);
  Status resize(int32_t value_index, std::span<const int64_t> sizes);

  Status runKernel(const Instruction& in, ThreadPool& pool, Activations activations);
  void free(int32_t value_index);
  ProgramData& data() { return data_; }

 private:
  Status placeTensor(RuntimeTensor& t, bool used);
  void fillInitial(RuntimeTensor& t);
  const uint8_t* storedData(const TensorInfo& info) const;

  const Method& method_;
  ProgramData& data_;
  std::vector<ProgramValue> values_;
  std::vector<RuntimeTensor> tensors_;
  std::vector<ResolvedOperator> operators_;
  std::vector<HostBuffer> arenas_;
  bool prepared_ = false;
};

}  // namespace etwgpu
