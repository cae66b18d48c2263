// The borders of top-k and top-p in sample.wgsl: the histograms of its passes, and what they say.
// `histograms`: 3 × 1,024 counts for top-k, then 3 × 1,024 masses (64 bits, in units of 2^-30 of the largest) for top-p.
const kBins = 1024u;
const kMasses = 3u * kBins;

// A number that orders as the logit does, as samplingKey of runtime/core/sampling_options.h.
fn keyOf(logit: f32) -> u32 {
  let bits = bitcast<u32>(logit);
  return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u) >> 2u;
}

fn topOfRow(li: u32) -> f32 {
  var top = kLowest;
  for (var p = li; p < params.parts; p += ${WG}u) { top = max(top, bitcast<f32>(work[kStats + 3u * p + 2u])); }
  return maxOfWorkgroup(top, li);
}

fn countOf(level: u32, bin: u32, masses: bool) -> f32 {
  if (!masses) { return f32(atomicLoad(&histograms[level * kBins + bin])); }
  let at = kMasses + 2u * (level * kBins + bin);
  return f32(atomicLoad(&histograms[at + 1u])) * 4294967296.0 + f32(atomicLoad(&histograms[at]));
}

var<workgroup> groups: array<f32, 16>; // sums of WG / 16 threads
var<workgroup> crossing: atomic<u32>;
var<workgroup> found_bin: u32;
var<workgroup> found_wanted: f32;

// The bin of a histogram that the border falls into: those above it hold less than `wanted`, with it they don't; the
// lowest bin, where all together don't. Sets found_bin, and returns how much of it is wanted.
fn pickBin(level: u32, masses: bool, wanted: f32, li: u32) -> f32 {
  let each = kBins / ${WG}u;
  let wide = ${WG}u / 16u;
  let high_bin = kBins - 1u - li * each; // thread 0 has the highest bins
  var own = 0.0;
  for (var i = 0u; i < each; i++) { own += countOf(level, high_bin - i, masses); }
  workgroupBarrier();
  reduce_f[li] = own;
  if (li == 0u) { atomicStore(&crossing, ${WG}u - 1u); }
  workgroupBarrier();
  if (li < 16u) {
    var sum = 0.0;
    for (var i = 0u; i < wide; i++) { sum += reduce_f[li * wide + i]; }
    groups[li] = sum;
  }
  workgroupBarrier();
  var above = 0.0;
  for (var g = 0u; g < li / wide; g++) { above += groups[g]; }
  for (var i = li / wide * wide; i < li; i++) { above += reduce_f[i]; }
  if (above + own >= wanted) { atomicMin(&crossing, li); }
  workgroupBarrier();
  if (li == atomicLoad(&crossing)) {
    var bin = high_bin;
    for (var i = 0u; i < each; i++) {
      bin = high_bin - i;
      let here = countOf(level, bin, masses);
      if (above + here >= wanted || i == each - 1u) { break; }
      above += here;
    }
    found_bin = bin;
    found_wanted = max(wanted - above, 1.0);
  }
  return workgroupUniformLoad(&found_wanted);
}

struct Border {
  first_bits: u32,
  wanted: f32,
}
// After the pass `level` of a selection, its border so far. Level by level, since each pass has kept the last one's.
fn borderAfter(level: u32, masses: bool, li: u32) -> Border {
  let slot = kBorders + 2u * (level + select(0u, 3u, masses));
  var before = Border(0u, 0.0);
  if (level > 0u) {
    before = Border(work[slot - 2u], bitcast<f32>(work[slot - 1u]));
  } else if (masses) {
    var total = 0.0;
    for (var i = li; i < kBins; i += ${WG}u) { total += countOf(0u, i, true); }
    before.wanted = max(sumOfWorkgroup(total, li) * option(kTopP), 1.0);
  } else {
    before.wanted = f32(options[kTopK]);
  }
  let wanted = pickBin(level, masses, before.wanted, li);
  return Border((before.first_bits << 10u) | found_bin, wanted);
}

struct Least {
  key: u32,
  logit: f32,
}
// The key that top-k leaves, which its last pass has found; 0 without top-k.
fn topKKey(li: u32) -> u32 {
  if (options[kTopK] == 0u) { return 0u; }
  return borderAfter(2u, false, li).first_bits;
}

// What a candidate must reach, once all selections are done.
fn borders(top: f32, li: u32) -> Least {
  var key = 0u;
  if (option(kTopP) < 1.0) {
    key = borderAfter(2u, true, li).first_bits;
  } else {
    key = topKKey(li);
  }
  return Least(key, top + option(kMinLogit));
}

#if PASS == select
var<workgroup> low: array<atomic<u32>, 1024>;
#if WEIGHTED
var<workgroup> high: array<atomic<u32>, 1024>;
const WEIGHTED = true;
#else
const WEIGHTED = false;
#endif

fn selectPass(first: u32, end: u32, part: u32, li: u32) {
  for (var i = li; i < kBins; i += ${WG}u) {
    atomicStore(&low[i], 0u);
#if WEIGHTED
    atomicStore(&high[i], 0u);
#endif
  }
  var prefix = 0u;
#if LEVEL != 0
  let border = borderAfter(${LEVEL}u - 1u, WEIGHTED, li);
  prefix = border.first_bits;
  if (part == 0u && li == 0u) {
    let slot = kBorders + 2u * (${LEVEL}u - 1u + select(0u, 3u, WEIGHTED));
    work[slot] = border.first_bits;
    work[slot + 1u] = bitcast<u32>(border.wanted);
  }
#endif
#if WEIGHTED
  // only what the filters before have left
  let top = topOfRow(li);
  let least_logit = top + option(kMinLogit);
#if LEVEL == 0
  let least_key = topKKey(li);
  if (part == 0u && li == 0u) { work[kTopKKey] = least_key; }
#else
  let least_key = work[kTopKKey];
#endif
#endif
  workgroupBarrier();
  for (var i = first + li; i < end; i += ${WG}u) {
    let raw = logitAt(i);
    if (isNan(raw) || !allowed(i)) { continue; }
    let l = penalised(i, raw);
    let key = keyOf(l);
    if ((key >> (30u - 10u * ${LEVEL}u)) != prefix) { continue; }
    let bin = (key >> (20u - 10u * ${LEVEL}u)) & 1023u;
#if WEIGHTED
    if (key < least_key || l < least_logit) { continue; }
    let mass = u32(exp((l - top) / option(kTemperature)) * 1073741824.0 + 0.5);
    let old = atomicAdd(&low[bin], mass);
    if (old + mass < old) { atomicAdd(&high[bin], 1u); }
#else
    atomicAdd(&low[bin], 1u);
#endif
  }
  workgroupBarrier();
  for (var bin = li; bin < kBins; bin += ${WG}u) {
    let own = atomicLoad(&low[bin]);
#if WEIGHTED
    let own_high = atomicLoad(&high[bin]);
    if (own == 0u && own_high == 0u) { continue; }
    let at = kMasses + 2u * (${LEVEL}u * kBins + bin);
    let old = atomicAdd(&histograms[at], own);
    let carry = own_high + select(0u, 1u, old + own < old);
    if (carry > 0u) { atomicAdd(&histograms[at + 1u], carry); }
#else
    if (own > 0u) { atomicAdd(&histograms[${LEVEL}u * kBins + bin], own); }
#endif
  }
}
#endif
