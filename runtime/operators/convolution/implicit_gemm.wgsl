${HEADER}
#include "common/activation.wgsl"
// y[n, g, o, p] = act(sum over k of w[g, o, k] * x[n, g, at(k, p)] + bias[g, o]) + residual, as a matrix product of 64 output
// channels by 64 output positions a workgroup; k counts (channel, kernel row, kernel column). Each invocation holds 4 x 4 sums.
// Workgroup memory 8.5 KiB. POINTWISE: 1x1, stride 1, no padding: at(k, p) = (k, p).
const kStep = 16u;
var<workgroup> tile_w: array<f32, 1088>;  // [16 k][64 o], rows padded to 68
var<workgroup> tile_x: array<f32, 1088>;  // [16 k][64 p]

fn inputAt(k: u32, p: u32, base: u32) -> f32 {
  if (k >= params.k || p >= params.positions) { return 0.0; }
#if POINTWISE
  return f32(x[base + k * params.positions + p]);
#else
  let taps = params.kernel_h * params.kernel_w;
  let tap = k % taps;
  let row = i32(p / params.out_w * params.stride_h + tap / params.kernel_w * params.dilation_h) - i32(params.pad_h);
  let column = i32(p % params.out_w * params.stride_w + tap % params.kernel_w * params.dilation_w) - i32(params.pad_w);
  if (row < 0 || row >= i32(params.in_h) || column < 0 || column >= i32(params.in_w)) { return 0.0; }
  return f32(x[base + (k / taps * params.in_h + u32(row)) * params.in_w + u32(column)]);
#endif
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32) {
  let group = wid.z % params.groups;
  let first_o = wid.y * 64u;
  let first_p = wid.x * 64u;
  let base_x = wid.z * params.in_size;  // of image n and group g
  let base_w = group * params.out_channels * params.k;
  let to = li / 16u;
  let tp = li % 16u;
  var sums: array<vec4f, 4>;
  for (var k0 = 0u; k0 < params.k; k0 += kStep) {
    for (var i = 0u; i < 4u; i++) {
      let at = li + i * 256u;
      // weights: neighbours read along k, which is contiguous; positions: neighbours read along p
      let wk = at % kStep;
      let wo = at / kStep;
      var w = 0.0;
      if (k0 + wk < params.k && first_o + wo < params.out_channels) { w = f32(weight[base_w + (first_o + wo) * params.k + k0 + wk]); }
      tile_w[wk * 68u + wo] = w;
      tile_x[at / 64u * 68u + at % 64u] = inputAt(k0 + at / 64u, first_p + at % 64u, base_x);
    }
    workgroupBarrier();
    for (var k = 0u; k < kStep; k++) {
      let o = k * 68u + to * 4u;
      let p = k * 68u + tp;
      // positions tp, tp + 16, … so that neighbouring invocations read neighbouring words
      let xs = vec4f(tile_x[p], tile_x[p + 16u], tile_x[p + 32u], tile_x[p + 48u]);
      for (var j = 0u; j < 4u; j++) { sums[j] += tile_w[o + j] * xs; }
    }
    workgroupBarrier();
  }
  for (var j = 0u; j < 4u; j++) {
    let o = first_o + to * 4u + j;
    if (o >= params.out_channels) { continue; }
    var b = 0.0;
#if BIAS
    b = f32(bias[group * params.out_channels + o]);
#endif
    for (var i = 0u; i < 4u; i++) {
      let p = first_p + tp + i * 16u;
      if (p >= params.positions) { continue; }
      let at = (wid.z * params.out_channels + o) * params.positions + p;
      var value = activation(sums[j][i] + b);
#if RESIDUAL
      value += f32(residual[at]);
#endif
      y[at] = ${STORE}(value);
    }
  }
}
