// Calls with tensors that lie in buffers of the GPU: no byte of them passes through the host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/executor/session.h"
#include "runtime/webgpu/api.h"

namespace etwgpu {

/// A part of a buffer of the GPU.
struct DeviceBuffer {
  WGPUBuffer buffer = nullptr;
  uint64_t offset = 0, size = 0;
  friend bool operator==(const DeviceBuffer&, const DeviceBuffer&) = default;
};

/// Where the tensors of a call lie; nullopt: in the host's memory. Of an output without a buffer: in the model's own
/// memory, until the session's next call.
struct DevicePlaces {
  std::vector<std::optional<DeviceBuffer>> inputs, outputs;
  /// Whether any of them is a buffer of the caller's.
  bool buffers() const;
};

/// Runs a method that is one delegate call alone. The session must run on the GPU (makeGpuBackend), and no other call
/// of it be under way.
///
/// An input with a place has no data, and its dtype is that of the elements there (deviceDType). places.outputs: none
/// (all to the host), one for all outputs, or one for each; afterwards one for each, nullopt for integers. A tensor in
/// a place comes back without bytes.
///
/// Kernels read and write the callers' buffers, which need the usage Storage, an offset in multiples of 256, and room
/// for the tensor in multiples of 16 bytes; of outputs all of that may be overwritten. Inputs may share a buffer; that
/// of an output serves nothing else in the call. Only an output that is an input, a constant, a state or another output
/// is copied, on the GPU (CopySrc, CopyDst). What lies in the model's own memory is only read, and is no input of the
/// next call. The task ends when the work is submitted, unless something is read back.
///
/// invalid_argument: another method; inputs of other count, kind, dtype, rank or beyond the bounds; buffers that do not
/// serve, or that the device refuses (another device's, a destroyed or mapped one, usages).
Task<Result<std::vector<OutputValue>>> runOnDevice(Session& session, std::string method, std::vector<Input> inputs,
                                                   DevicePlaces& places);

}  // namespace etwgpu
