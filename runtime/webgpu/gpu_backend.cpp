#include "runtime/webgpu/gpu_backend.h"

#include <cstdlib>

#include "runtime/executor/adapters.h"
#include "runtime/webgpu/gpu_delegate.h"
#include "runtime/webgpu/gpu_plan.h"
#include "runtime/webgpu/gpu_store.h"

namespace etwgpu {
namespace {

class GpuBackend final : public Backend {
 public:
  GpuBackend(Device& device, const LoadOptions& options) : store_(std::make_shared<GpuStore>(device, options)) {
    setTuning(options.tuning);
  }

  Result<std::unique_ptr<Delegate>> createDelegate(std::span<const uint8_t> payload, const NamedDataMap& data,
                                                   const DelegateOptions& how) override {
    const LoadOptions& options = store_->options();
    ETWGPU_ASSIGN(Graph graph, loadGraph(payload, data, disabledPasses(options, how.alone), how.import));
    if (how.alone && how.import.max_size == 0) store_->states()->rings = RingMark(graph);
    ETWGPU_ASSIGN(GpuPlan plan, planGraph(std::move(graph), store_->device().capabilities(), options));
    auto delegate = std::make_unique<GpuDelegate>(store_, std::move(plan));
    ETWGPU_TRY(delegate->prepare(data));
    return std::unique_ptr<Delegate>(std::move(delegate));
  }

  StateSet& states() override { return *store_->states(); }
  Task<Result<std::shared_ptr<StateSet>>> makeStates() override {
    Device& device = store_->device();
    ETWGPU_CO_TRY(device.status());
    const auto pending = std::make_shared<Pending>();
    device.openErrorScopes();
    auto made = store_->makeStates();
    device.closeErrorScopes(pending, "states of a sequence");
    ETWGPU_CO_TRY(co_await Pending::wait(pending));
    if (!made.ok()) co_return made.status();
    ETWGPU_CO_TRY(co_await (*made)->reset());
    co_return std::shared_ptr<StateSet>(std::move(*made));
  }

  MemoryReport memory() const override { return store_->report(); }

  void setTuning(const Tuning& tuning) override {
    Tuning all = defaultTuning(store_->device().capabilities());
    for (const TunedChoice& choice : tunedChoices()) {
      if (const Tuning::Values* values = tuning.find(choice.key)) all.set(choice.key, *values);
    }
    store_->setTuning(all);
  }

 private:
  std::shared_ptr<GpuStore> store_;
};

}  // namespace

Precision usedPrecision(const GpuCapabilities& capabilities, const LoadOptions& options) {
  return options.precision == Precision::f16 && capabilities.f16 && options.max_tier >= Tier::f16 ? Precision::f16
                                                                                                  : Precision::f32;
}

Tuning defaultTuning(const GpuCapabilities& capabilities) {
  // Nobody says how many processors a device has; what a vendor's usual ones have. NVIDIA's kernels were measured on a
  // large one, and lose little on small ones.
  constexpr std::pair<std::string_view, int> kProcessors[] = {{"apple", 32}, {"intel", 32},    {"amd", 64},
                                                              {"arm", 16},   {"qualcomm", 16}, {"img-tec", 8}};
  Tuning tuning;
  for (const auto& [vendor, processors] : kProcessors) {
    if (capabilities.vendor == vendor) tuning.set("processors", {processors});
  }
  return tuning;
}

Tier usedTier(const GpuCapabilities& capabilities, const LoadOptions& options) {
  const Tier has = capabilities.subgroup_matrix ? Tier::subgroup_matrix
                   : capabilities.subgroups     ? Tier::subgroups
                   : capabilities.f16           ? Tier::f16
                                                : Tier::baseline;
  return has < options.max_tier ? has : options.max_tier;
}

std::unique_ptr<Backend> makeGpuBackend(Device& device, const LoadOptions& options) {
  LoadOptions used = options;
  used.precision = usedPrecision(device.capabilities(), options);
  return std::make_unique<GpuBackend>(device, used);
}

}  // namespace etwgpu
