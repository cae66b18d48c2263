#include "runtime/operators/matmul/cpu_gemm.h"

#include <cstring>

#include "runtime/operators/common/cpu_common.h"

namespace etwgpu::cpu {
namespace {

/// MT rows of A times one panel: 2 · MT sums in registers. `first`: C is overwritten, else added to.
template <int MT>
ETWGPU_INLINE void tile(const float* A, int64_t lda, const float* panel, int64_t depth, float* C, int64_t ldc,
                        int columns, bool first) {
  VF acc[MT][2];
  ETWGPU_UNROLL
  for (auto& row : acc) row[0] = row[1] = splat(0.f);
  for (int64_t k = 0; k < depth; ++k, panel += kPanelWidth) {
    const VF w0 = hn::Load(DF(), panel), w1 = hn::Load(DF(), panel + kLanes);
    ETWGPU_UNROLL
    for (int m = 0; m < MT; ++m) {
      const VF x = splat(A[m * lda + k]);
      acc[m][0] = madd(w0, x, acc[m][0]);
      acc[m][1] = madd(w1, x, acc[m][1]);
    }
  }
  ETWGPU_UNROLL
  for (int m = 0; m < MT; ++m) {
    float* c = C + m * ldc;
    if (columns == kPanelWidth) {
      ETWGPU_UNROLL
      for (int n = 0; n < 2; ++n) {
        const VF old = first ? splat(0.f) : hn::LoadU(DF(), c + n * kLanes);
        hn::StoreU(hn::Add(old, acc[m][n]), DF(), c + n * kLanes);
      }
      continue;
    }
    alignas(32) float part[kPanelWidth];
    hn::Store(acc[m][0], DF(), part);
    hn::Store(acc[m][1], DF(), part + kLanes);
    for (int n = 0; n < columns; ++n) c[n] = first ? part[n] : c[n] + part[n];
  }
}

ETWGPU_KERNEL void multiplyPanel(const float* A, int64_t lda, const float* panel, int64_t depth, float* C, int64_t ldc,
                                 int64_t M, int columns, bool first) {
  int64_t m = 0;
  for (; m + 4 <= M; m += 4) tile<4>(A + m * lda, lda, panel, depth, C + m * ldc, ldc, columns, first);
  switch (M - m) {
    case 3:
      return tile<3>(A + m * lda, lda, panel, depth, C + m * ldc, ldc, columns, first);
    case 2:
      return tile<2>(A + m * lda, lda, panel, depth, C + m * ldc, ldc, columns, first);
    case 1:
      return tile<1>(A + m * lda, lda, panel, depth, C + m * ldc, ldc, columns, first);
    default:
      return;
  }
}

}  // namespace

ETWGPU_KERNEL void StridedPanels::pack(int64_t n0, int64_t k0, int64_t depth, float* panel) const {
  const int columns = int(std::min<int64_t>(kPanelWidth, N_ - n0));
  const float* p = data_ + n0 * n_stride_ + k0 * k_stride_;
  if (n_stride_ == 1) {
    for (int64_t k = 0; k < depth; ++k) {
      float* o = panel + k * kPanelWidth;
      if (columns == kPanelWidth) {
        std::memcpy(o, p + k * k_stride_, sizeof(float) * kPanelWidth);
      } else {
        for (int c = 0; c < kPanelWidth; ++c) o[c] = c < columns ? p[k * k_stride_ + c] : 0.f;
      }
    }
    return;
  }
  for (int c = 0; c < kPanelWidth; ++c) {
    if (c >= columns) {
      for (int64_t k = 0; k < depth; ++k) panel[k * kPanelWidth + c] = 0.f;
    } else {
      const float* column = p + c * n_stride_;
      for (int64_t k = 0; k < depth; ++k) panel[k * kPanelWidth + c] = column[k * k_stride_];
    }
  }
}

void gemmColumns(const float* A, int64_t lda, const PanelSource& B, float* C, int64_t ldc, int64_t M, int64_t K,
                 int64_t n0, int64_t n1) {
  alignas(64) float panel[kPanelDepth * kPanelWidth];
  const int64_t step = kPanelDepth / B.depthStep() * B.depthStep();
  // Many rows of A: a piece that stays in L2 goes through all panels, though each is packed again for it.
  const int64_t rows = std::max<int64_t>(64, 262144 / std::max<int64_t>(K, 1) / 4 * 4);
  if (K == 0) {
    for (int64_t m = 0; m < M; ++m) std::fill(C + m * ldc + n0, C + m * ldc + n1, 0.f);
    return;
  }
  for (int64_t m = 0; m < M; m += rows) {
    for (int64_t n = n0; n < n1; n += kPanelWidth) {
      const int columns = int(std::min<int64_t>(kPanelWidth, n1 - n));
      for (int64_t k = 0; k < K; k += step) {
        const int64_t depth = std::min(step, K - k);
        B.pack(n, k, depth, panel);
        multiplyPanel(A + m * lda + k, lda, panel, depth, C + m * ldc + n, ldc, std::min(rows, M - m), columns, k == 0);
      }
    }
  }
}

ETWGPU_KERNEL void gemvRows(const float* x, int64_t M, const float* w, int64_t K, int64_t n0, int64_t n1, float* y,
                            int64_t ldy) {
  for (int64_t n = n0; n < n1; ++n) {
    const float* p = w + n * K;
    for (int64_t m = 0; m < M; ++m) {
      const float* q = x + m * K;
      VF a = splat(0.f), b = a, c = a, d = a;
      int64_t k = 0;
      for (; k + 4 * kLanes <= K; k += 4 * kLanes) {
        a = madd(hn::LoadU(DF(), p + k), hn::LoadU(DF(), q + k), a);
        b = madd(hn::LoadU(DF(), p + k + kLanes), hn::LoadU(DF(), q + k + kLanes), b);
        c = madd(hn::LoadU(DF(), p + k + 2 * kLanes), hn::LoadU(DF(), q + k + 2 * kLanes), c);
        d = madd(hn::LoadU(DF(), p + k + 3 * kLanes), hn::LoadU(DF(), q + k + 3 * kLanes), d);
      }
      float s = hn::ReduceSum(DF(), hn::Add(hn::Add(a, b), hn::Add(c, d)));
      for (; k < K; ++k) s += p[k] * q[k];
      y[m * ldy + n] = s;
    }
  }
}

void gemm(const float* A, int64_t lda, const PanelSource& B, float* C, int64_t ldc, int64_t M, int64_t N, int64_t K,
          ThreadPool& pool) {
  const int64_t panels = ceilDiv(N, kPanelWidth), work = std::max<int64_t>(1, M * K * kPanelWidth);
  if (panels >= 2 * pool.threads() || M < 8 * pool.threads()) {
    const int64_t grain = std::max<int64_t>(1, 100000 / work) * kPanelWidth;
    pool.parallelFor(N, grain, [&](int64_t b, int64_t e) { gemmColumns(A, lda, B, C, ldc, M, K, b, e); });
    return;
  }
  const int64_t grain = roundUp(std::max<int64_t>(4, 100000 / std::max<int64_t>(1, N * K)), 4);
  pool.parallelFor(M, grain,
                   [&](int64_t b, int64_t e) { gemmColumns(A + b * lda, lda, B, C + b * ldc, ldc, e - b, K, 0, N); });
}

}  // namespace etwgpu::cpu
