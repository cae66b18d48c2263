// Rotates the query and key parts of qkv [S, (Hq + 2 Hkv) · D] and writes q, and keys and values into the caches. An invocation
// handles WIDTH pairs (i, i + D/2) of one head of one row.
// Parameters: rows (S), heads (Hq), kv_heads, pairs (D/2, in vectors), length (positions of the cache).
// Defines: VEC4, STORE_Q, STORE_K (vector types of q and of the caches).
${HEADER}
#if VEC4
alias Vector = vec4f;
#else
alias Vector = f32;
#endif

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) li: u32) {
  let id = (wid.x + wid.y * grid.x) * 64u + li;
  let heads = params.heads + 2u * params.kv_heads;
  let i = id % params.pairs;
  let head = id / params.pairs % heads;
  let s = id / params.pairs / heads;
  if (s >= params.rows) { return; }
  let position = u32(start[0]) + s;
  let source = (s * heads + head) * 2u * params.pairs + i;
  let a = Vector(qkv[source]);
  let b = Vector(qkv[source + params.pairs]);
  var x = a;
  var y = b;
  if (head < params.heads + params.kv_heads) {
    let at = min(position, params.length - 1u) * 2u * params.pairs + i;
    let c = Vector(table[at]);
    let d = Vector(table[at + params.pairs]);
    x = a * c - b * d;
    y = b * c + a * d;
  }
  if (head < params.heads) {
    let to = (s * params.heads + head) * 2u * params.pairs + i;
    q[to] = ${STORE_Q}(x);
    q[to + params.pairs] = ${STORE_Q}(y);
    return;
  }
  if (position >= params.length) { return; }
  let kv = (head - params.heads) % params.kv_heads;
  let to = (kv * params.length + position) * 2u * params.pairs + i;
  if (head < params.heads + params.kv_heads) {
    k_cache[to] = ${STORE_K}(x);
    k_cache[to + params.pairs] = ${STORE_K}(y);
  } else {
    v_cache[to] = ${STORE_K}(x);
    v_cache[to + params.pairs] = ${STORE_K}(y);
  }
}
