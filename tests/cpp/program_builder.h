// Builds small `.pte` files, good and bad: a method's parts are plain numbers, so that a test damages exactly one of
// them.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "generated/program_generated.h"

namespace etwgpu {

namespace pte = executorch_flatbuffer;

/// A program under construction. value indices are in order of the calls that add values.
class ProgramBuilder {
 public:
  using Shape = pte::TensorShapeDynamism;
  struct TensorOptions {
    pte::ScalarType dtype = pte::ScalarType::FLOAT;
    int32_t storage_offset = 0;
    std::vector<uint8_t> dim_order;  // default: 0, 1, …
    uint32_t data_index = 0;
    uint32_t arena = 0;  // 0: not planned
    uint64_t arena_offset = 0;
    Shape shape = Shape::STATIC;
    std::string external;  // name of external data
    bool default_dim_order = true;
  };

  int tensor(std::vector<int32_t> sizes, TensorOptions o) {
    if (o.default_dim_order) {
      for (size_t i = 0; i < sizes.size(); ++i) o.dim_order.push_back(uint8_t(i));
    }
    flatbuffers::Offset<pte::AllocationDetails> place = 0;
    if (o.arena)
      place = pte::CreateAllocationDetails(fbb, o.arena, uint32_t(o.arena_offset), uint32_t(o.arena_offset >> 32));
    flatbuffers::Offset<pte::ExtraTensorInfo> extra = 0;
    if (!o.external.empty())
      extra = pte::CreateExtraTensorInfoDirect(fbb, 0, o.external.c_str(), pte::TensorDataLocation::EXTERNAL);
    return add(pte::KernelTypes::Tensor, pte::CreateTensorDirect(fbb, o.dtype, o.storage_offset, &sizes, &o.dim_order,
                                                                 false, o.data_index, place, 0, o.shape, extra)
                                             .Union());
  }
  int planned(std::vector<int32_t> sizes, uint64_t offset, Shape shape = Shape::STATIC) {
    TensorOptions o;
    o.arena = 1;
    o.arena_offset = offset;
    o.shape = shape;
    return tensor(std::move(sizes), o);
  }
  int integer(int64_t v) { return add(pte::KernelTypes::Int, pte::CreateInt(fbb, v).Union()); }
  int flag(bool v) { return add(pte::KernelTypes::Bool, pte::CreateBool(fbb, v).Union()); }
  int integers(std::vector<int64_t> items) {
    return add(pte::KernelTypes::IntList, pte::CreateIntListDirect(fbb, &items).Union());
  }
  int op(const char* name, const char* overload) {
    operators.push_back(pte::CreateOperatorDirect(fbb, name, overload));
    return int(operators.size()) - 1;
  }
  void call(int op, std::vector<int32_t> args) {
    instruction(pte::InstructionArguments::KernelCall, pte::CreateKernelCallDirect(fbb, op, &args).Union());
  }
  /// A delegate of the method with this payload; calls of it take its inputs and outputs.
  int delegate(const std::vector<uint8_t>& payload) {
    payloads.push_back(pte::CreateBackendDelegateInlineDataDirect(fbb, &payload));
    const auto data =
        pte::CreateBackendDelegateDataReference(fbb, pte::DataLocation::INLINE, uint32_t(payloads.size()) - 1);
    delegates.push_back(pte::CreateBackendDelegateDirect(fbb, "WebGPUBackend", data));
    return int(delegates.size()) - 1;
  }
  void callDelegate(int delegate, std::vector<int32_t> args) {
    instruction(pte::InstructionArguments::DelegateCall, pte::CreateDelegateCallDirect(fbb, delegate, &args).Union());
  }
  void move(int from, int to) {
    instruction(pte::InstructionArguments::MoveCall, pte::CreateMoveCall(fbb, from, to).Union());
  }
  void jumpFalse(int condition, int target) {
    instruction(pte::InstructionArguments::JumpFalseCall, pte::CreateJumpFalseCall(fbb, condition, target).Union());
  }

  /// Closes the method under construction and begins the next.
  void method(const char* name) {
    const auto chain = pte::CreateChainDirect(fbb, nullptr, nullptr, &instructions);
    const std::vector chains{chain};
    methods.push_back(pte::CreateExecutionPlanDirect(fbb, name, 0, &values, &inputs, &outputs, &chains, &operators,
                                                     &delegates, &arenas));
    values.clear(), inputs.clear(), outputs.clear(), operators.clear(), instructions.clear(), delegates.clear();
    arenas = {0};
  }

  /// The file: with the extended header where there are segment bytes.
  std::vector<uint8_t> finish(uint32_t version = 0) {
    flatbuffers::Offset<pte::SubsegmentOffsets> constants = 0;
    if (!constant_offsets.empty())
      constants = pte::CreateSubsegmentOffsets(fbb, constant_segment, fbb.CreateVector(constant_offsets));
    std::vector<flatbuffers::Offset<pte::DataSegment>> segments;
    for (const auto& [offset, size] : segment_table) segments.push_back(pte::CreateDataSegment(fbb, offset, size));
    fbb.Finish(pte::CreateProgramDirect(fbb, version, &methods, nullptr, &payloads, &segments, constants), "ET12");
    std::vector<uint8_t> head(fbb.GetBufferPointer(), fbb.GetBufferPointer() + fbb.GetSize());
    std::vector<uint8_t> header(32);
    std::memcpy(header.data(), "eh00", 4);
    const uint32_t length = 32;
    const uint64_t program_bytes = (head.size() + 32 + 15) / 16 * 16, segment_bytes = segment_data.size();
    std::memcpy(&header[4], &length, 4);
    std::memcpy(&header[8], &program_bytes, 8);
    std::memcpy(&header[16], &program_bytes, 8);
    std::memcpy(&header[24], &segment_bytes, 8);
    uint32_t root = 0;
    std::memcpy(&root, head.data(), 4);
    root += 32;
    std::memcpy(head.data(), &root, 4);
    head.insert(head.begin() + 8, header.begin(), header.end());
    head.resize(program_bytes);
    head.insert(head.end(), segment_data.begin(), segment_data.end());
    return head;
  }

  flatbuffers::FlatBufferBuilder fbb;
  std::vector<int32_t> inputs, outputs;
  std::vector<int64_t> arenas{0};
  std::vector<std::pair<uint64_t, uint64_t>> segment_table;
  std::vector<uint8_t> segment_data;
  std::vector<uint64_t> constant_offsets;
  uint32_t constant_segment = 0;

 private:
  int add(pte::KernelTypes type, flatbuffers::Offset<void> value) {
    values.push_back(pte::CreateEValue(fbb, type, value));
    return int(values.size()) - 1;
  }
  void instruction(pte::InstructionArguments type, flatbuffers::Offset<void> value) {
    instructions.push_back(pte::CreateInstruction(fbb, type, value));
  }
  std::vector<flatbuffers::Offset<pte::EValue>> values;
  std::vector<flatbuffers::Offset<pte::Operator>> operators;
  std::vector<flatbuffers::Offset<pte::Instruction>> instructions;
  std::vector<flatbuffers::Offset<pte::BackendDelegate>> delegates;
  std::vector<flatbuffers::Offset<pte::BackendDelegateInlineData>> payloads;
  std::vector<flatbuffers::Offset<pte::ExecutionPlan>> methods;
};

}  // namespace etwgpu
