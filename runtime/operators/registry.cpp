// The one list of kernel families; schema/operators.yaml says which operators each serves.
#include <map>

#include "runtime/executor/cpu_kernel.h"
#include "runtime/executor/gpu_kernel.h"

namespace etwgpu {

#define ETWGPU_FAMILIES(X) \
  X(Attention)             \
  X(Convolution)           \
  X(Decoder)               \
  X(Elementwise)           \
  X(Indexing)              \
  X(Layout)                \
  X(Matmul)                \
  X(Normalization)         \
  X(Reduction)             \
  X(Sampling)

#define X(Family)                           \
  void register##Family##Cpu(CpuRegistry&); \
  void register##Family##Gpu(GpuRegistry&);
ETWGPU_FAMILIES(X)
#undef X

namespace {

template <class Interface, class Function>
class Registry final : public Interface {
 public:
  void add(std::string_view op, Function f) override { map_.emplace(op, f); }
  Function find(std::string_view op) const {
    const auto it = map_.find(op);
    return it == map_.end() ? nullptr : it->second;
  }
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> names;
    for (const auto& [name, f] : map_) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string_view, Function> map_;  // keys are string literals
};

const auto& cpuRegistry() {
  static const auto* registry = [] {
    auto* r = new Registry<CpuRegistry, CpuKernel>;
#define X(Family) register##Family##Cpu(*r);
    ETWGPU_FAMILIES(X)
#undef X
    return r;
  }();
  return *registry;
}
const auto& gpuRegistry() {
  static const auto* registry = [] {
    auto* r = new Registry<GpuRegistry, GpuPlanFunction>;
#define X(Family) register##Family##Gpu(*r);
    ETWGPU_FAMILIES(X)
#undef X
    return r;
  }();
  return *registry;
}

}  // namespace

CpuKernel findCpuKernel(std::string_view op) { return cpuRegistry().find(op); }
std::vector<std::string_view> cpuKernelNames() { return cpuRegistry().names(); }
GpuPlanFunction findGpuKernel(std::string_view op) { return gpuRegistry().find(op); }
std::vector<std::string_view> gpuKernelNames() { return gpuRegistry().names(); }

}  // namespace etwgpu
