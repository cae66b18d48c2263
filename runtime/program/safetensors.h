// Files of the format safetensors: u64 length of a JSON header, the header {name: {dtype, shape, data_offsets}}, then
// the bytes of the tensors, to which the offsets refer. https://huggingface.co/docs/safetensors describes it.
#pragma once

#include "runtime/core/tensor.h"
#include "runtime/program/program.h"

namespace etwgpu {

struct SafeTensors {
  struct Entry {
    std::string name;
    DType dtype = DType::f32;
    Sizes sizes;
    FileRange range;  // in the file; as many bytes as the sizes need
  };
  std::vector<Entry> entries;  // as they lie in the file
};

/// Reads and checks the header alone; of a stream it takes nothing beyond. Errors: not_a_program for another kind of
/// file, invalid_program, io_error, limit_exceeded (a header above `memory_cap`).
Task<Result<SafeTensors>> readSafeTensors(DataSource& source, uint64_t memory_cap);

}  // namespace etwgpu
