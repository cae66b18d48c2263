// The vector that a GEMV multiplies: loadX(row, i) and the norm's weight normWeight(i), four elements from 4 i on.
// With COMBINE it is the attention's result (one row): partial_o [Hq, PARTS, D], partial_ml [Hq, PARTS, 2] as
// attention/decode.wgsl writes them; empty parts, which are the last, have the sum 0.
// Parameters: k. Defines: VEC4, NORM, NORM_WEIGHT, COMBINE, and for COMBINE PARTS, HEAD_DIM.
#if COMBINE
fn loadX(row: u32, i: u32) -> vec4f {
  const d4 = ${HEAD_DIM}u / 4u;
  let first = i / d4 * ${PARTS}u;
  var m = -1e30;
  for (var p = 0u; p < ${PARTS}u; p++) {
    let part = partial_ml[first + p];
    if (part.y == 0.0) { break; }
    m = max(m, part.x);
  }
  var l = 0.0;
  var o = vec4f();
  for (var p = 0u; p < ${PARTS}u; p++) {
    let part = partial_ml[first + p];
    if (part.y == 0.0) { break; }
    let e = exp(part.x - m) * part.y;
    l += e;
    o += e * vec4f(partial_o[(first + p) * d4 + i % d4]);
  }
  return select(o / l, vec4f(), l == 0.0);
}
#else
fn loadX(row: u32, i: u32) -> vec4f {  // k = 4 i …
#if VEC4
  return vec4f(x[row * (params.k / 4u) + i]);
#else
  let base = row * params.k + 4u * i;
  var v = vec4f();
  for (var j = 0u; j < 4u; j++) {
    if (4u * i + j < params.k) { v[j] = f32(x[base + j]); }
  }
  return v;
#endif
}
#endif
fn normWeight(i: u32) -> vec4f {
#if NORM_WEIGHT
#if VEC4
  return vec4f(norm_weight[i]);
#else
  var v = vec4f();
  for (var j = 0u; j < 4u; j++) {
    if (4u * i + j < params.k) { v[j] = f32(norm_weight[4u * i + j]); }
  }
  return v;
#endif
#else
  return vec4f(1.0);
#endif
}
