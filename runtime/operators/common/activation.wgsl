// activation(x) for ACTIVATION = none | relu | relu6 | silu | hardswish | gelu | gelu_tanh. erf as Abramowitz and Stegun 7.1.26
// is not exact enough for f32: a rational approximation with relative error below 1e-6 (Numerical Recipes, erfc by Chebyshev
// fit).
#if ACTIVATION == gelu
fn erf(x: f32) -> f32 {
  let z = abs(x);
  let t = 1.0 / (1.0 + 0.5 * z);
  let p = -1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 + t * (0.27886807
        + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277))))))));
  let r = 1.0 - t * exp(p - z * z);
  return select(-r, r, x >= 0.0);
}
#endif
fn activation(x: f32) -> f32 {
#if ACTIVATION == none
  return x;
#endif
#if ACTIVATION == relu
  return max(x, 0.0);
#endif
#if ACTIVATION == relu6
  return clamp(x, 0.0, 6.0);
#endif
#if ACTIVATION == hardswish
  return x * clamp(x / 6.0 + 0.5, 0.0, 1.0);
#endif
#if ACTIVATION == silu
  return x / (1.0 + exp(-x));
#endif
#if ACTIVATION == gelu
  return 0.5 * x * (1.0 + erf(x * 0.70710678));
#endif
#if ACTIVATION == gelu_tanh
  let u = clamp(0.7978845608 * (x + 0.044715 * x * x * x), -15.0, 15.0);
  return 0.5 * x * (1.0 + tanh(u));
#endif
}
