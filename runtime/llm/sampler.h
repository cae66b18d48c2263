// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace etwgpu {

/// temperature 0 is greedy; the filters are applied in the order repetition penalty, temperature, top-k, min-p, top-p.
struct SamplingOptions {
  float temperature = 0;
  int32_t top_k = 0;             // 0: all
  float top_p = 1;               // keep the smallest set of tokens whose probabilities sum to at least this
  float min_p = 0;               // drop tokens below min_p times the largest probability
  float repetition_penalty = 1;  // divides positive logits of tokens already seen, multiplies negative ones
  uint64_t seed = 0;             // same seed, same logits: same tokens

  bool greedy() const { return temperature <= 0 && repetition_penalty == 1; }
};

/// Draws tokens; keeps the state of its random numbers between them.
class Sampler {
 public:
  explicit Sampler(SamplingOptions options) : options_(options), state_(options.seed) {}
  const SamplingOptions& options() const { return options_; }
  /// logits: one row over the vocabulary. history: tokens that the repetition penalty applies to.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  double uniform();  // in [0, 1)
  SamplingOptions options_;
  uint64_t state_;
  std::vector<std::pair<float, int32_t>> candidates_;  // kept to reuse its memory
};

/// Index of the largest value, the lowest one on a tie; NaN never wins over a number.
int32_t argmax(std::span<const float> logits);

}  // namespace etwgpu
