// All WGSL variants that the cases reach, at every tier, precision and class of device: for the offline validation
// (tools/validate_wgsl.py), and for the test that runs each.
#pragma once

#include <gtest/gtest.h>

#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/cpp/kernel_cases.h"
#include "tests/cpp/vision_cases.h"

namespace etwgpu::testing {

/// A device's capabilities up to a tier. narrow: a software adapter.
inline GpuCapabilities deviceOf(Tier tier, bool f16 = false, bool narrow = false) {
  GpuCapabilities caps;
  caps.f16 = f16;
  caps.subgroups = tier >= Tier::subgroups;
  caps.subgroup_min = caps.subgroup_max = caps.subgroups ? 32 : 0;
  caps.software = narrow;
  return caps;
}

struct VariantSetting {
  Tier tier;
  Precision precision;
  bool narrow;

  GpuCapabilities capabilities() const { return deviceOf(tier, true, narrow); }
  LoadOptions options() const {
    LoadOptions o;
    o.precision = precision;
    o.max_tier = tier;
    return o;
  }
  std::string name() const {
    return std::string(tier == Tier::baseline ? "baseline" : "subgroups") +
           (precision == Precision::f16 ? " f16" : " f32") + (narrow ? " narrow" : "");
  }
};

inline std::vector<VariantSetting> variantSettings() {
  std::vector<VariantSetting> all;
  for (const Tier tier : {Tier::baseline, Tier::subgroups})
    for (const Precision precision : {Precision::f32, Precision::f16})
      for (const bool narrow : {false, true}) all.push_back({tier, precision, narrow});
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
inline Variants allVariants() {
  Variants v;
  for (const VariantSetting& setting : variantSettings())
    for (KernelCase& c : allCases()) {
      const auto dispatches = planCase(c, setting.capabilities(), setting.options());
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
