// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/sampling_options.h"

namespace etwgpu {

/// Draws tokens on the CPU.
class Sampler {
 public:
  explicit Sampler(SamplingOptions options) : options_(options) {}
  /// logits: one row over the vocabulary. history: the tokens before the one to draw; the repetition penalty applies to
  /// them, and their number is its position. allowed: a bit for each token that may be drawn; empty: all.
  int32_t sample(std::span<const float> logits, std::span<const int32_t> history,
                 std::span<const uint32_t> allowed = {});

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  void penalise(std::span<const int32_t> history);
  void keepTopK();
  void keepMinP(float top);
  void keepTopP(float top);
  int32_t draw(float top, uint32_t position) const;

  SamplingOptions options_;
  std::vector<Candidate> candidates_;  // kept to reuse its memory
  std::vector<uint8_t> seen_;          // by id
};

/// Natural logarithm of the probability that the model gives a token: log softmax of its logits.
float logProbability(std::span<const float> logits, int32_t token);

/// Index of the largest value, the lowest one on a tie; NaN never wins over a number.
int32_t argmax(std::span<const float> logits);

}  // namespace etwgpu
