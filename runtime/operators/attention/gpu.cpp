#include "runtime/executor/gpu_kernel.h"

namespace etwgpu {

void registerAttentionGpu(GpuRegistry&) {}

}  // namespace etwgpu
