// One row of y: y[n] = epilogue(sum_k x[k] · W[n, k]). Workgroup (wid.x, row of x wid.y): WG / TEAM teams, each summing four
// rows of W over K. Consecutive invocations of a team read consecutive units: UNIT k of four rows, in R4 one vec4<u32>.
// With GLU the first half of the teams takes gate rows, the second the up rows of the same columns; with ROPE lower and upper
// halves of rotary pairs. One row of x, then (and with COMBINE).
// Parameters: n (columns of y, in this part), n0 (first column of this part), n_total, k, units (of a row: k / UNIT), last (last
// block of four rows of W, plain: last row), eps.
// Defines: WG, TEAM, WEIGHTS = plain | int4 | int8, VEC4 (k is a multiple of 4), AFFINE, GROUP, NORM, NORM_WEIGHT, BIAS, GLU,
// RESIDUAL, ACTIVATION, STORE (element type of y), SUBGROUPS, and those of gemv_input.wgsl and gemv_output.wgsl.
${HEADER}
#include "common/quant.wgsl"
#include "matmul/gemv_output.wgsl"
#if NORM || HEAD_NORM
#include "common/reduce.wgsl"
#endif

const kTeams = ${WG}u / ${TEAM}u;
const kChunk = 2048u;  // values of x staged at a time
#if GLU || ROPE
const kRows = kTeams * 2u;
#else
const kRows = kTeams * 4u;
#endif
// Staged x; after the sum, partial sums. int4: the first half holds k, k+4, k+1, k+5 of each 8 k, the second half k+2, k+6,
// k+3, k+7, times 16^-j: a nibble is then used where it lies in the word, 16^j q.
var<workgroup> staged: array<vec4f, 512>;
#if AFFINE
var<workgroup> staged_sum: array<f32, 256>;
#endif

#include "matmul/gemv_input.wgsl"
#include "matmul/gemv_constants.wgsl"

// Stages x[row, chunk …] times the norm's weight; returns this invocation's part of the sum of squares.
fn stage(row: u32, chunk: u32, count: u32, li: u32) -> f32 {
  var squares = 0.0;
#if WEIGHTS == int4
  for (var i = li; i < count / 8u; i += ${WG}u) {
    let at = chunk / 4u + 2u * i;
    let eight = loadEight(row, chunk / 8u + i);
    var e = eight.low;
    var f = eight.high;
    squares += dot(e, e) + dot(f, f);
#if NORM
    e *= normWeight(at);
    f *= normWeight(at + 1u);
#endif
#if AFFINE
    let s = e + f;
    staged_sum[i] = (s.x + s.y) + (s.z + s.w);
#endif
    let powers = vec4f(1.0, 0.0625, 0.00390625, 0.000244140625);
    staged[i] = vec4f(e.x, f.x, e.y, f.y) * powers;
    staged[256u + i] = vec4f(e.z, f.z, e.w, f.w) * powers;
  }
#else
  for (var i = li; i < (count + 3u) / 4u; i += ${WG}u) {
    var e = loadX(row, chunk / 4u + i);
    squares += dot(e, e);
#if NORM
    e *= normWeight(chunk / 4u + i);
#endif
    staged[i] = e;
  }
#endif
  return squares;
}

#if WEIGHTS == int4
// (q - zero) of four nibbles that lie at bits 0, 4, 8, 12, times 16^j.
fn nibbles(word: u32) -> vec4f {
  let q = bitcast<vec4f>((vec4u(word) & vec4u(15u, 240u, 3840u, 61440u)) | vec4u(0x4B000000u));
#if AFFINE
  return q - vec4f(8388608.0);
#else
  return q - vec4f(8388616.0, 8388736.0, 8390656.0, 8421376.0);
#endif
}
#endif
#if WEIGHTS == int8
fn bytes(word: u32) -> vec4f {
  let b = word ^ 0x80808080u;
  let q = (vec4u(b, b >> 8u, b >> 16u, b >> 24u) & vec4u(255u)) | vec4u(0x4B000000u);
  return bitcast<vec4f>(q) - vec4f(8388736.0);
}
#endif

// Four rows' products of unit i of the chunk (unit u of the row).
fn unitDot(block: u32, u: u32, i: u32) -> vec4f {
#if WEIGHTS == int4
  let w = words[block * params.units + u];
  let group = block * (params.k / ${GROUP}u) + u / (${GROUP}u / 8u);
  let lo = staged[i];
  let hi = staged[256u + i];
  let sum = vec4f(dot(nibbles(w.x), lo) + dot(nibbles(w.x >> 16u), hi), dot(nibbles(w.y), lo) + dot(nibbles(w.y >> 16u), hi),
                  dot(nibbles(w.z), lo) + dot(nibbles(w.z >> 16u), hi), dot(nibbles(w.w), lo) + dot(nibbles(w.w >> 16u), hi));
  let c = groupConstants(group);
#if AFFINE
  return sum * halves4(c.xy) + halves4(c.zw) * staged_sum[i];
#else
  return sum * halves4(c);
#endif
#endif
#if WEIGHTS == int8
  let w = words[block * params.units + u];
  let v = staged[i];
  return vec4f(dot(bytes(w.x), v), dot(bytes(w.y), v), dot(bytes(w.z), v), dot(bytes(w.w), v));
#endif
#if WEIGHTS == plain
  // block counts rows here
  let r0 = min(block, params.last) * params.units + u;
  let r1 = min(block + 1u, params.last) * params.units + u;
  let r2 = min(block + 2u, params.last) * params.units + u;
  let r3 = min(block + 3u, params.last) * params.units + u;
#if VEC4
  let v = staged[i];
  return vec4f(dot(vec4f(words[r0]), v), dot(vec4f(words[r1]), v), dot(vec4f(words[r2]), v), dot(vec4f(words[r3]), v));
#else
  return vec4f(f32(words[r0]), f32(words[r1]), f32(words[r2]), f32(words[r3])) * staged[i / 4u][i % 4u];
#endif
#endif
}

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32
#if SUBGROUPS
  , @builtin(subgroup_size) sg_size: u32
#endif
) {
#if !SUBGROUPS
  let sg_size = 1u;
#endif
  let row = wid.y;
  let team = li / ${TEAM}u;
  let lane = li % ${TEAM}u;
  let column0 = wid.x * kRows;  // of this part
#if GLU
  let pair = team % (kTeams / 2u);
  let up = team / (kTeams / 2u);
  var block = column0 + pair * 4u + up * params.n;
#elif ROPE
  var block = pairRow(column0 / 4u + team % (kTeams / 2u)) + team / (kTeams / 2u) * (${HEAD_DIM}u / 2u);
#else
  var block = column0 + team * 4u;
#endif
#if WEIGHTS != plain
  block = min(block / 4u, params.last);
#endif
  var acc = vec4f();
  var squares = 0.0;
  for (var chunk = 0u; chunk < params.k; chunk += kChunk) {
    if (chunk > 0u) { workgroupBarrier(); }
    let count = min(kChunk, params.k - chunk);
    squares += stage(row, chunk, count, li);
    workgroupBarrier();
    let first = chunk / ${UNIT}u;
    for (var i = lane; i < count / ${UNIT}u; i += ${TEAM}u) { acc += unitDot(block, first + i, i); }
  }
#if NORM
  let scale = inverseSqrt(workgroupSum(squares, li, sg_size) / f32(params.k) + params.eps);
#else
  let scale = 1.0;
#endif

  // sums of the teams
#if SUBGROUPS
  let width = min(sg_size, ${TEAM}u);
  for (var d = 1u; d < width; d *= 2u) { acc += subgroupShuffleXor(acc, d); }
  workgroupBarrier();
  if (li % width == 0u) { staged[li / width] = acc; }
  workgroupBarrier();
  let parts = ${TEAM}u / width;
  let stride = parts;
#else
  workgroupBarrier();
  staged[li] = acc;
  workgroupBarrier();
  for (var d = ${TEAM}u / 2u; d > 0u; d /= 2u) {
    if (lane < d) { staged[li] += staged[li + d]; }
    workgroupBarrier();
  }
  let parts = 1u;
  let stride = ${TEAM}u;
#endif
  let column = column0 + li;
#if ROPE
  const rows_of_column = 2u;
#else
  const rows_of_column = 1u;
#endif
#if !HEAD_NORM
  if (li >= kRows || column >= params.n / rows_of_column) { return; }
#endif
  let slot = min(li / 4u, kRows / 4u - 1u);
  var z = 0.0;
  for (var i = 0u; i < parts; i++) { z += staged[slot * stride + i][li % 4u]; }
  z *= scale;
#if GLU || ROPE
  var second = 0.0;
  for (var i = 0u; i < parts; i++) { second += staged[(slot + kTeams / 2u) * stride + i][li % 4u]; }
  second *= scale;
#else
  let second = 0.0;
#endif
#if ROPE
  let index = column0 / 4u + slot;  // of four rotary pairs
  let pair = pairOf(index, li % 4u, z, second);
#if HEAD_NORM
  // the workgroup's rows are a head's
  let head_squares = workgroupSum(select(0.0, dot(pair, pair), li < kRows), li, sg_size);
  if (li >= kRows) { return; }
#else
  const head_squares = 0.0;
#endif
  finishPair(index, li % 4u, pair, head_squares);
#else
  finish(row, column, z, second);
#endif
}
