// How the next token is chosen: what the CPU's Sampler and the GPU's kernels have in common.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace etwgpu {

/// temperature 0 is greedy; the filters are applied in the order repetition penalty, temperature, top-k, min-p, top-p.
/// Where logits are equal at a filter's border all of them pass.
struct SamplingOptions {
  float temperature = 0;
  int32_t top_k = 0;             // 0: all
  float top_p = 1;               // keep the smallest set of tokens whose probabilities sum to at least this
  float min_p = 0;               // drop tokens below min_p times the largest probability
  float repetition_penalty = 1;  // divides positive logits of tokens already seen, multiplies negative ones
  uint64_t seed = 0;             // same seed, same position, same logits: same token

  bool greedy() const { return temperature <= 0 && repetition_penalty == 1; }
};

/// Random bits of a token at a position: pcg4d (Jarzynski and Olano, "Hash Functions for GPU Rendering", JCGT 2020),
/// a function of its inputs only, so that any device draws the same. sampling/random.wgsl has the same function.
inline uint32_t samplingBits(uint64_t seed, uint32_t position, uint32_t token) {
  uint32_t x = uint32_t(seed), y = uint32_t(seed >> 32), z = position, w = token;
  x = x * 1664525u + 1013904223u, y = y * 1664525u + 1013904223u;
  z = z * 1664525u + 1013904223u, w = w * 1664525u + 1013904223u;
  x += y * w, y += z * x, z += x * y, w += y * z;
  x ^= x >> 16, y ^= y >> 16, z ^= z >> 16, w ^= w >> 16;
  x += y * w, y += z * x, z += x * y, w += y * z;
  return w;
}

/// A draw from the exponential distribution of mean 1 out of random bits: -log(1 - u), u in (0, 1). The smallest of
/// E_i / p_i falls on token i with probability p_i. Small values, which win, keep their relative accuracy.
inline float samplingExponential(uint32_t bits) {
  const float u = std::fmin((float(bits) + 0.5f) * 0x1p-32f, 0.99999994f);
  if (u >= 0.1f) return -std::log(1 - u);
  return u * (1 + u * (1.0f / 2 + u * (1.0f / 3 + u * (1.0f / 4 + u * (1.0f / 5 + u * (1.0f / 6 + u / 7))))));
}

/// A number that orders as the logit does, in 30 bits: what filters compare. Drops the two lowest bits of the mantissa.
inline uint32_t samplingKey(float logit) {
  const auto bits = std::bit_cast<uint32_t>(logit);
  return (bits >> 31 ? ~bits : bits | 0x80000000u) >> 2;
}

}  // namespace etwgpu
