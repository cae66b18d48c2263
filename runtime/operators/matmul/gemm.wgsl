// A tile of y: TILE_M rows x TILE_N columns of x · Wᵀ (or a · b), with the epilogue of gemv.wgsl. Each invocation computes
// PER_M rows x 8 columns: four from the left and four from the right half of the tile, which with GLU hold gate and up rows.
// Steps of STEP k: both factors are staged transposed, [k][4 rows], by whole vec4s, with the row index XORed by bits of k so
// that these stores hit different banks. The norm's scale is found while x is staged and applied to the sums.
// HALF: factors and the sums of a step in f16, twice as many a cycle on most GPUs; the sums of the steps are f32. Not for int8,
// whose scales come last: 32 products of up to 127 x would leave f16.
// Grid: (columns / tile, rows / TILE_M, batch).
// Parameters: m, n (columns of y, in this part), n0 (first column of this part), n_total, k, units, last (last block of four rows of
// W, plain: last row), eps; transposed: batch_a, batch_b, batch_y (elements between batches), bias_m, bias_n, alpha, beta.
// Defines: AHEAD (loads run a step ahead, LOADS_X of x and LOADS_W of W an invocation; for GPUs), HALF (with AHEAD, without NORM),
// STEP = 16 | 32 (NORM: 16), TILE_M, TILE_N, PER_M = 4 | 8, WEIGHTS = plain | transposed | int4 | int8, VEC4 (k is a multiple of 4), VEC_N
// (n is a multiple of 4), AFFINE, GROUP, NORM, NORM_WEIGHT, BIAS, GLU, RESIDUAL, ACTIVATION, STORE (type of y's elements).
${HEADER}
#include "common/quant.wgsl"
#include "common/activation.wgsl"
#if LOW_RANK
#include "matmul/low_rank.wgsl"
#endif

#if HALF
alias T = f16;
alias T4 = vec4<f16>;
alias Rows = mat4x4<f16>;
#else
alias T = f32;
alias T4 = vec4f;
alias Rows = mat4x4f;
#endif
const kStep = ${STEP}u;
const kQuads = kStep / 4u;
const kOctets = kStep / 8u;
const kTileM = ${TILE_M}u;
const kTileN = ${TILE_N}u;
const kThreads = kTileM / ${PER_M}u * (kTileN / 8u);
const kGroupsM = kTileM / 4u;
const kGroupsN = kTileN / 4u;
const kTasksX = kGroupsM * kQuads;
var<workgroup> tile_x: array<T4, kTileM * kQuads>;
var<workgroup> tile_w: array<T4, kTileN * kQuads>;

// Quarters of a step store to different banks: at most as many pairs of groups as there are.
fn slotX(k: u32, group: u32) -> u32 { return k * kGroupsM + (group ^ ((k / 4u % min(kQuads, kGroupsM / 2u)) * 2u)); }
#if WEIGHTS == int4
fn slotW(k: u32, group: u32) -> u32 { return k * kGroupsN + (group ^ ((k / 8u % kOctets) * 4u)); }
#else
fn slotW(k: u32, group: u32) -> u32 { return k * kGroupsN + (group ^ ((k / 4u % min(kQuads, kGroupsN / 2u)) * 2u)); }
#endif

fn loadX(base: u32, row: u32, k: u32) -> T4 {
#if VEC4
  if (k >= params.k) { return T4(); }
  return T4(x[(base + row * params.k + k) / 4u]);
#else
  var v = T4();
  for (var j = 0u; j < 4u; j++) {
    if (k + j < params.k) { v[j] = T(x[base + row * params.k + k + j]); }
  }
  return v;
#endif
}
#if NORM_WEIGHT
fn normWeight(k: u32) -> vec4f {
#if VEC4
  return vec4f(norm_weight[min(k, params.k - 4u) / 4u]);
#else
  var v = vec4f();
  for (var j = 0u; j < 4u; j++) {
    if (k + j < params.k) { v[j] = f32(norm_weight[k + j]); }
  }
  return v;
#endif
}
#endif

// Rows 4 g … of x, k0 + 4 q ….
fn fetchX(base: u32, row0: u32, k0: u32, task: u32) -> Rows {
  let k = k0 + task % kQuads * 4u;
  let row = row0 + task / kQuads * 4u;
  let last = params.m - 1u;
  return Rows(loadX(base, min(row, last), k), loadX(base, min(row + 1u, last), k),
              loadX(base, min(row + 2u, last), k), loadX(base, min(row + 3u, last), k));
}
// Stages what fetchX gave; returns the squares of the four rows.
fn storeX(fetched: Rows, k0: u32, task: u32) -> vec4f {
  let q = task % kQuads;
  let g = task / kQuads;
  let k = k0 + 4u * q;
  var v = fetched;
  var squares = vec4f();
#if NORM
  squares = vec4f(dot(v[0], v[0]), dot(v[1], v[1]), dot(v[2], v[2]), dot(v[3], v[3]));
#if NORM_WEIGHT
  let nw = normWeight(k);
  v = mat4x4f(v[0] * nw, v[1] * nw, v[2] * nw, v[3] * nw);
#endif
#endif
  let t = transpose(v);
  tile_x[slotX(4u * q, g)] = t[0];
  tile_x[slotX(4u * q + 1u, g)] = t[1];
  tile_x[slotX(4u * q + 2u, g)] = t[2];
  tile_x[slotX(4u * q + 3u, g)] = t[3];
  return squares;
}

// First row of W of the tile's group g of four columns.
fn rowOfGroup(column0: u32, g: u32) -> u32 {
#if GLU
  let right = g / (kGroupsN / 2u);
  return column0 + (g % (kGroupsN / 2u)) * 4u + right * params.n;
#else
  return column0 + g * 4u;
#endif
}

#if WEIGHTS == int4
const kTasksW = kGroupsN * kOctets;
struct Fetched {
  w: vec4u,
#if AFFINE
  s: vec4u,
#else
  s: vec2u,
#endif
}
fn fetchW(base: u32, column0: u32, k0: u32, task: u32) -> Fetched {
  let block = min(rowOfGroup(column0, task / kOctets) / 4u, params.last);
  let u = min(k0 / 8u + task % kOctets, params.units - 1u);
  return Fetched(words[block * params.units + u], constants[block * (params.k / ${GROUP}u) + u / (${GROUP}u / 8u)]);
}
fn storeW(f: Fetched, task: u32) {
  let c = task % kOctets;
  let g = task / kOctets;
  let w = f.w;
#if AFFINE
  let scale = T4(halves4(f.s.xy));
  let zero = T4(halves4(f.s.zw));
#else
  let scale = T4(halves4(f.s));
  let zero = T(-8.0) * scale;
#endif
  for (var j = 0u; j < 4u; j++) {
    let lo = T4((w >> vec4u(8u * j)) & vec4u(15u));
    let hi = T4((w >> vec4u(8u * j + 4u)) & vec4u(15u));
    tile_w[slotW(8u * c + j, g)] = lo * scale + zero;
    tile_w[slotW(8u * c + 4u + j, g)] = hi * scale + zero;
  }
}
#endif
#if WEIGHTS == int8
const kTasksW = kGroupsN * kQuads;
alias Fetched = vec4u;
fn fetchW(base: u32, column0: u32, k0: u32, task: u32) -> Fetched {
  let block = min(rowOfGroup(column0, task / kQuads) / 4u, params.last);
  return words[block * params.units + min(k0 / 4u + task % kQuads, params.units - 1u)];
}
fn storeW(w: Fetched, task: u32) {
  let c = task % kQuads;
  let g = task / kQuads;
  for (var j = 0u; j < 4u; j++) {  // scales: in the epilogue
    tile_w[slotW(4u * c + j, g)] = vec4f(bitcast<vec4i>(w << vec4u(24u - 8u * j)) >> vec4u(24u));
  }
}
#endif
#if WEIGHTS == plain
const kTasksW = kGroupsN * kQuads;
fn loadW(row: u32, k: u32) -> T4 {
#if VEC4
  if (k >= params.k) { return T4(); }
  return T4(words[(min(row, params.last) * params.k + k) / 4u]);
#else
  var v = T4();
  for (var j = 0u; j < 4u; j++) {
    if (k + j < params.k) { v[j] = T(words[min(row, params.last) * params.k + k + j]); }
  }
  return v;
#endif
}
alias Fetched = Rows;
fn fetchW(base: u32, column0: u32, k0: u32, task: u32) -> Fetched {
  let row = rowOfGroup(column0, task / kQuads);
  let k = k0 + task % kQuads * 4u;
  return Rows(loadW(row, k), loadW(row + 1u, k), loadW(row + 2u, k), loadW(row + 3u, k));
}
fn storeW(f: Fetched, task: u32) {
  let q = task % kQuads;
  let g = task / kQuads;
  let t = transpose(f);
  tile_w[slotW(4u * q, g)] = t[0];
  tile_w[slotW(4u * q + 1u, g)] = t[1];
  tile_w[slotW(4u * q + 2u, g)] = t[2];
  tile_w[slotW(4u * q + 3u, g)] = t[3];
}
#endif
#if WEIGHTS == transposed
const kTasksW = kGroupsN * kStep;
alias Fetched = T4;
fn fetchW(base: u32, column0: u32, k0: u32, task: u32) -> Fetched {
  let k = task / kGroupsN;
  let column = column0 + task % kGroupsN * 4u;
  var v = T4();
  if (k0 + k < params.k) {
#if VEC_N
    if (column < params.n) { v = T4(words[(base + (k0 + k) * params.n + column) / 4u]); }
#else
    for (var j = 0u; j < 4u; j++) {
      if (column + j < params.n) { v[j] = T(words[base + (k0 + k) * params.n + column + j]); }
    }
#endif
  }
  return v;
}
fn storeW(v: Fetched, task: u32) { tile_w[slotW(task / kGroupsN, task % kGroupsN)] = v; }
#endif

#if BIAS
fn loadBias(row: u32, column: u32) -> vec4f {
#if WEIGHTS == transposed
  var v = vec4f();
  for (var j = 0u; j < 4u; j++) {
    v[j] = f32(bias[row * params.bias_m + min(column + j, params.n - 1u) * params.bias_n]);
  }
  return v * params.beta;
#else
#if VEC_N
  return vec4f(bias[column / 4u]);
#else
  var v = vec4f();
  for (var j = 0u; j < 4u; j++) { v[j] = f32(bias[min(column + j, arrayLength(&bias) - 1u)]); }
  return v;
#endif
#endif
}
#endif
#if LOW_RANK
// Of rows n … n + 3 of W.
fn lowRank4(row: u32, n: u32) -> vec4f {
#if LOW_RANK_VEC
  return lowRank(row, n);
#else
  var v = vec4f();
  for (var j = 0u; j < 4u; j++) { v[j] = lowRank(row, min(n + j, params.low_rank_n - 1u)); }
  return v;
#endif
}
#endif
fn activation4(v: vec4f) -> vec4f { return vec4f(activation(v.x), activation(v.y), activation(v.z), activation(v.w)); }

#if WEIGHTS == int8
fn loadScale(column: u32) -> vec4f {  // of this part
  return constants[min(column / 4u, params.last)];
}
#endif
// Applies everything after the product to four columns of one row (column counts in this part) and stores them.
fn finish(batch: u32, row: u32, column: u32, product: vec4f, product_up: vec4f, scale: f32) {
  if (row >= params.m || column >= params.n) { return; }
  var z = product * scale;
#if WEIGHTS == transposed
  z *= params.alpha;
#endif
#if WEIGHTS == int8
  z *= loadScale(column);
#endif
#if LOW_RANK
  z += lowRank4(row, params.n0 + column);
#endif
#if BIAS
  z += loadBias(row, params.n0 + column);
#endif
  z = activation4(z);
#if GLU
  var up = product_up * scale;
#if WEIGHTS == int8
  up *= loadScale(params.n + column);
#endif
#if LOW_RANK
  up += lowRank4(row, params.n_total + params.n0 + column);
#endif
#if BIAS
  up += loadBias(row, params.n_total + params.n0 + column);
#endif
  z *= up;
#endif
  let at = batch + row * params.n_total + params.n0 + column;
#if VEC_N
#if RESIDUAL
  z += vec4f(residual[at / 4u]);
#endif
  y[at / 4u] = vec4<${STORE}>(z);
#else
  for (var j = 0u; j < min(4u, params.n - column); j++) {
#if RESIDUAL
    z[j] += f32(residual[at + j]);
#endif
    y[at + j] = ${STORE}(z[j]);
  }
#endif
}

@compute @workgroup_size(kThreads)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32) {
  let tn = li % (kTileN / 8u);
  let tm = li / (kTileN / 8u);
#if GLU
  let column0 = wid.x * (kTileN / 2u);
#else
  let column0 = wid.x * kTileN;
#endif
  let row0 = wid.y * kTileM;
#if WEIGHTS == transposed
  let base_x = wid.z * params.batch_a;
  let base_w = wid.z * params.batch_b;
  let base_y = wid.z * params.batch_y;
#else
  let base_x = 0u;
  let base_w = 0u;
  let base_y = 0u;
#endif
#for i 0 PER_M
  var l${i} = T4(); var r${i} = T4();
#if HALF
  var sum_l${i} = vec4f(); var sum_r${i} = vec4f();
#endif
#endfor
  var squares = vec4f();
#if AHEAD
  // The loads of the next step are under way during the products of this one.
  let task_w = kThreads - 1u - li;
  var next_x: array<Rows, ${LOADS_X}>;
  var next_w: array<Fetched, ${LOADS_W}>;
#for t 0 LOADS_X
  if (li + ${t}u * kThreads < kTasksX) { next_x[${t}] = fetchX(base_x, row0, 0u, li + ${t}u * kThreads); }
#endfor
#for t 0 LOADS_W
  if (task_w + ${t}u * kThreads < kTasksW) { next_w[${t}] = fetchW(base_w, column0, 0u, task_w + ${t}u * kThreads); }
#endfor
#endif
  for (var k0 = 0u; k0 < params.k; k0 += kStep) {
    workgroupBarrier();
#if AHEAD
#for t 0 LOADS_X
    if (li + ${t}u * kThreads < kTasksX) { squares += storeX(next_x[${t}], k0, li + ${t}u * kThreads); }
#endfor
#for t 0 LOADS_W
    if (task_w + ${t}u * kThreads < kTasksW) { storeW(next_w[${t}], task_w + ${t}u * kThreads); }
#endfor
    workgroupBarrier();
    if (k0 + kStep < params.k) {
#for t 0 LOADS_X
      if (li + ${t}u * kThreads < kTasksX) { next_x[${t}] = fetchX(base_x, row0, k0 + kStep, li + ${t}u * kThreads); }
#endfor
#for t 0 LOADS_W
      if (task_w + ${t}u * kThreads < kTasksW) { next_w[${t}] = fetchW(base_w, column0, k0 + kStep, task_w + ${t}u * kThreads); }
#endfor
    }
#for K 0 STEP
    {
      let k = ${K}u;
      let a = tile_x[slotX(k, tm)];
      let wl = tile_w[slotW(k, tn)];
      let wr = tile_w[slotW(k, kTileN / 8u + tn)];
#for i 0 4
      l${i} = fma(T4(a[${i}]), wl, l${i}); r${i} = fma(T4(a[${i}]), wr, r${i});
#endfor
#if PER_M == 8
      let b = tile_x[slotX(k, kTileM / 8u + tm)];
#for i 4 8
      l${i} = fma(T4(b[${i} - 4]), wl, l${i}); r${i} = fma(T4(b[${i} - 4]), wr, r${i});
#endfor
#endif
    }
#endfor
#if HALF
#for i 0 PER_M
    sum_l${i} += vec4f(l${i}); sum_r${i} += vec4f(r${i});
    l${i} = T4(); r${i} = T4();
#endfor
#endif
#else
    for (var t = li; t < kTasksX; t += kThreads) { squares += storeX(fetchX(base_x, row0, k0, t), k0, t); }
    for (var t = kThreads - 1u - li; t < kTasksW; t += kThreads) { storeW(fetchW(base_w, column0, k0, t), t); }
    workgroupBarrier();
    for (var k = 0u; k < kStep; k++) {
      let a = tile_x[slotX(k, tm)];
      let wl = tile_w[slotW(k, tn)];
      let wr = tile_w[slotW(k, kTileN / 8u + tn)];
#for i 0 4
      l${i} += a[${i}] * wl; r${i} += a[${i}] * wr;
#endfor
#if PER_M == 8
      let b = tile_x[slotX(k, kTileM / 8u + tm)];
#for i 4 8
      l${i} += b[${i} - 4] * wl; r${i} += b[${i} - 4] * wr;
#endfor
#endif
    }
#endif
  }
#if !HALF
#for i 0 PER_M
  let sum_l${i} = l${i};
  let sum_r${i} = r${i};
#endfor
#endif
  var scale_a = vec4f(1.0);
  var scale_b = vec4f(1.0);
#if NORM
  workgroupBarrier();
  if (li < kTileM) { tile_x[li] = squares; }  // li = 4 group + quarter of k
  workgroupBarrier();
  let sum_a = (tile_x[4u * tm] + tile_x[4u * tm + 1u]) + (tile_x[4u * tm + 2u] + tile_x[4u * tm + 3u]);
  scale_a = inverseSqrt(sum_a / f32(params.k) + params.eps);
#if PER_M == 8
  let g = 4u * (kTileM / 8u + tm);
  let sum_b = (tile_x[g] + tile_x[g + 1u]) + (tile_x[g + 2u] + tile_x[g + 3u]);
  scale_b = inverseSqrt(sum_b / f32(params.k) + params.eps);
#endif
#endif
  let column = column0 + 4u * tn;
  let row = row0 + 4u * tm;
#if !GLU
  let right = column + kTileN / 2u;
#endif
#for i 0 4
#if GLU
  finish(base_y, row + ${i}u, column, sum_l${i}, sum_r${i}, scale_a[${i}]);
#else
  finish(base_y, row + ${i}u, column, sum_l${i}, vec4f(), scale_a[${i}]);
  finish(base_y, row + ${i}u, right, sum_r${i}, vec4f(), scale_a[${i}]);
#endif
#endfor
#if PER_M == 8
  let row_b = row0 + kTileM / 2u + 4u * tm;
#for i 4 8
#if GLU
  finish(base_y, row_b + ${i}u - 4u, column, sum_l${i}, sum_r${i}, scale_b[${i} - 4]);
#else
  finish(base_y, row_b + ${i}u - 4u, column, sum_l${i}, vec4f(), scale_b[${i} - 4]);
  finish(base_y, row_b + ${i}u - 4u, right, sum_r${i}, vec4f(), scale_b[${i} - 4]);
#endif
#endfor
#endif
}
