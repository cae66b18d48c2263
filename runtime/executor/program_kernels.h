// CPU kernels of operators that programs call outside of delegates only: no GPU kernel exists, so schema/operators.yaml
// does not list them, the partitioner leaves them alone, and they become islands between delegates.
#pragma once

#include "runtime/executor/cpu_kernel.h"
#include "runtime/program/kernel_names.h"

namespace etwgpu {

struct ProgramKernel {
  KernelName name;
  CpuKernel kernel;
};
/// nullptr: none.
const ProgramKernel* findProgramKernel(std::string_view name, std::string_view overload);

}  // namespace etwgpu
