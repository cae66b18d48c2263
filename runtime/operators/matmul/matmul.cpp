// Choice and sizes of matrix product kernels: pure functions, no device.
#include "runtime/operators/matmul/matmul.h"

namespace etwgpu::matmul {
namespace {

#define KERNEL(name, tier, weights, shape) {#name, Tier::tier, Weights::weights, Shape::shape},
constexpr Kernel kKernels[] = {
#include "runtime/operators/matmul/variants.inc"
};
#undef KERNEL

}  // namespace

std::span<const Kernel> kernels() { return kKernels; }

const Kernel* choose(Weights weights, Shape shape, Tier tier) {
  for (const Kernel& k : kKernels)
    if (k.weights == weights && k.shape == shape && k.tier <= tier) return &k;
  return nullptr;
}

GemvSize gemvSize(const Problem& p) {
  // SwiftShader, SmolLM2: 2.6 CPU-seconds a token instead of 13.7; llvmpipe: 0.15 instead of 0.57.
  if (p.narrow) return {64, 4};
  const int64_t units = p.k / (p.weights == Weights::int4 ? 8 : 4);
  // Long sums need more invocations in flight than small matrices have rows.
  const int team = units >= 1024 ? 128 : units >= 512 ? 64 : 32;
  return {p.n > 4096 && team == 32 ? 256 : 128, p.glu && team == 128 ? 64 : team};
}

GemmSize gemmSize(bool many_rows) { return many_rows ? GemmSize{64, 128, 8} : GemmSize{32, 64, 4}; }

}  // namespace etwgpu::matmul
