${HEADER}
// Pooling of [planes, in_h, in_w]. KIND = average | maximum | adaptive (average over floor(i * in / out) … ceil((i + 1) * in / out)).
// One invocation an output.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) li: u32) {
  let at = (wid.x + wid.y * groups.x) * 256u + li;
  if (at >= params.count) { return; }
  let column = at % params.out_w;
  let row = at / params.out_w % params.out_h;
  let base = at / (params.out_w * params.out_h) * params.in_h * params.in_w;
#if KIND == adaptive
  let top = row * params.in_h / params.out_h;
  let bottom = ((row + 1u) * params.in_h + params.out_h - 1u) / params.out_h;
  let left = column * params.in_w / params.out_w;
  let right = ((column + 1u) * params.in_w + params.out_w - 1u) / params.out_w;
  var sum = 0.0;
  for (var i = top; i < bottom; i++) {
    for (var j = left; j < right; j++) { sum += f32(x[base + i * params.in_w + j]); }
  }
  y[at] = ${STORE}(sum / f32((bottom - top) * (right - left)));
#else
  let top = i32(row * params.stride_h) - i32(params.pad_h);
  let left = i32(column * params.stride_w) - i32(params.pad_w);
  var result = 0.0;
  var taken = 0u;
  for (var i = 0u; i < params.kernel_h; i++) {
    let r = top + i32(i * params.dilation_h);
    if (r < 0 || r >= i32(params.in_h)) { continue; }
    for (var j = 0u; j < params.kernel_w; j++) {
      let c = left + i32(j * params.dilation_w);
      if (c < 0 || c >= i32(params.in_w)) { continue; }
      let value = f32(x[base + u32(r) * params.in_w + u32(c)]);
#if KIND == maximum
      result = select(max(result, value), value, taken == 0u);
#else
      result += value;
#endif
      taken++;
    }
  }
#if KIND == average
  // PyTorch's divisor: given, or the window clipped to the padded image (padding included) or to the image
  let window_h = min(top + i32(params.kernel_h), i32(params.in_h + params.pad_h)) - top;
  let window_w = min(left + i32(params.kernel_w), i32(params.in_w + params.pad_w)) - left;
  var divisor = f32(taken);
  if (params.include_pad != 0u) { divisor = f32(window_h * window_w); }
  if (params.divisor != 0u) { divisor = f32(params.divisor); }
  result /= divisor;
#endif
  y[at] = ${STORE}(result);
#endif
}
