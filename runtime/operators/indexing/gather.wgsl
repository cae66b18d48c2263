${HEADER}
// y[o, j, i] = x[o, at(index[j]), i] over outer o, positions j, inner i; GATHER off: y[o, at(index[j]), i] = x[o, j, i].
// A negative index counts from the end; one outside of the dimension reads (and writes) nothing and gives 0: WebGPU has no way
// to raise an error.
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) li: u32) {
  let element = (wid.x + wid.y * groups.x) * 256u + li;
  if (element >= params.count) { return; }
  let inner = element % params.inner;
  let rest = element / params.inner;
  let j = rest % params.positions;
  let outer = rest / params.positions;
  var at = index[j];
  if (at < 0) { at += i32(params.size); }
  let inside = at >= 0 && at < i32(params.size);
#if GATHER
#if SOME_ROWS
  // x is rows [first, first + count_rows) of the table, and outer 0.
  let row = u32(max(at, 0)) - params.first;
  if ((inside && row >= params.count_rows) || (!inside && params.first > 0u)) { return; }
  let there = row * params.inner + inner;
#else
  let there = (outer * params.size + u32(max(at, 0))) * params.inner + inner;
#endif
  if (inside) { y[element] = ${TYPE}(x[there]); } else { y[element] = ${TYPE}(0); }
#else
  let there = (outer * params.size + u32(max(at, 0))) * params.inner + inner;
  if (inside) { y[there] = ${TYPE}(x[element]); }
#endif
}
