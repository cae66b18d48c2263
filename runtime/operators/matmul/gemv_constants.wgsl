// The constants of a quantised weight: a binding of their own, or (MERGED) behind the words in the same binding, from vector
// params.constants_at on, which saves a binding.
// Defines: WEIGHTS, AFFINE, MERGED.
#if WEIGHTS == int4 && AFFINE
fn groupConstants(index: u32) -> vec4u {  // four rows' scales, four rows' minima; index: block · K / GROUP + group
#if MERGED
  return words[params.constants_at + index];
#else
  return constants[index];
#endif
}
#endif
#if WEIGHTS == int4 && !AFFINE
fn groupConstants(index: u32) -> vec2u {  // four rows' scales
#if MERGED
  let pair = words[params.constants_at + index / 2u];
  return select(pair.xy, pair.zw, (index & 1u) == 1u);
#else
  return constants[index];
#endif
}
#endif
#if WEIGHTS == int8
fn rowScale(row: u32) -> f32 {  // row of this part
#if MERGED
  return bitcast<f32>(words[params.constants_at + row / 4u][row % 4u]);
#else
  return constants[row];
#endif
}
#endif
