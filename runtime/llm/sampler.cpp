#include "runtime/llm/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace etwgpu {

int32_t argmax(std::span<const float> logits) {
  int32_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[size_t(best)] || std::isnan(logits[size_t(best)])) best = int32_t(i);
  }
  return best;
}

float logProbability(std::span<const float> logits, int32_t token) {
  float top = -INFINITY;
  for (const float l : logits) top = l > top ? l : top;
  double sum = 0;
  for (const float l : logits) sum += std::isnan(l) ? 0.0 : std::exp(double(l) - top);
  return float(double(logits[size_t(token)]) - top - std::log(sum));
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> history,
                        std::span<const uint32_t> allowed) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!allowed.empty() && (allowed[i / 32] >> i % 32 & 1) == 0) continue;
    if (!std::isnan(logits[i])) candidates_.push_back({std::clamp(logits[i], -3e38f, 3e38f), int32_t(i)});
  }
  if (candidates_.empty()) return 0;
  if (options_.repetition_penalty != 1) penalise(history);
  float top = candidates_[0].logit;
  for (const Candidate& c : candidates_) top = std::max(top, c.logit);
  if (options_.temperature > 0) {
    if (options_.top_k > 0) keepTopK();
    if (options_.min_p > 0) keepMinP(top);
    if (options_.top_p < 1) keepTopP(top);
  }
  return draw(top, uint32_t(history.size()));
}

void Sampler::penalise(std::span<const int32_t> history) {
  seen_.assign(history.begin(), history.end());
  std::sort(seen_.begin(), seen_.end());
  for (Candidate& c : candidates_) {
    if (!std::binary_search(seen_.begin(), seen_.end(), c.id)) continue;
    c.logit = c.logit > 0 ? c.logit / options_.repetition_penalty : c.logit * options_.repetition_penalty;
  }
}

void Sampler::keepTopK() {
  if (size_t(options_.top_k) >= candidates_.size()) return;
  keys_.clear();
  for (const Candidate& c : candidates_) keys_.push_back(samplingKey(c.logit));
  const auto kth = keys_.begin() + (options_.top_k - 1);
  std::nth_element(keys_.begin(), kth, keys_.end(), std::greater());
  std::erase_if(candidates_, [least = *kth](const Candidate& c) { return samplingKey(c.logit) < least; });
}

void Sampler::keepMinP(float top) {
  const float least = top + options_.temperature * std::log(options_.min_p);
  std::erase_if(candidates_, [&](const Candidate& c) { return c.logit < least; });
}

void Sampler::keepTopP(float top) {
  const auto weight = [&](float logit) { return std::exp(double(logit - top) / options_.temperature); };
  double sum = 0;
  for (const Candidate& c : candidates_) sum += weight(c.logit);
  std::vector<Candidate> sorted = candidates_;
  std::sort(sorted.begin(), sorted.end(), [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  double nucleus = 0;
  size_t count = 0;
  while (count < sorted.size() && (count == 0 || nucleus < double(options_.top_p) * sum))
    nucleus += weight(sorted[count++].logit);
  const uint32_t least = samplingKey(sorted[count - 1].logit);
  std::erase_if(candidates_, [least](const Candidate& c) { return samplingKey(c.logit) < least; });
}

/// The candidate with the largest log(p) - log(E); the lowest on a tie.
int32_t Sampler::draw(float top, uint32_t position) const {
  float best = -INFINITY;
  int32_t chosen = candidates_[0].id;
  for (const Candidate& c : candidates_) {
    float score = c.logit;
    if (options_.temperature > 0) {
      score = (c.logit - top) / options_.temperature;
      const uint32_t bits = samplingBits(options_.seed, position, uint32_t(c.id));
      // E >= u >= 2^-(leading zeros + 1): most cannot win, and need no logarithm
      if (score + 0.6931472f * float(std::countl_zero(bits) + 1) < best) continue;
      score -= std::log(samplingExponential(bits));
    }
    if (score > best) {
      best = score;
      chosen = c.id;
    }
  }
  return chosen;
}

}  // namespace etwgpu
