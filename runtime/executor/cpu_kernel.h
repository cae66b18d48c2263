// The interface of CPU kernels. One kernel serves an operator both inside a delegate (cpu executor, same fused graph as
// the GPU) and as an ordinary kernel call of a program (".out" variants).
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "runtime/core/status.h"
#include "runtime/core/tensor.h"
#include "runtime/executor/delegate.h"
#include "runtime/graph/graph.h"

namespace etwgpu {

/// Static split of [0, count) over the caller and the workers; workers spin during a run and sleep afterwards.
class ThreadPool {
 public:
  virtual ~ThreadPool() = default;
  virtual int threads() const = 0;
  /// fn(begin, end) on disjoint ranges whose borders are multiples of `grain`; returns when all are done.
  virtual void parallelFor(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) = 0;
  /// Keeps the workers spinning between the regions of one run.
  virtual void beginRun() {}
  virtual void endRun() {}
};
std::unique_ptr<ThreadPool> makeThreadPool(int threads);

/// One call of one operator. Arguments are addressed by their position in the operator's schema.
class CpuCall {
 public:
  virtual ~CpuCall() = default;
  virtual size_t argCount() const = 0;
  virtual bool isNone(size_t arg) const = 0;
  virtual TensorView tensor(size_t arg) const = 0;
  virtual std::vector<TensorView> tensors(size_t arg) const = 0;  // entries that are None have data == nullptr
  virtual int64_t integer(size_t arg) const = 0;
  virtual Sizes integers(size_t arg) const = 0;
  virtual double number(size_t arg) const = 0;  // also of an integer argument
  virtual bool flag(size_t arg) const = 0;
  virtual std::string text(size_t arg) const = 0;
  virtual std::optional<DType> dtype(size_t arg) const = 0;
  /// Output k with these sizes; fails where they exceed what was planned. Its dtype is fixed by the program.
  virtual Result<TensorView> output(size_t k, const Sizes& sizes) = 0;
  virtual DType outputDType(size_t k) const = 0;
  /// What the graph says output k's sizes are; only inside a delegate (generated kernels have no other source).
  virtual Sizes outputSizes(size_t) const { return {}; }
  virtual const PointwiseProgram* pointwise() const { return nullptr; }
  /// The pointwise program's strides and offsets with this call's sizes.
  virtual int64_t evaluate(ExprId) const { return 0; }
  /// Uninitialised, 64-byte aligned, valid during the call; nullptr if the cap is reached.
  virtual void* scratch(size_t bytes) = 0;
  virtual ThreadPool& pool() const = 0;
  virtual Activations activations() const = 0;
};
using CpuKernel = Status (*)(CpuCall&);

/// op: "aten.add.Tensor" or "etwgpu.linear". nullptr: no kernel.
CpuKernel findCpuKernel(std::string_view op);
std::vector<std::string_view> cpuKernelNames();

/// Every family has `void register<Family>Cpu(CpuRegistry&)` in its cpu.cpp; registry.cpp lists them (static
/// initialisers would be dropped by the linker).
class CpuRegistry {
 public:
  virtual ~CpuRegistry() = default;
  virtual void add(std::string_view op, CpuKernel kernel) = 0;
};

}  // namespace etwgpu
