// Rotates the query and key parts of qkv [S, (Hq + 2 Hkv) · D] and writes q, and keys and values into the caches. An invocation
// handles WIDTH pairs (i, i + D/2) of one head of one row.
// Parameters: rows (S), heads (Hq), kv_heads, pairs (D/2, in vectors), length (rows of the cache), positions (that there are).
// HEAD_NORM: query and key heads are normed first (q_norm, k_norm, head_eps); a workgroup takes a head of a row.
// Defines: VEC4, HEAD_NORM, STORE_Q, STORE_K (vector types of q and of the caches), and those of ring.wgsl.
${HEADER}
#include "attention/ring.wgsl"
#if VEC4
alias Vector = vec4f;
const kWidth = 4u;
fn dotOf(v: Vector) -> f32 { return dot(v, v); }
#else
alias Vector = f32;
const kWidth = 1u;
fn dotOf(v: Vector) -> f32 { return v * v; }
#endif
#if HEAD_NORM
#include "common/reduce.wgsl"
#endif

// A rotary pair of vectors of head `head` of row s; squares: of all elements of its head.
fn writePair(s: u32, head: u32, i: u32, a: Vector, b: Vector, squares: f32) {
  let position = u32(start[0]) + s;
  var x = a;
  var y = b;
#if HEAD_NORM
  let scale = inverseSqrt(squares / f32(2u * params.pairs * kWidth) + params.head_eps);
  if (head < params.heads) {
    x *= scale * Vector(q_norm[i]);
    y *= scale * Vector(q_norm[i + params.pairs]);
  } else if (head < params.heads + params.kv_heads) {
    x *= scale * Vector(k_norm[i]);
    y *= scale * Vector(k_norm[i + params.pairs]);
  }
#endif
  if (head < params.heads + params.kv_heads) {
    let at = min(position, params.positions - 1u) * 2u * params.pairs + i;
    let c = Vector(table[at]);
    let d = Vector(table[at + params.pairs]);
    let rotated = x * c - y * d;
    y = y * c + x * d;
    x = rotated;
  }
  if (head < params.heads) {
    let to = (s * params.heads + head) * 2u * params.pairs + i;
    q[to] = ${STORE_Q}(x);
    q[to + params.pairs] = ${STORE_Q}(y);
    return;
  }
  if (position >= params.positions) { return; }
  let kv = (head - params.heads) % params.kv_heads;
  let to = (kv * params.length + cacheRow(position)) * 2u * params.pairs + i;
  if (head < params.heads + params.kv_heads) {
    k_cache[to] = ${STORE_K}(x);
    k_cache[to + params.pairs] = ${STORE_K}(y);
  } else {
    v_cache[to] = ${STORE_K}(x);
    v_cache[to + params.pairs] = ${STORE_K}(y);
  }
}

#if HEAD_NORM
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) li: u32) {
  let id = wid.x + wid.y * grid.x;
  let heads = params.heads + 2u * params.kv_heads;
  let head = id % heads;
  let s = min(id / heads, params.rows - 1u);
  let source = (s * heads + head) * 2u * params.pairs;
  var squares = 0.0;
  for (var i = li; i < 2u * params.pairs; i += 64u) {
    let v = Vector(qkv[source + i]);
    squares += dotOf(v);
  }
  squares = workgroupSum(squares, li, 1u);
  if (id / heads >= params.rows) { return; }
  for (var i = li; i < params.pairs; i += 64u) {
    writePair(s, head, i, Vector(qkv[source + i]), Vector(qkv[source + i + params.pairs]), squares);
  }
}
#else
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) grid: vec3u, @builtin(local_invocation_index) li: u32) {
  let id = (wid.x + wid.y * grid.x) * 64u + li;
  let heads = params.heads + 2u * params.kv_heads;
  let i = id % params.pairs;
  let head = id / params.pairs % heads;
  let s = id / params.pairs / heads;
  if (s >= params.rows) { return; }
  let source = (s * heads + head) * 2u * params.pairs + i;
  writePair(s, head, i, Vector(qkv[source]), Vector(qkv[source + params.pairs]), 0.0);
}
#endif
