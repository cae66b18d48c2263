// Attention of 64 queries of one head by subgroup matrices (f16 factors, f32 sums): 4 subgroups, each 16 queries, loop over tiles of
// KEYS keys. Scores, probabilities and the product of a tile with the values pass through workgroup memory, since no invocation
// can reach elements of a matrix; running maximum, sum and output live in registers, two lanes a query, where lane h has columns
// 16 j + 8 h … of each 16. The loads of the next tile are under way while this one is worked on.
// Grid: (queries / 64, heads, batches). Key heads are shared by GROUP heads.
// Parameters, strides in vectors of 8: queries, keys (T; CACHED: positions of the cache), q_s, q_h, q_b, k_h, k_b, y_s, y_h, y_b, scale
// (times log2 e), window (0: none).
// Defines: MATRIX = 8 | 16, GROUP, D (a multiple of 16), KEYS (of 16), SLAB (columns of the output at a time: 16, 32 or 64, divides D),
// MATRICES_ROWS = 16 / MATRIX, MATRICES_D, MATRICES_KEYS, MATRICES_SLAB, PAIRS_KEYS = KEYS / 16, PAIRS_SLAB = SLAB / 16, SLABS = D / SLAB,
// LOADS (16-byte loads of keys an invocation and tile), EVEN (every invocation has LOADS of them), PLACE_P (rows of K or P, vec4u),
// STRIDE_S (of scores: 2 modulo 8), CACHED, CAUSAL, STORE, and those of ring.wgsl.
${HEADER}
#include "attention/ring.wgsl"
alias Left = subgroup_matrix_left<f16, ${MATRIX}, ${MATRIX}>;
alias Right = subgroup_matrix_right<f16, ${MATRIX}, ${MATRIX}>;
alias Sums = subgroup_matrix_result<f32, ${MATRIX}, ${MATRIX}>;

const kChunks = ${D}u / 8u;        // 16-byte pieces of a query, key or value
const kStrideK = kChunks + 1u;     // odd, so that rows lie in different banks
const kStrideP = ${KEYS}u / 8u + 1u;
const kStrideS = ${STRIDE_S}u;
const kV = ${PLACE_P}u;            // keys, then probabilities, lie before the values
const kS = kV + ${KEYS}u * kStrideK;
const kMasked = -1e30;
var<workgroup> tile: array<vec4u, ${TILE}>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32, @builtin(subgroup_id) sg: u32,
        @builtin(subgroup_invocation_id) lane: u32) {
  // The tiles that see most keys begin first.
  let row0 = ((params.queries + 63u) / 64u - 1u - wid.x) * 64u;
  let head = wid.y;
  let base = wid.z * params.k_b + head / ${GROUP}u * params.k_h;
  let row = lane / 2u;
  let side = lane % 2u;
#if CACHED
  let offset = u32(start[0]);
#else
  let offset = 0u;
#endif
  let position0 = offset + row0;
  let position = position0 + sg * 16u + row;
  var begin = 0u;
#if CAUSAL
  let end = endWithin(offset + min(row0 + 64u, params.queries), params.keys);
  if (params.window > 0u && position0 + 1u > params.window) {
    begin = (position0 + 1u - params.window) / ${KEYS}u * ${KEYS}u;
  }
#else
  let end = params.keys;
#endif

  for (var i = li; i < 64u * kChunks; i += 128u) {
    let r = min(row0 + i / kChunks, params.queries - 1u);
    tile[i / kChunks * kStrideK + i % kChunks] = q[wid.z * params.q_b + head * params.q_h + r * params.q_s + i % kChunks];
  }
  workgroupBarrier();
#for I 0 MATRICES_ROWS
#for C 0 MATRICES_D
  let q${I}_${C} = subgroupMatrixLoad<Left, row_major>(
      &tile, (sg * 16u + ${I}u * ${MATRIX}u) * kStrideK + ${C}u * (${MATRIX}u / 8u), kStrideK);
#endfor
#endfor
  var best = kMasked * 0.1;  // so that masked scores give 0 before any other was seen
  var sum = 0.0;
#for B 0 SLABS
#for J 0 PAIRS_SLAB
  var o${B}_${J}_0 = vec4f();
  var o${B}_${J}_1 = vec4f();
#endfor
#endfor
  let first_base = base + tileShift(begin) * kChunks;
#for L 0 LOADS
  let kr${L} = (li + ${L}u * 128u) / kChunks;
  let kc${L} = (li + ${L}u * 128u) % kChunks;
  var k${L} = k[first_base + min(begin + kr${L}, end - 1u) * kChunks + kc${L}];
  var v${L} = v[first_base + min(begin + kr${L}, end - 1u) * kChunks + kc${L}];
#endfor
  let mine = kS + (sg * 16u + row) * kStrideS + 2u * side;  // where this lane's columns begin

  for (var key0 = begin; key0 < end; key0 += ${KEYS}u) {
    workgroupBarrier();
#for L 0 LOADS
#if !EVEN
    if (kr${L} < ${KEYS}u) {
#endif
      tile[kr${L} * kStrideK + kc${L}] = k${L};
      tile[kV + kr${L} * kStrideK + kc${L}] = v${L};
#if !EVEN
    }
#endif
#endfor
    workgroupBarrier();
    let next = key0 + ${KEYS}u;
    if (next < end) {
      let next_base = base + tileShift(next) * kChunks;
#for L 0 LOADS
      k${L} = k[next_base + min(next + kr${L}, end - 1u) * kChunks + kc${L}];
      v${L} = v[next_base + min(next + kr${L}, end - 1u) * kChunks + kc${L}];
#endfor
    }
#for N 0 MATRICES_KEYS
    {
#for I 0 MATRICES_ROWS
      var c${I} = Sums();
#endfor
#for C 0 MATRICES_D
      {
        let r = subgroupMatrixLoad<Right, col_major>(
            &tile, ${N}u * ${MATRIX}u * kStrideK + ${C}u * (${MATRIX}u / 8u), kStrideK);
#for I 0 MATRICES_ROWS
        c${I} = subgroupMatrixMultiplyAccumulate(q${I}_${C}, r, c${I});
#endfor
      }
#endfor
#for I 0 MATRICES_ROWS
      subgroupMatrixStore<row_major>(
          &tile, kS + (sg * 16u + ${I}u * ${MATRIX}u) * kStrideS + ${N}u * (${MATRIX}u / 4u), c${I}, kStrideS);
#endfor
    }
#endfor
    workgroupBarrier();
    // The lanes of a query read their vectors in opposite order, which keeps them in different banks.
#for J 0 PAIRS_KEYS
    var x${J}_0 = bitcast<vec4f>(tile[mine + ${J}u * 4u + side]) * params.scale;
    var x${J}_1 = bitcast<vec4f>(tile[mine + ${J}u * 4u + 1u - side]) * params.scale;
#endfor
#if CAUSAL
    if (next > position0 + 1u || params.window > 0u) {
#for J 0 PAIRS_KEYS
#for E 0 2
      {
        let key = vec4u(key0 + ${J}u * 16u + side * 8u + (${E}u ^ side) * 4u) + vec4u(0u, 1u, 2u, 3u);
        var visible = (key <= vec4u(position)) & (key < vec4u(end));
        if (params.window > 0u) { visible = visible & (key + vec4u(params.window) > vec4u(position)); }
        x${J}_${E} = select(vec4f(kMasked), x${J}_${E}, visible);
      }
#endfor
#endfor
    }
#else
    if (next > end) {
#for J 0 PAIRS_KEYS
#for E 0 2
      {
        let key = vec4u(key0 + ${J}u * 16u + side * 8u + (${E}u ^ side) * 4u) + vec4u(0u, 1u, 2u, 3u);
        x${J}_${E} = select(vec4f(kMasked), x${J}_${E}, key < vec4u(end));
      }
#endfor
#endfor
    }
#endif
    var most4 = vec4f(kMasked);
#for J 0 PAIRS_KEYS
    most4 = max(most4, max(x${J}_0, x${J}_1));
#endfor
    let most = max(max(most4.x, most4.y), max(most4.z, most4.w));
    let higher = max(best, max(most, subgroupShuffleXor(most, 1u)));
    let shrink = exp2(best - higher);
    best = higher;
    var sums = vec4f();
#for J 0 PAIRS_KEYS
    x${J}_0 = exp2(x${J}_0 - best);
    x${J}_1 = exp2(x${J}_1 - best);
    sums += x${J}_0 + x${J}_1;
    {
      let a = select(x${J}_0, x${J}_1, side == 1u);
      let b = select(x${J}_1, x${J}_0, side == 1u);
      tile[(sg * 16u + row) * kStrideP + ${J}u * 2u + side] =
          vec4u(pack2x16float(a.xy), pack2x16float(a.zw), pack2x16float(b.xy), pack2x16float(b.zw));
    }
#endfor
    sum = sum * shrink + (sums.x + sums.y) + (sums.z + sums.w);
    workgroupBarrier();
    {
#for I 0 MATRICES_ROWS
#for K 0 MATRICES_KEYS
      let p${I}_${K} = subgroupMatrixLoad<Left, row_major>(
          &tile, (sg * 16u + ${I}u * ${MATRIX}u) * kStrideP + ${K}u * (${MATRIX}u / 8u), kStrideP);
#endfor
#endfor
#for B 0 SLABS
#for N 0 MATRICES_SLAB
      {
#for I 0 MATRICES_ROWS
        var c${I} = Sums();
#endfor
#for K 0 MATRICES_KEYS
        {
          let r = subgroupMatrixLoad<Right, row_major>(
              &tile, kV + ${K}u * ${MATRIX}u * kStrideK + (${B}u * ${SLAB}u + ${N}u * ${MATRIX}u) / 8u, kStrideK);
#for I 0 MATRICES_ROWS
          c${I} = subgroupMatrixMultiplyAccumulate(p${I}_${K}, r, c${I});
#endfor
        }
#endfor
#for I 0 MATRICES_ROWS
        subgroupMatrixStore<row_major>(
            &tile, kS + (sg * 16u + ${I}u * ${MATRIX}u) * kStrideS + ${N}u * (${MATRIX}u / 4u), c${I}, kStrideS);
#endfor
      }
#endfor
      workgroupBarrier();
#for J 0 PAIRS_SLAB
      o${B}_${J}_0 = o${B}_${J}_0 * shrink + bitcast<vec4f>(tile[mine + ${J}u * 4u + side]);
      o${B}_${J}_1 = o${B}_${J}_1 * shrink + bitcast<vec4f>(tile[mine + ${J}u * 4u + 1u - side]);
#endfor
#if SLABS != 1
      workgroupBarrier();
#endif
#endfor
    }
  }

  sum += subgroupShuffleXor(sum, 1u);
  if (row0 + sg * 16u + row >= params.queries) { return; }
  let divide = select(1.0 / sum, 0.0, sum == 0.0);
  let to = 2u * (wid.z * params.y_b + head * params.y_h + (row0 + sg * 16u + row) * params.y_s) + 2u * side;
#for B 0 SLABS
#for J 0 PAIRS_SLAB
  y[to + (${B}u * ${SLAB}u + ${J}u * 16u) / 4u + side] = vec4<${STORE}>(o${B}_${J}_0 * divide);
  y[to + (${B}u * ${SLAB}u + ${J}u * 16u) / 4u + 1u - side] = vec4<${STORE}>(o${B}_${J}_1 * divide);
#endfor
#endfor
}
