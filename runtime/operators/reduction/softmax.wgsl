${HEADER}
// softmax or log-softmax over r of x[o, r, i]; the maximum is subtracted first. ROWS (inner = 1): one workgroup a row; else one
// invocation for each (o, i). A row of -inf alone gives NaN, as in PyTorch.
fn result(value: f32, maximum: f32, sum: f32) -> f32 {
#if LOG
  return value - maximum - log(sum);
#else
  return exp(value - maximum) / sum;
#endif
}
#if ROWS
#include "common/reduce.wgsl"
@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u,
#if SUBGROUPS
        @builtin(subgroup_size) sg_size: u32,
#endif
        @builtin(local_invocation_index) li: u32) {
#if !SUBGROUPS
  let sg_size = 1u;
#endif
  let row = wid.x + wid.y * groups.x;
  let size = select(0u, params.size, row < params.outer);
  let base = row * params.size;
  // the first element, not -inf, which WGSL has no literal for
  var maximum = f32(x[min(base, arrayLength(&x) - 1u)]);
  for (var r = li; r < size; r += ${WG}u) { maximum = max(maximum, f32(x[base + r])); }
  maximum = workgroupMax(maximum, li, sg_size);
  var sum = 0.0;
  for (var r = li; r < size; r += ${WG}u) { sum += exp(f32(x[base + r]) - maximum); }
  sum = workgroupSum(sum, li, sg_size);
  for (var r = li; r < size; r += ${WG}u) { y[base + r] = ${STORE}(result(f32(x[base + r]), maximum, sum)); }
}
#else
@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) li: u32) {
  let column = (wid.x + wid.y * groups.x) * ${WG}u + li;
  if (column >= params.outer * params.inner) { return; }
  let base = column / params.inner * params.size * params.inner + column % params.inner;
  var maximum = f32(x[base]);
  for (var r = 1u; r < params.size; r++) { maximum = max(maximum, f32(x[base + r * params.inner])); }
  var sum = 0.0;
  for (var r = 0u; r < params.size; r++) { sum += exp(f32(x[base + r * params.inner]) - maximum); }
  for (var r = 0u; r < params.size; r++) {
    y[base + r * params.inner] = ${STORE}(result(f32(x[base + r * params.inner]), maximum, sum));
  }
}
#endif
