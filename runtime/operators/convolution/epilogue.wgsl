// activation(x) for ACTIVATION = none | relu | relu6 | silu | hardswish
fn activation(x: f32) -> f32 {
#if ACTIVATION == relu
  return max(x, 0.0);
#elif ACTIVATION == relu6
  return clamp(x, 0.0, 6.0);
#elif ACTIVATION == silu
  return x / (1.0 + exp(-x));
#elif ACTIVATION == hardswish
  return x * clamp(x / 6.0 + 0.5, 0.0, 1.0);
#else
  return x;
#endif
}
