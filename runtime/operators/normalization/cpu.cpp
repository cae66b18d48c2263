// Normalisation over rows (rms_norm, layer_norm), groups of channels and channels (batch norm of inference).
#include <cmath>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/cpu_common.h"
#include "runtime/operators/normalization/cpu.h"

namespace etwgpu {
namespace cpu {

// Sums of squares of values near 1e20 would overflow f32: PyTorch's do too, so rows are summed as they are.
ETWGPU_KERNEL float sumOfSquares(const float* p, int64_t n) {
  VF a = splat(0.f), b = splat(0.f);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    const VF x = hn::LoadU(DF(), p + i), y = hn::LoadU(DF(), p + i + kLanes);
    a = madd(x, x, a);
    b = madd(y, y, b);
  }
  float s = hn::ReduceSum(DF(), hn::Add(a, b));
  for (; i < n; ++i) s += p[i] * p[i];
  return s;
}

ETWGPU_KERNEL float sumOf(const float* p, int64_t n) {
  VF a = splat(0.f), b = splat(0.f);
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = hn::Add(a, hn::LoadU(DF(), p + i));
    b = hn::Add(b, hn::LoadU(DF(), p + i + kLanes));
  }
  float s = hn::ReduceSum(DF(), hn::Add(a, b));
  for (; i < n; ++i) s += p[i];
  return s;
}

namespace {
ETWGPU_KERNEL void addTo(float* to, const float* from, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    hn::StoreU(hn::Add(hn::LoadU(DF(), to + i), hn::LoadU(DF(), from + i)), DF(), to + i);
  for (; i < n; ++i) to[i] += from[i];
}

/// The sum of (x − mean)².
ETWGPU_KERNEL float sumOfDeviations(const float* p, int64_t n, float mean) {
  VF a = splat(0.f);
  const VF m = splat(mean);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VF d = hn::Sub(hn::LoadU(DF(), p + i), m);
    a = madd(d, d, a);
  }
  float s = hn::ReduceSum(DF(), a);
  for (; i < n; ++i) s += (p[i] - mean) * (p[i] - mean);
  return s;
}
}  // namespace

ETWGPU_KERNEL void scaleRow(const float* x, float scale, float shift, const float* weight, const float* bias,
                            float* out, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    VF v = madd(hn::LoadU(DF(), x + i), splat(scale), splat(shift));
    if (weight) v = hn::Mul(v, hn::LoadU(DF(), weight + i));
    if (bias) v = hn::Add(v, hn::LoadU(DF(), bias + i));
    hn::StoreU(v, DF(), out + i);
  }
  for (; i < n; ++i) out[i] = (x[i] * scale + shift) * (weight ? weight[i] : 1.f) + (bias ? bias[i] : 0.f);
}

void rmsNormRow(const float* x, const float* weight, float eps, float* out, int64_t n) {
  scaleRow(x, 1.f / std::sqrt(sumOfSquares(x, n) / float(n) + eps), 0.f, weight, nullptr, out, n);
}

Moments momentsOf(const float* p, int64_t n) {
  const float mean = sumOf(p, n) / float(n);
  return {mean, sumOfDeviations(p, n, mean) / float(n)};
}

namespace {

/// The last dimensions of x must be those of normalized_shape; weight and bias, where given, have as many elements.
Status checkRow(const char* op, const TensorView& x, const Sizes& shape, const TensorView& weight,
                const TensorView& bias, int64_t& n) {
  ETWGPU_TRY(requireF32(op, x, "input"));
  if (shape.size() > x.rank() || !std::equal(shape.begin(), shape.end(), x.sizes.end() - int64_t(shape.size())))
    return invalid(std::string(op) + ": input " + sizesToString(x.sizes) + " doesn't end in " + sizesToString(shape));
  n = elementCount(shape);
  for (const TensorView* t : {&weight, &bias}) {
    if (!t->data) continue;
    ETWGPU_TRY(requireF32(op, *t, "weight or bias"));
    if (t->count() != n) return invalid(std::string(op) + ": weight or bias of " + sizesToString(t->sizes));
  }
  return {};
}

/// aten.rms_norm and etwgpu.norm_residual.
Status rmsNorm(CpuCall& call) {
  const TensorView x = call.tensor(0), weight = call.tensor(2);
  const TensorView residual = call.isNone(kNormResidualAdded) ? TensorView() : call.tensor(kNormResidualAdded);
  int64_t n = 0;
  ETWGPU_TRY(checkRow("aten.rms_norm", x, call.integers(1), weight, {}, n));
  if (residual.data) ETWGPU_TRY(requireF32("etwgpu.norm_residual", residual, "the residual"));
  if (residual.data && residual.sizes != x.sizes)
    return invalid("etwgpu.norm_residual: a residual of other sizes than the input");
  const float eps = call.isNone(3) ? 1.1920929e-07f : float(call.number(3));
  ETWGPU_ASSIGN(const TensorView out, call.output(0, x.sizes));
  if (n == 0) return {};
  call.pool().parallelFor(x.count() / n, rowGrain(n), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      float* to = out.as<float>() + r * n;
      rmsNormRow(x.as<float>() + r * n, weight.as<float>(), eps, to, n);
      if (residual.data) addTo(to, residual.as<float>() + r * n, n);
    }
  });
  return {};
}

/// kStatistics: outputs 1 and 2 are mean and 1 / deviation, with ones for the normalised dimensions.
template <bool kStatistics>
Status layerNorm(CpuCall& call) {
  const TensorView x = call.tensor(0), weight = call.tensor(2), bias = call.tensor(3);
  const Sizes shape = call.integers(1);
  int64_t n = 0;
  ETWGPU_TRY(checkRow("aten.layer_norm", x, shape, weight, bias, n));
  const float eps = float(call.number(4));
  ETWGPU_ASSIGN(const TensorView out, call.output(0, x.sizes));
  TensorView mean, rstd;
  if (kStatistics) {
    Sizes sizes = x.sizes;
    std::fill(sizes.end() - int64_t(shape.size()), sizes.end(), 1);
    ETWGPU_ASSIGN(mean, call.output(1, sizes));
    ETWGPU_ASSIGN(rstd, call.output(2, sizes));
  }
  if (n == 0) return {};
  call.pool().parallelFor(x.count() / n, rowGrain(n), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      const float* p = x.as<float>() + r * n;
      const Moments m = momentsOf(p, n);
      const float inverse = 1.f / std::sqrt(m.variance + eps);
      // x · s − mean · s cancels where the mean is large; the row is shifted first
      float* o = out.as<float>() + r * n;
      scaleRow(p, 1.f, -m.mean, nullptr, nullptr, o, n);
      scaleRow(o, inverse, 0.f, weight.as<float>(), bias.as<float>(), o, n);
      if (kStatistics) mean.as<float>()[r] = m.mean, rstd.as<float>()[r] = inverse;
    }
  });
  return {};
}

Status groupNorm(CpuCall& call) {
  const TensorView x = call.tensor(0), weight = call.tensor(2), bias = call.tensor(3);
  const int64_t groups = call.integer(1);
  ETWGPU_TRY(requireF32("aten.group_norm", x, "input"));
  if (x.rank() < 2 || groups < 1 || x.sizes[1] % groups != 0)
    return invalid("aten.group_norm: channels don't divide into groups");
  const int64_t channels = x.sizes[1], per = channels / groups, plane = elementCount(std::span(x.sizes).subspan(2));
  for (const TensorView* t : {&weight, &bias})
    if (t->data && t->count() != channels) return invalid("aten.group_norm: weight or bias of another size");
  const float eps = call.isNone(4) ? 1e-5f : float(call.number(4));
  ETWGPU_ASSIGN(const TensorView out, call.output(0, x.sizes));
  const int64_t n = per * plane;
  if (n == 0) return {};
  call.pool().parallelFor(x.sizes[0] * groups, rowGrain(n), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      const float* p = x.as<float>() + r * n;
      float* o = out.as<float>() + r * n;
      const Moments m = momentsOf(p, n);
      const float inverse = 1.f / std::sqrt(m.variance + eps);
      scaleRow(p, 1.f, -m.mean, nullptr, nullptr, o, n);
      for (int64_t c = 0; c < per; ++c) {
        const int64_t channel = r % groups * per + c;
        scaleRow(o + c * plane, inverse * (weight.data ? weight.as<float>()[channel] : 1.f),
                 bias.data ? bias.as<float>()[channel] : 0.f, nullptr, nullptr, o + c * plane, plane);
      }
    }
  });
  return {};
}

/// out, and two empty tensors for what training would save.
Status batchNorm(CpuCall& call) {
  const char* op = "aten._native_batch_norm_legit_no_training";
  const TensorView x = call.tensor(0), weight = call.tensor(1), bias = call.tensor(2), mean = call.tensor(3),
                   variance = call.tensor(4);
  ETWGPU_TRY(requireF32(op, x, "input"));
  if (x.rank() < 2) return invalid(std::string(op) + ": the input has no channels");
  const int64_t channels = x.sizes[1], plane = elementCount(std::span(x.sizes).subspan(2));
  for (const TensorView* t : {&weight, &bias, &mean, &variance})
    if (t->data && t->count() != channels) return invalid(std::string(op) + ": parameters of another size");
  if (!mean.data || !variance.data) return invalid(std::string(op) + ": no running statistics");
  const float eps = float(call.number(6));
  ETWGPU_ASSIGN(const TensorView out, call.output(0, x.sizes));
  for (size_t k : {size_t(1), size_t(2)}) ETWGPU_TRY(call.output(k, {0}));
  call.pool().parallelFor(x.sizes[0] * channels, rowGrain(plane), [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      const int64_t c = r % channels;
      const float scale = (weight.data ? weight.as<float>()[c] : 1.f) / std::sqrt(variance.as<float>()[c] + eps);
      const float shift = (bias.data ? bias.as<float>()[c] : 0.f) - mean.as<float>()[c] * scale;
      scaleRow(x.as<float>() + r * plane, scale, shift, nullptr, nullptr, out.as<float>() + r * plane, plane);
    }
  });
  return {};
}

}  // namespace
}  // namespace cpu

void registerNormalizationCpu(CpuRegistry& r) {
  r.add("aten.rms_norm.default", cpu::rmsNorm);
  r.add(kNormResidual, cpu::rmsNorm);
  r.add("aten.layer_norm.default", cpu::layerNorm<false>);
  r.add("aten.native_layer_norm.default", cpu::layerNorm<true>);
  r.add("aten.group_norm.default", cpu::groupNorm);
  r.add("aten._native_batch_norm_legit_no_training.default", cpu::batchNorm);
}

}  // namespace etwgpu
