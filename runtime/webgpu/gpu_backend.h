// The GPU backend: makes the delegates of one program.
#pragma once

#include <memory>

#include "runtime/executor/delegate.h"
#include "runtime/webgpu/device.h"

namespace etwgpu {

/// The device must outlive the backend and its delegates. Precision::f16 falls back to f32 where the device (or
/// options.max_tier) has no f16; see usedPrecision.
std::unique_ptr<Backend> makeGpuBackend(Device& device, const LoadOptions& options);

/// The precision that a backend with these options computes in on this device.
Precision usedPrecision(const GpuCapabilities& capabilities, const LoadOptions& options);
/// The highest tier that kernels are chosen from.
Tier usedTier(const GpuCapabilities& capabilities, const LoadOptions& options);

}  // namespace etwgpu
