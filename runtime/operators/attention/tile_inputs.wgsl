#include "attention/ring.wgsl"
// What a tile of rows (query r / GROUP, head r % GROUP) reads, in vectors of 4, which keys, and its mask: for tiles.wgsl and tiles_wide.wgsl, which
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
// Of four rows or keys one after another; keys after the last are the last.
fn loadRows(batch: u32, kv: u32, row: u32, d4: u32) -> mat4x4f {
  return mat4x4f(loadQ(batch, kv, row, d4), loadQ(batch, kv, row + 1u, d4), loadQ(batch, kv, row + 2u, d4),
                 loadQ(batch, kv, row + 3u, d4));
}
fn loadKeys(base: u32, key: u32, last: u32, d4: u32) -> mat4x4f {
  return mat4x4f(loadK(base, min(key, last), d4), loadK(base, min(key + 1u, last), d4),
                 loadK(base, min(key + 2u, last), d4), loadK(base, min(key + 3u, last), d4));
}
// The position of the first query, and the keys that the rows from row0 on look at, from a tile's beginning.
struct Reach {
  offset: u32,
  begin: u32,
  end: u32,
}
fn reachOf(row0: u32, rows: u32) -> Reach {
#if CACHED
  let offset = u32(start[0]);
#else
  let offset = 0u;
#endif
  let query_first = offset + row0 / ${GROUP}u;
  let query_last = offset + min(row0 + rows - 1u, params.queries * ${GROUP}u - 1u) / ${GROUP}u;
  var begin = 0u;
#if CAUSAL
  let end = endWithin(query_last + 1u, params.keys);
  if (params.window > 0u && query_first + 1u > params.window) { begin = (query_first + 1u - params.window) / 64u * 64u; }
#else
  let end = params.keys;
#endif
  return Reach(offset, begin, end);
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
