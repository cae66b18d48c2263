// A tile of y: BM rows x BN columns of x · Wᵀ by subgroup matrices (f16 factors, f32 sums), with the epilogue of gemv.wgsl. x is f16,
// and normalised beforehand. A subgroup computes SM x SN. Steps of BK k: both factors lie in workgroup memory as rows of halves,
// padded by 16 bytes so that the rows of a matrix lie in different banks; weights are expanded in registers on their way there, and
// the loads of the next step are under way during the products of this one. W is the right factor in column-major order: its rows.
// Since no invocation can reach elements of a matrix, sums go through workgroup memory to the epilogue, MATRIX rows x 32 columns a
// subgroup at a time. With GLU such a block holds 16 columns of the gate and 16 of up.
// Grid: (columns / tile, rows / BM).
// Parameters: m, n (columns of y, in this part), n0 (first column of this part), n_total (a multiple of 4), k (of BK), units, last
// (last block of four rows of W; plain: last row).
// Defines: MATRIX = 8 | 16, BM, BN, BK, SM, SN (multiples of 32), WG, TILE (vec4u of workgroup memory), LOADS_X, LOADS_W (16-byte loads an
// invocation and step, LOADS_W of four rows), EVEN_W (every invocation has LOADS_W of them), MATRICES_M, MATRICES_K, BLOCKS (of 32
// columns), MATRICES_B (in such a block), WEIGHTS = plain | int4 | int8, AFFINE, GROUP, BIAS, GLU, RESIDUAL, ACTIVATION, STORE (type of y's
// elements).
${HEADER}
#include "common/activation.wgsl"
#if LOW_RANK
#include "matmul/low_rank.wgsl"
#endif

alias Left = subgroup_matrix_left<f16, ${MATRIX}, ${MATRIX}>;
alias Right = subgroup_matrix_right<f16, ${MATRIX}, ${MATRIX}>;
alias Sums = subgroup_matrix_result<f32, ${MATRIX}, ${MATRIX}>;
alias Pair = vec2<f16>;

const kChunks = ${BK}u / 8u;      // 16-byte pieces of a row
const kStride = kChunks + 1u;
const kTileW = ${BM}u * kStride;  // where the rows of W begin
const kSubgroups = ${WG}u / 32u;
var<workgroup> tile: array<vec4u, ${TILE}>;

// The block of four rows of W behind the tile's rows 4 g ….
fn blockOf(column0: u32, g: u32) -> u32 {
#if GLU
  return column0 / 4u + g / 8u * 4u + g % 4u + (g / 4u % 2u) * (params.n / 4u);
#else
  return column0 / 4u + g;
#endif
}

fn pack(a: f16, b: f16) -> u32 { return bitcast<u32>(Pair(a, b)); }
#if WEIGHTS == int4
// 0x6400 | q is 1024 + q, and 0x6400 | 16 q is 1024 + 16 q.
#if AFFINE
fn expand(w: u32, s: Pair, zero: Pair) -> vec4u {
  let v = w >> 8u;
  let even_low = fma(bitcast<Pair>((w & 0x000f000fu) | 0x64006400u) - Pair(1024.0h), s, zero);
  let even_high = fma(fma(bitcast<Pair>((w & 0x00f000f0u) | 0x64006400u), Pair(0.0625h), Pair(-64.0h)), s, zero);
  let odd_low = fma(bitcast<Pair>((v & 0x000f000fu) | 0x64006400u) - Pair(1024.0h), s, zero);
  let odd_high = fma(fma(bitcast<Pair>((v & 0x00f000f0u) | 0x64006400u), Pair(0.0625h), Pair(-64.0h)), s, zero);
#else
fn expand(w: u32, s: Pair) -> vec4u {
  let v = w >> 8u;
  let even_low = (bitcast<Pair>((w & 0x000f000fu) | 0x64006400u) - Pair(1032.0h)) * s;
  let even_high = fma(bitcast<Pair>((w & 0x00f000f0u) | 0x64006400u), Pair(0.0625h), Pair(-72.0h)) * s;
  let odd_low = (bitcast<Pair>((v & 0x000f000fu) | 0x64006400u) - Pair(1032.0h)) * s;
  let odd_high = fma(bitcast<Pair>((v & 0x00f000f0u) | 0x64006400u), Pair(0.0625h), Pair(-72.0h)) * s;
#endif
  return vec4u(pack(even_low.x, odd_low.x), pack(even_low.y, odd_low.y), pack(even_high.x, odd_high.x),
               pack(even_high.y, odd_high.y));
}
#endif
#if WEIGHTS == int8
// A signed byte with its top bit flipped is q + 128, and 0x6400 | (q + 128) is 1152 + q. The scale: in the epilogue.
fn expand(w: u32) -> vec2u {
  let u = w ^ 0x80808080u;
  let even = bitcast<Pair>((u & 0x00ff00ffu) | 0x64006400u) - Pair(1152.0h);
  let odd = bitcast<Pair>(((u >> 8u) & 0x00ff00ffu) | 0x64006400u) - Pair(1152.0h);
  return vec2u(pack(even.x, odd.x), pack(even.y, odd.y));
}
#endif
#if WEIGHTS == plain
fn halves(row: u32, k: u32) -> vec4u {
  let at = (min(row, params.last) * params.k + k) / 4u;
  return vec4u(bitcast<vec2u>(vec4<f16>(words[at])), bitcast<vec2u>(vec4<f16>(words[at + 1u])));
}
#endif

fn activation4(v: vec4f) -> vec4f { return vec4f(activation(v.x), activation(v.y), activation(v.z), activation(v.w)); }

// Applies everything after the product to four columns of one row (column counts in this part) and stores them.
fn finish(row: u32, column: u32, product: vec4f, product_up: vec4f) {
  if (row >= params.m || column >= params.n) { return; }
  var z = product;
#if WEIGHTS == int8
  z *= constants[column / 4u];
#endif
#if LOW_RANK
  z += lowRank(row, params.n0 + column);
#endif
#if BIAS
  z += vec4f(bias[(params.n0 + column) / 4u]);
#endif
  z = activation4(z);
#if GLU
  var up = product_up;
#if WEIGHTS == int8
  up *= constants[(params.n + column) / 4u];
#endif
#if LOW_RANK
  up += lowRank(row, params.n_total + params.n0 + column);
#endif
#if BIAS
  up += vec4f(bias[(params.n_total + params.n0 + column) / 4u]);
#endif
  z *= up;
#endif
  let at = (row * params.n_total + params.n0 + column) / 4u;
#if RESIDUAL
  z += vec4f(residual[at]);
#endif
  y[at] = vec4<${STORE}>(z);
}

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32, @builtin(subgroup_id) sg: u32,
        @builtin(subgroup_invocation_id) lane: u32) {
  let row0 = wid.y * ${BM}u;
#if GLU
  let column0 = wid.x * (${BN}u / 2u);
#else
  let column0 = wid.x * ${BN}u;
#endif
  let sub_m = sg / (${BN}u / ${SN}u) * ${SM}u;
  let sub_n = sg % (${BN}u / ${SN}u) * ${SN}u;
#for I 0 MATRICES_M
#for B 0 BLOCKS
#for J 0 MATRICES_B
  var c${I}_${B}_${J} = Sums();
#endfor
#endfor
#endfor
#for L 0 LOADS_X
  let xi${L} = li + ${L}u * ${WG}u;
  let xg${L} = min(row0 + xi${L} / kChunks, params.m - 1u) * (params.k / 8u) + xi${L} % kChunks;
  let xs${L} = xi${L} / kChunks * kStride + xi${L} % kChunks;
  var x${L} = x[xg${L}];
#endfor
#for L 0 LOADS_W
  let wi${L} = li + ${L}u * ${WG}u;
  let wc${L} = wi${L} % kChunks;
  let ws${L} = kTileW + wi${L} / kChunks * 4u * kStride + wc${L};
#if WEIGHTS == plain
  let wb${L} = blockOf(column0, wi${L} / kChunks) * 4u;
#for R 0 4
  var w${L}_${R} = halves(wb${L} + ${R}u, 8u * wc${L});
#endfor
#endif
#if WEIGHTS == int4
  let wb${L} = min(blockOf(column0, wi${L} / kChunks), params.last);
  let wg${L} = wb${L} * params.units + wc${L};
  let wq${L} = wb${L} * (params.k / ${GROUP}u);
  var w${L} = words[wg${L}];
  var s${L} = constants[wq${L} + wc${L} / (${GROUP}u / 8u)];
#endif
#if WEIGHTS == int8
  let wg${L} = min(blockOf(column0, wi${L} / kChunks), params.last) * params.units + 2u * wc${L};
  var w${L} = words[wg${L}];
  var v${L} = words[wg${L} + 1u];
#endif
#endfor

  for (var k0 = 0u; k0 < params.k; k0 += ${BK}u) {
#for L 0 LOADS_X
    tile[xs${L}] = x${L};
#endfor
#for L 0 LOADS_W
#if !EVEN_W
    if (wi${L} < ${BN}u / 4u * kChunks) {
#endif
#if WEIGHTS == int4
#if AFFINE
      let scale${L} = bitcast<vec4<f16>>(s${L}.xy);
      let zero${L} = bitcast<vec4<f16>>(s${L}.zw);
#else
      let scale${L} = bitcast<vec4<f16>>(s${L});
#endif
#endif
#for R 0 4
#if WEIGHTS == plain
      tile[ws${L} + ${R}u * kStride] = w${L}_${R};
#endif
#if WEIGHTS == int4
#if AFFINE
      tile[ws${L} + ${R}u * kStride] = expand(w${L}[${R}], Pair(scale${L}[${R}]), Pair(zero${L}[${R}]));
#else
      tile[ws${L} + ${R}u * kStride] = expand(w${L}[${R}], Pair(scale${L}[${R}]));
#endif
#endif
#if WEIGHTS == int8
      tile[ws${L} + ${R}u * kStride] = vec4u(expand(w${L}[${R}]), expand(v${L}[${R}]));
#endif
#endfor
#if !EVEN_W
    }
#endif
#endfor
    workgroupBarrier();
    if (k0 + ${BK}u < params.k) {
      let next = k0 / 8u + kChunks;
#for L 0 LOADS_X
      x${L} = x[xg${L} + next];
#endfor
#for L 0 LOADS_W
#if WEIGHTS == plain
#for R 0 4
      w${L}_${R} = halves(wb${L} + ${R}u, 8u * (next + wc${L}));
#endfor
#endif
#if WEIGHTS == int4
      w${L} = words[wg${L} + next];
      s${L} = constants[wq${L} + (next + wc${L}) / (${GROUP}u / 8u)];
#endif
#if WEIGHTS == int8
      w${L} = words[wg${L} + 2u * next];
      v${L} = words[wg${L} + 2u * next + 1u];
#endif
#endfor
    }
#for K 0 MATRICES_K
    {
#for I 0 MATRICES_M
      let l${I} = subgroupMatrixLoad<Left, row_major>(
          &tile, (sub_m + ${I}u * ${MATRIX}u) * kStride + ${K}u * (${MATRIX}u / 8u), kStride);
#endfor
#for B 0 BLOCKS
#for J 0 MATRICES_B
      {
        let r = subgroupMatrixLoad<Right, col_major>(
            &tile, kTileW + (sub_n + ${B}u * 32u + ${J}u * ${MATRIX}u) * kStride + ${K}u * (${MATRIX}u / 8u), kStride);
#for I 0 MATRICES_M
        c${I}_${B}_${J} = subgroupMatrixMultiplyAccumulate(l${I}, r, c${I}_${B}_${J});
#endfor
      }
#endfor
#endfor
    }
#endfor
    workgroupBarrier();
  }

  let region = sg * ${MATRIX}u * 9u;  // rows of 32 f32, padded by a vec4
#for I 0 MATRICES_M
#for B 0 BLOCKS
#for J 0 MATRICES_B
  subgroupMatrixStore<row_major>(&tile, region + ${J}u * (${MATRIX}u / 4u), c${I}_${B}_${J}, 9u);
#endfor
  workgroupBarrier();
#if GLU
  for (var i = lane; i < ${MATRIX}u * 4u; i += 32u) {
    let at = region + i / 4u * 9u + i % 4u;
    finish(row0 + sub_m + ${I}u * ${MATRIX}u + i / 4u, column0 + (sub_n + ${B}u * 32u) / 2u + i % 4u * 4u,
           bitcast<vec4f>(tile[at]), bitcast<vec4f>(tile[at + 4u]));
  }
#else
  for (var i = lane; i < ${MATRIX}u * 8u; i += 32u) {
    finish(row0 + sub_m + ${I}u * ${MATRIX}u + i / 8u, column0 + sub_n + ${B}u * 32u + i % 8u * 4u,
           bitcast<vec4f>(tile[region + i / 8u * 9u + i % 8u]), vec4f());
  }
#endif
  workgroupBarrier();
#endfor
#endfor
}
