// Native Dawn for C++ tests, out of the Python package wgpudawn (ETWGPU_DAWN_MODULE, see tools/env.sh).
#pragma once

#include "runtime/core/status.h"

namespace etwgpu::test {

/// Loads it once a process. The package is a Python extension whose functions only Python can reach, so a Python
/// interpreter is loaded too, to ask it for the address of wgpuGetProcAddress.
Status loadDawn();

}  // namespace etwgpu::test
