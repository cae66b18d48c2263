// f32 matrix multiplication over panels: the right-hand matrix is packed, a few columns and a few hundred k at a time,
// by a function of the caller, so that linear layers, quantised weights made f32, transposed matrices and the columns
// of a convolution all run the same inner loop.
#pragma once

#include "runtime/executor/cpu_kernel.h"
#include "runtime/operators/common/cpu_simd.h"

namespace etwgpu::cpu {

constexpr int kPanelWidth = 2 * kLanes;  // columns of a panel
constexpr int64_t kPanelDepth = 384;     // k of a panel: 12 or 24 KiB, stays in L1

/// The right-hand matrix B [K, N].
class PanelSource {
 public:
  virtual ~PanelSource() = default;
  /// panel[k][c] = B[k0 + k][n0 + c] for k < depth, c < kPanelWidth; columns at and beyond N are zeros (or anything
  /// finite).
  virtual void pack(int64_t n0, int64_t k0, int64_t depth, float* panel) const = 0;
  /// Multiples at which a depth block may begin.
  virtual int64_t depthStep() const { return 1; }
};

/// Columns of panels from strided memory: B[k][n] = data[k · k_stride + n · n_stride].
class StridedPanels final : public PanelSource {
 public:
  StridedPanels(const float* data, int64_t k_stride, int64_t n_stride, int64_t N)
      : data_(data), k_stride_(k_stride), n_stride_(n_stride), N_(N) {}
  void pack(int64_t n0, int64_t k0, int64_t depth, float* panel) const override;

 private:
  const float* data_;
  int64_t k_stride_, n_stride_, N_;
};

/// C[M, N] (row stride ldc) = A[M, K] (row stride lda) · B, for the columns [n0, n1); n0 is a multiple of kPanelWidth.
void gemmColumns(const float* A, int64_t lda, const PanelSource& B, float* C, int64_t ldc, int64_t M, int64_t K,
                 int64_t n0, int64_t n1);

/// y[m][n] = x[m] · w[n] for n in [n0, n1), few rows of x; w [N, K] row-major. y has row stride ldy.
void gemvRows(const float* x, int64_t M, const float* w, int64_t K, int64_t n0, int64_t n1, float* y, int64_t ldy);

/// C = A · B with all threads: over panels, and over rows where there are few panels.
void gemm(const float* A, int64_t lda, const PanelSource& B, float* C, int64_t ldc, int64_t M, int64_t N, int64_t K,
          ThreadPool& pool);

}  // namespace etwgpu::cpu
