// Inputs and outputs of a method as bytes, for the border to JavaScript.
//
// A list is one record after another, each at a multiple of 8 bytes:
//   u32 kind, u32 dtype, u32 rank, u32 bytes;  i64 sizes[rank];  u8 data[bytes], padded to a multiple of 8
// kind: the number of a ValueSpec::Kind. An integer's data is an i64, a number's an f64, a flag's a byte, a text's
// UTF-8. Two more kinds concern buffers of the GPU; their data is three f64: the buffer's handle, offset, size.
//   6  a tensor that lies there
//   7  behind the inputs: the place of an output (runOnDevice); handle 0: the model's own memory, no data: the host
#pragma once

#include <span>
#include <vector>

#include "runtime/webgpu/device_call.h"

namespace etwgpu {

struct DecodedCall {
  std::vector<Input> inputs;
  DevicePlaces places;
  bool on_device = false;  // something lies or is wanted on the GPU: for runOnDevice()
};
/// Views into `bytes`. invalid_argument where the records do not fill it exactly or a tensor's sizes do not match its
/// bytes.
Result<DecodedCall> decodeCall(std::span<uint8_t> bytes);
/// places: empty, or what runOnDevice() has made of them.
std::vector<uint8_t> encodeOutputs(std::span<const OutputValue> values,
                                   std::span<const std::optional<DeviceBuffer>> places);

}  // namespace etwgpu
