// The operators of the pass `decoder` on the CPU: the kernels of their two parts, one after the other.
#include <vector>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/cpu_common.h"

namespace etwgpu {
namespace cpu {
namespace {

/// Stands for a call of a part: argument i is argument `args[i]` of the whole, or the first part's result.
class PartCall final : public CpuCall {
 public:
  static constexpr int kNone = -1, kResult = -2;
  PartCall(CpuCall& whole, std::vector<int> args) : whole_(whole), args_(std::move(args)) {}

  /// Makes output 0 a temporary of the whole call; else it is the whole's.
  void makeTemporary() { temporary_ = true; }
  const TensorView& result() const { return result_; }
  void setResult(const TensorView& result) { result_ = result; }

  size_t argCount() const override { return args_.size(); }
  bool isNone(size_t arg) const override {
    return arg >= args_.size() || args_[arg] == kNone || (args_[arg] >= 0 && whole_.isNone(size_t(args_[arg])));
  }
  TensorView tensor(size_t arg) const override { return args_[arg] == kResult ? result_ : whole_.tensor(at(arg)); }
  std::vector<TensorView> tensors(size_t arg) const override { return whole_.tensors(at(arg)); }
  int64_t integer(size_t arg) const override { return whole_.integer(at(arg)); }
  Sizes integers(size_t arg) const override { return whole_.integers(at(arg)); }
  double number(size_t arg) const override { return args_[arg] == kNone ? 0 : whole_.number(at(arg)); }
  bool flag(size_t arg) const override { return whole_.flag(at(arg)); }
  std::string text(size_t arg) const override { return whole_.text(at(arg)); }
  std::optional<DType> dtype(size_t arg) const override { return whole_.dtype(at(arg)); }
  Result<TensorView> output(size_t k, const Sizes& sizes) override {
    if (!temporary_) return whole_.output(k, sizes);
    void* memory = scratch(size_t(elementCount(sizes)) * sizeof(float));
    if (!memory) return outOfMemory("decoder");
    result_ = {DType::f32, sizes, memory, {}, nullptr};
    return result_;
  }
  DType outputDType(size_t k) const override { return temporary_ ? DType::f32 : whole_.outputDType(k); }
  void* scratch(size_t bytes) override { return whole_.scratch(bytes); }
  ThreadPool& pool() const override { return whole_.pool(); }
  Activations activations() const override { return whole_.activations(); }

 private:
  size_t at(size_t arg) const { return size_t(args_[arg]); }
  CpuCall& whole_;
  std::vector<int> args_;
  bool temporary_ = false;
  TensorView result_;
};

Status runParts(CpuCall& call, std::string_view first_op, std::vector<int> first_args, std::string_view second_op,
                std::vector<int> second_args) {
  PartCall first(call, std::move(first_args));
  first.makeTemporary();
  ETWGPU_TRY(findCpuKernel(first_op)(first));
  PartCall second(call, std::move(second_args));
  second.setResult(first.result());
  return findCpuKernel(second_op)(second);
}

Status qkvCacheWrite(CpuCall& call) {
  constexpr int none = PartCall::kNone;
  return runParts(call, kFusedLinear,
                  {kQkvX, kQkvWeight, kQkvBias, none, kQkvHasNorm, kQkvNormWeight, kQkvNormEps, none, none},
                  kRopeCacheWrite,
                  {PartCall::kResult, kQkvTable, kQkvStart, kQkvKCache, kQkvVCache, kQkvHeads, kQkvKvHeads, kQkvQNorm,
                   kQkvKNorm, kQkvHeadEps});
}

Status attentionLinear(CpuCall& call) {
  constexpr int none = PartCall::kNone;
  return runParts(call, kCachedAttention,
                  {kAttentionQ, kAttentionKCache, kAttentionVCache, kAttentionStart, kAttentionScale, kAttentionWindow,
                   kAttentionPositions},
                  kFusedLinear,
                  {PartCall::kResult, kAttentionLinearWeight, kAttentionLinearBias, kAttentionLinearResidual, none,
                   none, none, none, none});
}

}  // namespace
}  // namespace cpu

void registerDecoderCpu(CpuRegistry& r) {
  r.add(kQkvCacheWrite, cpu::qkvCacheWrite);
  r.add(kAttentionLinear, cpu::attentionLinear);
}

}  // namespace etwgpu
