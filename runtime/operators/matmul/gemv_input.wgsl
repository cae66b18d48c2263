// The vector that a GEMV multiplies: loadX(row, i) and the norm's weight normWeight(i), four elements from 4 i on.
// loadEight: eight, from 8 u on. With COMBINE it is the attention's result (one row): partial_o [Hq, PARTS, D], partial_ml [Hq, PARTS, 2] as
// attention/decode.wgsl writes them; empty parts, which are the last, have the sum 0.
// Parameters: k, x_row (row of x that is the first). Defines: VEC4, NORM, NORM_WEIGHT, COMBINE, and for COMBINE PARTS, HEAD_DIM, PACKED (partial_o is f16, read as
// vectors of eight).
struct Eight {
  low: vec4f,
  high: vec4f,
}
#if COMBINE
// Elements 8 u to 8 u + 7, which lie in one head. Four parts are read at once, or all of them: loads do not wait for one another.
fn loadEight(row: u32, u: u32) -> Eight {
  const d8 = ${HEAD_DIM}u / 8u;
  let first = u / d8 * ${PARTS}u;
  let column = u % d8;
#for p 0 PARTS
  let part${p} = partial_ml[first + ${p}u];
#endfor
  var m = -1e30;
#for p 0 PARTS
  m = max(m, part${p}.x);
#endfor
  var l = 0.0;
#for p 0 PARTS
  let e${p} = exp(part${p}.x - m) * part${p}.y;
  l += e${p};
#endfor
  var o = Eight();
#for p 0 PARTS
#if p == 4
  if (part4.y != 0.0) {
#endif
  let at${p} = (first + ${p}u) * d8 + column;
#if PACKED
  let o${p} = partial_o[at${p}];
  o.low += e${p} * vec4f(unpack2x16float(o${p}.x), unpack2x16float(o${p}.y));
  o.high += e${p} * vec4f(unpack2x16float(o${p}.z), unpack2x16float(o${p}.w));
#else
  o.low += e${p} * partial_o[2u * at${p}];
  o.high += e${p} * partial_o[2u * at${p} + 1u];
#endif
#endfor
#if 5 <= PARTS
  }
#endif
  let scale = select(1.0 / l, 0.0, l == 0.0);
  return Eight(o.low * scale, o.high * scale);
}
fn loadX(row: u32, i: u32) -> vec4f {
  let eight = loadEight(row, i / 2u);
  return select(eight.low, eight.high, (i & 1u) == 1u);
}
#else
fn loadX(row: u32, i: u32) -> vec4f {  // k = 4 i …
#if VEC4
  return vec4f(x[(params.x_row + row) * (params.k / 4u) + i]);
#else
  let base = (params.x_row + row) * params.k + 4u * i;
  var v = vec4f();
  for (var j = 0u; j < 4u; j++) {
    if (4u * i + j < params.k) { v[j] = f32(x[base + j]); }
  }
  return v;
#endif
}
fn loadEight(row: u32, u: u32) -> Eight { return Eight(loadX(row, 2u * u), loadX(row, 2u * u + 1u)); }
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
