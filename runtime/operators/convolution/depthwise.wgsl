${HEADER}
#include "common/activation.wgsl"
// One input channel a group: y[n, c, p] = act(sum over taps of w[c, tap] * x[n, c / multiplier, at(tap, p)] + bias[c]) + residual. One
// invocation an output; neighbours are neighbours in the image, whose inputs the cache shares.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) li: u32) {
  let at = (wid.x + wid.y * groups.x) * 256u + li;
  if (at >= params.count) { return; }
  let p = at % params.positions;
  let plane = at / params.positions;
  let channel = plane % params.out_channels;
  let image = plane / params.out_channels;
  let base = (image * params.in_channels + channel / params.multiplier) * params.in_h * params.in_w;
  let row0 = i32(p / params.out_w * params.stride_h) - i32(params.pad_h);
  let column0 = i32(p % params.out_w * params.stride_w) - i32(params.pad_w);
  var sum = 0.0;
  var tap = channel * params.kernel_h * params.kernel_w;
  for (var i = 0u; i < params.kernel_h; i++) {
    let row = row0 + i32(i * params.dilation_h);
    for (var j = 0u; j < params.kernel_w; j++) {
      let column = column0 + i32(j * params.dilation_w);
      if (row >= 0 && row < i32(params.in_h) && column >= 0 && column < i32(params.in_w)) {
        sum += f32(weight[tap]) * f32(x[base + u32(row) * params.in_w + u32(column)]);
      }
      tap++;
    }
  }
#if BIAS
  sum += f32(bias[channel]);
#endif
  var value = activation(sum);
#if RESIDUAL
  value += f32(residual[at]);
#endif
  y[at] = ${STORE}(value);
}
