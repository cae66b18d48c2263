#include "runtime/operators/matmul/cpu_linear.h"

#include "runtime/operators/common/cpu_common.h"
#include "runtime/operators/matmul/cpu_quantised.h"
#include "runtime/operators/normalization/cpu.h"

namespace etwgpu::cpu {
namespace {

/// out = act(z + bias) [· (up + up_bias)] + residual for n columns of one row; null pointers are left out, out may be
/// z.
struct Epilogue {
  const float *bias = nullptr, *up_bias = nullptr, *residual = nullptr;
  Act act = Act::none;
};
ETWGPU_KERNEL void finishRow(const float* z, const float* up, const Epilogue& e, float* out, int64_t n) {
  const DF d;
  const BoundedExp exp;
  for (int64_t i = 0; i < n; i += kLanes) {
    const size_t left = size_t(std::min<int64_t>(kLanes, n - i));
    const bool whole = left == size_t(kLanes);
    const auto load = [&](const float* p) { return whole ? hn::LoadU(d, p + i) : hn::LoadN(d, p + i, left); };
    VF v = load(z);
    if (e.bias) v = hn::Add(v, load(e.bias));
    v = e.act == Act::silu ? exp.silu(v) : actV(e.act, v);
    if (up) v = hn::Mul(v, e.up_bias ? hn::Add(load(up), load(e.up_bias)) : load(up));
    if (e.residual) v = hn::Add(v, load(e.residual));
    if (whole) {
      hn::StoreU(v, d, out + i);
    } else {
      hn::StoreN(v, d, out + i, left);
    }
  }
}

/// z[i] += Σ_c t[c] · b[c][i], rows of b ldb apart.
ETWGPU_KERNEL void addProducts(const float* t, int64_t columns, const float* b, int64_t ldb, float* z, int64_t n) {
  const DF d;
  for (int64_t i = 0; i < n; i += kLanes) {
    const size_t left = size_t(std::min<int64_t>(kLanes, n - i));
    const bool whole = left == size_t(kLanes);
    VF sum = whole ? hn::LoadU(d, z + i) : hn::LoadN(d, z + i, left);
    for (int64_t c = 0; c < columns; ++c) {
      const float* row = b + c * ldb + i;
      sum = madd(splat(t[c]), whole ? hn::LoadU(d, row) : hn::LoadN(d, row, left), sum);
    }
    if (whole) {
      hn::StoreU(sum, d, z + i);
    } else {
      hn::StoreN(sum, d, z + i, left);
    }
  }
}

/// What adapters add to x · Wᵀ (LowRank in runtime/graph/graph.h).
class LowRankSum {
 public:
  explicit LowRankSum(const TensorView& weight) : v_(weight.low_rank), N_(weight.sizes[0]), K_(weight.sizes[1]) {}
  explicit operator bool() const { return v_; }

  /// t = A · x for all rows, each column times its adapter's scale.
  Status prepare(CpuCall& call, const float* x, int64_t M) {
    if (!v_) return {};
    width_ = int64_t(v_->first_rows.size()) * v_->columns();
    t_ = static_cast<float*>(call.scratch(size_t(M * width_) * sizeof(float)));
    if (!t_) return outOfMemory("linear");
    if (M < 4) {
      call.pool().parallelFor(width_, roundUp(std::max<int64_t>(1, 50000 / (M * K_)), 4),
                              [&](int64_t b, int64_t e) { gemvRows(x, M, v_->a, K_, b, e, t_, width_); });
    } else {
      gemm(x, K_, StridedPanels(v_->a, 1, K_, width_), t_, width_, M, width_, K_, call.pool());
    }
    for (int64_t i = 0; i < M * width_; ++i) t_[i] *= v_->scales[size_t(i / v_->rank) % v_->scales.size()];
    return {};
  }

  /// z: the sums of row m of x with the rows [n0, n1) of W.
  void add(float* z, int64_t m, int64_t n0, int64_t n1) const {
    const std::vector<int64_t>& first = v_->first_rows;
    for (size_t p = 0; p < first.size(); ++p) {
      const int64_t begin = std::max(n0, first[p]), end = std::min(n1, p + 1 < first.size() ? first[p + 1] : N_);
      if (begin >= end) continue;
      addProducts(t_ + m * width_ + int64_t(p) * v_->columns(), v_->columns(), v_->b + begin, N_, z + (begin - n0),
                  end - begin);
    }
  }

 private:
  const LowRankView* v_;
  int64_t N_, K_, width_ = 0;
  float* t_ = nullptr;
};

/// Computes columns [c0, c1) of x · Wᵀ, whatever the weight; c0 is a multiple of 4.
class Columns {
 public:
  Columns(const LinearArgs& args, int64_t M, Activations requested)
      : weight_(args.weight), M_(M), N_(args.weight.sizes[0]), K_(args.weight.sizes[1]) {
    const Quantization& q = args.weight.quantization;
    if (!q.bits) return;
    r4_ = {args.weight.as<uint8_t>(), args.weight.quant_constants, N_, K_, q.bits, q.group, q.symmetric};
    mode_ = resolveActivations(requested, q.bits);
  }

  /// Normalises and quantises the rows of x into temporaries of the call, as far as that is needed.
  Status prepare(CpuCall& call, const LinearArgs& args) {
    x_ = args.x.as<const float>();
    const bool integer = r4_.words && mode_ != Activations::exact;
    float* normed = nullptr;
    if (args.has_norm) {
      normed = static_cast<float*>(call.scratch(size_t(M_ * K_) * sizeof(float)));
      if (!normed) return outOfMemory("linear");
    }
    if (integer) {
      void* memory = call.scratch(quantisedBytes(mode_, M_, K_));
      if (!memory) return outOfMemory("linear");
      rows_ = placeQuantised(mode_, r4_.bits, memory, M_, K_);
    }
    if (!normed && !integer) return {};
    call.pool().parallelFor(M_, rowGrain(2 * K_), [&](int64_t b, int64_t e) {
      for (int64_t m = b; m < e; ++m) {
        const float* row = x_ + m * K_;
        if (normed) {
          rmsNormRow(row, args.norm_weight.as<const float>(), args.norm_eps, normed + m * K_, K_);
          row = normed + m * K_;
        }
        if (integer) quantiseRow(row, K_, m, rows_);
      }
    });
    if (normed) x_ = normed;
    return {};
  }

  /// As they are multiplied where the weight is not quantised.
  const float* rows() const { return x_; }

  /// z has row stride ldz and room for whole pairs of blocks (8 columns) where the weight is quantised.
  void compute(float* z, int64_t ldz, int64_t c0, int64_t c1) const {
    if (!r4_.words) {
      if (M_ < 4) return gemvRows(x_, M_, weight_.as<const float>(), K_, c0, c1, z, ldz);
      const StridedPanels panels(weight_.as<const float>(), 1, K_, N_);
      return gemmColumns(x_, K_, panels, z, ldz, M_, K_, c0, c1);
    }
    const int64_t b0 = c0 / 4, b1 = ceilDiv(c1, 4);
    if (mode_ != Activations::exact) return multiplyQuantised(r4_, rows_, M_, z, ldz, b0, b1);
    if (M_ < 4) return gemvExact(r4_, x_, M_, z, ldz, b0, b1);
    const R4Panels panels(r4_);
    gemmColumns(x_, K_, panels, z, ldz, M_, K_, c0, c1);
  }

 private:
  TensorView weight_;
  int64_t M_, N_, K_;
  const float* x_ = nullptr;
  R4Weight r4_;
  Activations mode_ = Activations::exact;
  QuantisedRows rows_;
};

Status check(const LinearArgs& a) {
  ETWGPU_TRY(requireF32("linear", a.x, "input"));
  if (a.weight.rank() != 2 || a.weight.dtype != DType::f32 || a.x.rank() == 0 || a.x.sizes.back() != a.weight.sizes[1])
    return invalid("linear: input " + sizesToString(a.x.sizes) + " and weight " + sizesToString(a.weight.sizes) +
                   " don't fit");
  if (a.glu && a.weight.sizes[0] % 2 != 0) return invalid("linear: a gated layer needs an even number of rows");
  if (a.bias.data && a.bias.count() != a.weight.sizes[0]) return invalid("linear: bias of another size");
  if (a.norm_weight.data && a.norm_weight.count() != a.weight.sizes[1])
    return invalid("linear: norm weight of another size");
  return {};
}

}  // namespace

Status runLinear(CpuCall& call, const LinearArgs& args) {
  ETWGPU_TRY(check(args));
  const int64_t N = args.weight.sizes[0], K = args.weight.sizes[1], F = args.glu ? N / 2 : N;
  Sizes sizes = args.x.sizes;
  sizes.back() = F;
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  if (args.residual.data && (args.residual.count() != out.count() || args.residual.dtype != DType::f32))
    return invalid("linear: residual of another size");
  const int64_t M = K ? args.x.count() / K : out.count() / std::max<int64_t>(F, 1);
  if (out.count() == 0) return {};

  Columns columns(args, M, call.activations());
  ETWGPU_TRY(columns.prepare(call, args));
  LowRankSum adapters(args.weight);
  ETWGPU_TRY(adapters.prepare(call, columns.rows(), M));
  float* const y = out.as<float>();
  float* z = y;
  int64_t ldz = F;
  if (args.glu || (args.weight.quantization.bits && N % 8 != 0)) {
    ldz = roundUp(N, 8);
    z = static_cast<float*>(call.scratch(size_t(M * ldz) * sizeof(float)));
    if (!z) return outOfMemory("linear");
  }
  const float *bias = args.bias.as<const float>(), *residual = args.residual.as<const float>();
  const auto finish = [&](int64_t b, int64_t e) {
    if (z == y && !bias && !residual && args.activation == Act::none && !adapters) return;
    for (int64_t m = 0; m < M; ++m) {
      if (adapters) {
        adapters.add(z + m * ldz + b, m, b, e);
        if (args.glu) adapters.add(z + m * ldz + F + b, m, F + b, F + e);
      }
      const Epilogue epilogue{bias ? bias + b : nullptr, args.glu && bias ? bias + F + b : nullptr,
                              residual ? residual + m * F + b : nullptr, args.activation};
      finishRow(z + m * ldz + b, args.glu ? z + m * ldz + F + b : nullptr, epilogue, y + m * F + b, e - b);
    }
  };
  // About 0.1 million products a task; whole panels and whole pairs of blocks.
  const int64_t grain = roundUp(std::max<int64_t>(1, 100000 / std::max<int64_t>(1, M * K * (args.glu ? 2 : 1))), 16);
  if (args.glu && F % 8 != 0) {
    call.pool().parallelFor(N, grain, [&](int64_t b, int64_t e) { columns.compute(z, ldz, b, e); });
    finish(0, F);
    return {};
  }
  const int64_t step = M < 4 ? F : 128;  // of many rows so few columns that their sums are still in cache
  call.pool().parallelFor(F, grain, [&](int64_t b, int64_t e) {
    for (; b < e; b += step) {
      const int64_t end = std::min(b + step, e);
      columns.compute(z, ldz, b, end);
      if (args.glu) columns.compute(z, ldz, F + b, F + end);
      finish(b, end);
    }
  });
  return {};
}

}  // namespace etwgpu::cpu
