${HEADER}
// y[j, k] = weight[ids[j], k] for a weight in packing R4: one invocation takes 8 columns (int4) or 4 (int8) of a row.
#include "common/quant.wgsl"
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) li: u32) {
  let element = (wid.x + wid.y * groups.x) * 64u + li;
  if (element >= params.count) { return; }
  let unit = element % params.units;
  let position = element / params.units;
  let id = ids[position];
  let inside = id >= 0 && id < i32(params.rows);
  var row = u32(clamp(id, 0, i32(params.rows) - 1));
#if SOME_ROWS
  row -= params.first;  // wraps around where the row lies before
  if ((inside && row >= params.count_rows) || (!inside && params.first > 0u)) { return; }
#endif
  let word = words[((row / 4u) * params.units + unit) * 4u + row % 4u];
#if BITS == 4
  let group = unit / (${GROUP}u / 8u);
  let groups_per_row = params.units / (${GROUP}u / 8u);
#if AFFINE
  let at = ((row / 4u) * groups_per_row + group) * 8u + row % 4u;
  let scale = half1(constants[at / 2u], at);
  let minimum = half1(constants[(at + 4u) / 2u], at);
#else
  let at = ((row / 4u) * groups_per_row + group) * 4u + row % 4u;
  let scale = half1(constants[at / 2u], at);
  let minimum = -8.0 * scale;
#endif
  var low = nibblesLow(word) * scale + minimum;
  var high = nibblesHigh(word) * scale + minimum;
  if (!inside) { low = vec4f(0.0); high = vec4f(0.0); }
  y[element * 2u] = vec4<${STORE}>(low);
  y[element * 2u + 1u] = vec4<${STORE}>(high);
#else
  var low = bytesSigned(word) * constants[row];
  if (!inside) { low = vec4f(0.0); }
  y[element] = vec4<${STORE}>(low);
#endif
}
