// One workgroup normalises one row: wid.x + wid.y · grid.x of `rows`.
// Parameters: rows, length (of a row, in vectors), count (of a row, in elements), eps; FUNCTION group: inner (vectors of a
// channel's positions), channels (of a group), groups.
// Defines: WG, SUBGROUPS, VEC4 (buffers hold vec4s), FUNCTION = rms | layer | group, WEIGHT, BIAS, RESIDUAL (is added), MOMENTS (write
// mean and rstd),
// STORE (type of an element of y).
${HEADER}
#include "common/reduce.wgsl"

#if VEC4
alias Vector = vec4f;
fn total(v: Vector) -> f32 { return (v.x + v.y) + (v.z + v.w); }
#else
alias Vector = f32;
fn total(v: Vector) -> f32 { return v; }
#endif

fn scaled(row: u32, i: u32, value: Vector) -> Vector {
  var z = value;
#if FUNCTION == group
  let channel = (row % params.groups) * params.channels + i / params.inner;
#if WEIGHT
  z *= f32(weight[channel]);
#endif
#if BIAS
  z += f32(bias[channel]);
#endif
#else
#if WEIGHT
  z *= Vector(weight[i]);
#endif
#if BIAS
  z += Vector(bias[i]);
#endif
#endif
  return z;
}

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) li: u32
#if SUBGROUPS
  , @builtin(subgroup_size) sg_size: u32
#endif
) {
#if !SUBGROUPS
  let sg_size = 1u;
#endif
  let row = wid.x + wid.y * grid.x;
  if (row >= params.rows) { return; }
  let base = row * params.length;
  var mean = 0.0;
#if FUNCTION != rms
  var sum = 0.0;
  for (var i = li; i < params.length; i += ${WG}u) { sum += total(Vector(x[base + i])); }
  mean = workgroupSum(sum, li, sg_size) / f32(params.count);
#endif
  var squares = 0.0;
  for (var i = li; i < params.length; i += ${WG}u) {
    let d = Vector(x[base + i]) - mean;
    squares += total(d * d);
  }
  let rstd = inverseSqrt(workgroupSum(squares, li, sg_size) / f32(params.count) + params.eps);
  for (var i = li; i < params.length; i += ${WG}u) {
#if RESIDUAL
    y[base + i] = ${STORE}(scaled(row, i, (Vector(x[base + i]) - mean) * rstd) + Vector(residual[base + i]));
#else
    y[base + i] = ${STORE}(scaled(row, i, (Vector(x[base + i]) - mean) * rstd));
#endif
  }
#if MOMENTS
  if (li == 0u) {
    means[row] = ${MOMENT}(mean);
    rstds[row] = ${MOMENT}(rstd);
  }
#endif
}
