// Attention of a tile of 32 rows, where a row is a query and a head of the group: row r = query r / GROUP, head r % GROUP. Key head
// wid.y, batch wid.z. Loops over tiles of 64 keys: scores 4 rows x 4 keys an invocation, with both factors staged in
// steps of 16 elements; running maximum and sum; then 4 rows x 4 elements (times COLUMNS) of the output an invocation, values
// read from their buffer.
// Parameters, strides in vectors of 4: queries (S), keys (T; CACHED: positions of the cache), q_s, q_h, q_b, k_h, k_b, y_s, y_h, y_b,
// scale, window (0: none); MASK: mask_s, mask_t, mask_h, mask_b (elements).
// Defines: GROUP, D, COLUMNS = ceil(D / 64), CACHED (positions begin at start[0]), CAUSAL, MASK = none | bool | float, STORE,
// and those of ring.wgsl.
${HEADER}
#include "attention/tile_inputs.wgsl"
var<workgroup> tile_q: array<vec4f, 128>;       // [16 elements][8 groups of rows]
var<workgroup> tile_k: array<vec4f, 256>;       // [16 elements][16 groups of keys]; then the maxima [8][16]
var<workgroup> tile_p: array<vec4f, 512>;       // [64 keys][8 groups of rows]

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32) {
  let rg = li / 16u;   // rows 4 rg …
  let cg = li % 16u;   // keys and elements 4 cg …
  let row0 = wid.x * 32u;
  let kv = wid.y;
  let batch = wid.z;
  let head_base = batch * params.k_b + kv * params.k_h;
  let reach = reachOf(row0, 32u);
  let offset = reach.offset;
  let end = reach.end;
  var m = vec4f(kLowest);
  var l = vec4f();
  var o: array<vec4f, ${COLUMNS} * 4>;

  for (var key0 = reach.begin; key0 < end; key0 += 64u) {
    let base = head_base + tileShift(key0) * kD4;
    var s0 = vec4f(); var s1 = vec4f(); var s2 = vec4f(); var s3 = vec4f();  // of row i: four keys
    for (var d0 = 0u; d0 < ${D}u; d0 += 16u) {
      workgroupBarrier();
      if (li < 32u) {  // 8 groups of rows x 4 quarters
        let quarter = li % 4u;
        let g = li / 4u;
        let d4 = d0 / 4u + quarter;
        let t = transpose(loadRows(batch, kv, row0 + 4u * g, d4));
        for (var j = 0u; j < 4u; j++) { tile_q[(4u * quarter + j) * 8u + (g ^ (quarter * 2u))] = t[j]; }
      } else if (li >= 64u) {  // 16 groups of keys x 4 quarters
        let quarter = li % 4u;
        let g = (li - 64u) / 4u;
        let d4 = d0 / 4u + quarter;
        let t = transpose(loadKeys(base, key0 + 4u * g, end - 1u, d4));
        for (var j = 0u; j < 4u; j++) { tile_k[(4u * quarter + j) * 16u + (g ^ (quarter * 2u))] = t[j]; }
      }
      workgroupBarrier();
      for (var d = 0u; d < 16u; d++) {
        let swap = d / 4u * 2u;
        let a = tile_q[d * 8u + (rg ^ swap)];
        let b = tile_k[d * 16u + (cg ^ swap)];
        s0 += a.x * b;
        s1 += a.y * b;
        s2 += a.z * b;
        s3 += a.w * b;
      }
    }
    var s = transpose(mat4x4f(s0, s1, s2, s3));  // of key j: four rows
    for (var j = 0u; j < 4u; j++) {
      let key = key0 + 4u * cg + j;
      s[j] *= params.scale;
#if MASK != none
      if (key < end) {
        let r = row0 + 4u * rg;
        s[j] = vec4f(masked(s[j].x, batch, kv, r, key), masked(s[j].y, batch, kv, r + 1u, key),
                     masked(s[j].z, batch, kv, r + 2u, key), masked(s[j].w, batch, kv, r + 3u, key));
      }
#endif
      var visible = vec4<bool>(key < end);
#if CAUSAL
      let position = vec4u(offset) + (vec4u(row0 + 4u * rg) + vec4u(0u, 1u, 2u, 3u)) / vec4u(${GROUP}u);
      visible = visible & (vec4u(key) <= position);
      if (params.window > 0u) { visible = visible & (vec4u(key + params.window) > position); }
#endif
      s[j] = select(vec4f(kLowest), s[j], visible);
    }
    workgroupBarrier();
    tile_k[rg * 16u + cg] = max(max(s[0], s[1]), max(s[2], s[3]));
    workgroupBarrier();
    var best = m;
    for (var j = 0u; j < 16u; j++) { best = max(best, tile_k[rg * 16u + j]); }
    let shrink = exp(m - best);
    m = best;
    l *= shrink;
    for (var j = 0u; j < 4u; j++) {
      let e = select(vec4f(), exp(s[j] - m), s[j] > vec4f(-0.9e30));
      l += e;
      tile_p[(4u * cg + j) * 8u + rg] = e;
    }
    for (var c = 0u; c < ${COLUMNS}u; c++) {
      o[4u * c] *= shrink.x;
      o[4u * c + 1u] *= shrink.y;
      o[4u * c + 2u] *= shrink.z;
      o[4u * c + 3u] *= shrink.w;
    }
    workgroupBarrier();
    let here = min(64u, end - key0);
    for (var key = 0u; key < here; key++) {
      let p = tile_p[key * 8u + rg];
      for (var c = 0u; c < ${COLUMNS}u; c++) {
        let d4 = c * 16u + cg;
        if (d4 < kD4) {
          let value = vec4f(v[base + (key0 + key) * kD4 + d4]);
          o[4u * c] += p.x * value;
          o[4u * c + 1u] += p.y * value;
          o[4u * c + 2u] += p.z * value;
          o[4u * c + 3u] += p.w * value;
        }
      }
    }
  }
  // every invocation of a group of rows has summed its own keys
  workgroupBarrier();
  tile_k[rg * 16u + cg] = l;
  workgroupBarrier();
  var sum = vec4f();
  for (var j = 0u; j < 16u; j++) { sum += tile_k[rg * 16u + j]; }
  let divide = select(vec4f(1.0) / sum, vec4f(), sum == vec4f());
  for (var i = 0u; i < 4u; i++) {
    let r = row0 + 4u * rg + i;
    if (r >= params.queries * ${GROUP}u) { break; }
    let at = batch * params.y_b + (kv * ${GROUP}u + r % ${GROUP}u) * params.y_h + r / ${GROUP}u * params.y_s;
    for (var c = 0u; c < ${COLUMNS}u; c++) {
      if (c * 16u + cg < kD4) { y[at + c * 16u + cg] = ${STORE}(o[4u * c + i] * divide[i]); }
    }
  }
}
