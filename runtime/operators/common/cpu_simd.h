// The few vector operations that decide speed and that Highway does not map to relaxed SIMD in Wasm; everything else is
// plain Highway, static dispatch by compile flags. Vectors are capped at 256 bits: one 128-bit block of a quantised
// weight holds 4 rows × 4 values of k, a wider vector holds more k of the same rows.
#pragma once

#include <hwy/highway.h>
#if HWY_ARCH_WASM
#include <wasm_simd128.h>
#endif

namespace etwgpu::cpu {

namespace hn = hwy::HWY_NAMESPACE;

#if defined(__wasm_relaxed_simd__)
#define ETWGPU_RELAXED 1
#else
#define ETWGPU_RELAXED 0
#endif
// A kernel is a function of its own: V8 moves a function from its baseline to its optimising compiler only between
// calls, so a hot loop that was inlined into a function called once stays slow for good (measured: 5 times).
#define ETWGPU_KERNEL __attribute__((noinline))
#define ETWGPU_INLINE inline __attribute__((always_inline))
// Before loops over the rows of a tile: gcc at -O2 would keep them, and with them the sums in memory instead of
// registers.
#define ETWGPU_UNROLL _Pragma("GCC unroll 16")
// Before short loops of dots that are faster as loops. What is unrolled, LLVM and Binaryen order as chains of dots
// after all of their loads, and V8 then lacks registers: a third of the speed.
#if HWY_ARCH_WASM
#define ETWGPU_KEEP_LOOP _Pragma("clang loop unroll(disable)")
#else
#define ETWGPU_KEEP_LOOP
#endif
#define ETWGPU_WIDE (HWY_MAX_BYTES >= 32)

using DU8 = hn::CappedTag<uint8_t, 32>;
using DI8 = hn::RebindToSigned<DU8>;
using DI16 = hn::Repartition<int16_t, DU8>;
using DU16 = hn::Repartition<uint16_t, DU8>;
using DI32 = hn::Repartition<int32_t, DU8>;
using DF = hn::Repartition<float, DU8>;
using DF4 = hn::FixedTag<float, 4>;
using DI4 = hn::FixedTag<int32_t, 4>;
using VU8 = hn::Vec<DU8>;
using VI8 = hn::Vec<DI8>;
using VI16 = hn::Vec<DI16>;
using VI32 = hn::Vec<DI32>;
using VF = hn::Vec<DF>;
using V4 = hn::Vec<DF4>;
constexpr int kBytes = HWY_MAX_LANES_D(DU8);  // 16 or 32
constexpr int kBlocks = kBytes / 16;          // 128-bit blocks per vector
constexpr int kLanes = kBytes / 4;            // floats per vector

/// A constant for a loop. V8 makes vector constants anew wherever they are used, in three instructions each; it does
/// not know this one.
template <class D>
ETWGPU_INLINE hn::Vec<D> kept(D d, hn::TFromD<D> value) {
#if HWY_ARCH_WASM
  const volatile hn::TFromD<D> opaque = value;
  return hn::Set(d, opaque);
#else
  return hn::Set(d, value);
#endif
}

/// a·b + c, fused where the machine fuses.
template <class V>
ETWGPU_INLINE V madd(V a, V b, V c) {
#if ETWGPU_RELAXED
  return V{wasm_f32x4_relaxed_madd(a.raw, b.raw, c.raw)};
#else
  return hn::MulAdd(a, b, c);
#endif
}

ETWGPU_INLINE hn::Vec<DI4> fold(VI32 v) {  // adds the 128-bit blocks: lane = row
#if ETWGPU_WIDE
  return hn::Add(hn::LowerHalf(DI4(), v), hn::UpperHalf(DI4(), v));
#else
  return v;
#endif
}

ETWGPU_INLINE VF splat(float v) { return hn::Set(DF(), v); }

// The bits of a finite half, moved to their place in a float, are its value × 2^-112: a conversion in three operations,
// with zero and denormals right, whose factor the caller gives back elsewhere. Machines that convert by themselves do.
#if HWY_ARCH_WASM
constexpr float kHalfLoad = 0x1p-112f;
#else
constexpr float kHalfLoad = 1.f;
#endif
/// Halves as floats, times kHalfLoad.
ETWGPU_INLINE VF loadHalves(const uint16_t* p) {
#if HWY_ARCH_WASM
  const auto h = hn::PromoteTo(DI32(), hn::LoadU(hn::Rebind<int16_t, DI32>(), reinterpret_cast<const int16_t*>(p)));
  return hn::BitCast(DF(), hn::And(hn::ShiftLeft<13>(h), hn::Set(DI32(), int32_t(0x8fffe000))));
#else
  const hn::Rebind<hwy::float16_t, DF> d;
  return hn::PromoteTo(DF(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(p)));
#endif
}
ETWGPU_INLINE void storeHalves(VF v, uint16_t* p) {
  const hn::Rebind<hwy::float16_t, DF> d;
  hn::StoreU(hn::DemoteTo(d, v), d, reinterpret_cast<hwy::float16_t*>(p));
}

/// The first n (< lanes) floats at p; zeros after them.
ETWGPU_INLINE VF loadFirst(const float* p, size_t n) { return hn::LoadN(DF(), p, n); }

}  // namespace etwgpu::cpu
