#include "runtime/executor/gpu_kernel.h"

namespace etwgpu {

void registerSamplingGpu(GpuRegistry&) {}

}  // namespace etwgpu
