// The largest value's lowest index, of one part of a row (workgroup wid.x of `parts`, row wid.y). FINAL: the candidates are those
// of a first dispatch, and the index is the result. NaN counts as the smallest value; an empty part gives index 2^32 − 1.
// FEEDBACK: start += advance, for the next call.
// Parameters: count (candidates of a row), parts, advance. Defines: WG, FINAL, FEEDBACK.
${HEADER}
var<workgroup> best_value: array<f32, ${WG}>;
var<workgroup> best_index: array<u32, ${WG}>;
const kLowest = -3.4028234e38;
const kNone = 0xffffffffu;

// Bits, since a compiler may assume that there is no NaN. NaN becomes "none".
fn better(v: f32, i: u32, than: f32, than_i: u32) -> bool {
  if (i == kNone) { return false; }
  return than_i == kNone || v > than || (v == than && i < than_i);
}
fn isNan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32) {
  let per_part = (params.count + params.parts - 1u) / params.parts;
  let first = wid.x * per_part;
  let end = min(first + per_part, params.count);
  var value = kLowest;
  var index = kNone;
  for (var i = first + li; i < end; i += ${WG}u) {
#if FINAL
    let v = values[wid.y * params.count + i];
    let candidate = indices[wid.y * params.count + i];
#else
    let v = f32(logits[wid.y * params.count + i]);
    let candidate = select(i, kNone, isNan(v));
#endif
    if (better(v, candidate, value, index)) {
      value = v;
      index = candidate;
    }
  }
  best_value[li] = value;
  best_index[li] = index;
  workgroupBarrier();
  for (var step = ${WG}u / 2u; step > 0u; step /= 2u) {
    if (li < step && better(best_value[li + step], best_index[li + step], best_value[li], best_index[li])) {
      best_value[li] = best_value[li + step];
      best_index[li] = best_index[li + step];
    }
    workgroupBarrier();
  }
  if (li == 0u) {
#if FINAL
    ids[wid.y] = i32(select(best_index[0], 0u, best_index[0] == kNone));
#if FEEDBACK
    if (wid.y == 0u) { start[0] += i32(params.advance); }
#endif
#else
    values[wid.y * params.parts + wid.x] = best_value[0];
    indices[wid.y * params.parts + wid.x] = best_index[0];
#endif
  }
}
