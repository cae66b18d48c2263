// As tiles.wgsl, for GPUs: a tile of 64 rows (query and head of the group), 64 keys at a time, 128 invocations of 4 rows x 8 keys, then
// 4 rows x 8 columns of the output per 32 columns of D, all sums as vec4s over the four rows. Both products run in steps of 16, like a
// GEMM: [16 elements][rows] and [16 elements][keys], then [16 keys][rows] and [16 keys][columns]; the loads of the next step are under
// way during the products of this one. XORs of the vector's index keep the transposing stores in different banks.
// HALF: what is staged is f16. Scores, which can exceed it, are f32. Probabilities are staged as 1/16 of themselves, so that the f16 sums
// of their products with 16 values cannot exceed it.
// Parameters, strides in vectors of 4: as tiles.wgsl.
// Defines: GROUP, D (a multiple of 4, at most 128), STEPS = ceil(D / 16), COLUMNS = ceil(D / 32), TILE_B = max(256, 4 D), HALF, CACHED,
// CAUSAL, MASK = none | bool | float, STORE, and those of ring.wgsl.
${HEADER}
#include "attention/tile_inputs.wgsl"
#if HALF
alias T4 = vec4<f16>;
alias Rows = mat4x4<f16>;
const kPart = 0.0625;
#else
alias T4 = vec4f;
alias Rows = mat4x4f;
const kPart = 1.0;
#endif
var<workgroup> tile_a: array<T4, 256>;        // [16][16 groups of rows]
var<workgroup> tile_b: array<T4, ${TILE_B}>;  // [16][16 groups of keys], or [16 keys][columns]
var<workgroup> of_keys: array<vec4f, 128>;    // maxima and sums of each invocation's keys: [16 groups of rows][8]

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32) {
  let tm = li / 8u;   // rows 4 tm …
  let tn = li % 8u;   // keys 4 tn … and 32 + 4 tn …, columns 4 tn … of every 32
  let tiles = (params.queries * ${GROUP}u + 63u) / 64u;
  let row0 = (tiles - 1u - wid.x) * 64u;  // those that see most keys first
  let kv = wid.y;
  let batch = wid.z;
  let head_base = batch * params.k_b + kv * params.k_h;
  let reach = reachOf(row0, 64u);
  let offset = reach.offset;
  let end = reach.end;
  let last = end - 1u;
  let position = vec4u(offset) + (vec4u(row0 + 4u * tm) + vec4u(0u, 1u, 2u, 3u)) / vec4u(${GROUP}u);
  // What this invocation stages of q or k: four rows or keys, a quarter of the 16 elements.
  let quarter = li % 4u;
  let g = li % 64u / 4u;
  let slot = 4u * quarter * 16u + (g ^ (quarter * 2u));
  var m = vec4f(kLowest);
  var l = vec4f();
#for c 0 COLUMNS
  var o${c}_0 = vec4f(); var o${c}_1 = vec4f(); var o${c}_2 = vec4f(); var o${c}_3 = vec4f();
#endfor

  for (var key0 = reach.begin; key0 < end; key0 += 64u) {
    let base = head_base + tileShift(key0) * kD4;
    var s0 = vec4f(); var s1 = vec4f(); var s2 = vec4f(); var s3 = vec4f();
    var s4 = vec4f(); var s5 = vec4f(); var s6 = vec4f(); var s7 = vec4f();
    var next: Rows;
    if (li < 64u) {
      next = Rows(loadRows(batch, kv, row0 + 4u * g, quarter));
    } else {
      next = Rows(loadKeys(base, key0 + 4u * g, last, quarter));
    }
    for (var step = 0u; step < ${STEPS}u; step++) {
      workgroupBarrier();
      let t = transpose(next);
      if (li < 64u) {
        tile_a[slot] = t[0];
        tile_a[slot + 16u] = t[1];
        tile_a[slot + 32u] = t[2];
        tile_a[slot + 48u] = t[3];
      } else {
        tile_b[slot] = t[0];
        tile_b[slot + 16u] = t[1];
        tile_b[slot + 32u] = t[2];
        tile_b[slot + 48u] = t[3];
      }
      workgroupBarrier();
      if (step + 1u < ${STEPS}u) {
        let d4 = (step + 1u) * 4u + quarter;
        if (li < 64u) {
          next = Rows(loadRows(batch, kv, row0 + 4u * g, d4));
        } else {
          next = Rows(loadKeys(base, key0 + 4u * g, last, d4));
        }
      }
#for d 0 16
      {
        let a = vec4f(tile_a[${d}u * 16u + (tm ^ (${d}u / 4u * 2u))]);
        let b = vec4f(tile_b[${d}u * 16u + (tn ^ (${d}u / 4u * 2u))]);
        let c = vec4f(tile_b[${d}u * 16u + ((8u + tn) ^ (${d}u / 4u * 2u))]);
        s0 = fma(a, vec4f(b.x), s0); s1 = fma(a, vec4f(b.y), s1); s2 = fma(a, vec4f(b.z), s2); s3 = fma(a, vec4f(b.w), s3);
        s4 = fma(a, vec4f(c.x), s4); s5 = fma(a, vec4f(c.y), s5); s6 = fma(a, vec4f(c.z), s6); s7 = fma(a, vec4f(c.w), s7);
      }
#endfor
    }
#for j 0 8
    {
      let key = key0 + ${j}u / 4u * 32u + 4u * tn + ${j}u % 4u;
      s${j} *= params.scale;
#if MASK != none
      if (key < end) {
        let r = row0 + 4u * tm;
        s${j} = vec4f(masked(s${j}.x, batch, kv, r, key), masked(s${j}.y, batch, kv, r + 1u, key),
                      masked(s${j}.z, batch, kv, r + 2u, key), masked(s${j}.w, batch, kv, r + 3u, key));
      }
#endif
      var visible = vec4<bool>(key < end);
#if CAUSAL
      visible = visible & (vec4u(key) <= position);
      if (params.window > 0u) { visible = visible & (vec4u(key + params.window) > position); }
#endif
      s${j} = select(vec4f(kLowest), s${j}, visible);
    }
#endfor
    of_keys[tm * 8u + tn] = max(max(max(s0, s1), max(s2, s3)), max(max(s4, s5), max(s6, s7)));
    workgroupBarrier();
    var best = m;
#for j 0 8
    best = max(best, of_keys[tm * 8u + ${j}u]);
#endfor
    let shrink = exp(m - best);
    m = best;
    l *= shrink;
#for j 0 8
    s${j} = select(vec4f(), exp(s${j} - m), s${j} > vec4f(-0.9e30));
    l += s${j};
#endfor
#for c 0 COLUMNS
    o${c}_0 *= shrink; o${c}_1 *= shrink; o${c}_2 *= shrink; o${c}_3 *= shrink;
#endfor
    for (var slab = 0u; slab < 4u; slab++) {
      workgroupBarrier();
      if (tn / 4u == slab % 2u) {
        let to = tn % 4u * 64u + (tm ^ (tn % 4u * 4u));
        let left = slab < 2u;
        tile_a[to] = T4(select(s4, s0, left) * kPart);
        tile_a[to + 16u] = T4(select(s5, s1, left) * kPart);
        tile_a[to + 32u] = T4(select(s6, s2, left) * kPart);
        tile_a[to + 48u] = T4(select(s7, s3, left) * kPart);
      }
      for (var i = li; i < 16u * kD4; i += 128u) {
        tile_b[i] = T4(v[base + min(key0 + slab * 16u + i / kD4, last) * kD4 + i % kD4]);
      }
      workgroupBarrier();
#if HALF
#for c 0 COLUMNS
      var h${c}_0 = T4(); var h${c}_1 = T4(); var h${c}_2 = T4(); var h${c}_3 = T4();
#endfor
#endif
#for j 0 16
      {
        let p = tile_a[${j}u * 16u + (tm ^ (${j}u / 4u * 4u))];
#for c 0 COLUMNS
        {
          let b = tile_b[${j}u * kD4 + min(${c}u * 8u + tn, kD4 - 1u)];
          ${SUM}${c}_0 = fma(p, T4(b.x), ${SUM}${c}_0);
          ${SUM}${c}_1 = fma(p, T4(b.y), ${SUM}${c}_1);
          ${SUM}${c}_2 = fma(p, T4(b.z), ${SUM}${c}_2);
          ${SUM}${c}_3 = fma(p, T4(b.w), ${SUM}${c}_3);
        }
#endfor
      }
#endfor
#if HALF
#for c 0 COLUMNS
      o${c}_0 = fma(vec4f(h${c}_0), vec4f(16.0), o${c}_0);
      o${c}_1 = fma(vec4f(h${c}_1), vec4f(16.0), o${c}_1);
      o${c}_2 = fma(vec4f(h${c}_2), vec4f(16.0), o${c}_2);
      o${c}_3 = fma(vec4f(h${c}_3), vec4f(16.0), o${c}_3);
#endfor
#endif
    }
  }
  // every invocation of a group of rows has summed its own keys
  workgroupBarrier();
  of_keys[tm * 8u + tn] = l;
  workgroupBarrier();
  var sum = vec4f();
#for j 0 8
  sum += of_keys[tm * 8u + ${j}u];
#endfor
  let divide = select(vec4f(1.0) / sum, vec4f(), sum == vec4f());
#for c 0 COLUMNS
  if (${c}u * 8u + tn < kD4) {
    let t = transpose(mat4x4f(o${c}_0 * divide, o${c}_1 * divide, o${c}_2 * divide, o${c}_3 * divide));
#for i 0 4
    {
      let r = row0 + 4u * tm + ${i}u;
      if (r < params.queries * ${GROUP}u) {
        y[batch * params.y_b + (kv * ${GROUP}u + r % ${GROUP}u) * params.y_h + r / ${GROUP}u * params.y_s + ${c}u * 8u + tn] =
            ${STORE}(t[${i}]);
      }
    }
#endfor
  }
#endfor
}
