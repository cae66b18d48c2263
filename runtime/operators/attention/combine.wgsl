// Combines the parts of decode.wgsl: workgroup = query head, an invocation four elements of the output.
// Parameters: parts. Defines: D, STORE.
${HEADER}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32) {
  let head = wid.x;
  if (li >= ${D}u / 4u) { return; }
  var m = -1e30;
  for (var i = 0u; i < params.parts; i++) { m = max(m, partial_ml[head * params.parts + i].x); }
  var l = 0.0;
  var o = vec4f();
  for (var i = 0u; i < params.parts; i++) {
    let part = partial_ml[head * params.parts + i];
    let e = exp(part.x - m) * part.y;
    l += e;
    o += e * vec4f(partial_o[(head * params.parts + i) * (${D}u / 4u) + li]);
  }
  y[head * (${D}u / 4u) + li] = ${STORE}(select(o / l, vec4f(), l == 0.0));
}
