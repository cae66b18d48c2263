#include "runtime/llm/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/core/sort_by.h"

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
  seen_.assign(size_t(candidates_.back().id) + 1, 0);  // they are in order
  for (const int32_t id : history)
    if (uint32_t(id) < seen_.size()) seen_[size_t(id)] = 1;
  for (Candidate& c : candidates_) {
    if (!seen_[size_t(c.id)]) continue;
    c.logit = c.logit > 0 ? c.logit / options_.repetition_penalty : c.logit * options_.repetition_penalty;
  }
}

void Sampler::keepTopK() {
  if (size_t(options_.top_k) >= candidates_.size()) return;
  // the k-th largest key, 8 of its bits after another
  uint32_t least = 0, known = 0;
  auto rank = uint32_t(options_.top_k);
  for (int shift = 24; shift >= 0; shift -= 8) {
    uint32_t counts[256] = {}, digit = 255;
    for (const Candidate& c : candidates_) {
      const uint32_t key = samplingKey(c.logit);
      if ((key & known) == least) ++counts[key >> shift & 255];
    }
    while (counts[digit] < rank) rank -= counts[digit--];
    least |= digit << shift;
    known |= 255u << shift;
  }
  std::erase_if(candidates_, [least](const Candidate& c) { return samplingKey(c.logit) < least; });
}

void Sampler::keepMinP(float top) {
  const float least = top + options_.temperature * std::log(options_.min_p);
  std::erase_if(candidates_, [&](const Candidate& c) { return c.logit < least; });
}

void Sampler::keepTopP(float top) {
  const auto weight = [&](float logit) { return std::exp(double(logit - top) / options_.temperature); };
  double sum = 0;
  for (const Candidate& c : candidates_) sum += weight(c.logit);
  // All those below this logit weigh half of what may be left out, at most: they need not be sorted.
  const double tail = (1 - double(options_.top_p)) * sum / (2 * double(candidates_.size()));
  const float enough = top + options_.temperature * float(std::log(tail));
  std::vector<Candidate> sorted;
  for (const Candidate& c : candidates_)
    if (c.logit >= enough) sorted.push_back(c);
  sortBy(sorted, [](const Candidate& c) { return uint64_t(~samplingKey(c.logit)); });
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
