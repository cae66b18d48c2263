// The constants of a quantised weight: behind the words in the same binding, from vector params.constants_at on.
// Defines: WEIGHTS, AFFINE.
#if WEIGHTS == int4 && AFFINE
fn groupConstants(index: u32) -> vec4u {  // four rows' scales, four rows' minima; index: block · K / GROUP + group
  return words[params.constants_at + index];
}
#endif
#if WEIGHTS == int4 && !AFFINE
fn groupConstants(index: u32) -> vec2u {  // four rows' scales
  let pair = words[params.constants_at + index / 2u];
  return select(pair.xy, pair.zw, (index & 1u) == 1u);
}
#endif
#if WEIGHTS == int8
fn rowScale(row: u32) -> f32 {  // row of this part
  return bitcast<f32>(words[params.constants_at + row / 4u][row % 4u]);
}
#endif
