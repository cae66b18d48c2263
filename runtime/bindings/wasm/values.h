// Inputs and outputs of a method as bytes, for the border to JavaScript.
//
// A list is one record after another, each at a multiple of 8 bytes:
//   u32 kind, u32 dtype, u32 rank, u32 bytes;  i64 sizes[rank];  u8 data[bytes], padded to a multiple of 8
// kind: the number of a ValueSpec::Kind. An integer's data is an i64, a number's an f64, a flag's a byte, a text's
// UTF-8.
#pragma once

#include <span>
#include <vector>

#include "runtime/executor/session.h"

namespace etwgpu {

/// Views into `bytes`. invalid_argument where the records do not fill it exactly or a tensor's sizes do not match its
/// bytes.
Result<std::vector<Input>> decodeInputs(std::span<uint8_t> bytes);
std::vector<uint8_t> encodeOutputs(std::span<const OutputValue> values);

}  // namespace etwgpu
