// One query against one part of the cache: workgroup = (key head wid.x, part wid.y). The query heads of the group share the reads of
// keys and values. Per 128 positions: scores (LANES invocations a position), softmax with the running maximum, sums of values
// (D/4 invocations a position, each four elements for all heads of the group).
// Writes partial_o [Hq, parts, D], divided by the part's sum, and partial_ml [Hq, parts, 2] (maximum, sum).
// Parameters: length (positions of the cache), parts, part_positions (least positions of a part), scale, window (0: none).
// Defines: GROUP (query heads a key head), D, LANES = 1 | 4 (4 needs SUBGROUPS, and D a multiple of 16), STORE (vector type of
// partial_o), SUBGROUPS, and those of ring.wgsl.
${HEADER}
#include "attention/ring.wgsl"
const kThreads = 128u;
const kPositions = 128u;
const kD4 = ${D}u / 4u;
const kLanes = ${LANES}u;
const kLowest = -1e30;
var<workgroup> queries: array<vec4f, ${GROUP} * ${D} / 4>;
var<workgroup> scores: array<f32, ${GROUP} * 128>;
var<workgroup> maxima: array<f32, ${GROUP} * 16>;
var<workgroup> sums: array<vec4f, 128>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32) {
  let kv = wid.x;
  let position = u32(start[0]);
  let end = endWithin(position + 1u, params.length);
  let begin = select(0u, end - min(end, params.window), params.window > 0u);
  let per_part = max((end - begin + params.parts - 1u) / params.parts, params.part_positions);
  let first = min(begin + wid.y * per_part, end);
  let count = min(per_part, end - first);
  let base = (kv * params.length + firstRow(first)) * kD4;

  for (var i = li; i < ${GROUP}u * kD4; i += kThreads) { queries[i] = vec4f(q[kv * ${GROUP}u * kD4 + i]) * params.scale; }

  let column = li % kD4;
  let slot = li / kD4;            // positions slot, slot + kSlots …
  const kSlots = kThreads / kD4;
  var o: array<vec4f, ${GROUP}>;
  var m: array<f32, ${GROUP}>;
  var l: array<f32, ${GROUP}>;
  for (var g = 0u; g < ${GROUP}u; g++) { m[g] = kLowest; }

  for (var tile = 0u; tile < count; tile += kPositions) {
    workgroupBarrier();
    let here = min(kPositions, count - tile);
    for (var p = li / kLanes; p < kPositions; p += kThreads / kLanes) {
      var s = array<f32, ${GROUP}>();  // written out: Tint zeroes a plain `var s: array<…>;` only in the loop's first turn
      let row = base + rowAfter(first, tile + min(p, here - 1u)) * kD4;
      for (var i = li % kLanes; i < kD4; i += kLanes) {
        let key = vec4f(k_cache[row + i]);
        for (var g = 0u; g < ${GROUP}u; g++) { s[g] += dot(key, queries[g * kD4 + i]); }
      }
      for (var g = 0u; g < ${GROUP}u; g++) {
#if SUBGROUPS && LANES == 4
        s[g] += subgroupShuffleXor(s[g], 1u);
        s[g] += subgroupShuffleXor(s[g], 2u);
#endif
        if (li % kLanes == 0u) { scores[g * kPositions + p] = select(kLowest, s[g], p < here); }
      }
    }
    workgroupBarrier();
    for (var i = li; i < ${GROUP}u * 16u; i += kThreads) {
      let source = i / 16u * kPositions + i % 16u;
      var best = kLowest;
      for (var j = 0u; j < kPositions; j += 16u) { best = max(best, scores[source + j]); }
      maxima[i] = best;
    }
    workgroupBarrier();
    for (var g = 0u; g < ${GROUP}u; g++) {
      var best = m[g];
      for (var j = 0u; j < 16u; j++) { best = max(best, maxima[g * 16u + j]); }
      let shrink = exp(m[g] - best);
      m[g] = best;
      l[g] *= shrink;
      o[g] *= shrink;
    }
    if (slot < kSlots) {
      for (var p = slot; p < here; p += kSlots) {
        let value = vec4f(v_cache[base + rowAfter(first, tile + p) * kD4 + column]);
        for (var g = 0u; g < ${GROUP}u; g++) {
          let e = exp(scores[g * kPositions + p] - m[g]);
          l[g] += e;
          o[g] += e * value;
        }
      }
    }
  }
  for (var g = 0u; g < ${GROUP}u; g++) {
    let head = kv * ${GROUP}u + g;
    let part = head * params.parts + wid.y;
    workgroupBarrier();
    sums[li] = vec4f(l[g]);
    workgroupBarrier();
    var sum = sums[0].x;
    for (var j = 1u; j < kSlots; j++) { sum += sums[j * kD4].x; }
    if (li == 0u) { partial_ml[part] = vec2f(m[g], sum); }
    workgroupBarrier();
    sums[li] = o[g];
    workgroupBarrier();
    if (li < kD4) {
      var total = sums[li];
      for (var j = 1u; j < kSlots; j++) { total += sums[j * kD4 + li]; }
      partial_o[part * kD4 + li] = ${STORE}(select(total / sum, vec4f(), sum == 0.0));
    }
  }
}
