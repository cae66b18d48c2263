#include "runtime/operators/sampling/cpu.h"

#include "runtime/operators/common/cpu_common.h"
#include "runtime/operators/common/cpu_simd.h"

namespace etwgpu {
namespace cpu {

ETWGPU_KERNEL int64_t argmaxRow(const float* p, int64_t n) {
  constexpr int64_t kChunk = 1024;  // the maximum by vectors, then its place within one chunk
  int64_t best = 0;
  float top = p[0];
  for (int64_t c = 0; c < n; c += kChunk) {
    const int64_t e = c + kChunk < n ? c + kChunk : n;
    VF m = splat(p[c]);
    auto nan = hn::IsNaN(m);
    int64_t i = c;
    for (; i + kLanes <= e; i += kLanes) {
      const VF v = hn::LoadU(DF(), p + i);
      nan = hn::Or(nan, hn::IsNaN(v));
      m = hn::Max(m, v);
    }
    float chunk_top = hn::ReduceMax(DF(), m);
    bool has_nan = !hn::AllFalse(DF(), nan);
    for (; i < e; ++i) {
      has_nan |= p[i] != p[i];
      chunk_top = p[i] > chunk_top ? p[i] : chunk_top;
    }
    if (has_nan) {
      for (i = c; p[i] == p[i]; ++i) {
      }
      return i;
    }
    if (chunk_top > top || c == 0) {
      top = chunk_top;
      for (best = c; p[best] != top; ++best) {
      }
    }
  }
  return best;
}

namespace {

/// etwgpu.argmax(x): index of the largest element of each row; output i32 or i64, sizes of x without the last
/// dimension.
Status argmax(CpuCall& call) {
  const TensorView x = call.tensor(0);
  ETWGPU_TRY(requireF32("etwgpu.argmax", x, "x"));
  if (x.rank() == 0 || x.sizes.back() == 0) return invalid("etwgpu.argmax: x has no elements in its last dimension");
  const int64_t n = x.sizes.back();
  ETWGPU_ASSIGN(const TensorView out, call.output(0, Sizes(x.sizes.begin(), x.sizes.end() - 1)));
  for (int64_t r = 0; r < out.count(); ++r) {
    const int64_t at = argmaxRow(x.as<const float>() + r * n, n);
    if (out.dtype == DType::i64) {
      out.as<int64_t>()[r] = at;
    } else {
      out.as<int32_t>()[r] = int32_t(at);
    }
  }
  return {};
}

}  // namespace
}  // namespace cpu

void registerSamplingCpu(CpuRegistry& r) { r.add("etwgpu.argmax", cpu::argmax); }

}  // namespace etwgpu
