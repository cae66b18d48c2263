// Vector functions: exp, sigmoid, erf, gelu …, and the activations of fused operators. NaN stays NaN.
#pragma once

#include <hwy/contrib/math/math-inl.h>

#include <string_view>

#include "runtime/operators/common/cpu_simd.h"

namespace etwgpu::cpu {

enum class Act : uint8_t { none, relu, relu6, silu, gelu, gelu_tanh, hardswish };

/// False where the name is not one of none, relu, relu6, silu, gelu, gelu_tanh, hardswish.
inline bool parseAct(std::string_view name, Act& act) {
  constexpr std::string_view names[] = {"none", "relu", "relu6", "silu", "gelu", "gelu_tanh", "hardswish"};
  for (size_t i = 0; i < std::size(names); ++i)
    if (names[i] == name) return act = Act(i), true;
  return false;
}

ETWGPU_INLINE VF expV(VF x) {  // Highway's is 0 for NaN
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(DF(), hn::Min(x, splat(89.f))));
}
/// exp for x up to 88.7, with its constants in registers; below -87.7 it is 0, above 88.4 infinite. NaN stays. Relative
/// error 8.2e-8:
/// e^x = 2^n · e^r, |r| ≤ ln(2) / 2, the polynomial and the two parts of ln(2) are those of Cephes' expf.
class BoundedExp {
 public:
  ETWGPU_INLINE VF operator()(VF x) const {
    x = hn::Max(least_, x);  // in this order NaN stays
    const VF shifted = madd(x, log2e_, shift_), n = hn::Sub(shifted, shift_);
    const VF r = madd(n, minus_ln2_low_, madd(n, minus_ln2_high_, x));
    VF p = p_[0];
    ETWGPU_UNROLL
    for (int i = 1; i < 6; ++i) p = madd(p, r, p_[i]);
    p = hn::Add(madd(p, hn::Mul(r, r), r), one_);
    const auto power = hn::Add(hn::ShiftLeft<23>(hn::BitCast(DI32(), shifted)), hn::BitCast(DI32(), one_));
    return hn::Mul(p, hn::BitCast(DF(), power));
  }
  /// x · sigmoid(x); -inf gives NaN, as PyTorch's does.
  ETWGPU_INLINE VF silu(VF x) const { return hn::Div(x, hn::Add(one_, (*this)(hn::Min(most_, hn::Neg(x))))); }

 private:
  const VF least_ = kept(DF(), -88.02f), most_ = kept(DF(), 88.7f), log2e_ = kept(DF(), 1.44269504088896341f),
           shift_ = kept(DF(), 0x1.8p23f), minus_ln2_high_ = kept(DF(), -0.693359375f),
           minus_ln2_low_ = kept(DF(), 2.12194440e-4f), one_ = kept(DF(), 1.f);
  const VF p_[6] = {kept(DF(), 1.9875691500e-4f), kept(DF(), 1.3981999507e-3f), kept(DF(), 8.3334519073e-3f),
                    kept(DF(), 4.1665795894e-2f), kept(DF(), 1.6666665459e-1f), kept(DF(), 5.0000001201e-1f)};
};

ETWGPU_INLINE VF sigmoidV(VF x) { return hn::Div(splat(1.f), hn::Add(splat(1.f), expV(hn::Neg(x)))); }
/// -inf · 0 would be NaN; the limit is 0, but PyTorch gives NaN too.
ETWGPU_INLINE VF siluV(VF x) { return hn::Div(x, hn::Add(splat(1.f), expV(hn::Neg(x)))); }

/// 1 − 2 / (e^2x + 1); near zero, where that cancels, the odd Taylor polynomial.
ETWGPU_INLINE VF tanhV(VF x) {
  const VF t = hn::Sub(splat(1.f), hn::Div(splat(2.f), hn::Add(expV(hn::Add(x, x)), splat(1.f))));
  const VF s = hn::Mul(x, x);
  VF p = splat(-1382.f / 155925.f);
  for (float c : {62.f / 2835.f, -17.f / 315.f, 2.f / 15.f, -1.f / 3.f, 1.f}) p = madd(p, s, splat(c));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), splat(0.3f)), hn::Mul(p, x), t);
}

/// Abramowitz and Stegun 7.1.26 (absolute error 1.5e-7); below 0.5 the Taylor polynomial, for the relative error.
ETWGPU_INLINE VF erfV(VF x) {
  const VF a = hn::Abs(x), t = hn::Div(splat(1.f), madd(a, splat(0.3275911f), splat(1.f)));
  VF p = splat(1.061405429f);
  for (float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) p = madd(p, t, splat(c));
  const VF large = hn::Sub(splat(1.f), hn::Mul(hn::Mul(p, t), expV(hn::Neg(hn::Mul(a, a)))));
  const VF s = hn::Mul(x, x);
  VF q = splat(0.00012055332981789664f);
  for (float c : {-0.0008548327023450853f, 0.005223977625442188f, -0.02686617064513125f, 0.11283791670955126f,
                  -0.37612638903183754f, 1.1283791670955126f})
    q = madd(q, s, splat(c));
  return hn::IfThenElse(hn::Lt(a, splat(0.5f)), hn::Mul(q, x), hn::CopySign(large, x));
}
ETWGPU_INLINE VF geluV(VF x) {
  return hn::Mul(hn::Mul(x, splat(0.5f)), hn::Add(splat(1.f), erfV(hn::Mul(x, splat(0.70710678118654752f)))));
}
ETWGPU_INLINE VF geluTanhV(VF x) {
  const VF inner = hn::Mul(hn::Mul(x, splat(0.7978845608028654f)), madd(hn::Mul(x, x), splat(0.044715f), splat(1.f)));
  return hn::Mul(hn::Mul(x, splat(0.5f)), hn::Add(splat(1.f), tanhV(inner)));
}
/// min and max that keep NaN of x.
ETWGPU_INLINE VF clampV(VF x, VF lo, VF hi) {
  const VF v = hn::Min(hn::Max(x, lo), hi);
  return hn::IfThenElse(hn::IsNaN(x), x, v);
}
ETWGPU_INLINE VF hardsigmoidV(VF x) {
  return hn::Mul(clampV(hn::Add(x, splat(3.f)), splat(0.f), splat(6.f)), splat(1.f / 6.f));
}

ETWGPU_INLINE VF actV(Act act, VF x) {
  switch (act) {
    case Act::none:
      return x;
    case Act::relu:
      return hn::IfThenElse(hn::IsNaN(x), x, hn::Max(x, splat(0.f)));
    case Act::relu6:
      return clampV(x, splat(0.f), splat(6.f));
    case Act::silu:
      return siluV(x);
    case Act::gelu:
      return geluV(x);
    case Act::gelu_tanh:
      return geluTanhV(x);
    case Act::hardswish:
      return hn::Mul(x, hardsigmoidV(x));
  }
  return x;
}

/// p[i] = act(p[i]) in place.
void applyActivation(Act act, float* p, int64_t n);

}  // namespace etwgpu::cpu
