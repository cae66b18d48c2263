// Choice of normalisation kernels: pure functions, no device.
#include "runtime/operators/normalization/normalization.h"

namespace etwgpu::normalization {
namespace {

#define KERNEL(name, tier) {#name, Tier::tier},
constexpr Kernel kKernels[] = {
#include "runtime/operators/normalization/variants.inc"
};
#undef KERNEL

}  // namespace

std::span<const Kernel> kernels() { return kKernels; }

const Kernel* choose(std::string_view function, Tier tier) {
  for (const Kernel& k : kKernels)
    if (k.name.starts_with(function) && k.tier <= tier) return &k;
  return nullptr;
}

int invocations(int64_t row_length) { return row_length <= 512 ? 64 : 256; }

}  // namespace etwgpu::normalization
