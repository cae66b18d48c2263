// As samplingBits and samplingExponential of runtime/core/sampling_options.h.
fn randomBits(position: u32, token: u32) -> u32 {
  var v = vec4u(options[kSeed], options[kSeed + 1u], position, token) * 1664525u + 1013904223u;
  v.x += v.y * v.w; v.y += v.z * v.x; v.z += v.x * v.y; v.w += v.y * v.z;
  v ^= v >> vec4u(16u);
  v.x += v.y * v.w; v.y += v.z * v.x; v.z += v.x * v.y; v.w += v.y * v.z;
  return v.w;
}
fn exponential(bits: u32) -> f32 {
  let u = min((f32(bits) + 0.5) * 2.3283064365386963e-10, 0.99999994);
  if (u >= 0.1) { return -log(1.0 - u); }
  return u * (1.0 + u * (1.0 / 2.0 + u * (1.0 / 3.0 + u * (1.0 / 4.0 + u * (1.0 / 5.0 + u * (1.0 / 6.0 + u / 7.0))))));
}
