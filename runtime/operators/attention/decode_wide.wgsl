// decode.wgsl for subgroups of LANES and more: workgroup = (key head wid.x, part wid.y), the GROUP query heads share every key and
// value that is read. LP invocations a position, each VP vectors of its row, AHEAD positions in flight while the AHEAD before them are
// used. Per tile of the part (SINGLE: it is one): scores into workgroup memory, their maximum, then values times probabilities in
// registers; subgroups meet at the end. Loops are uniform and masks of shuffles constants: a compiler that cannot see that all
// lanes take part makes a shuffle several times as slow.
// Caches are read as vectors of 16 bytes: HALVES = 2 (f16, 8 elements) or 1 (f32, 4 elements) vec4f.
// Parameters and results as decode.wgsl. Defines: GROUP, D, WG, LP, VP, AHEAD, HALVES, TILE (positions), TOGETHER (the heads' sums over
// subgroups meet at once: more workgroup memory, fewer barriers), STORE, FIXED, LANES (subgroup size; not FIXED: at least),
// SINGLE, LOG_LP, LOG_LANES (logarithms), and those of ring.wgsl.
${HEADER}
#if !SUBGROUPS
needs: subgroups are needed
#endif
#include "attention/ring.wgsl"
const kD4 = ${D}u / 4u;
const kVectors = ${LP}u * ${VP}u;      // of a position
const kGroups = ${WG}u / ${LP}u;       // positions at a time
const kSubgroups = ${WG}u / ${LANES}u; // at most
const kLowest = -1e30;
const kStep = kGroups * ${AHEAD}u;
var<workgroup> scores: array<f32, ${GROUP} * ${TILE}>;
var<workgroup> maxima: array<f32, ${GROUP} * kSubgroups>;
var<workgroup> lengths: array<f32, ${GROUP} * kSubgroups>;  // sums of probabilities
#if TOGETHER
var<workgroup> sums: array<vec4f, kSubgroups * ${GROUP} * kD4>;
#else
var<workgroup> sums: array<vec4f, kSubgroups * kD4>;
#endif

#if HALVES == 2
alias Raw = vec4u;
fn half0(r: Raw) -> vec4f { return vec4f(unpack2x16float(r.x), unpack2x16float(r.y)); }
fn half1(r: Raw) -> vec4f { return vec4f(unpack2x16float(r.z), unpack2x16float(r.w)); }
#else
alias Raw = vec4f;
fn half0(r: Raw) -> vec4f { return r; }
#endif

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32, @builtin(subgroup_size) sg_size: u32) {
#if FIXED
  const sg = ${LANES}u;
#else
  let sg = sg_size;
#endif
  let subgroups = ${WG}u / sg;
  let kv = wid.x;
  let end = endWithin(u32(start[0]) + 1u, params.length);
  let begin = select(0u, end - min(end, params.window), params.window > 0u);
  let per_part = max((end - begin + params.parts - 1u) / params.parts, params.part_positions);
  let first = min(begin + wid.y * per_part, end);
  let count = min(per_part, end - first);
  let l = li % ${LP}u;
  let slot = li / ${LP}u;
  let sub = li / sg;
  let lane = li % sg;

  if (count == 0u) {
    for (var i = li; i < ${GROUP}u * kD4; i += ${WG}u) {
      partial_o[((kv * ${GROUP}u + i / kD4) * params.parts + wid.y) * kD4 + i % kD4] = ${STORE}();
    }
    if (li < ${GROUP}u) { partial_ml[(kv * ${GROUP}u + li) * params.parts + wid.y] = vec2f(kLowest, 0.0); }
    return;
  }

#for g 0 GROUP
  let query${g} = (kv * ${GROUP}u + ${g}u) * kD4;
  var m${g} = kLowest;
  var l${g} = 0.0;
#for j 0 VP
#for h 0 HALVES
  let q${g}_${j}_${h} = vec4f(q[query${g} + (${j}u * ${LP}u + l) * ${HALVES}u + ${h}u]) * params.scale;
  var o${g}_${j}_${h} = vec4f();
#endfor
#endfor
#endfor

#if SINGLE
  {
    const tile = 0u;
    let here = count;
#else
  for (var tile = 0u; tile < count; tile += ${TILE}u) {
    let here = min(${TILE}u, count - tile);
    if (tile > 0u) { workgroupBarrier(); }
#endif
    let origin = first + tile;
    let base = (kv * params.length + firstRow(origin)) * kVectors + l;
    let last = here - 1u;
#for u 0 AHEAD
#for j 0 VP
    var k${u}_${j} = k_cache[base + rowAfter(origin, min(slot + ${u}u * kGroups, last)) * kVectors + ${j}u * ${LP}u];
#endfor
#endfor
    // the first values are on their way while the scores are summed
#for u 0 AHEAD
#for j 0 VP
    var v${u}_${j} = v_cache[base + rowAfter(origin, min(slot + ${u}u * kGroups, last)) * kVectors + ${j}u * ${LP}u];
#endfor
#endfor
    for (var p = 0u; p < here; p += kStep) {
      let next = slot + p + kStep;
#for u 0 AHEAD
#for j 0 VP
      let raw${u}_${j} = k${u}_${j};
      k${u}_${j} = k_cache[base + rowAfter(origin, min(next + ${u}u * kGroups, last)) * kVectors + ${j}u * ${LP}u];
#endfor
#endfor
#for u 0 AHEAD
#for g 0 GROUP
      var s${u}_${g} = 0.0;
#endfor
#for j 0 VP
#for h 0 HALVES
      let key${u}_${j}_${h} = half${h}(raw${u}_${j});
#for g 0 GROUP
      s${u}_${g} += dot(q${g}_${j}_${h}, key${u}_${j}_${h});
#endfor
#endfor
#endfor
#endfor
#for x 0 LOG_LP
#for u 0 AHEAD
#for g 0 GROUP
      s${u}_${g} += subgroupShuffleXor(s${u}_${g}, 1u << ${x}u);
#endfor
#endfor
#endfor
#for u 0 AHEAD
      let p${u} = slot + p + ${u}u * kGroups;
      if (l == 0u && p${u} < here) {
#for g 0 GROUP
        scores[${g}u * ${TILE}u + p${u}] = s${u}_${g};
#endfor
      }
#endfor
    }
    workgroupBarrier();
#for g 0 GROUP
    var best${g} = kLowest;
#endfor
    for (var p = li; p < here; p += ${WG}u) {
#for g 0 GROUP
      best${g} = max(best${g}, scores[${g}u * ${TILE}u + p]);
#endfor
    }
#for g 0 GROUP
    best${g} = subgroupMax(best${g});
    if (lane == 0u) { maxima[${g}u * kSubgroups + sub] = best${g}; }
#endfor
    workgroupBarrier();
#for g 0 GROUP
    for (var i = 0u; i < subgroups; i++) { best${g} = max(best${g}, maxima[${g}u * kSubgroups + i]); }
#if !SINGLE
    best${g} = max(best${g}, m${g});
    let shrink${g} = exp(m${g} - best${g});
    l${g} *= shrink${g};
#for j 0 VP
#for h 0 HALVES
    o${g}_${j}_${h} *= shrink${g};
#endfor
#endfor
#endif
    m${g} = best${g};
#endfor
    for (var p = 0u; p < here; p += kStep) {
      let next = slot + p + kStep;
#for u 0 AHEAD
#for j 0 VP
      let raw${u}_${j} = v${u}_${j};
      v${u}_${j} = v_cache[base + rowAfter(origin, min(next + ${u}u * kGroups, last)) * kVectors + ${j}u * ${LP}u];
#endfor
#endfor
#for u 0 AHEAD
      let p${u} = slot + p + ${u}u * kGroups;
#for g 0 GROUP
      let e${u}_${g} = select(0.0, exp(scores[${g}u * ${TILE}u + min(p${u}, last)] - m${g}), p${u} < here);
      l${g} += e${u}_${g};
#endfor
#for j 0 VP
#for h 0 HALVES
      let value${u}_${j}_${h} = half${h}(raw${u}_${j});
#for g 0 GROUP
      o${g}_${j}_${h} += e${u}_${g} * value${u}_${j}_${h};
#endfor
#endfor
#endfor
#endfor
    }
  }

#if FIXED
#for x LOG_LP LOG_LANES
#for g 0 GROUP
  l${g} += subgroupShuffleXor(l${g}, 1u << ${x}u);
#for j 0 VP
#for h 0 HALVES
  o${g}_${j}_${h} += subgroupShuffleXor(o${g}_${j}_${h}, 1u << ${x}u);
#endfor
#endfor
#endfor
#endfor
#else
  for (var x = ${LP}u; x < sg; x *= 2u) {
#for g 0 GROUP
    l${g} += subgroupShuffleXor(l${g}, x);
#for j 0 VP
#for h 0 HALVES
    o${g}_${j}_${h} += subgroupShuffleXor(o${g}_${j}_${h}, x);
#endfor
#endfor
#endfor
  }
#endif
#for g 0 GROUP
  if (lane == 0u) { lengths[${g}u * kSubgroups + sub] = l${g}; }
#endfor
#if TOGETHER
  if (lane < ${LP}u) {
#for g 0 GROUP
#for j 0 VP
#for h 0 HALVES
    sums[(sub * ${GROUP}u + ${g}u) * kD4 + (${j}u * ${LP}u + l) * ${HALVES}u + ${h}u] = o${g}_${j}_${h};
#endfor
#endfor
#endfor
  }
  workgroupBarrier();
  for (var i = li; i < ${GROUP}u * kD4; i += ${WG}u) {
    var o = sums[i];
    for (var s = 1u; s < subgroups; s++) { o += sums[s * ${GROUP}u * kD4 + i]; }
    let g = i / kD4;
    var length = 0.0;
    for (var s = 0u; s < subgroups; s++) { length += lengths[g * kSubgroups + s]; }
    partial_o[((kv * ${GROUP}u + g) * params.parts + wid.y) * kD4 + i % kD4] =
        ${STORE}(select(o / length, vec4f(), length == 0.0));
  }
#else
#for g 0 GROUP
  workgroupBarrier();
  if (lane < ${LP}u) {
#for j 0 VP
#for h 0 HALVES
    sums[sub * kD4 + (${j}u * ${LP}u + l) * ${HALVES}u + ${h}u] = o${g}_${j}_${h};
#endfor
#endfor
  }
  workgroupBarrier();
  if (li < kD4) {
    var o = sums[li];
    for (var s = 1u; s < subgroups; s++) { o += sums[s * kD4 + li]; }
    var length = 0.0;
    for (var s = 0u; s < subgroups; s++) { length += lengths[${g}u * kSubgroups + s]; }
    partial_o[((kv * ${GROUP}u + ${g}u) * params.parts + wid.y) * kD4 + li] =
        ${STORE}(select(o / length, vec4f(), length == 0.0));
  }
#endfor
#endif
  var top = m0;
#for g 1 GROUP
  top = select(top, m${g}, li == ${g}u);
#endfor
  if (li < ${GROUP}u) {
    var length = 0.0;
    for (var s = 0u; s < subgroups; s++) { length += lengths[li * kSubgroups + s]; }
    partial_ml[(kv * ${GROUP}u + li) * params.parts + wid.y] = vec2f(top, length);
  }
}
