#include "runtime/llm/sampler.h"

#include <algorithm>
#include <cmath>

namespace etwgpu {

int32_t argmax(std::span<const float> logits) {
  int32_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i) {
    if (logits[i] > logits[size_t(best)] || std::isnan(logits[size_t(best)])) best = int32_t(i);
  }
  return best;
}

// SplitMix64 (Steele, Lea, Flood 2014): one addition and a mix, the same on every device.
double Sampler::uniform() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return double((z ^ z >> 31) >> 11) * 0x1p-53;
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> history) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) candidates_.emplace_back(logits[i], int32_t(i));
  }
  if (candidates_.empty()) return 0;
  if (options_.repetition_penalty != 1) {
    std::vector<int32_t> seen(history.begin(), history.end());
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (auto& [logit, id] : candidates_) {
      if (!std::binary_search(seen.begin(), seen.end(), id)) continue;
      logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    }
  }
  const auto better = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  if (options_.temperature <= 0) return std::min_element(candidates_.begin(), candidates_.end(), better)->second;

  size_t kept = candidates_.size();
  if (options_.top_k > 0) kept = std::min(kept, size_t(options_.top_k));
  std::partial_sort(candidates_.begin(), candidates_.begin() + ptrdiff_t(kept), candidates_.end(), better);
  candidates_.resize(kept);
  const float top = candidates_.front().first;
  double sum = 0;
  for (auto& [logit, id] : candidates_) {
    logit = std::exp((logit - top) / options_.temperature);  // now the probability, relative to the best
    sum += logit;
  }
  while (candidates_.size() > 1 && candidates_.back().first < options_.min_p) {
    sum -= candidates_.back().first;
    candidates_.pop_back();
  }
  double nucleus = 0;
  size_t count = 0;
  while (count < candidates_.size() && (count == 0 || nucleus < double(options_.top_p) * sum))
    nucleus += candidates_[count++].first;

  double target = uniform() * nucleus;
  for (size_t i = 0; i < count; ++i) {
    target -= candidates_[i].first;
    if (target < 0) return candidates_[i].second;
  }
  return candidates_[count - 1].second;
}

}  // namespace etwgpu
