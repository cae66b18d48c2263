// What a GEMV does with its sums. finish(row, column, z, up): adapters, bias, activation, gate, residual, y. With ROPE instead
// pairOf and finishPair: a rotary pair of a query or key head is normed (HEAD_NORM) and rotated, keys and values go into the caches
// (fused_ops.h: etwgpu.qkv_cache_write).
// Parameters: n, n0, n_total, head_eps. Defines: WEIGHTS, BIAS, GLU, RESIDUAL, ACTIVATION, STORE, ROPE, and for ROPE HEAD_NORM, HEADS,
// KV_HEADS, HEAD_DIM, LENGTH (rows of the caches), POSITIONS (that there are), STORE_K (element type of the caches), and those of
// ring.wgsl.
#include "common/activation.wgsl"

#include "matmul/gemv_constants.wgsl"
#if LOW_RANK
#include "matmul/low_rank.wgsl"
#endif

#if ROPE
#include "attention/ring.wgsl"
// The row of W where the index-th four pairs begin; the pairs' other halves are HEAD_DIM / 2 rows later.
fn pairRow(index: u32) -> u32 {
  const per_head = ${HEAD_DIM}u / 8u;
  return index / per_head * ${HEAD_DIM}u + index % per_head * 4u;
}
// Pair r of the index-th four as the product gives it, of which the sums are low and high.
fn pairOf(index: u32, r: u32, low: f32, high: f32) -> vec2f {
  var pair = vec2f(low, high);
#if WEIGHTS == int8 || BIAS || LOW_RANK
  let row = pairRow(index) + r;
#endif
#if WEIGHTS == int8
  pair *= vec2f(rowScale(row), rowScale(row + ${HEAD_DIM}u / 2u));
#endif
#if LOW_RANK
  pair += vec2f(lowRank(0u, row), lowRank(0u, row + ${HEAD_DIM}u / 2u));
#endif
#if BIAS
  pair += vec2f(f32(bias[row]), f32(bias[row + ${HEAD_DIM}u / 2u]));
#endif
  return pair;
}
// The pair's rotation and its place. squares: of all elements of its head.
fn finishPair(index: u32, r: u32, pair: vec2f, squares: f32) {
  const half = ${HEAD_DIM}u / 2u;
  let row = pairRow(index) + r;
  let head = row / ${HEAD_DIM}u;
  let i = row % ${HEAD_DIM}u;
  var a = pair.x;
  var b = pair.y;
#if HEAD_NORM
  let scale = inverseSqrt(squares / f32(${HEAD_DIM}) + params.head_eps);
  if (head < ${HEADS}u) {
    a *= scale * f32(q_norm[i]);
    b *= scale * f32(q_norm[i + half]);
  } else if (head < ${HEADS}u + ${KV_HEADS}u) {
    a *= scale * f32(k_norm[i]);
    b *= scale * f32(k_norm[i + half]);
  }
#endif
  let position = u32(start[0]);
  if (head < ${HEADS}u + ${KV_HEADS}u) {
    let at = min(position, ${POSITIONS}u - 1u) * ${HEAD_DIM}u + i;
    let c = f32(table[at]);
    let s = f32(table[at + half]);
    let rotated = vec2f(a * c - b * s, b * c + a * s);
    a = rotated.x;
    b = rotated.y;
  }
  if (head < ${HEADS}u) {
    y[row] = ${STORE}(a);
    y[row + half] = ${STORE}(b);
    return;
  }
  if (position >= ${POSITIONS}u) { return; }
  let to = ((head - ${HEADS}u) % ${KV_HEADS}u * ${LENGTH}u + cacheRow(position)) * ${HEAD_DIM}u + i;
  if (head < ${HEADS}u + ${KV_HEADS}u) {
    k_cache[to] = ${STORE_K}(a);
    k_cache[to + half] = ${STORE_K}(b);
  } else {
    v_cache[to] = ${STORE_K}(a);
    v_cache[to + half] = ${STORE_K}(b);
  }
}
#else
fn finish(row: u32, column: u32, sum: f32, up: f32) {  // column of this part
  var z = sum;
#if WEIGHTS == int8
  z *= rowScale(column);
#endif
  let n = params.n0 + column;
#if LOW_RANK
  z += lowRank(row, n);
#endif
#if BIAS
  z += f32(bias[n]);
#endif
  z = activation(z);
#if GLU
  var gate = up;
#if WEIGHTS == int8
  gate *= rowScale(params.n + column);
#endif
#if LOW_RANK
  gate += lowRank(row, params.n_total + n);
#endif
#if BIAS
  gate += f32(bias[params.n_total + n]);
#endif
  z *= gate;
#endif
  let at = row * params.n_total + n;
#if RESIDUAL
  z += f32(residual[at]);
#endif
  y[at] = ${STORE}(z);
}
#endif
