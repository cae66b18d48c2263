// Vector pieces of the products with R4 weights: dots of small integers, unpacking, half constants.
#pragma once

#include "runtime/operators/common/cpu_simd.h"

namespace etwgpu::cpu {

/// u (0..127) × i8 to pairwise sums in i16. x86: pmaddubsw. Arm: smull, smull2, addp.
ETWGPU_INLINE VI16 dot16(VU8 u, VI8 x) {
#if ETWGPU_RELAXED
  return VI16{wasm_i16x8_relaxed_dot_i8x16_i7x16(x.raw, u.raw)};
#else
  return hn::SatWidenMulPairwiseAdd(DI16(), u, x);
#endif
}
/// sum + quads of u × i8 in i32. Arm: sdot. x86: vpdpbusd with AVX-VNNI, else three instructions.
ETWGPU_INLINE VI32 dot32(VI32 sum, VU8 u, VI8 x) {
#if ETWGPU_RELAXED
  return VI32{wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x.raw, u.raw, sum.raw)};
#elif HWY_TARGET == HWY_WASM
  return hn::Add(sum, hn::WidenMulPairwiseAdd(DI32(), hn::SatWidenMulPairwiseAdd(DI16(), u, x), hn::Set(DI16(), 1)));
#else
  return hn::SumOfMulQuadAccumulate(DI32(), u, x, sum);
#endif
}
/// sum + pairs of i16 × i16 in i32: pmaddwd, paddd.
ETWGPU_INLINE VI32 dot16x16(VI32 sum, VI16 a, VI16 b) { return hn::Add(sum, hn::WidenMulPairwiseAdd(DI32(), a, b)); }

// The bits of a finite half, moved to their place in a float, are its value × 2^-112: a conversion in three operations,
// with zero and denormals right. int16 products get the factor back once per output. int8 ones, with a scale in every
// group, get it in two parts, so that nothing overflows whatever the activations: 2^64 with the activation's scale and
// sum, 2^48 once per output.
constexpr float kHalfBias = 0x1p112f, kXBias = 0x1p64f, kOutBias = 0x1p48f;

constexpr auto kHalfMask = int32_t(0x8fffe000);

ETWGPU_INLINE V4 halfBits4(const uint16_t* p, hn::Vec<DI4> mask) {
  const hn::FixedTag<int16_t, 4> dh;
  const auto h = hn::PromoteTo(DI4(), hn::LoadU(dh, reinterpret_cast<const int16_t*>(p)));
  return hn::BitCast(DF4(), hn::And(hn::ShiftLeft<13>(h), mask));
}
ETWGPU_INLINE V4 halfToFloat4(const uint16_t* p) {
  return hn::Mul(halfBits4(p, hn::Set(DI4(), kHalfMask)), hn::Set(DF4(), kHalfBias));
}

ETWGPU_INLINE hn::Vec<DI4> splatWord(const void* p) {
#if HWY_TARGET == HWY_WASM
  return hn::Vec<DI4>{wasm_v128_load32_splat(p)};  // Set would become a load and a splat
#else
  int32_t w;
  __builtin_memcpy(&w, p, 4);
  return hn::Set(DI4(), w);
#endif
}

/// Words of x for the low and the high nibbles of kBlocks consecutive weight words; p points at 8 · kBlocks int8 of x.
struct XPair {
  VI8 lo, hi;
};
ETWGPU_INLINE XPair loadX8(const int8_t* p) {
#if HWY_TARGET == HWY_WASM
  return {VI8{wasm_v128_load32_splat(p)}, VI8{wasm_v128_load32_splat(p + 4)}};
#else
  alignas(32) static constexpr uint8_t kLow[32] = {0, 1, 2,  3,  0, 1, 2,  3,  0, 1, 2,  3,  0, 1, 2,  3,
                                                   8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11, 8, 9, 10, 11};
  alignas(32) static constexpr uint8_t kHigh[32] = {4,  5,  6,  7,  4,  5,  6,  7,  4,  5,  6,  7,  4,  5,  6,  7,
                                                    12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15};
  const auto x = hn::LoadDup128(DI8(), p);
  return {hn::BitCast(DI8(), hn::TableLookupBytes(x, hn::Load(DU8(), kLow))),
          hn::BitCast(DI8(), hn::TableLookupBytes(x, hn::Load(DU8(), kHigh)))};
#endif
}
/// The low and the high ones in turn, those of p + 4 · kBlocks · n for vector n.
ETWGPU_INLINE VI8 loadX8At(const int8_t* p, int at) {
#if ETWGPU_WIDE
  const XPair x = loadX8(p + at / 16 * 16);
  return at % 16 ? x.hi : x.lo;
#else
  return hn::BitCast(DI8(), splatWord(p + at));
#endif
}
/// One 32-bit word of x per 128-bit block; those of consecutive blocks are `stride` words apart.
ETWGPU_INLINE VI16 loadX16(const int16_t* p, int stride) {
  (void)stride;
#if HWY_TARGET == HWY_WASM
  return VI16{wasm_v128_load32_splat(p)};
#elif ETWGPU_WIDE
  return hn::BitCast(DI16(), hn::Combine(DI32(), splatWord(p + 2 * stride), splatWord(p)));
#else
  return hn::BitCast(DI16(), splatWord(p));
#endif
}

struct Nibbles {
  VU8 lo, hi;
};
/// `mask`: 15 in every byte.
ETWGPU_INLINE Nibbles unpack(const uint8_t* p, VU8 mask) {
  const DU8 d;
  const auto v = hn::LoadU(d, p);
  return {hn::And(v, mask), hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(DU16(), v))), mask)};
}

// Nibbles as floats, flipped to two's complement (q − 8) so that the conversion is from signed integers: clang turns
// that of a value that it knows to be positive into f32x4.convert_i32x4_u, eight instructions on x86 before AVX-512.
ETWGPU_INLINE hn::Vec<DI4> flipNibbles(const uint8_t* p) {
  return hn::Xor(hn::BitCast(DI4(), hn::LoadU(hn::FixedTag<uint8_t, 16>(), p)), hn::Set(DI4(), int32_t(0x88888888)));
}
template <int J>
ETWGPU_INLINE V4 signedNibble(hn::Vec<DI4> flipped) {
  return hn::ConvertTo(DF4(), hn::ShiftRight<28>(hn::ShiftLeft<28 - 4 * J>(flipped)));
}
template <int J>
ETWGPU_INLINE V4 signedByte(hn::Vec<DI4> word) {
  return hn::ConvertTo(DF4(), hn::ShiftRight<24>(hn::ShiftLeft<24 - 8 * J>(word)));
}

}  // namespace etwgpu::cpu
