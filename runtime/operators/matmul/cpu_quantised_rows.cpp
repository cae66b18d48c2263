// Activations made integers, and the exact (f32) products of quantised weights.
#include <algorithm>
#include <cmath>

#include "runtime/operators/common/cpu_common.h"
#include "runtime/operators/matmul/cpu_quantised.h"
#include "runtime/operators/matmul/cpu_quantised_simd.h"

namespace etwgpu::cpu {
namespace {

/// x ~ q · scale / 2^64, int8 with a scale per 32. NaN and infinity make their group NaN.
ETWGPU_KERNEL void quantise8(const float* x, int64_t K, int8_t* q, float* scales, float* sums) {
  const hn::FixedTag<int8_t, 4> d8;
  for (int64_t g = 0; g < K / 32; ++g) {
    const float* p = x + 32 * g;
    V4 m = hn::Zero(DF4()), zero = m;
    for (int i = 0; i < 32; i += 4) {
      const V4 v = hn::LoadU(DF4(), p + i);
      m = hn::Max(m, hn::Abs(v));
      zero = hn::Add(zero, hn::Mul(v, hn::Zero(DF4())));
    }
    const float a = hn::ReduceMax(DF4(), m), inverse = a > 0 ? 127.f / a : 0.f;
    auto total = hn::Zero(DI4());
    for (int i = 0; i < 32; i += 4) {
      const auto v = hn::NearestInt(hn::Mul(hn::LoadU(DF4(), p + i), hn::Set(DF4(), inverse)));
      total = hn::Add(total, v);
      hn::StoreU(hn::DemoteTo(d8, v), d8, q + 32 * g + i);
    }
    scales[g] = a * (kXBias / 127.f) + hn::ReduceSum(DF4(), zero);
    sums[g] = scales[g] * float(hn::ReduceSum(DI4(), total));
  }
}

// Bytes of 8 i16: 0 2 4 6 1 3 5 7 for int4 weights (even and odd nibbles apart), 0 2 1 3 | 4 6 5 7 for int8.
alignas(16) constexpr uint8_t kOrder4[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
alignas(16) constexpr uint8_t kOrder8[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};

/// The largest int16 that is 256 · high + low with both of them signed bytes.
constexpr float kLargest16 = 127 * 256 + 127;

/// The integers nearest to x · scale, which are below 2^21: the last bits of the sum with 1.5 · 2^23. A conversion of
/// floats of any size is six instructions in Wasm.
ETWGPU_INLINE hn::Vec<DI4> nearest(const float* x, V4 scale) {
  constexpr int32_t kBits = 0x4b400000;
  const auto shifted = madd(hn::LoadU(DF4(), x), scale, hn::BitCast(DF4(), hn::Set(DI4(), kBits)));
  return hn::Sub(hn::BitCast(DI4(), shifted), hn::Set(DI4(), kBits));
}

/// x ~ q · scale, int16 with one scale a row. A row with NaN or infinity gets NaN for its scale; one of numbers that
/// are nearly denormal is zero.
template <Int16Order kOrder>
ETWGPU_KERNEL void quantise16(const float* x, int64_t K, int16_t* q, float* scale, float* sums) {
  const hn::FixedTag<int16_t, 8> d16;
  const hn::FixedTag<int16_t, 4> dh;
  const hn::FixedTag<int8_t, 8> d8;
  const auto table = hn::Load(hn::FixedTag<uint8_t, 16>(), kOrder == Int16Order::for_int8 ? kOrder8 : kOrder4);
  auto m = hn::Zero(DI4());  // floats without sign are ordered as their bits are, NaN last
  for (int64_t i = 0; i < K; i += 4) m = hn::Max(m, hn::BitCast(DI4(), hn::Abs(hn::LoadU(DF4(), x + i))));
  const float a = hn::GetLane(hn::BitCast(DF4(), hn::MaxOfLanes(DI4(), m)));
  *scale = a / kLargest16 + (a - a);
  const V4 inverse = hn::Set(DF4(), a > 0x1p-100f ? kLargest16 / a : 0.f);
  auto* bytes = reinterpret_cast<int8_t*>(q);
  for (int64_t g = 0; g < K / 32; ++g, bytes += 64) {
    auto total = hn::Zero(DI4());
    for (int i = 0; i < 32; i += 8) {
      const auto lo = nearest(x + 32 * g + i, inverse), hi = nearest(x + 32 * g + i + 4, inverse);
      total = hn::Add(total, hn::Add(lo, hi));
      const auto v = hn::Combine(d16, hn::DemoteTo(dh, hi), hn::DemoteTo(dh, lo));
      if constexpr (kOrder == Int16Order::planes) {
        const auto high = hn::ShiftRight<8>(hn::Add(v, hn::Set(d16, 128)));
        hn::StoreU(hn::DemoteTo(d8, high), d8, bytes + i);
        hn::StoreU(hn::DemoteTo(d8, hn::Sub(v, hn::ShiftLeft<8>(high))), d8, bytes + 32 + i);
      } else {
        hn::StoreU(hn::BitCast(d16, hn::TableLookupBytes(v, table)), d16, q + 32 * g + i);
      }
    }
    sums[g] = float(hn::ReduceSum(DI4(), total));
  }
}

/// A block of 4 rows, k in [k0, k0 + depth), as f32 columns of `width` at out.
ETWGPU_KERNEL void dequantise4(const R4Weight& w, int64_t block, int64_t k0, int64_t depth, float* out, int width) {
  const uint16_t* c = static_cast<const uint16_t*>(w.constants) + block * w.blockConstants();
  const uint8_t* q = w.words + block * w.K * 2;
  const int step = w.symmetric ? 4 : 8;
  for (int64_t k = k0; k < k0 + depth; k += 8, out += 8 * width) {
    const uint16_t* pc = c + k / w.group * step;
    const V4 scale = halfToFloat4(pc);
    const V4 shift = w.symmetric ? hn::Zero(DF4()) : madd(scale, hn::Set(DF4(), 8.f), halfToFloat4(pc + 4));
    const auto v = flipNibbles(q + k * 2);
    const auto store = [&](V4 t, int i) { hn::StoreU(madd(t, scale, shift), DF4(), out + i * width); };
    store(signedNibble<0>(v), 0);
    store(signedNibble<1>(v), 4);
    store(signedNibble<2>(v), 1);
    store(signedNibble<3>(v), 5);
    store(signedNibble<4>(v), 2);
    store(signedNibble<5>(v), 6);
    store(signedNibble<6>(v), 3);
    store(signedNibble<7>(v), 7);
  }
}
ETWGPU_KERNEL void dequantise8(const R4Weight& w, int64_t block, int64_t k0, int64_t depth, float* out, int width) {
  const V4 scale = hn::LoadU(DF4(), static_cast<const float*>(w.constants) + 4 * block);
  const uint8_t* q = w.words + block * w.K * 4;
  for (int64_t k = k0; k < k0 + depth; k += 4, out += 4 * width) {
    const auto words = hn::BitCast(DI4(), hn::LoadU(hn::FixedTag<uint8_t, 16>(), q + k * 4));
    hn::StoreU(hn::Mul(signedByte<0>(words), scale), DF4(), out);
    hn::StoreU(hn::Mul(signedByte<1>(words), scale), DF4(), out + width);
    hn::StoreU(hn::Mul(signedByte<2>(words), scale), DF4(), out + 2 * width);
    hn::StoreU(hn::Mul(signedByte<3>(words), scale), DF4(), out + 3 * width);
  }
}

ETWGPU_KERNEL void gemvExact4(const R4Weight& w, const float* x, float* y, int64_t b0, int64_t b1) {
  const int64_t repeat = w.group / 32;
  const int step = w.symmetric ? 4 : 8;
  for (int64_t b = b0; b < b1; ++b, y += 4) {
    const uint8_t* p = w.words + b * w.K * 2;
    const uint16_t* c = static_cast<const uint16_t*>(w.constants) + b * w.blockConstants();
    V4 acc = hn::Zero(DF4());
    for (int64_t g = 0; g < w.K / 32; ++g, p += 64) {
      const float* px = x + 32 * g;
      V4 s = hn::Zero(DF4()), t = s, sum = s;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, px += 8) {
        const auto v = flipNibbles(p + 16 * i);
        const auto at = [&](int k) { return hn::BitCast(DF4(), splatWord(px + k)); };
        s = madd(signedNibble<0>(v), at(0), s);
        t = madd(signedNibble<1>(v), at(4), t);
        s = madd(signedNibble<2>(v), at(1), s);
        t = madd(signedNibble<3>(v), at(5), t);
        s = madd(signedNibble<4>(v), at(2), s);
        t = madd(signedNibble<5>(v), at(6), t);
        s = madd(signedNibble<6>(v), at(3), s);
        t = madd(signedNibble<7>(v), at(7), t);
        sum = hn::Add(sum, hn::Add(hn::LoadU(DF4(), px), hn::LoadU(DF4(), px + 4)));
      }
      const uint16_t* pc = c + g / repeat * step;
      const V4 scale = halfToFloat4(pc);
      acc = madd(hn::Add(s, t), scale, acc);
      if (!w.symmetric)
        acc = madd(madd(scale, hn::Set(DF4(), 8.f), halfToFloat4(pc + 4)), hn::Set(DF4(), hn::ReduceSum(DF4(), sum)),
                   acc);
    }
    hn::StoreU(acc, DF4(), y);
  }
}
ETWGPU_KERNEL void gemvExact8(const R4Weight& w, const float* x, float* y, int64_t b0, int64_t b1) {
  for (int64_t b = b0; b < b1; ++b, y += 4) {
    const uint8_t* p = w.words + b * w.K * 4;
    V4 s = hn::Zero(DF4()), t = s;
    for (int64_t k = 0; k < w.K; k += 4, p += 16) {
      const auto v = hn::BitCast(DI4(), hn::LoadU(hn::FixedTag<uint8_t, 16>(), p));
      const auto at = [&](int i) { return hn::BitCast(DF4(), splatWord(x + k + i)); };
      s = madd(signedByte<0>(v), at(0), s);
      t = madd(signedByte<1>(v), at(1), t);
      s = madd(signedByte<2>(v), at(2), s);
      t = madd(signedByte<3>(v), at(3), t);
    }
    hn::StoreU(hn::Mul(hn::Add(s, t), hn::LoadU(DF4(), static_cast<const float*>(w.constants) + 4 * b)), DF4(), y);
  }
}

}  // namespace

void R4Panels::pack(int64_t n0, int64_t k0, int64_t depth, float* panel) const {
  const int64_t stored = roundUp(w_.N, 8);
  for (int c = 0; c < kPanelWidth; c += 4) {
    if (n0 + c >= stored) {
      for (int64_t k = 0; k < depth; ++k) hn::StoreU(hn::Zero(DF4()), DF4(), panel + k * kPanelWidth + c);
    } else {
      (w_.bits == 8 ? dequantise8 : dequantise4)(w_, (n0 + c) / 4, k0, depth, panel + c, kPanelWidth);
    }
  }
}

void gemvExact(const R4Weight& w, const float* x, int64_t M, float* y, int64_t ldy, int64_t b0, int64_t b1) {
  const int64_t step = std::max<int64_t>(2, 131072 / (w.K * 4) / 2 * 2);
  for (int64_t b = b0; b < b1; b += step)
    for (int64_t m = 0; m < M; ++m)
      (w.bits == 8 ? gemvExact8 : gemvExact4)(w, x + m * w.K, y + m * ldy + 4 * b, b, std::min(b + step, b1));
}

size_t quantisedBytes(Activations mode, int64_t M, int64_t K) {
  const int64_t scales = mode == Activations::int8 ? M * (K / 32) : M;
  return size_t(roundUp(M * K * (mode == Activations::int8 ? 1 : 2), 64) + 4 * (scales + M * (K / 32)) + 64);
}

QuantisedRows placeQuantised(Activations mode, int bits, void* memory, int64_t M, int64_t K) {
  auto* p = static_cast<uint8_t*>(memory);
  QuantisedRows rows;
  rows.mode = mode;
  rows.order = bits == 8 ? Int16Order::for_int8 : hasFourWayDot() ? Int16Order::planes : Int16Order::for_int4;
  rows.values = p;
  rows.scales = reinterpret_cast<float*>(p + roundUp(M * K * (mode == Activations::int8 ? 1 : 2), 64));
  rows.sums = rows.scales + (mode == Activations::int8 ? M * (K / 32) : M);
  return rows;
}

void quantiseRow(const float* x, int64_t K, int64_t m, const QuantisedRows& rows) {
  const int64_t ng = K / 32;
  if (rows.mode == Activations::int8)
    return quantise8(x, K, static_cast<int8_t*>(rows.values) + m * K, rows.scales + m * ng, rows.sums + m * ng);
  const auto quantise = rows.order == Int16Order::planes     ? quantise16<Int16Order::planes>
                        : rows.order == Int16Order::for_int8 ? quantise16<Int16Order::for_int8>
                                                             : quantise16<Int16Order::for_int4>;
  quantise(x, K, static_cast<int16_t*>(rows.values) + m * K, rows.scales + m, rows.sums + m * ng);
}

}  // namespace etwgpu::cpu
