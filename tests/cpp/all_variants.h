// All WGSL variants that the cases reach, at every tier, precision and class of device: for the offline validation
// (tools/validate_wgsl.py), and for the test that runs each.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/cpp/kernel_cases.h"
#include "tests/cpp/vision_cases.h"

namespace etwgpu::testing {

/// A device's capabilities up to a tier. narrow: a software adapter; lanes: of a subgroup.
inline GpuCapabilities deviceOf(Tier tier, bool f16 = false, bool narrow = false, uint32_t lanes = 32) {
  GpuCapabilities caps;
  caps.f16 = f16;
  caps.subgroups = tier >= Tier::subgroups;
  caps.subgroup_min = caps.subgroup_max = caps.subgroups ? lanes : 0;
  caps.software = narrow;
  if (tier == Tier::subgroup_matrix) {
    caps.f16 = caps.subgroup_matrix = true;
    caps.matrix_size = 16;
    caps.max_workgroup_bytes = 49152;
  }
  return caps;
}

struct VariantSetting {
  Tier tier;
  Precision precision;
  bool narrow;
  /// Subgroups are said to be of this size to (variable) 64 lanes. Kernels may rely on it: it is what the device that
  /// runs them has.
  uint32_t lanes = 8;
  bool variable = false;
  /// With this candidate of each TunedChoice; -1: the defaults.
  int tuned = -1;

  bool takes(const KernelCase& c) const { return c.tuned == (tuned >= 0); }
  GpuCapabilities capabilities() const {
    GpuCapabilities caps = deviceOf(tier, true, narrow, lanes);
    if (variable) caps.subgroup_max = 64;
    return caps;
  }
  LoadOptions options() const {
    LoadOptions o;
    o.wide_kernels = !narrow;
    o.precision = precision;
    o.max_tier = tier;
    if (tuned < 0) return o;
    for (const TunedChoice& choice : tunedChoices())
      o.tuning.set(choice.key, choice.candidates[size_t(tuned) % choice.candidates.size()]);
    o.tuning.set("processors", {8});  // small cases fill the device: no shape is made smaller for their sake
    return o;
  }
  std::string name() const {
    return std::string(tier == Tier::baseline    ? "baseline"
                       : tier == Tier::subgroups ? "subgroups"
                                                 : "subgroup matrices") +
           (precision == Precision::f16 ? " f16" : " f32") + (narrow ? " narrow" : "") + (variable ? " variable" : "") +
           (tuned < 0 ? "" : " tuned " + std::to_string(tuned));
  }
};

/// lanes: of the device on which the variants run (8: lavapipe). matrices: also those by subgroup matrices, which
/// compile slowly where they are emulated.
inline std::vector<VariantSetting> variantSettings(uint32_t lanes = 8, bool matrices = false) {
  std::vector<VariantSetting> all;
  for (const Tier tier : {Tier::baseline, Tier::subgroups})
    for (const Precision precision : {Precision::f32, Precision::f16})
      for (const bool narrow : {false, true}) all.push_back({tier, precision, narrow, lanes});
  all.push_back({Tier::subgroups, Precision::f32, false, lanes, true});
  size_t candidates = 0;
  for (const TunedChoice& choice : tunedChoices()) candidates = std::max(candidates, choice.candidates.size());
  for (const Precision precision : {Precision::f32, Precision::f16})
    for (int i = 0; i < int(candidates); ++i) all.push_back({Tier::subgroups, precision, false, lanes, false, i});
  if (matrices) all.push_back({Tier::subgroup_matrix, Precision::f16, false, lanes});
  return all;
}

inline std::vector<KernelCase> allCases() {
  std::vector<KernelCase> cases = kernelCases(), vision = visionCases();
  std::move(vision.begin(), vision.end(), std::back_inserter(cases));
  return cases;
}

struct Variants {
  std::set<WgslVariant> all;
  std::set<std::string> names;  // without the storage type in front
};
inline Variants allVariants(uint32_t lanes = 8, bool matrices = false) {
  Variants v;
  for (const VariantSetting& setting : variantSettings(lanes, matrices))
    for (KernelCase& c : allCases()) {
      if (!setting.takes(c)) continue;
      const auto dispatches = planCase(c, c.on(setting.capabilities()), setting.options());
      EXPECT_TRUE(dispatches.ok()) << c.name << ": " << dispatches.status().message();
      if (!dispatches.ok()) continue;
      for (const DispatchSpec& d : *dispatches) {
        v.all.insert(d.kernel);
        v.names.insert(d.kernel.name.substr(4));
      }
    }
  return v;
}

}  // namespace etwgpu::testing
