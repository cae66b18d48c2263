#include "runtime/operators/attention/cpu_attend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/operators/matmul/cpu_gemm.h"
#include "runtime/operators/normalization/cpu.h"
#include "runtime/operators/reduction/cpu.h"

namespace etwgpu::cpu {
namespace {

constexpr int64_t kKeys = 64;  // of a block
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
/// Up to so many rows the keys are read where they lie; more rows repay packing them into panels.
constexpr int64_t kDirectRows = 8;

// What loads of a type multiply by, given back by the query and the score, so that neither overflows.
template <class T>
constexpr float kLoad = 1.f;
template <>
constexpr float kLoad<uint16_t> = kHalfLoad;
template <class T>
constexpr float kQueryFactor = kLoad<T> == 1.f ? 1.f : 0x1p64f;
template <class T>
constexpr float kScoreFactor = kLoad<T> == 1.f ? 1.f : 0x1p48f;

ETWGPU_INLINE VF load(const float* p) { return hn::LoadU(DF(), p); }
ETWGPU_INLINE VF load(const uint16_t* p) { return loadHalves(p); }
float loadOne(const float* p) { return *p; }
float loadOne(const uint16_t* p) { return halfToFloat(*p) * kHalfLoad; }

/// scores[r][j] = q[r] · k[j] for R rows, q times kQueryFactor; a key is read once for all of them.
template <int R, class T>
ETWGPU_KERNEL void dotKeys(const float* q, const T* k, int64_t k_stride, int64_t n, int64_t D, float* scores) {
  for (int64_t j = 0; j < n; ++j, k += k_stride) {
    VF acc[R];
    ETWGPU_UNROLL
    for (auto& a : acc) a = splat(0.f);
    int64_t i = 0;
    for (; i + kLanes <= D; i += kLanes) {
      const VF kv = load(k + i);
      ETWGPU_UNROLL
      for (int r = 0; r < R; ++r) acc[r] = madd(kv, hn::LoadU(DF(), q + r * D + i), acc[r]);
    }
    ETWGPU_UNROLL
    for (int r = 0; r < R; ++r) {
      float s = hn::ReduceSum(DF(), acc[r]);
      for (int64_t t = i; t < D; ++t) s += loadOne(k + t) * q[r * D + t];
      scores[r * kKeys + j] = s * kScoreFactor<T>;
    }
  }
}

/// out[r] += p[r] · V for R rows.
template <int R, class T>
ETWGPU_KERNEL void addValues(const float* p, const T* v, int64_t v_stride, int64_t n, int64_t Dv, float* out) {
  int64_t c = 0;
  for (; c + 2 * kLanes <= Dv; c += 2 * kLanes) {
    VF acc[R][2];
    ETWGPU_UNROLL
    for (int r = 0; r < R; ++r) {
      acc[r][0] = hn::LoadU(DF(), out + r * Dv + c);
      acc[r][1] = hn::LoadU(DF(), out + r * Dv + c + kLanes);
    }
    const T* row = v + c;
    for (int64_t j = 0; j < n; ++j, row += v_stride) {
      const VF v0 = load(row), v1 = load(row + kLanes);
      ETWGPU_UNROLL
      for (int r = 0; r < R; ++r) {
        const VF x = splat(p[r * kKeys + j] * (1.f / kLoad<T>));
        acc[r][0] = madd(v0, x, acc[r][0]);
        acc[r][1] = madd(v1, x, acc[r][1]);
      }
    }
    ETWGPU_UNROLL
    for (int r = 0; r < R; ++r) {
      hn::StoreU(acc[r][0], DF(), out + r * Dv + c);
      hn::StoreU(acc[r][1], DF(), out + r * Dv + c + kLanes);
    }
  }
  for (; c < Dv; ++c) ETWGPU_UNROLL
  for (int r = 0; r < R; ++r)
    for (int64_t j = 0; j < n; ++j)
      out[r * Dv + c] += p[r * kKeys + j] * (1.f / kLoad<T>)*loadOne(v + j * v_stride + c);
}

ETWGPU_KERNEL void halvesToFloats(const uint16_t* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(load(from + i), splat(1.f / kHalfLoad)), DF(), to + i);
  for (; i < n; ++i) to[i] = halfToFloat(from[i]);
}

/// f<R>(first row) over all rows, four at a time.
template <class Fn4, class Fn3, class Fn2, class Fn1>
void byRows(int64_t rows, Fn4 four, Fn3 three, Fn2 two, Fn1 one) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) four(r);
  if (rows - r == 3) three(r);
  if (rows - r == 2) two(r);
  if (rows - r == 1) one(r);
}

template <class T>
class Tile {
 public:
  Tile(const AttentionHead<T>& head, std::span<const AttentionRow> rows)
      : h_(head),
        rows_(rows),
        R_(int64_t(rows.size())),
        q_(size_t(R_ * h_.D)),
        scores_(size_t(R_ * kKeys)),
        acc_(size_t(R_ * h_.Dv), 0.f),
        product_(direct() ? 0 : size_t(R_ * h_.Dv)),
        converted_(direct() || kIsFloat ? 0 : size_t(kKeys * std::max(h_.D, h_.Dv))),
        max_(rows.size(), kMinusInfinity),
        sum_(rows.size(), 0.f) {
    const float scale = h_.scale * (direct() ? kQueryFactor<T> : 1.f);
    for (int64_t r = 0; r < R_; ++r)
      scaleRow(rows[size_t(r)].q, scale, 0.f, nullptr, nullptr, q_.data() + r * h_.D, h_.D);
  }

  void run() {
    int64_t begin = INT64_MAX, end = 0;
    for (const AttentionRow& r : rows_) {
      if (r.begin >= r.end) continue;
      begin = std::min(begin, r.begin);
      end = std::max(end, r.end);
    }
    for (int64_t j = begin, n = 0; j < end; j += n) {
      n = std::min(kKeys, end - j);
      const int64_t row = h_.ring ? j % h_.ring : j;
      if (h_.ring) n = std::min(n, h_.ring - row);
      block(j, row, n);
    }
    for (int64_t r = 0; r < R_; ++r) {
      const float s = sum_[size_t(r)];
      scaleRow(acc_.data() + r * h_.Dv, s != 0 ? 1.f / s : 0.f, 0.f, nullptr, nullptr, rows_[size_t(r)].out, h_.Dv);
    }
  }

 private:
  static constexpr bool kIsFloat = std::is_same_v<T, float>;
  bool direct() const { return R_ <= kDirectRows; }

  /// n rows of D values as floats, one after another where they had to be converted.
  const float* floats(const T* from, int64_t& stride, int64_t n, int64_t D) {
    if constexpr (kIsFloat) {
      return from;
    } else {
      for (int64_t j = 0; j < n; ++j) halvesToFloats(from + j * stride, converted_.data() + j * D, D);
      stride = D;
      return converted_.data();
    }
  }

  /// Keys j … j + n − 1, which are in row … row + n − 1.
  void block(int64_t j, int64_t row, int64_t n) {
    const T *k = h_.k + row * h_.k_stride, *v = h_.v + row * h_.v_stride;
    float *s = scores_.data(), *acc = acc_.data();
    const float* q = q_.data();
    const int64_t D = h_.D, Dv = h_.Dv;
    int64_t ks = h_.k_stride, vs = h_.v_stride;
    if (direct()) {
      byRows(
          R_, [&](int64_t r) { dotKeys<4>(q + r * D, k, ks, n, D, s + r * kKeys); },
          [&](int64_t r) { dotKeys<3>(q + r * D, k, ks, n, D, s + r * kKeys); },
          [&](int64_t r) { dotKeys<2>(q + r * D, k, ks, n, D, s + r * kKeys); },
          [&](int64_t r) { dotKeys<1>(q + r * D, k, ks, n, D, s + r * kKeys); });
    } else {
      const float* keys = floats(k, ks, n, D);
      gemmColumns(q, D, StridedPanels(keys, 1, ks, n), s, kKeys, R_, D, 0, n);
    }
    for (int64_t r = 0; r < R_; ++r) weigh(r, j, n);
    if (direct()) {
      byRows(
          R_, [&](int64_t r) { addValues<4>(s + r * kKeys, v, vs, n, Dv, acc + r * Dv); },
          [&](int64_t r) { addValues<3>(s + r * kKeys, v, vs, n, Dv, acc + r * Dv); },
          [&](int64_t r) { addValues<2>(s + r * kKeys, v, vs, n, Dv, acc + r * Dv); },
          [&](int64_t r) { addValues<1>(s + r * kKeys, v, vs, n, Dv, acc + r * Dv); });
      return;
    }
    const float* values = floats(v, vs, n, Dv);
    gemmColumns(s, kKeys, StridedPanels(values, vs, 1, Dv), product_.data(), Dv, R_, n, 0, Dv);
    for (int64_t i = 0; i < R_ * Dv; ++i) acc[i] += product_[size_t(i)];
  }

  /// Scores of row r to exp(score − maximum); what was summed so far is brought to the new maximum.
  void weigh(int64_t r, int64_t j, int64_t n) {
    const AttentionRow& row = rows_[size_t(r)];
    float* s = scores_.data() + r * kKeys;
    if (row.bias)
      for (int64_t i = 0; i < n; ++i) s[i] += row.bias[(j + i) * row.mask_stride];
    if (row.visible)
      for (int64_t i = 0; i < n; ++i) s[i] = row.visible[(j + i) * row.mask_stride] ? s[i] : kMinusInfinity;
    for (int64_t i = 0; i < std::min(n, row.begin - j); ++i) s[i] = kMinusInfinity;
    for (int64_t i = std::max<int64_t>(0, row.end - j); i < n; ++i) s[i] = kMinusInfinity;
    const float top = maxOf(s, n), old = max_[size_t(r)];
    const float now = top != top ? top : std::max(old, top);
    if (now == kMinusInfinity) {
      std::fill(s, s + n, 0.f);
      return;
    }
    const float sum = expRow(s, n, now);
    if (now != old) {
      const float shrink = std::exp(old - now);  // 0 at first
      sum_[size_t(r)] *= shrink;
      float* acc = acc_.data() + r * h_.Dv;
      scaleRow(acc, shrink, 0.f, nullptr, nullptr, acc, h_.Dv);
    }
    sum_[size_t(r)] += sum;
    max_[size_t(r)] = now;
  }

  const AttentionHead<T>& h_;
  std::span<const AttentionRow> rows_;
  const int64_t R_;
  std::vector<float> q_, scores_, acc_, product_, converted_, max_, sum_;
};

}  // namespace

template <class T>
void attendTile(const AttentionHead<T>& head, std::span<const AttentionRow> rows) {
  if (!rows.empty()) Tile<T>(head, rows).run();
}
template void attendTile(const AttentionHead<float>&, std::span<const AttentionRow>);
template void attendTile(const AttentionHead<uint16_t>&, std::span<const AttentionRow>);

}  // namespace etwgpu::cpu
