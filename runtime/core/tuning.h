// Choices among GPU kernels that no graph and no limit decides, only the device: how many workgroups keep it busy,
// which shape of a GEMV reads memory fastest. There is a default for each; runtime/llm/tuner.h measures.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/status.h"

namespace etwgpu {

class Tuning {
 public:
  using Values = std::vector<int>;

  /// Lines "key value,value…", as text() writes them. invalid_argument: a key that tunedChoices() has not, or values
  /// that are none of its candidates, so that nothing which was never tried reaches a kernel.
  static Result<Tuning> parse(std::string_view text);
  std::string text() const;
  /// nullptr: nothing was measured or said.
  const Values* find(std::string_view key) const;
  void set(std::string_view key, Values values);
  bool empty() const { return values_.empty(); }
  friend bool operator==(const Tuning&, const Tuning&) = default;

 private:
  std::map<std::string, Values, std::less<>> values_;
};

/// A key and what may stand there; `prefill`: it matters to calls of many rows, else to those of one.
struct TunedChoice {
  std::string key;
  bool prefill;
  std::vector<Tuning::Values> candidates;
};
/// Keys, in the order in which tuning tries them:
///   gemv.KIND.f16|f32   s, t, blocks, ahead, paired of a GemvShape (runtime/operators/matmul/matmul.h)
///   attention.parts     parts of the cache in decoding, at most
///   processors          workgroups that keep the device busy
const std::vector<TunedChoice>& tunedChoices();

}  // namespace etwgpu
