// The next token out of a row of logits: repetition penalty, temperature, top-k, min-p, top-p, then a draw. As the CPU's
// Sampler does it (runtime/llm/sampler.cpp), in passes over parts of the row (workgroup wid.x of `parts`):
//   STATS   largest logits of each part and the sum for the model's own probabilities; clears the histograms
//   SELECT  a histogram over 10 of the 30 bits of the logits' keys, of those that begin as the last pass has found: three
//           such passes (LEVEL 0 to 2) find the exact border of top-k (by counts), three more that of top-p (WEIGHTED)
//   RACE    each part's candidate with the largest log(p) - log(E)
//   FINAL   the best of the parts: written over the inputs of the next call; `seen` gets its bit
// Sums are of integers, so that their order does not matter. Parameters: count, parts, row, advance.
// Defines: WG, PASS, LEVEL, WEIGHTED.
${HEADER}
const kNone = 0xffffffffu;
const kLowest = -3.4028234e38;
// words of `options`
const kTemperature = 0u; // these three as f32
const kTopP = 1u;
const kMinLogit = 2u; // min-p as a distance from the largest logit, not above 0
const kPenalty = 3u;
const kTopK = 4u;
const kSeed = 5u; // two words
const kMasked = 7u; // 1: only tokens with a bit in the second half of `seen` may be chosen
// words of `work`
const kBorders = 0u; // six times: first bits of the border's key, how much of them is still to be found (f32)
const kTopKKey = 12u;
const kStats = 16u; // per part: largest logit, sum of exp(logit - it), largest logit after the penalty
fn raceAt() -> u32 { return kStats + 3u * params.parts; } // per part: score, index

var<workgroup> reduce_f: array<f32, ${WG}>;
var<workgroup> reduce_u: array<u32, ${WG}>;

fn option(i: u32) -> f32 { return bitcast<f32>(options[i]); }
fn isNan(v: f32) -> bool { return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u; }
fn better(v: f32, i: u32, than: f32, than_i: u32) -> bool {
  if (i == kNone) { return false; }
  return than_i == kNone || v > than || (v == than && i < than_i);
}

fn maxOfWorkgroup(v: f32, li: u32) -> f32 {
  workgroupBarrier();
  reduce_f[li] = v;
  workgroupBarrier();
  for (var step = ${WG}u / 2u; step > 0u; step /= 2u) {
    if (li < step) { reduce_f[li] = max(reduce_f[li], reduce_f[li + step]); }
    workgroupBarrier();
  }
  return reduce_f[0];
}
fn sumOfWorkgroup(v: f32, li: u32) -> f32 {
  workgroupBarrier();
  reduce_f[li] = v;
  workgroupBarrier();
  for (var step = ${WG}u / 2u; step > 0u; step /= 2u) {
    if (li < step) { reduce_f[li] += reduce_f[li + step]; }
    workgroupBarrier();
  }
  return reduce_f[0];
}
fn bestOfWorkgroup(value: f32, index: u32, li: u32) {
  workgroupBarrier();
  reduce_f[li] = value;
  reduce_u[li] = index;
  workgroupBarrier();
  for (var step = ${WG}u / 2u; step > 0u; step /= 2u) {
    if (li < step && better(reduce_f[li + step], reduce_u[li + step], reduce_f[li], reduce_u[li])) {
      reduce_f[li] = reduce_f[li + step];
      reduce_u[li] = reduce_u[li + step];
    }
    workgroupBarrier();
  }
}

#if PASS != final
fn logitAt(i: u32) -> f32 { return f32(logits[params.row * params.count + i]); }
fn allowed(i: u32) -> bool {
  let masks = (params.count + 31u) / 32u;
  return options[kMasked] == 0u || ((seen[masks + i / 32u] >> (i % 32u)) & 1u) == 1u;
}
fn penalised(i: u32, l: f32) -> f32 {
  let v = clamp(l, -3.0e38, 3.0e38);
  if (option(kPenalty) == 1.0 || ((seen[i / 32u] >> (i % 32u)) & 1u) == 0u) { return v; }
  return select(v * option(kPenalty), v / option(kPenalty), v > 0.0);
}
#endif
#if PASS == select
#include "sampling/border.wgsl"
#endif
#if PASS == race
#include "sampling/border.wgsl"
#include "sampling/random.wgsl"
#endif

@compute @workgroup_size(${WG})
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) li: u32) {
#if PASS != final
  let per_part = (params.count + params.parts - 1u) / params.parts;
  let first = wid.x * per_part;
  let end = min(first + per_part, params.count);
#endif
#if PASS == stats
  for (var i = wid.x * ${WG}u + li; i < arrayLength(&histograms); i += params.parts * ${WG}u) {
    atomicStore(&histograms[i], 0u);
  }
  var top = kLowest;
  var top_penalised = kLowest;
  for (var i = first + li; i < end; i += ${WG}u) {
    let l = logitAt(i);
    if (isNan(l)) { continue; }
    top = max(top, l);
    if (allowed(i)) { top_penalised = max(top_penalised, penalised(i, l)); }
  }
  top = maxOfWorkgroup(top, li);
  top_penalised = maxOfWorkgroup(top_penalised, li);
  var sum = 0.0;
  for (var i = first + li; i < end; i += ${WG}u) {
    let l = logitAt(i);
    if (!isNan(l)) { sum += exp(l - top); }
  }
  sum = sumOfWorkgroup(sum, li);
  if (li == 0u) {
    work[kStats + 3u * wid.x] = bitcast<u32>(top);
    work[kStats + 3u * wid.x + 1u] = bitcast<u32>(sum);
    work[kStats + 3u * wid.x + 2u] = bitcast<u32>(top_penalised);
  }
#endif
#if PASS == select
  selectPass(first, end, wid.x, li);
#endif
#if PASS == race
  let top = topOfRow(li);
  let temperature = option(kTemperature);
  let least = borders(top, li);
  var value = kLowest;
  var index = kNone;
  for (var i = first + li; i < end; i += ${WG}u) {
    let raw = logitAt(i);
    if (isNan(raw) || !allowed(i)) { continue; }
    let l = penalised(i, raw);
    var score = l;
    if (temperature > 0.0) {
      if (l < least.logit || keyOf(l) < least.key) { continue; }
      score = (l - top) / temperature - log(exponential(randomBits(u32(start[0]) + params.advance, i)));
    }
    if (better(score, i, value, index)) {
      value = score;
      index = i;
    }
  }
  bestOfWorkgroup(value, index, li);
  if (li == 0u) {
    work[raceAt() + 2u * wid.x] = bitcast<u32>(reduce_f[0]);
    work[raceAt() + 2u * wid.x + 1u] = reduce_u[0];
  }
#endif
#if PASS == final
  var value = kLowest;
  var index = kNone;
  var top = kLowest;
  for (var p = li; p < params.parts; p += ${WG}u) {
    let v = bitcast<f32>(work[raceAt() + 2u * p]);
    let i = work[raceAt() + 2u * p + 1u];
    if (better(v, i, value, index)) {
      value = v;
      index = i;
    }
    top = max(top, bitcast<f32>(work[kStats + 3u * p]));
  }
  top = maxOfWorkgroup(top, li);
  var sum = 0.0;
  for (var p = li; p < params.parts; p += ${WG}u) {
    sum += bitcast<f32>(work[kStats + 3u * p + 1u]) * exp(bitcast<f32>(work[kStats + 3u * p]) - top);
  }
  sum = sumOfWorkgroup(sum, li);
  bestOfWorkgroup(value, index, li);
  if (li == 0u) {
    let chosen = select(reduce_u[0], 0u, reduce_u[0] == kNone);
    ids[params.row] = i32(chosen);
    start[0] += i32(params.advance);
    seen[chosen / 32u] |= 1u << (chosen % 32u);
    result[0] = chosen;
    result[1] = bitcast<u32>(f32(logits[params.row * params.count + chosen]) - top - log(sum));
  }
#endif
}
