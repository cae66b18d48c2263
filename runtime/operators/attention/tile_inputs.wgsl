// What a tile of rows (query r / GROUP, head r % GROUP) reads, in vectors of 4, and its mask: for tiles.wgsl and tiles_wide.wgsl, which
// name the parameters and defines.
const kD4 = ${D}u / 4u;
const kLowest = -1e30;

fn loadQ(batch: u32, kv: u32, row: u32, d4: u32) -> vec4f {
  let r = min(row, params.queries * ${GROUP}u - 1u);
  if (d4 >= kD4) { return vec4f(); }
  return vec4f(q[batch * params.q_b + (kv * ${GROUP}u + r % ${GROUP}u) * params.q_h + r / ${GROUP}u * params.q_s + d4]);
}
fn loadK(base: u32, key: u32, d4: u32) -> vec4f {
  if (d4 >= kD4) { return vec4f(); }
  return vec4f(k[base + key * kD4 + d4]);
}
#if MASK != none
fn masked(score: f32, batch: u32, kv: u32, row: u32, key: u32) -> f32 {
  let r = min(row, params.queries * ${GROUP}u - 1u);
  let head = kv * ${GROUP}u + r % ${GROUP}u;
  let at = batch * params.mask_b + head * params.mask_h + r / ${GROUP}u * params.mask_s + key * params.mask_t;
#if MASK == bool
  return select(kLowest, score, mask[at] != 0u);
#else
  return max(score + f32(mask[at]), kLowest);
#endif
}
#endif
