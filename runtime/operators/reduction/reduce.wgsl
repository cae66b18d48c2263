${HEADER}
// y[o, i] = reduction over r of x[o, r, i]. ROWS (inner = 1): one workgroup an output, 256 invocations stride over the row;
// else one invocation an output, neighbours read neighbours. OP = sum | mean | max | min | argmax.
#if OP == argmax
struct Partial { value: ${ACC}, at: u32 }
fn first() -> Partial { return Partial(0, 0xffffffffu); }
fn take(x: ${ACC}, at: u32) -> Partial { return Partial(x, at); }
// the larger one; the earlier one on a tie; an index of 2^32 - 1 is nothing yet
fn combine(a: Partial, b: Partial) -> Partial {
  if (b.at == 0xffffffffu) { return a; }
  if (a.at == 0xffffffffu || b.value > a.value || (b.value == a.value && b.at < a.at)) { return b; }
  return a;
}
fn finish(a: Partial) -> i32 { return i32(a.at); }
#else
struct Partial { value: ${ACC}, any: u32 }
fn first() -> Partial { return Partial(0, 0u); }
fn take(x: ${ACC}, at: u32) -> Partial { return Partial(x, 1u); }
fn combine(a: Partial, b: Partial) -> Partial {
#if OP == sum || OP == mean
  return Partial(a.value + b.value, 1u);
#else
  if (b.any == 0u) { return a; }
  if (a.any == 0u) { return b; }
#if OP == max
  return Partial(max(a.value, b.value), 1u);
#else
  return Partial(min(a.value, b.value), 1u);
#endif
#endif
}
fn finish(a: Partial) -> ${STORE} {
#if OP == mean
  return ${STORE}(a.value / f32(params.size));
#else
  return ${STORE}(a.value);
#endif
}
#endif

#if ROWS
var<workgroup> partials: array<Partial, 256>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) li: u32) {
  let row = wid.x + wid.y * groups.x;
  var sum = first();
  if (row < params.outer) {
    for (var r = li; r < params.size; r += 256u) { sum = combine(sum, take(${ACC}(x[row * params.size + r]), r)); }
  }
  partials[li] = sum;
  workgroupBarrier();
  for (var step = 128u; step > 0u; step /= 2u) {
    if (li < step) { partials[li] = combine(partials[li], partials[li + step]); }
    workgroupBarrier();
  }
  if (li == 0u && row < params.outer) { y[row] = finish(partials[0]); }
}
#else
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) li: u32) {
  let output = (wid.x + wid.y * groups.x) * 256u + li;
  if (output >= params.outer * params.inner) { return; }
  let base = output / params.inner * params.size * params.inner + output % params.inner;
  var sum = first();
  for (var r = 0u; r < params.size; r++) { sum = combine(sum, take(${ACC}(x[base + r * params.inner]), r)); }
  y[output] = finish(sum);
}
#endif
