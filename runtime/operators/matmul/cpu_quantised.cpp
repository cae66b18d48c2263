// Integer products. Per block of 4 weight rows × 32 k there are four inner steps:
//   a16    nibbles as i16 × i16 activations (plain SIMD128; exact in practice)
//   planes the same activations as high and low bytes, u8 × i8 by the four-way dot: half the instructions of a16
//   a8i16  u8 × i8, 16 pairs summed in i16 (15 · 127 · 16 = 30,480 fits), widened every 32
//   a8i32  u8 × i8 by the four-way dot (Arm sdot, VNNI)
#include "runtime/operators/matmul/cpu_quantised.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/operators/matmul/cpu_quantised_simd.h"

namespace etwgpu::cpu {
namespace {

struct Rows8 {
  const int8_t* q;
  const float *s, *sum;
};
struct Rows16 {
  const int16_t* q;
  const float *s, *sum;

  const int8_t* planes() const { return reinterpret_cast<const int8_t*>(q); }
};

/// Sums of int16 products, taken with the bits of half constants, as outputs.
ETWGPU_INLINE V4 output16(V4 sum, float scale) {
  return hn::Mul(hn::Mul(sum, hn::Set(DF4(), kHalfBias)), hn::Set(DF4(), scale));
}

// ---- one row of activations ----------------------------------------------------------------------------------------

/// The half constants of consecutive blocks of rows, 32 k after 32 k.
template <bool kAffine>
class Constants {
 public:
  Constants(const R4Weight& w, int64_t block)
      : p_(static_cast<const uint16_t*>(w.constants) + block * w.blockConstants()),
        repeat_(w.group / 32),
        left_(repeat_) {}

  /// sum + dots of integers as the next 32 k have them: x · q · scale + (sum of x) · minimum.
  ETWGPU_INLINE V4 add(V4 dots, float x_sum, V4 sum) {
    const V4 scale = halfBits4(p_, mask_);
    const V4 minimum = kAffine ? halfBits4(p_ + 4, mask_) : hn::Mul(scale, hn::Set(DF4(), -8.f));
    if (--left_ == 0) left_ = repeat_, p_ += kAffine ? 8 : 4;
    return madd(minimum, hn::Set(DF4(), x_sum), madd(dots, scale, sum));
  }

 private:
  const uint16_t* p_;
  const int repeat_;
  int left_;
  const hn::Vec<DI4> mask_ = kept(DI4(), kHalfMask);
};

template <bool kAffine, bool kAcc16>
ETWGPU_KERNEL void gemvA8(const R4Weight& w, Rows8 x, float* y, int64_t b0, int64_t b1) {
  const int64_t ng = w.K / 32;
  const uint8_t* p = w.words + b0 * w.K * 2;
  Constants<kAffine> constants(w, b0);
  const VU8 mask = kept(DU8(), 15);
  for (int64_t b = b0; b < b1; ++b, y += 4) {
    V4 acc = hn::Zero(DF4());
    for (int64_t g = 0; g < ng; ++g, p += 64) {
      VI16 s16 = hn::Zero(DI16());
      VI32 s32 = hn::Zero(DI32());
      ETWGPU_KEEP_LOOP
      for (int i = 0; i < 4; i += kBlocks) {
        const XPair xv = loadX8(x.q + 32 * g + 8 * i);
        const Nibbles n = unpack(p + 16 * i, mask);
        if constexpr (kAcc16) {
          s16 = hn::Add(s16, hn::Add(dot16(n.lo, xv.lo), dot16(n.hi, xv.hi)));
        } else {
          s32 = dot32(dot32(s32, n.lo, xv.lo), n.hi, xv.hi);
        }
      }
      if constexpr (kAcc16) s32 = hn::WidenMulPairwiseAdd(DI32(), s16, hn::Set(DI16(), 1));
      acc = constants.add(hn::Mul(hn::ConvertTo(DF4(), fold(s32)), hn::Set(DF4(), x.s[g])), x.sum[g], acc);
    }
    hn::StoreU(hn::Mul(acc, hn::Set(DF4(), kOutBias)), DF4(), y);
  }
}

template <bool kAffine>
ETWGPU_KERNEL void gemvA16(const R4Weight& w, Rows16 x, float* y, int64_t b0, int64_t b1) {
  const int64_t ng = w.K / 32;
  const uint8_t* p = w.words + b0 * w.K * 2;
  Constants<kAffine> constants(w, b0);
  const DI16 d;
  const VI16 mask = kept(d, 15);
  for (int64_t b = b0; b < b1; ++b, y += 4) {
    V4 acc = hn::Zero(DF4());
    for (int64_t g = 0; g < ng; ++g, p += 64) {
      VI32 s = hn::Zero(DI32());
      ETWGPU_KEEP_LOOP
      for (int i = 0; i < 4; i += kBlocks) {
        const int16_t* px = x.q + 32 * g + 8 * i;  // its words: (0,2) (4,6) (1,3) (5,7)
        const auto v = hn::BitCast(DU16(), hn::LoadU(DU8(), p + 16 * i));
        s = dot16x16(s, hn::And(hn::BitCast(d, v), mask), loadX16(px, 4));
        s = dot16x16(s, hn::And(hn::BitCast(d, hn::ShiftRight<4>(v)), mask), loadX16(px + 2, 4));
        s = dot16x16(s, hn::And(hn::BitCast(d, hn::ShiftRight<8>(v)), mask), loadX16(px + 4, 4));
        s = dot16x16(s, hn::BitCast(d, hn::ShiftRight<12>(v)), loadX16(px + 6, 4));
      }
      acc = constants.add(hn::ConvertTo(DF4(), fold(s)), x.sum[g], acc);
    }
    hn::StoreU(output16(acc, *x.s), DF4(), y);
  }
}

template <bool kAffine>
ETWGPU_KERNEL void gemvPlanes(const R4Weight& w, Rows16 x, float* y, int64_t b0, int64_t b1) {
  const int64_t ng = w.K / 32;
  const uint8_t* p = w.words + b0 * w.K * 2;
  Constants<kAffine> constants(w, b0);
  const VU8 mask = kept(DU8(), 15);
  for (int64_t b = b0; b < b1; ++b, y += 4) {
    V4 acc = hn::Zero(DF4());
    const int8_t* px = x.planes();
    for (int64_t g = 0; g < ng; ++g, p += 64, px += 64) {
      VI32 high = hn::Zero(DI32()), high_too = high, low = high, low_too = high;  // chains of dots wait for themselves
      ETWGPU_KEEP_LOOP
      for (int i = 0; i < 4; i += kBlocks) {
        const Nibbles n = unpack(p + 16 * i, mask);
        const XPair h = loadX8(px + 8 * i), l = loadX8(px + 32 + 8 * i);
        high = dot32(high, n.lo, h.lo);
        high_too = dot32(high_too, n.hi, h.hi);
        low = dot32(low, n.lo, l.lo);
        low_too = dot32(low_too, n.hi, l.hi);
      }
      const VI32 s = hn::Add(hn::ShiftLeft<8>(hn::Add(high, high_too)), hn::Add(low, low_too));
      acc = constants.add(hn::ConvertTo(DF4(), fold(s)), x.sum[g], acc);
    }
    hn::StoreU(output16(acc, *x.s), DF4(), y);
  }
}

/// int8 weights × int16 activations, MT rows of them, permuted per 4 as 0 2 1 3. Unrolled by hand: neither clang for
/// Wasm nor V8 does it, and the loop's own cost is then a third of the time.
template <int MT>
ETWGPU_KERNEL void multiplyW8(const R4Weight& w, const int16_t* x, const float* xs, float* y, int64_t ldy, int64_t b0,
                              int64_t b1) {
  const hn::FixedTag<int8_t, 16> d8;
  const hn::FixedTag<int16_t, 8> d16;
  const float* scales = static_cast<const float*>(w.constants);
  for (int64_t b = b0; b < b1; ++b) {
    V4 acc[MT];
    ETWGPU_UNROLL
    for (auto& a : acc) a = hn::Zero(DF4());
    const auto* p = reinterpret_cast<const int8_t*>(w.words) + b * w.K * 4;
    for (int64_t k = 0; k < w.K; k += 32, p += 128) {
      hn::Vec<DI4> s[MT], t[MT];
      ETWGPU_UNROLL
      for (int m = 0; m < MT; ++m) s[m] = t[m] = hn::Zero(DI4());
      ETWGPU_UNROLL
      for (int j = 0; j < 8; ++j) {
        const auto v = hn::BitCast(d16, hn::LoadU(d8, p + 16 * j));  // lanes (k0, k1) (k2, k3) of each row
        const auto even = hn::ShiftRight<8>(hn::ShiftLeft<8>(v)), odd = hn::ShiftRight<8>(v);
        ETWGPU_UNROLL
        for (int m = 0; m < MT; ++m) {
          const int16_t* px = x + m * w.K + k + 4 * j;
          s[m] = hn::Add(s[m], hn::WidenMulPairwiseAdd(DI4(), even, hn::BitCast(d16, splatWord(px))));
          t[m] = hn::Add(t[m], hn::WidenMulPairwiseAdd(DI4(), odd, hn::BitCast(d16, splatWord(px + 2))));
        }
      }
      ETWGPU_UNROLL
      for (int m = 0; m < MT; ++m) acc[m] = hn::Add(acc[m], hn::ConvertTo(DF4(), hn::Add(s[m], t[m])));
    }
    ETWGPU_UNROLL
    for (int m = 0; m < MT; ++m) {
      const V4 scale = hn::Mul(hn::LoadU(DF4(), scales + 4 * b), hn::Set(DF4(), xs[m]));
      hn::StoreU(hn::Mul(acc[m], scale), DF4(), y + m * ldy + 4 * b);
    }
  }
}

// ---- many rows: weight blocks outside, rows of activations inside, the block stays in L1
// -------------------------------

/// Constants of RB blocks as f32 [K / 32][RB][4 scales, 4 minima], once per block.
template <int RB, bool kAffine>
ETWGPU_KERNEL void expandConstants(const uint16_t* c, int64_t next, int64_t ng, int64_t repeat, float* out) {
  const auto mask = kept(DI4(), kHalfMask);
  const auto minus_eight = kept(DF4(), -8.f);
  for (int64_t left = repeat; ng > 0; --ng) {
    const uint16_t* p = c;
    for (int r = 0; r < RB; ++r, p += next, out += 8) {
      const V4 scale = halfBits4(p, mask);
      hn::StoreU(scale, DF4(), out);
      hn::StoreU(kAffine ? halfBits4(p + 4, mask) : hn::Mul(scale, minus_eight), DF4(), out + 4);
    }
    if (--left == 0) left = repeat, c += kAffine ? 8 : 4;
  }
}
template <int RB>
void expandConstants(const R4Weight& w, int64_t block, float* out) {
  const int64_t next = w.blockConstants();
  const uint16_t* c = static_cast<const uint16_t*>(w.constants) + block * next;
  (w.symmetric ? expandConstants<RB, false> : expandConstants<RB, true>)(c, next, w.K / 32, w.group / 32, out);
}

template <int MT, int RB, bool kAcc16>
ETWGPU_INLINE void tileA8(const uint8_t* q, const float* constants, Rows8 x, float* y, int64_t K, int64_t ldy) {
  const int64_t ng = K / 32, stride = K * 2;
  V4 acc[MT][RB];
  ETWGPU_UNROLL
  for (auto& a : acc) ETWGPU_UNROLL
  for (auto& v : a) v = hn::Zero(DF4());
  for (int64_t g = 0; g < ng; ++g) {
    VI16 s16[MT][RB];
    VI32 s32[MT][RB];
    ETWGPU_UNROLL
    for (int m = 0; m < MT; ++m) ETWGPU_UNROLL
    for (int r = 0; r < RB; ++r) s16[m][r] = hn::Zero(DI16()), s32[m][r] = hn::Zero(DI32());
    ETWGPU_UNROLL
    for (int i = 0; i < 4; i += kBlocks) {
      Nibbles n[RB];
      ETWGPU_UNROLL
      for (int r = 0; r < RB; ++r) n[r] = unpack(q + r * stride + 64 * g + 16 * i, hn::Set(DU8(), 15));
      ETWGPU_UNROLL
      for (int m = 0; m < MT; ++m) {
        const XPair xv = loadX8(x.q + m * K + 32 * g + 8 * i);
        ETWGPU_UNROLL
        for (int r = 0; r < RB; ++r) {
          if constexpr (kAcc16) {
            s16[m][r] = hn::Add(hn::Add(s16[m][r], dot16(n[r].lo, xv.lo)), dot16(n[r].hi, xv.hi));
          } else {
            s32[m][r] = dot32(dot32(s32[m][r], n[r].lo, xv.lo), n[r].hi, xv.hi);
          }
        }
      }
    }
    ETWGPU_UNROLL
    for (int r = 0; r < RB; ++r) {
      const V4 scale = hn::LoadU(DF4(), constants + (g * RB + r) * 8),
               minimum = hn::LoadU(DF4(), constants + (g * RB + r) * 8 + 4);
      ETWGPU_UNROLL
      for (int m = 0; m < MT; ++m) {
        if constexpr (kAcc16) s32[m][r] = hn::WidenMulPairwiseAdd(DI32(), s16[m][r], hn::Set(DI16(), 1));
        const V4 f = hn::Mul(hn::ConvertTo(DF4(), fold(s32[m][r])), hn::Set(DF4(), x.s[m * ng + g]));
        acc[m][r] = madd(minimum, hn::Set(DF4(), x.sum[m * ng + g]), madd(f, scale, acc[m][r]));
      }
    }
  }
  ETWGPU_UNROLL
  for (int m = 0; m < MT; ++m) ETWGPU_UNROLL
  for (int r = 0; r < RB; ++r) hn::StoreU(hn::Mul(acc[m][r], hn::Set(DF4(), kOutBias)), DF4(), y + m * ldy + 4 * r);
}

/// Rows m0..m1 of x against RB blocks.
template <int MT, int RB, bool kAcc16>
ETWGPU_KERNEL void panelA8(const uint8_t* q, const float* constants, Rows8 x, float* y, int64_t K, int64_t ldy,
                           int64_t M) {
  const int64_t ng = K / 32;
  const auto at = [&](int64_t m) { return Rows8{x.q + m * K, x.s + m * ng, x.sum + m * ng}; };
  int64_t m = 0;
  for (; m + MT <= M; m += MT) tileA8<MT, RB, kAcc16>(q, constants, at(m), y + m * ldy, K, ldy);
  if constexpr (MT > 4) {
    for (; m + 4 <= M; m += 4) tileA8<4, RB, kAcc16>(q, constants, at(m), y + m * ldy, K, ldy);
  }
  for (; m + 2 <= M; m += 2) tileA8<2, RB, kAcc16>(q, constants, at(m), y + m * ldy, K, ldy);
  for (; m < M; ++m) tileA8<1, RB, kAcc16>(q, constants, at(m), y + m * ldy, K, ldy);
}

template <int MT, int RB, bool kAcc16>
void gemmA8(const R4Weight& w, Rows8 x, int64_t M, float* y, int64_t ldy, int64_t b0, int64_t b1, float* scratch) {
  for (int64_t b = b0; b < b1; b += RB) {
    expandConstants<RB>(w, b, scratch);
    panelA8<MT, RB, kAcc16>(w.words + b * w.K * 2, scratch, x, y + 4 * b, w.K, ldy, M);
  }
}

/// Rows of an a8i16 tile: measured, 8 in Wasm, 4 with AVX2 (81 against 70 GMAC/s).
constexpr int kTileRows = HWY_ARCH_WASM ? 8 : 4;
constexpr int kTileRows16 = 4, kRB16 = 2;  // of an a16 tile: rows, blocks

/// Nibbles of a panel's blocks as i16, in the order in which the tile reads them.
ETWGPU_KERNEL void unpackPanel(const uint8_t* words, int64_t K, int16_t* panel) {
  const hn::FixedTag<uint16_t, 8> d;
  const auto mask = kept(d, 15);
  auto* out = reinterpret_cast<uint16_t*>(panel);
  for (const uint8_t* end = words + K * 2; words < end; words += 16, out += 32 * kRB16) {
    ETWGPU_UNROLL
    for (int r = 0; r < kRB16; ++r) {
      const auto v = hn::BitCast(d, hn::LoadU(hn::FixedTag<uint8_t, 16>(), words + r * K * 2));
      const auto at = [&](int j) { return out + (j / kBlocks * kBlocks * kRB16 + r * kBlocks + j % kBlocks) * 8; };
      hn::StoreU(hn::And(v, mask), d, at(0));
      hn::StoreU(hn::And(hn::ShiftRight<4>(v), mask), d, at(1));
      hn::StoreU(hn::And(hn::ShiftRight<8>(v), mask), d, at(2));
      hn::StoreU(hn::ShiftRight<12>(v), d, at(3));
    }
  }
}

template <int MT>
ETWGPU_INLINE void tileA16(const int16_t* panel, const float* constants, Rows16 x, float* y, int64_t K, int64_t ldy) {
  constexpr int RB = kRB16;
  const int64_t ng = K / 32;
  V4 acc[MT][RB];
  ETWGPU_UNROLL
  for (auto& a : acc) ETWGPU_UNROLL
  for (auto& v : a) v = hn::Zero(DF4());
  for (int64_t g = 0; g < ng; ++g) {
    VI32 s[MT][RB];
    ETWGPU_UNROLL
    for (auto& a : s) ETWGPU_UNROLL
    for (auto& v : a) v = hn::Zero(DI32());
    for (int i = 0; i < 16; i += kBlocks) {
      VI16 wv[RB];
      ETWGPU_UNROLL
      for (int r = 0; r < RB; ++r) wv[r] = hn::LoadU(DI16(), panel + ((16 * g + i) * RB + r * kBlocks) * 8);
      ETWGPU_UNROLL
      for (int m = 0; m < MT; ++m) {
        const VI16 xv = loadX16(x.q + m * K + 32 * g + 2 * i, 1);
        ETWGPU_UNROLL
        for (int r = 0; r < RB; ++r) s[m][r] = dot16x16(s[m][r], wv[r], xv);
      }
    }
    ETWGPU_UNROLL
    for (int r = 0; r < RB; ++r) {
      const V4 scale = hn::LoadU(DF4(), constants + (g * RB + r) * 8),
               minimum = hn::LoadU(DF4(), constants + (g * RB + r) * 8 + 4);
      ETWGPU_UNROLL
      for (int m = 0; m < MT; ++m)
        acc[m][r] = madd(minimum, hn::Set(DF4(), x.sum[m * ng + g]),
                         madd(hn::ConvertTo(DF4(), fold(s[m][r])), scale, acc[m][r]));
    }
  }
  ETWGPU_UNROLL
  for (int m = 0; m < MT; ++m) ETWGPU_UNROLL
  for (int r = 0; r < RB; ++r) hn::StoreU(output16(acc[m][r], x.s[m]), DF4(), y + m * ldy + 4 * r);
}

/// Nibbles of a pair of blocks as bytes, in the order in which the tile reads them.
ETWGPU_KERNEL void unpackBytes(const uint8_t* words, int64_t K, int16_t* out) {
  auto* panel = reinterpret_cast<uint8_t*>(out);
  const VU8 mask = kept(DU8(), 15);
  const uint8_t* next = words + K * 2;
  for (const uint8_t* end = next; words < end; words += kBytes, next += kBytes, panel += 4 * kBytes) {
    const Nibbles n = unpack(words, mask), m = unpack(next, mask);
    hn::StoreU(n.lo, DU8(), panel);
    hn::StoreU(m.lo, DU8(), panel + kBytes);
    hn::StoreU(n.hi, DU8(), panel + 2 * kBytes);
    hn::StoreU(m.hi, DU8(), panel + 3 * kBytes);
  }
}

/// The sums of both planes side by side: MT = 2 of them, 8 chains of dots and their operands, are what V8's registers
/// hold.
template <int MT>
ETWGPU_INLINE void tilePlanes(const uint8_t* panel, const float* constants, Rows16 x, float* y, int64_t K,
                              int64_t ldy) {
  constexpr int RB = kRB16;
  const int64_t ng = K / 32;
  V4 acc[MT][RB];
  ETWGPU_UNROLL
  for (auto& a : acc) ETWGPU_UNROLL
  for (auto& v : a) v = hn::Zero(DF4());
  for (int64_t g = 0; g < ng; ++g) {
    VI32 high[MT][RB], low[MT][RB];
    ETWGPU_UNROLL
    for (int m = 0; m < MT; ++m) ETWGPU_UNROLL
    for (int r = 0; r < RB; ++r) high[m][r] = low[m][r] = hn::Zero(DI32());
    const int8_t* px = x.planes() + 64 * g;
    const uint8_t* pw = panel + 128 * RB * g;
    ETWGPU_KEEP_LOOP
    for (int i = 0; i < 32; i += 4 * kBlocks, pw += RB * kBytes) {
      VU8 wv[RB];
      ETWGPU_UNROLL
      for (int r = 0; r < RB; ++r) wv[r] = hn::LoadU(DU8(), pw + r * kBytes);
      ETWGPU_UNROLL
      for (int m = 0; m < MT; ++m) {
        const VI8 h = loadX8At(px + 2 * m * K, i), l = loadX8At(px + 2 * m * K + 32, i);
        ETWGPU_UNROLL
        for (int r = 0; r < RB; ++r) {
          high[m][r] = dot32(high[m][r], wv[r], h);
          low[m][r] = dot32(low[m][r], wv[r], l);
        }
      }
    }
    ETWGPU_UNROLL
    for (int r = 0; r < RB; ++r) {
      const V4 scale = hn::LoadU(DF4(), constants + (g * RB + r) * 8),
               minimum = hn::LoadU(DF4(), constants + (g * RB + r) * 8 + 4);
      ETWGPU_UNROLL
      for (int m = 0; m < MT; ++m) {
        const VI32 s = hn::Add(hn::ShiftLeft<8>(high[m][r]), low[m][r]);
        acc[m][r] =
            madd(minimum, hn::Set(DF4(), x.sum[m * ng + g]), madd(hn::ConvertTo(DF4(), fold(s)), scale, acc[m][r]));
      }
    }
  }
  ETWGPU_UNROLL
  for (int m = 0; m < MT; ++m) ETWGPU_UNROLL
  for (int r = 0; r < RB; ++r) hn::StoreU(output16(acc[m][r], x.s[m]), DF4(), y + m * ldy + 4 * r);
}

/// All rows of x, kTileRows16 at least, against the blocks of a panel of i16, or of bytes for activations in planes.
/// The last tile takes rows of the one before once more where they are no multiple.
template <bool kPlanes>
ETWGPU_KERNEL void panelA16(const int16_t* panel, const float* constants, Rows16 x, float* y, int64_t K, int64_t ldy,
                            int64_t M) {
  constexpr int MT = kPlanes ? 2 : 4;
  for (int64_t next = 0; next < M; next += MT) {
    const int64_t m = std::min(next, M - MT);
    const Rows16 at{x.q + m * K, x.s + m, x.sum + m * (K / 32)};
    if constexpr (kPlanes) {
      tilePlanes<MT>(reinterpret_cast<const uint8_t*>(panel), constants, at, y + m * ldy, K, ldy);
    } else {
      tileA16<MT>(panel, constants, at, y + m * ldy, K, ldy);
    }
  }
}

// ---- choice
// ----------------------------------------------------------------------------------------------------------

/// Blocks whose words fill about half of a small L2: read once from memory, then used for every row.
int64_t blocksInCache(const R4Weight& w) {
  return std::max<int64_t>(2, 131072 / (w.K * (w.bits == 8 ? 4 : 2)) / 2 * 2);
}

void multiply4(const R4Weight& w, const QuantisedRows& rows, int64_t M, float* y, int64_t ldy, int64_t b0, int64_t b1) {
  const int64_t K = w.K, ng = K / 32;
  const bool four = hasFourWayDot(), planes = rows.order == Int16Order::planes;
  if (M < kTileRows16) {
    for (int64_t m = 0; m < M; ++m) {
      if (rows.mode == Activations::int8) {
        const Rows8 x{static_cast<const int8_t*>(rows.values) + m * K, rows.scales + m * ng, rows.sums + m * ng};
        const auto f = w.symmetric ? (four ? gemvA8<false, false> : gemvA8<false, true>)
                                   : (four ? gemvA8<true, false> : gemvA8<true, true>);
        f(w, x, y + m * ldy + 4 * b0, b0, b1);
      } else {
        const Rows16 x{static_cast<const int16_t*>(rows.values) + m * K, rows.scales + m, rows.sums + m * ng};
        const auto f =
            w.symmetric ? (planes ? gemvPlanes<false> : gemvA16<false>) : (planes ? gemvPlanes<true> : gemvA16<true>);
        f(w, x, y + m * ldy + 4 * b0, b0, b1);
      }
    }
    return;
  }
  // Rows of activations in pieces that stay in L2.
  const int64_t piece = std::max<int64_t>(16, 262144 / K / 8 * 8);
  std::vector<float> scratch(size_t(ng * 8 * 2));
  std::vector<int16_t> panel(rows.mode == Activations::int16 ? size_t(K * 4 * kRB16) : 0);
  for (int64_t m = 0; m < M; m += piece) {
    if (rows.mode == Activations::int8) {
      const Rows8 x{static_cast<const int8_t*>(rows.values) + m * K, rows.scales + m * ng, rows.sums + m * ng};
      (four ? gemmA8<4, 2, false> : gemmA8<kTileRows, 1, true>)(w, x, std::min(piece, M - m), y + m * ldy, ldy, b0, b1,
                                                                scratch.data());
      continue;
    }
    const int64_t first = std::min(m, M - kTileRows16), count = std::min(m + piece, M) - first;
    const Rows16 x{static_cast<const int16_t*>(rows.values) + first * K, rows.scales + first, rows.sums + first * ng};
    for (int64_t b = b0; b < b1; b += kRB16) {
      expandConstants<kRB16>(w, b, scratch.data());
      (planes ? unpackBytes : unpackPanel)(w.words + b * K * 2, K, panel.data());
      (planes ? panelA16<true> : panelA16<false>)(panel.data(), scratch.data(), x, y + first * ldy + 4 * b, K, ldy,
                                                  count);
    }
  }
}

void multiply8(const R4Weight& w, const QuantisedRows& rows, int64_t M, float* y, int64_t ldy, int64_t b0, int64_t b1) {
  int64_t m = 0;
  for (; m + 2 <= M; m += 2)
    multiplyW8<2>(w, static_cast<const int16_t*>(rows.values) + m * w.K, rows.scales + m, y + m * ldy, ldy, b0, b1);
  if (m < M)
    multiplyW8<1>(w, static_cast<const int16_t*>(rows.values) + m * w.K, rows.scales + m, y + m * ldy, ldy, b0, b1);
}

}  // namespace

bool hasFourWayDot() {
#if ETWGPU_RELAXED
  // Bytes above 127 tell: pmaddubsw, the first of three instructions, keeps sums of two products within i16.
  static const bool single = [] {
    const volatile int8_t above = -1;
    const v128_t dot =
        wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat(127), wasm_i8x16_splat(above), wasm_i32x4_splat(0));
    return wasm_i32x4_extract_lane(dot, 0) != 2 * 32767;
  }();
  return single;
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

Activations resolveActivations(Activations requested, int bits) {
  if (requested == Activations::exact) return requested;
  if (bits == 8) return Activations::int16;  // as fast as int8, and better
  return requested == Activations::automatic ? Activations::int16 : requested;
}

void multiplyQuantised(const R4Weight& w, const QuantisedRows& rows, int64_t M, float* y, int64_t ldy, int64_t b0,
                       int64_t b1) {
  // In pieces of about a millisecond at most: V8 changes a function's code only between calls.
  const int64_t step = blocksInCache(w);
  for (int64_t b = b0; b < b1; b += step) {
    if (w.bits == 8) {
      multiply8(w, rows, M, y, ldy, b, std::min(b + step, b1));
    } else {
      multiply4(w, rows, M, y, ldy, b, std::min(b + step, b1));
    }
  }
}

}  // namespace etwgpu::cpu
