// gemv.wgsl for quantised weights and subgroups of 16 lanes and more: everything that a device with much bandwidth waits for is
// unrolled. Workgroup (wid.x, row of x wid.y): S x T teams of LANES; the S of a set split K, a team sums BLOCKS blocks of four rows.
// An iteration of a team reads LANES consecutive units (8 k in int4, 4 k in int8) of each block.
// - AHEAD iterations of weights are on their way before x is staged, behind its barrier.
// - x is staged once a workgroup, times the norm's weight. With f32 arithmetic the norm's scale is applied to the sums; with f16 to x,
//   which then stays in range, as a power of two sees to without a norm: a sum of 4 (int8: 2) products of a nibble (byte) and the
//   largest f16 does not overflow.
// - Nibbles become numbers where they lie in the word: f32 as 2^23 + 16^j q (x is staged times 16^-j), f16 as 1024 + q or 1024 + 16 q.
// With GLU and ROPE half of the teams (PAIRED: of a team's blocks) take the second rows, as in gemv.wgsl.
// Parameters as gemv.wgsl. Defines besides: LANES, S, T, BLOCKS, AHEAD, ITERATIONS (of a chunk), CHUNKS (of x), UNITS (of a row), PER
// (units an invocation stages, of a chunk), STAGE_UNROLLED (their loads do not wait for one another), MATH = f16 | f32, FIXED (LANES is the subgroup size), WIDTHS (else: parts of a team at
// most), PAIRED.
${HEADER}
#if !SUBGROUPS
needs: subgroups are needed
#endif
#include "common/quant.wgsl"
#include "matmul/gemv_output.wgsl"
#include "matmul/gemv_input.wgsl"

const kThreads = ${LANES}u * ${S}u * ${T}u;
const kChunkUnits = ${LANES}u * ${S}u * ${ITERATIONS}u;
const kSlots = ${T}u * ${BLOCKS}u;
#if ROPE
const kColumnRows = 2u;
#else
const kColumnRows = 1u;
#endif
#if WEIGHTS == int4
const kUnit = 8u;
#else
const kUnit = 4u;
#endif
#if MATH == f16 && WEIGHTS == int4
var<workgroup> staged: array<vec4u, kChunkUnits>;  // pairs (k, k+2), (k+4, k+6), (k+1, k+3), (k+5, k+7) of f16
#elif MATH == f16
var<workgroup> staged: array<vec2u, kChunkUnits>;  // pairs (k, k+2), (k+1, k+3)
#elif WEIGHTS == int4
var<workgroup> staged: array<vec4f, 2u * kChunkUnits>;  // by LANES units: k, k+4, k+1, k+5, then k+2, k+6, k+3, k+7; times 16^-j
#else
var<workgroup> staged: array<vec4f, kChunkUnits>;
#endif
#if AFFINE
var<workgroup> staged_sum: array<f32, kChunkUnits>;
#endif
#if NORM
var<workgroup> squares_of: array<f32, kThreads / 4u>;
#endif
#if HEAD_NORM
var<workgroup> head_squares_of: array<f32, kThreads / 4u>;
#endif
#if FIXED
const kWidths = 1u;
#else
const kWidths = ${WIDTHS}u;
#endif
var<workgroup> sums: array<vec4f, kSlots * ${S}u * kWidths>;

#if MATH == f16 && NORM
const kRange = 0.125;
#elif MATH == f16 && WEIGHTS == int8
const kRange = 0.00390625;
#elif MATH == f16 && AFFINE
const kRange = 0.015625;
#elif MATH == f16
const kRange = 0.03125;
#else
const kRange = 1.0;
#endif

#if MATH == f16
alias Pair = vec2<f16>;
fn pack(a: f32, b: f32) -> u32 { return bitcast<u32>(Pair(vec2f(a, b))); }
#if AFFINE
const kLow = 1024.0h;
const kHigh = -64.0h;
#else
const kLow = 1032.0h;
const kHigh = -72.0h;
#endif
#if WEIGHTS == int4
fn product(w: u32, v: vec4u) -> f32 {
  let u = w >> 8u;
  let p = (bitcast<Pair>((w & 0x000f000fu) | 0x64006400u) - Pair(kLow)) * bitcast<Pair>(v.x)
        + fma(bitcast<Pair>((w & 0x00f000f0u) | 0x64006400u), Pair(0.0625h), Pair(kHigh)) * bitcast<Pair>(v.y)
        + (bitcast<Pair>((u & 0x000f000fu) | 0x64006400u) - Pair(kLow)) * bitcast<Pair>(v.z)
        + fma(bitcast<Pair>((u & 0x00f000f0u) | 0x64006400u), Pair(0.0625h), Pair(kHigh)) * bitcast<Pair>(v.w);
  return f32(p.x) + f32(p.y);
}
#else
fn product(word: u32, v: vec2u) -> f32 {
  let w = word ^ 0x80808080u;
  let p = (bitcast<Pair>((w & 0x00ff00ffu) | 0x64006400u) - Pair(1152.0h)) * bitcast<Pair>(v.x)
        + (bitcast<Pair>(((w >> 8u) & 0x00ff00ffu) | 0x64006400u) - Pair(1152.0h)) * bitcast<Pair>(v.y);
  return f32(p.x) + f32(p.y);
}
#endif
#elif WEIGHTS == int4
fn nibbles(word: u32) -> vec4f {
  let q = bitcast<vec4f>((vec4u(word) & vec4u(15u, 240u, 3840u, 61440u)) | vec4u(0x4B000000u));
#if AFFINE
  return q - vec4f(8388608.0);
#else
  return q - vec4f(8388616.0, 8388736.0, 8390656.0, 8421376.0);
#endif
}
fn product(w: u32, low: vec4f, high: vec4f) -> f32 { return dot(nibbles(w), low) + dot(nibbles(w >> 16u), high); }
#else
fn product(word: u32, v: vec4f) -> f32 {
  let w = word ^ 0x80808080u;
  let q = (vec4u(w, w >> 8u, w >> 16u, w >> 24u) & vec4u(255u)) | vec4u(0x4B000000u);
  return dot(bitcast<vec4f>(q) - vec4f(8388736.0), v);
}
#endif

// A unit of x, zero beyond the row; its square; times the norm's weight; times a number.
#if WEIGHTS == int4
alias Unit = Eight;
fn unitOf(row: u32, at: u32) -> Unit {
  if (at < ${UNITS}u) { return loadEight(row, at); }
  return Eight();
}
fn dotOf(v: Unit) -> f32 { return dot(v.low, v.low) + dot(v.high, v.high); }
fn normed(v: Unit, at: u32) -> Unit {
  let i = 2u * min(at, ${UNITS}u - 1u);
  return Eight(v.low * normWeight(i), v.high * normWeight(i + 1u));
}
fn scaled(v: Unit, by: f32) -> Unit { return Eight(v.low * by, v.high * by); }
#else
alias Unit = vec4f;
fn unitOf(row: u32, at: u32) -> Unit {
  if (at < ${UNITS}u) { return loadX(row, at); }
  return vec4f();
}
fn dotOf(v: Unit) -> f32 { return dot(v, v); }
fn normed(v: Unit, at: u32) -> Unit { return v * normWeight(min(at, ${UNITS}u - 1u)); }
fn scaled(v: Unit, by: f32) -> Unit { return v * by; }
#endif

// Stages unit i of the chunk.
#if WEIGHTS == int4
fn stage(i: u32, v: Eight) {
  let e = v.low;
  let f = v.high;
#if AFFINE
  let s = e + f;
  staged_sum[i] = (s.x + s.y) + (s.z + s.w);
#endif
#if MATH == f16
  staged[i] = vec4u(pack(e.x, e.z), pack(f.x, f.z), pack(e.y, e.w), pack(f.y, f.w));
#else
  let powers = vec4f(1.0, 0.0625, 0.00390625, 0.000244140625);
  let at = i / ${LANES}u * (2u * ${LANES}u) + i % ${LANES}u;
  staged[at] = vec4f(e.x, f.x, e.y, f.y) * powers;
  staged[at + ${LANES}u] = vec4f(e.z, f.z, e.w, f.w) * powers;
#endif
}
#elif MATH == f16
fn stage(i: u32, v: vec4f) { staged[i] = vec2u(pack(v.x, v.z), pack(v.y, v.w)); }
#else
fn stage(i: u32, v: vec4f) { staged[i] = v; }
#endif

// The block of four rows of W that team t of the workgroup takes as its b-th.
fn blockOf(wg: u32, t: u32, b: u32) -> u32 {
#if GLU || ROPE
#if PAIRED
  let index = (wg * ${T}u + t) * (${BLOCKS}u / 2u) + b / 2u;
  let second = b % 2u;
#else
  let index = (wg * (${T}u / 2u) + t % (${T}u / 2u)) * ${BLOCKS}u + b;
  let second = t / (${T}u / 2u);
#endif
#if GLU
  return min(index + second * (params.n / 4u), params.last);
#else
  return min(pairRow(index) / 4u + second * (${HEAD_DIM}u / 8u), params.last);
#endif
#else
  return min((wg * ${T}u + t) * ${BLOCKS}u + b, params.last);
#endif
}

@compute @workgroup_size(kThreads)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32, @builtin(subgroup_size) sg_size: u32) {
#if FIXED
  const sg = ${LANES}u;
  const width = ${LANES}u;
#else
  let sg = sg_size;
  let width = min(sg_size, ${LANES}u);
#endif
  let row = wid.y;
  let lane = li % ${LANES}u;
  let team = li / ${LANES}u;
  let s = team % ${S}u;
  let t = team / ${S}u;
#for b 0 BLOCKS
  let block${b} = blockOf(wid.x, t, ${b}u);
  let words${b} = block${b} * ${UNITS}u;
#if WEIGHTS == int4
  let groups${b} = block${b} * (${UNITS}u * 8u / ${GROUP}u);
#endif
  var acc${b} = vec4f();
#endfor
  var squares = 0.0;
#if CHUNKS == 1
  {
    const first = 0u;
#else
  for (var first = 0u; first < ${UNITS}u; first += kChunkUnits) {
#endif
    let own = first + s * (${ITERATIONS}u * ${LANES}u) + lane;
#for i 0 AHEAD
    let u${i} = min(own + ${i}u * ${LANES}u, ${UNITS}u - 1u);
#for b 0 BLOCKS
    let w${b}_${i} = words[words${b} + u${i}];
#if WEIGHTS == int4
    let c${b}_${i} = groupConstants(groups${b} + u${i} / (${GROUP}u / 8u));
#endif
#endfor
#endfor
#if CHUNKS != 1
    if (first > 0u) { workgroupBarrier(); }
#endif

#if NORM && MATH == f16
#for j 0 PER
    let i${j} = li + ${j}u * kThreads;
    var x${j} = unitOf(row, first + i${j});
    squares += dotOf(x${j});
    x${j} = normed(x${j}, first + i${j});
#endfor
    let squares_here = subgroupAdd(squares);
    if (li % sg == 0u) { squares_of[li / sg] = squares_here; }
    workgroupBarrier();
    var total = 0.0;
    for (var i = 0u; i < (kThreads + sg - 1u) / sg; i++) { total += squares_of[i]; }
    let range = kRange * inverseSqrt(total / f32(${UNITS}u * kUnit) + params.eps);
#for j 0 PER
    if (i${j} < kChunkUnits) { stage(i${j}, scaled(x${j}, range)); }
#endfor
#elif STAGE_UNROLLED
#for j 0 PER
    let i${j} = li + ${j}u * kThreads;
    var x${j} = unitOf(row, first + i${j});
#endfor
#for j 0 PER
    if (i${j} < kChunkUnits) {
#if NORM
      squares += dotOf(x${j});
      x${j} = normed(x${j}, first + i${j});
#endif
      stage(i${j}, scaled(x${j}, kRange));
    }
#endfor
#else
    for (var i = li; i < kChunkUnits; i += kThreads) {
      var x = unitOf(row, first + i);
#if NORM
      squares += dotOf(x);
      x = normed(x, first + i);
#endif
      stage(i, scaled(x, kRange));
    }
#endif
#if MATH == f32
#if NORM
    let squares_here = subgroupAdd(squares);  // of all chunks so far; the last chunk's is what counts
    if (li % sg == 0u) { squares_of[li / sg] = squares_here; }
#endif
#endif
    workgroupBarrier();

#for i 0 ITERATIONS
#if AHEAD <= i
    let u${i} = min(own + ${i}u * ${LANES}u, ${UNITS}u - 1u);
#for b 0 BLOCKS
    let w${b}_${i} = words[words${b} + u${i}];
#if WEIGHTS == int4
    let c${b}_${i} = groupConstants(groups${b} + u${i} / (${GROUP}u / 8u));
#endif
#endfor
#endif
    let at_${i} = (s * ${ITERATIONS}u + ${i}u) * ${LANES}u + lane;
#if MATH == f32 && WEIGHTS == int4
    let low${i} = staged[2u * at_${i} - lane];
    let high${i} = staged[2u * at_${i} - lane + ${LANES}u];
#for b 0 BLOCKS
    let d${b}_${i} = vec4f(product(w${b}_${i}.x, low${i}, high${i}), product(w${b}_${i}.y, low${i}, high${i}),
                           product(w${b}_${i}.z, low${i}, high${i}), product(w${b}_${i}.w, low${i}, high${i}));
#endfor
#else
    let v${i} = staged[at_${i}];
#for b 0 BLOCKS
    let d${b}_${i} = vec4f(product(w${b}_${i}.x, v${i}), product(w${b}_${i}.y, v${i}), product(w${b}_${i}.z, v${i}),
                           product(w${b}_${i}.w, v${i}));
#endfor
#endif
#for b 0 BLOCKS
#if WEIGHTS == int4 && AFFINE
    acc${b} += d${b}_${i} * halves4(c${b}_${i}.xy) + halves4(c${b}_${i}.zw) * staged_sum[at_${i}];
#elif WEIGHTS == int4
    acc${b} += d${b}_${i} * halves4(c${b}_${i});
#else
    acc${b} += d${b}_${i};
#endif
#endfor
#endfor
  }
#for b 0 BLOCKS
#if FIXED
  acc${b} = subgroupAdd(acc${b});
#else
  for (var d = 1u; d < width; d *= 2u) { acc${b} += subgroupShuffleXor(acc${b}, d); }
#endif
  if (lane % width == 0u) { sums[((t * ${BLOCKS}u + ${b}u) * ${S}u + s) * (${LANES}u / width) + lane / width] = acc${b}; }
#endfor
  workgroupBarrier();
#if NORM && MATH == f32
  var total = 0.0;
  for (var i = 0u; i < (kThreads + sg - 1u) / sg; i++) { total += squares_of[i]; }
  let scale = inverseSqrt(total / f32(${UNITS}u * kUnit) + params.eps);
#else
  const scale = 1.0 / kRange;
#endif
  let parts = ${S}u * (${LANES}u / width);
#if GLU || ROPE
  const rows = kSlots * 2u;
#else
  const rows = kSlots * 4u;
#endif
#if HEAD_NORM
  // the workgroup's rows are a head's, and no more than its invocations
  {
    let i = min(li, rows - 1u);
#else
  for (var i = li; i < rows; i += kThreads) {
#endif
#if PAIRED
    let slot = i / 4u * 2u;
    let other = slot + 1u;
#else
    let slot = i / 4u;
    let other = slot + kSlots / 2u;
#endif
    let column = wid.x * rows + i;
#if !HEAD_NORM
    if (column >= params.n / kColumnRows) { return; }
#endif
    var z = 0.0;
    for (var p = 0u; p < parts; p++) { z += sums[slot * parts + p][i % 4u]; }
    z *= scale;
    var second = 0.0;
#if GLU || ROPE
    for (var p = 0u; p < parts; p++) { second += sums[other * parts + p][i % 4u]; }
    second *= scale;
#endif
#if ROPE
    let pair = pairOf(column / 4u, i % 4u, z, second);
    var head_squares = 0.0;
#if HEAD_NORM
    let own_squares = subgroupAdd(select(0.0, dot(pair, pair), li < rows));
    if (li % sg == 0u) { head_squares_of[li / sg] = own_squares; }
    workgroupBarrier();
    for (var p = 0u; p < (kThreads + sg - 1u) / sg; p++) { head_squares += head_squares_of[p]; }
    if (li >= rows) { return; }
#endif
    finishPair(column / 4u, i % 4u, pair, head_squares);
#else
    finish(row, column, z, second);
#endif
  }
}
