// Choice and sizes of matrix product kernels: pure functions, no device.
#include "runtime/operators/matmul/matmul.h"

#include <algorithm>

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

namespace {

constexpr int64_t kMaxIterations = 16;  // unrolled

/// s, t, blocks, ahead, paired. Measured on an H200 with the shapes of a model of 1 billion parameters; see
/// docs/architecture.md for what decides: enough workgroups for all processors, enough loads in flight in each.
GemvShape tableShape(const GemvProblem& p) {
  const bool half = p.half;
  const auto shape = [](int s, int t, int blocks, int ahead, bool paired = false) {
    GemvShape g;
    g.s = s, g.t = t, g.blocks = blocks, g.ahead = ahead, g.paired = paired;
    return g;
  };
  if (p.weights == Weights::int8) return half ? shape(1, 8, 1, 4) : shape(1, 8, 2, 1);
  if (p.pairs == RowPairs::rotary) return shape(4, 2, 2, 2, true);
  if (p.pairs == RowPairs::gate) return shape(1, 16, 1, 2);
  if (p.n > 32768) return half ? shape(1, 8, 1, 4) : shape(1, 8, 2, 1);
  if (p.k > 4096) return half ? shape(4, 2, 1, 4) : shape(4, 4, 1, 2);
  if (p.n > 8192) return shape(1, 16, 1, 2);
  return half ? shape(2, 4, 1, 4) : shape(2, 4, 1, 2);
}

int64_t ceilTo(int64_t n, int64_t d) { return (n + d - 1) / d; }

}  // namespace

int64_t gemvWorkgroupBytes(const GemvProblem& p, const GemvShape& g) {
  const int64_t unit = p.weights == Weights::int4 ? (p.half ? 16 : 32) : (p.half ? 8 : 16);
  // staged x and its sums, a partial sum of squares per subgroup, sums of the teams (per subgroup of 4 lanes at worst)
  return g.chunkUnits() * (unit + (p.affine ? 4 : 0)) + g.invocations() + int64_t(g.invocations()) * g.blocks * 4;
}

GemvShape gemvShape(const GemvProblem& p) {
  constexpr int64_t kWorkgroups = 128;
  GemvShape g = tableShape(p);
  g.lanes = p.lanes;
  if (p.workgroup_rows) {
    g.s = g.blocks = 1;
    g.paired = false;
    for (g.t = int(p.workgroup_rows / 4); g.t > 2 && g.invocations() > std::min<int64_t>(p.max_invocations, 512);
         g.t /= 2)
      g.blocks *= 2;
  }
  const int least = p.pairs != RowPairs::none && !g.paired ? 2 : 1;
  const int64_t units = p.k / (p.weights == Weights::int4 ? 8 : 4), steps = ceilTo(units, g.lanes);
  // A team without work, or with a much shorter share, would wait for the others.
  while (g.s > 1 && ceilTo(steps, g.s) * g.s * 10 > steps * 11) g.s /= 2;
  while (!p.workgroup_rows && g.t > least &&
         (g.invocations() > p.max_invocations || ceilTo(p.n, g.rows()) < kWorkgroups))
    g.t /= 2;
  while (g.s > 1 && g.invocations() > p.max_invocations) g.s /= 2;
  const int64_t share = ceilTo(steps, g.s);
  g.chunks = 0;
  do {
    ++g.chunks;
    g.iterations = int(ceilTo(share, g.chunks));
  } while (g.iterations > 1 && (g.iterations > kMaxIterations || gemvWorkgroupBytes(p, g) > p.max_workgroup_bytes));
  g.chunks = int(ceilTo(share, g.iterations));
  g.ahead = std::min(g.ahead, g.iterations);
  return g;
}

GemmSize gemmSize(bool many_rows) { return many_rows ? GemmSize{64, 128, 8} : GemmSize{32, 64, 4}; }

}  // namespace etwgpu::matmul
