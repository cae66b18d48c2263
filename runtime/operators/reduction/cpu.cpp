// Sums, means, extremes over any set of dimensions; softmax over one.
#include "runtime/operators/reduction/cpu.h"

#include <cmath>
#include <limits>

#include "runtime/operators/common/cpu_common.h"
#include "runtime/operators/common/cpu_math.h"
#include "runtime/operators/normalization/cpu.h"

namespace etwgpu {
namespace cpu {

ETWGPU_KERNEL float maxOf(const float* p, int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  VF m = splat(kLowest);
  auto nan = hn::IsNaN(m);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VF v = hn::LoadU(DF(), p + i);
    nan = hn::Or(nan, hn::IsNaN(v));
    m = hn::Max(m, v);
  }
  float top = hn::ReduceMax(DF(), m);
  bool has_nan = !hn::AllFalse(DF(), nan);
  for (; i < n; ++i) {
    has_nan |= p[i] != p[i];
    top = p[i] > top ? p[i] : top;
  }
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : top;
}

ETWGPU_KERNEL float expRow(float* p, int64_t n, float max) {
  const BoundedExp exp;
  VF sum = splat(0.f);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VF e = exp(hn::Sub(hn::LoadU(DF(), p + i), splat(max)));
    hn::StoreU(e, DF(), p + i);
    sum = hn::Add(sum, e);
  }
  float s = hn::ReduceSum(DF(), sum);
  if (i < n) {
    const size_t left = size_t(n - i);
    const VF e = exp(hn::Sub(loadFirst(p + i, left), splat(max)));
    hn::StoreN(e, DF(), p + i, left);
    for (; i < n; ++i) s += p[i];
  }
  return s;
}

void softmaxRow(const float* x, float* out, int64_t n, bool log) {
  if (out != x) std::copy(x, x + n, out);
  const float max = maxOf(out, n);
  if (!log) return scaleRow(out, 1.f / expRow(out, n, max), 0.f, nullptr, nullptr, out, n);
  std::vector<float> e(out, out + n);
  const float shift = std::log(expRow(e.data(), n, max));
  for (int64_t i = 0; i < n; ++i) out[i] = (out[i] - max) - shift;
}

namespace {

/// Softmax along a dimension that is not the last, a column at a time.
void softmaxColumns(const float* x, float* out, int64_t n, int64_t inner, int64_t c0, int64_t c1, bool log) {
  std::vector<float> row(static_cast<size_t>(n));
  for (int64_t c = c0; c < c1; ++c) {
    for (int64_t i = 0; i < n; ++i) row[size_t(i)] = x[i * inner + c];
    softmaxRow(row.data(), row.data(), n, log);
    for (int64_t i = 0; i < n; ++i) out[i * inner + c] = row[size_t(i)];
  }
}

template <bool kLog>
Status softmax(CpuCall& call) {
  const TensorView x = call.tensor(0);
  ETWGPU_TRY(requireF32("aten.softmax", x, "input"));
  const int64_t dim = wrapDim(call.integer(1), x.rank());
  if (dim < 0) return invalid("aten.softmax: no such dimension");
  ETWGPU_ASSIGN(const TensorView out, call.output(0, x.sizes));
  ETWGPU_TRY(requireF32("aten.softmax", out, "output"));
  const Around a = around(x.sizes, dim);
  if (x.count() == 0) return {};
  const float* p = x.as<float>();
  float* o = out.as<float>();
  if (a.inner == 1) {
    call.pool().parallelFor(a.outer, rowGrain(4 * a.n), [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r) softmaxRow(p + r * a.n, o + r * a.n, a.n, kLog);
    });
    return {};
  }
  call.pool().parallelFor(a.outer * a.inner, rowGrain(4 * a.n), [&](int64_t b, int64_t e) {
    while (b < e) {
      const int64_t outer = b / a.inner, c = b % a.inner, count = std::min(e - b, a.inner - c);
      softmaxColumns(p + outer * a.n * a.inner, o + outer * a.n * a.inner, a.n, a.inner, c, c + count, kLog);
      b += count;
    }
  });
  return {};
}

// ---- reductions over sets of dimensions --------------------------------------------------------------------------

/// The kept dimensions give the positions of the result; the reduced ones, merged where adjacent, a loop per result.
struct Reduction {
  Sizes out_sizes;
  Sizes kept, kept_strides, reduced, reduced_strides;
  int64_t count = 1;  // elements per result
};

Status planReduction(const char* op, const TensorView& x, const Sizes& dims, bool keepdim, Reduction& r) {
  std::vector<bool> reduce(x.rank(), dims.empty());
  for (int64_t d : dims) {
    const int64_t dim = wrapDim(d, x.rank());
    if (dim < 0) return invalid(std::string(op) + ": no such dimension");
    if (x.rank() == 0) continue;
    if (reduce[size_t(dim)]) return invalid(std::string(op) + ": a dimension twice");
    reduce[size_t(dim)] = true;
  }
  const Sizes strides = contiguousStrides(x.sizes);
  for (size_t d = 0; d < x.rank(); ++d) {
    if (!reduce[d]) {
      r.out_sizes.push_back(x.sizes[d]);
      r.kept.push_back(x.sizes[d]);
      r.kept_strides.push_back(strides[d]);
      continue;
    }
    if (keepdim) r.out_sizes.push_back(1);
    r.count *= x.sizes[d];
    if (!r.reduced.empty() && d > 0 && reduce[d - 1]) {
      r.reduced.back() *= x.sizes[d];
      r.reduced_strides.back() = strides[d];
    } else {
      r.reduced.push_back(x.sizes[d]);
      r.reduced_strides.push_back(strides[d]);
    }
  }
  if (r.reduced.empty()) r.reduced.push_back(1), r.reduced_strides.push_back(1);
  return {};
}

/// Calls row(pointer, n, stride) for every innermost run of the elements of result `at`.
template <class T, class Row>
void forRuns(const Reduction& r, const T* x, int64_t at, Row row) {
  for (size_t d = r.kept.size(); d-- > 0; at /= r.kept[d]) x += at % r.kept[d] * r.kept_strides[d];
  const int64_t n = r.reduced.back();
  const int64_t runs = n ? r.count / n : 0;
  for (int64_t k = 0; k < runs; ++k) {
    const T* p = x;
    int64_t rest = k;
    for (size_t d = r.reduced.size() - 1; d-- > 0; rest /= r.reduced[d])
      p += rest % r.reduced[d] * r.reduced_strides[d];
    row(p, n, r.reduced_strides.back());
  }
}

enum class Kind { sum, mean, max, min };

/// Runs are summed in f32 by vectors, 4,096 at a time, and those sums in double.
double sumRun(const float* p, int64_t n, int64_t stride) {
  double s = 0;
  if (stride == 1) {
    for (int64_t i = 0; i < n; i += 4096) s += double(sumOf(p + i, std::min<int64_t>(4096, n - i)));
  } else {
    for (int64_t i = 0; i < n; ++i) s += double(p[i * stride]);
  }
  return s;
}
int64_t sumRun(const int64_t* p, int64_t n, int64_t stride) {
  uint64_t s = 0;
  for (int64_t i = 0; i < n; ++i) s += uint64_t(p[i * stride]);
  return int64_t(s);
}
/// NaN wins.
template <bool kMax, class T>
T extreme(T best, const T* p, int64_t n, int64_t stride) {
  for (int64_t i = 0; i < n && best == best; ++i) {
    const T v = p[i * stride];
    if ((kMax ? v > best : v < best) || v != v) best = v;
  }
  return best;
}

template <class T, Kind kKind>
void reduceRange(const Reduction& r, const T* x, T* out, int64_t b, int64_t e) {
  for (int64_t at = b; at < e; ++at) {
    if constexpr (kKind == Kind::sum || kKind == Kind::mean) {
      decltype(sumRun(x, 0, 0)) s = 0;
      forRuns(r, x, at, [&](const T* p, int64_t n, int64_t stride) { s += sumRun(p, n, stride); });
      if constexpr (kKind == Kind::sum) {
        out[at] = T(s);
      } else {
        out[at] = T(double(s) / double(r.count));
      }
    } else {
      bool first = true;
      T best = 0;
      forRuns(r, x, at, [&](const T* p, int64_t n, int64_t stride) {
        if (first) best = *p, first = false;
        best = extreme<kKind == Kind::max>(best, p, n, stride);
      });
      out[at] = best;
    }
  }
}

template <Kind kKind>
Status reduce(CpuCall& call) {
  const char* op = kKind == Kind::sum    ? "aten.sum"
                   : kKind == Kind::mean ? "aten.mean"
                   : kKind == Kind::max  ? "aten.amax"
                                         : "aten.amin";
  const TensorView x = call.tensor(0);
  Reduction r;
  ETWGPU_TRY(planReduction(op, x, call.isNone(1) ? Sizes() : call.integers(1), !call.isNone(2) && call.flag(2), r));
  if ((kKind == Kind::max || kKind == Kind::min) && r.count == 0 && elementCount(r.kept) > 0)
    return invalid(std::string(op) + ": of no elements");
  ETWGPU_ASSIGN(const TensorView out, call.output(0, r.out_sizes));
  if (x.dtype == DType::f32 && out.dtype == DType::f32) {
    call.pool().parallelFor(out.count(), rowGrain(r.count), [&](int64_t b, int64_t e) {
      reduceRange<float, kKind>(r, x.as<float>(), out.as<float>(), b, e);
    });
    return {};
  }
  if (x.dtype == DType::i64 && out.dtype == DType::i64) {
    reduceRange<int64_t, kKind>(r, x.as<int64_t>(), out.as<int64_t>(), 0, out.count());
    return {};
  }
  return invalid(std::string(op) + ": no kernel for " + std::string(dtypeName(x.dtype)) + " to " +
                 std::string(dtypeName(out.dtype)));
}

template <class T>
int64_t argmaxRun(const T* p, int64_t n, int64_t stride) {
  int64_t best = 0;
  for (int64_t i = 1; i < n && p[best * stride] == p[best * stride]; ++i)
    if (p[i * stride] > p[best * stride] || p[i * stride] != p[i * stride]) best = i;
  return best;
}

Status argmax(CpuCall& call) {
  const TensorView x = call.tensor(0);
  if (x.dtype != DType::f32 && x.dtype != DType::i64)
    return invalid("aten.argmax: no kernel for " + std::string(dtypeName(x.dtype)));
  Around a{1, x.count(), 1};
  const bool keepdim = !call.isNone(2) && call.flag(2);
  Sizes sizes(keepdim ? x.rank() : 0, 1);
  if (!call.isNone(1)) {
    const int64_t dim = wrapDim(call.integer(1), x.rank());
    if (dim < 0) return invalid("aten.argmax: no such dimension");
    if (x.rank() > 0) {
      a = around(x.sizes, dim);
      sizes = x.sizes;
      sizes[size_t(dim)] = 1;
      if (!keepdim) sizes.erase(sizes.begin() + dim);
    }
  }
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  if (out.dtype != DType::i64 && out.dtype != DType::i32) return invalid("aten.argmax: the result must be integers");
  if (a.n == 0 && out.count() > 0) return invalid("aten.argmax: of no elements");
  for (int64_t i = 0; i < out.count(); ++i) {
    const int64_t from = i / a.inner * a.n * a.inner + i % a.inner;
    const int64_t at = x.dtype == DType::f32 ? argmaxRun(x.as<float>() + from, a.n, a.inner)
                                             : argmaxRun(x.as<int64_t>() + from, a.n, a.inner);
    if (out.dtype == DType::i64) {
      out.as<int64_t>()[i] = at;
    } else {
      out.as<int32_t>()[i] = int32_t(at);
    }
  }
  return {};
}

}  // namespace
}  // namespace cpu

void registerReductionCpu(CpuRegistry& r) {
  using namespace cpu;
  r.add("aten.sum.dim_IntList", cpu::reduce<Kind::sum>);
  r.add("aten.mean.dim", cpu::reduce<Kind::mean>);
  r.add("aten.amax.default", cpu::reduce<Kind::max>);
  r.add("aten.amin.default", cpu::reduce<Kind::min>);
  r.add("aten.argmax.default", cpu::argmax);
  r.add("aten.softmax.int", cpu::softmax<false>);
  r.add("aten._softmax.default", cpu::softmax<false>);
  r.add("aten._log_softmax.default", cpu::softmax<true>);
}

}  // namespace etwgpu
