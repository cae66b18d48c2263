// A `.pte` file as plain structures: what `readProgram` has read and `verifyProgram` has checked. Every index in here
// is in range and every range lies in the file, so that the code that runs a program looks nothing up twice.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/core/data_source.h"
#include "runtime/core/dtype.h"
#include "runtime/core/status.h"
#include "runtime/core/task.h"

namespace etwgpu {

/// Bytes of a file, from its start.
struct FileRange {
  uint64_t offset = 0, size = 0;
};

enum class ShapeKind : uint8_t { fixed, bounded, unbounded };

/// A tensor of a method. `sizes` are the upper bounds where the shape is bounded.
struct TensorInfo {
  int scalar_type = 0;      // ExecuTorch's number; not every one is a DType
  size_t element_size = 0;  // bytes
  std::span<const int32_t> sizes;
  std::span<const uint8_t> dim_order;
  ShapeKind shape = ShapeKind::fixed;
  std::string_view name;      // fully qualified name, where the file has one
  bool external = false;      // the data is in a .ptd under `name`
  uint32_t data_index = 0;    // 0: the file holds no data
  uint32_t data_segment = 0;  // which of mutable_segments, for planned tensors
  bool planned = false;       // has a place in an arena
  uint32_t arena = 0;
  uint64_t arena_offset = 0;
  // Filled by verifyProgram:
  uint64_t bytes = 0;    // at the bounds; 0 where unbounded
  int32_t segment = -1;  // the data are bytes [segment_offset, + bytes) of this segment
  uint64_t segment_offset = 0;
  const uint8_t* inline_data = nullptr;  // or these (files without segments)

  bool hasDType() const { return isValidDType(scalar_type); }
  DType dtype() const { return DType(scalar_type); }
  bool isConstant() const { return !planned && (data_index != 0 || external); }
  bool isContiguous() const;
};
/// "f32", "i64" …, or "scalar type 27" for those that no kernel of ours knows.
std::string scalarTypeName(int scalar_type);

// Values of a method ("EValues").
struct TensorRef {
  int32_t index;  // into Method::tensors
};
struct IntegerList {
  std::span<const int64_t> items;  // indices of values that are integers
};
struct NumberList {
  std::span<const double> items;
};
struct FlagList {
  std::span<const uint8_t> items;
};
struct TensorList {
  std::span<const int32_t> items;  // indices of values that are tensors; -1, if optional: None
  bool optional = false;
};
using ProgramValue = std::variant<std::monostate, bool, int64_t, double, TensorRef, std::string_view, IntegerList,
                                  NumberList, FlagList, TensorList>;

enum class InstructionKind : uint8_t { kernel, delegate, move, jump_false, free };
struct Instruction {
  InstructionKind kind = InstructionKind::kernel;
  int32_t index =
      0;  // kernel: of the operator; delegate: of the delegate; move: from; jump_false: condition; free: value
  int32_t target = 0;             // move: to; jump_false: instruction to go on with (= count of instructions: the end)
  std::span<const int32_t> args;  // kernel, delegate: values
};

struct OperatorName {
  std::string_view name, overload;  // "aten::add", "out"
  std::string text() const;         // "aten::add.out"
};
struct DelegateInfo {
  std::string_view id;   // "WebGPUBackend"
  int32_t segment = -1;  // payload: a segment, or
  std::span<const uint8_t> inline_payload;
  std::vector<std::pair<std::string_view, std::span<const uint8_t>>> compile_specs;
};

struct Method {
  std::string_view name;
  std::vector<ProgramValue> values;
  std::vector<TensorInfo> tensors;
  std::span<const int32_t> inputs, outputs;  // values
  std::vector<Instruction> instructions;
  std::vector<OperatorName> operators;
  std::vector<DelegateInfo> delegates;
  std::span<const int64_t> arenas;  // bytes of the arena of each memory id; entry 0 is reserved
};

/// Offsets of tensors in a segment.
struct SubsegmentOffsets {
  int32_t segment = -1;
  std::span<const uint64_t> offsets;
};
struct NamedSegment {
  std::string_view key;
  uint32_t segment = 0;
};

struct Program {
  std::string file;               // for messages
  uint64_t file_size = 0;         // 0: not known (a stream)
  std::span<const uint8_t> head;  // the flatbuffer: all views above point into it
  std::shared_ptr<uint8_t[]> owned_head;
  uint64_t segment_base = 0, segment_bytes = 0;  // from the extended header; 0 without one

  std::vector<Method> methods;
  std::vector<FileRange> segments;                         // absolute
  std::vector<std::span<const uint8_t>> constant_buffers;  // old files: constants inside the flatbuffer
  SubsegmentOffsets constants;
  std::vector<SubsegmentOffsets> mutable_segments;
  std::vector<NamedSegment> named_data;

  const Method* findMethod(std::string_view name) const;
};

/// Reads and verifies the program in front of a file's segments; of a stream it takes nothing beyond. Errors:
/// not_a_program (saying what the file is instead), unsupported_version, invalid_program, io_error, limit_exceeded (a
/// flatbuffer above `memory_cap`).
Task<Result<std::unique_ptr<Program>>> readProgram(DataSource& source, uint64_t memory_cap);

/// Checks, in this order: segments against the file; the ranges of constants, initial values and named data against
/// their segments; names of methods; and per method: the bytes of each tensor without overflow, dim_order being a
/// permutation of the dimensions, places in arenas, the kinds behind every list, inputs, outputs, operators, delegates,
/// arguments and targets of instructions. Fills TensorInfo::bytes and the places of data. Not checked here, but when a
/// call is made: whether values have the kinds that a kernel wants, since moves may change them.
Status verifyProgram(Program& program);

/// A `.ptd` file: named data outside of the program.
struct FlatTensor {
  struct Entry {
    std::string key;
    FileRange range;
    int scalar_type = -1;  // -1: no layout is stored
    std::vector<int64_t> sizes;
  };
  std::vector<Entry> entries;
};
/// Errors as readProgram.
Task<Result<FlatTensor>> readFlatTensor(DataSource& source, uint64_t memory_cap);

/// What the first bytes of a file say about it: ok for a file with flatbuffers' `identifier` (its last two characters
/// are a version), else not_a_program or unsupported_version with a message for humans.
Status checkFileKind(std::string_view file, std::span<const uint8_t> first, std::string_view identifier);

}  // namespace etwgpu
