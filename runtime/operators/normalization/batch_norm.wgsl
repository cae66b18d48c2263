// y = (x − mean[c]) · rsqrt(var[c] + eps) · weight[c] + bias[c], an element an invocation.
// Parameters: count (elements), channels, inner (elements of a channel), eps. Defines: WEIGHT, BIAS, STORE.
${HEADER}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) li: u32) {
  let i = (wid.x + wid.y * grid.x) * 256u + li;
  if (i >= params.count) { return; }
  let c = i / params.inner % params.channels;
  var z = (f32(x[i]) - f32(mean[c])) * inverseSqrt(f32(variance[c]) + params.eps);
#if WEIGHT
  z *= f32(weight[c]);
#endif
#if BIAS
  z += f32(bias[c]);
#endif
  y[i] = ${STORE}(z);
}
