#include "runtime/executor/gpu_kernel.h"

namespace etwgpu {

void registerNormalizationGpu(GpuRegistry&) {}

}  // namespace etwgpu
