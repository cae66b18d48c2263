// From the bytes of a `.pte` to struct Program. Nothing is interpreted here beyond the flatbuffer's own structure: see
// verify_program.cpp for what the numbers must satisfy.
#include <cstring>

#include "generated/program_generated.h"
#include "runtime/program/flatbuffer_view.h"
#include "runtime/program/head_reader.h"
#include "runtime/program/program.h"

namespace etwgpu {
namespace fb = executorch_flatbuffer;
namespace {

constexpr uint32_t kSchemaVersion = 0;  // Program.version of the schema that this reader knows

struct ExtendedHeader {
  uint64_t program_bytes = 0, segment_base = 0, segment_bytes = 0;
};

/// The header "eh00" after the file identifier, or nothing. Length 24 is the one without segment_bytes.
Result<ExtendedHeader> readExtendedHeader(const std::string& file, std::span<const uint8_t> probe, uint64_t file_size) {
  ExtendedHeader header;
  if (probe.size() < 32 || std::memcmp(probe.data() + 8, "eh00", 4) != 0) return header;
  const uint64_t length = littleEndian(probe.data() + 12, 4);
  if (length < 24) {
    return {Code::invalid_program, format("%s: extended header of %llu bytes, at least 24 expected", file.c_str(),
                                          (unsigned long long)length)};
  }
  header.program_bytes = littleEndian(probe.data() + 16, 8);
  header.segment_base = littleEndian(probe.data() + 24, 8);
  if (length >= 32 && probe.size() >= 40) header.segment_bytes = littleEndian(probe.data() + 32, 8);
  if (header.program_bytes < 16 || (file_size && header.program_bytes > file_size)) {
    return {Code::invalid_program,
            format("%s: the header says that the program takes %llu bytes, the file has %llu: is the "
                   "download complete?",
                   file.c_str(), (unsigned long long)header.program_bytes, (unsigned long long)file_size)};
  }
  if (header.segment_base && header.segment_base < header.program_bytes) {
    return {Code::invalid_program,
            format("%s: segments start at byte %llu, inside the program's %llu bytes", file.c_str(),
                   (unsigned long long)header.segment_base, (unsigned long long)header.program_bytes)};
  }
  if (file_size && header.segment_base > file_size) {
    return {Code::invalid_program,
            format("%s: segments start at byte %llu of a file of %llu: is the download complete?", file.c_str(),
                   (unsigned long long)header.segment_base, (unsigned long long)file_size)};
  }
  return header;
}

class Reader {
 public:
  Reader(Program& program, uint64_t bytes) : program_(program), view_(program.file, bytes) {}

  Status read(const fb::Program& p) {
    readSegments(p);
    const uint32_t methods = view_.tables(p.execution_plan());
    for (uint32_t i = 0; i < methods && view_.ok(); ++i) readMethod(*p.execution_plan()->Get(i));
    return view_.status();
  }

 private:
  void readSegments(const fb::Program& p) {
    const uint32_t segments = view_.tables(p.segments());
    for (uint32_t i = 0; i < segments; ++i) {
      // still relative to the base; verifyProgram makes them absolute after its check
      program_.segments.push_back({p.segments()->Get(i)->offset(), p.segments()->Get(i)->size()});
    }
    const uint32_t buffers = view_.tables(p.constant_buffer());
    for (uint32_t i = 0; i < buffers; ++i) {
      program_.constant_buffers.push_back(view_.span<uint8_t>(p.constant_buffer()->Get(i)->storage()));
    }
    if (p.constant_segment()) program_.constants = subsegment(*p.constant_segment());
    const uint32_t mutables = view_.tables(p.mutable_data_segments());
    for (uint32_t i = 0; i < mutables; ++i)
      program_.mutable_segments.push_back(subsegment(*p.mutable_data_segments()->Get(i)));
    const uint32_t named = view_.tables(p.named_data());
    for (uint32_t i = 0; i < named; ++i) {
      program_.named_data.push_back(
          {view_.text(p.named_data()->Get(i)->key()), p.named_data()->Get(i)->segment_index()});
    }
    const uint32_t inlines = view_.tables(p.backend_delegate_data());
    for (uint32_t i = 0; i < inlines; ++i)
      inline_payloads_.push_back(view_.span<uint8_t>(p.backend_delegate_data()->Get(i)->data()));
  }

  SubsegmentOffsets subsegment(const fb::SubsegmentOffsets& s) {
    SubsegmentOffsets out;
    out.offsets = view_.span<uint64_t>(s.offsets());
    // one without offsets stands for "none" and need not name a segment
    out.segment = out.offsets.empty() ? -1 : int32_t(s.segment_index());
    if (s.segment_index() > INT32_MAX)
      view_.fail(program_.file + ": segment index " + std::to_string(s.segment_index()));
    return out;
  }

  void readMethod(const fb::ExecutionPlan& plan) {
    program_.methods.emplace_back();
    Method& m = program_.methods.back();
    m.name = view_.text(plan.name());
    m.inputs = view_.span<int32_t>(plan.inputs());
    m.outputs = view_.span<int32_t>(plan.outputs());
    m.arenas = view_.span<int64_t>(plan.non_const_buffer_sizes());
    const uint32_t operators = view_.tables(plan.operators());
    for (uint32_t i = 0; i < operators; ++i) {
      m.operators.push_back(
          {view_.text(plan.operators()->Get(i)->name()), view_.text(plan.operators()->Get(i)->overload())});
    }
    const uint32_t values = view_.tables(plan.values());
    for (uint32_t i = 0; i < values && view_.ok(); ++i) m.values.push_back(readValue(m, *plan.values()->Get(i)));
    const uint32_t delegates = view_.tables(plan.delegates());
    for (uint32_t i = 0; i < delegates && view_.ok(); ++i) readDelegate(m, *plan.delegates()->Get(i));
    const uint32_t chains = view_.tables(plan.chains());
    for (uint32_t i = 0; i < chains && view_.ok(); ++i) readChain(m, *plan.chains()->Get(i));
  }

  ProgramValue readValue(Method& m, const fb::EValue& value) {
    // the verifier lets a union pass that names a type but has no table
    if (!value.val() && value.val_type() != fb::KernelTypes::NONE && value.val_type() != fb::KernelTypes::Null) {
      view_.fail(program_.file + ": method " + std::string(m.name) + ": a value without contents");
      return std::monostate();
    }
    switch (value.val_type()) {
      case fb::KernelTypes::Int:
        return value.val_as_Int()->int_val();
      case fb::KernelTypes::Bool:
        return value.val_as_Bool()->bool_val();
      case fb::KernelTypes::Double:
        return value.val_as_Double()->double_val();
      case fb::KernelTypes::String:
        return view_.text(value.val_as_String()->string_val());
      case fb::KernelTypes::IntList:
        return IntegerList{view_.span<int64_t>(value.val_as_IntList()->items())};
      case fb::KernelTypes::DoubleList:
        return NumberList{view_.span<double>(value.val_as_DoubleList()->items())};
      case fb::KernelTypes::BoolList:
        return FlagList{view_.span<uint8_t>(value.val_as_BoolList()->items())};
      case fb::KernelTypes::TensorList:
        return TensorList{view_.span<int32_t>(value.val_as_TensorList()->items()), false};
      case fb::KernelTypes::OptionalTensorList:
        return TensorList{view_.span<int32_t>(value.val_as_OptionalTensorList()->items()), true};
      case fb::KernelTypes::Tensor:
        m.tensors.push_back(readTensor(*value.val_as_Tensor()));
        return TensorRef{int32_t(m.tensors.size() - 1)};
      case fb::KernelTypes::Null:
      case fb::KernelTypes::NONE:
        return std::monostate();
    }
    view_.fail(format("%s: method %.*s: value of unknown type %d", program_.file.c_str(), int(m.name.size()),
                      m.name.data(), int(value.val_type())));
    return std::monostate();
  }

  TensorInfo readTensor(const fb::Tensor& t) {
    TensorInfo info;
    info.scalar_type = int(t.scalar_type());
    info.sizes = view_.span<int32_t>(t.sizes());
    info.dim_order = view_.span<uint8_t>(t.dim_order());
    if (t.storage_offset() != 0)
      view_.fail(format("%s: tensor with storage offset %d, only 0 is defined", program_.file.c_str(),
                        int(t.storage_offset())));
    if (int(t.shape_dynamism()) < 0 || int(t.shape_dynamism()) > 2) {
      view_.fail(format("%s: tensor with shape dynamism %d", program_.file.c_str(), int(t.shape_dynamism())));
    }
    info.shape = ShapeKind(uint8_t(t.shape_dynamism()));
    info.data_index = t.data_buffer_idx();
    if (const auto* a = t.allocation_info()) {
      info.planned = true;
      info.arena = a->memory_id();
      info.arena_offset = uint64_t(a->memory_offset_low()) | uint64_t(a->memory_offset_high()) << 32;
    }
    if (const auto* extra = t.extra_tensor_info()) {
      info.name = view_.text(extra->fully_qualified_name());
      info.external = extra->location() == fb::TensorDataLocation::EXTERNAL;
      info.data_segment = uint32_t(std::min<uint64_t>(extra->mutable_data_segments_idx(), UINT32_MAX));
    }
    return info;
  }

  void readDelegate(Method& m, const fb::BackendDelegate& d) {
    DelegateInfo info;
    info.id = view_.text(d.id());
    const auto* processed = d.processed();
    if (!processed) {
      view_.fail(program_.file + ": delegate " + std::string(info.id) + " without a payload");
    } else if (processed->location() == fb::DataLocation::SEGMENT) {
      info.segment = int32_t(std::min<uint32_t>(processed->index(), INT32_MAX));
    } else if (processed->index() < inline_payloads_.size()) {
      info.inline_payload = inline_payloads_[processed->index()];
    } else {
      view_.fail(format("%s: delegate payload %u of %zu", program_.file.c_str(), unsigned(processed->index()),
                        inline_payloads_.size()));
    }
    const uint32_t specs = view_.tables(d.compile_specs());
    for (uint32_t i = 0; i < specs; ++i) {
      const auto* spec = d.compile_specs()->Get(i);
      info.compile_specs.emplace_back(view_.text(spec->key()), view_.span<uint8_t>(spec->value()));
    }
    m.delegates.push_back(std::move(info));
  }

  /// Chains run one after another; a jump stays in its chain.
  void readChain(Method& m, const fb::Chain& chain) {
    const uint32_t count = view_.tables(chain.instructions());
    const int32_t first = int32_t(m.instructions.size());
    for (uint32_t i = 0; i < count && view_.ok(); ++i) {
      Instruction in = readInstruction(*chain.instructions()->Get(i));
      if (in.kind == InstructionKind::jump_false) {
        if (in.target < 0 || uint32_t(in.target) > count) {
          view_.fail(format("%s: method %.*s: jump to instruction %d of %u", program_.file.c_str(), int(m.name.size()),
                            m.name.data(), in.target, unsigned(count)));
        }
        in.target += first;
      }
      m.instructions.push_back(in);
    }
  }

  Instruction readInstruction(const fb::Instruction& in) {
    using K = InstructionKind;
    if (const auto* k = in.instr_args_as_KernelCall())
      return {K::kernel, k->op_index(), 0, view_.span<int32_t>(k->args())};
    if (const auto* d = in.instr_args_as_DelegateCall())
      return {K::delegate, d->delegate_index(), 0, view_.span<int32_t>(d->args())};
    if (const auto* m = in.instr_args_as_MoveCall()) return {K::move, m->move_from(), m->move_to(), {}};
    if (const auto* j = in.instr_args_as_JumpFalseCall())
      return {K::jump_false, j->cond_value_index(), j->destination_instruction(), {}};
    if (const auto* f = in.instr_args_as_FreeCall()) return {K::free, f->value_index(), 0, {}};
    view_.fail(format("%s: instruction of unknown type %d", program_.file.c_str(), int(in.instr_args_type())));
    return {};
  }

  Program& program_;
  FlatbufferView view_;
  std::vector<std::span<const uint8_t>> inline_payloads_;
};

Status parse(Program& program) {
  const std::span<const uint8_t> head = program.head;
  // The verifier counts shared tables once per use; a file without sharing has fewer tables than bytes / 8.
  flatbuffers::Verifier verifier(head.data(), head.size(), /*max_depth=*/64,
                                 flatbuffers::uoffset_t(head.size() / 8 + 64));
  if (head.size() >= FLATBUFFERS_MAX_BUFFER_SIZE || !fb::VerifyProgramBuffer(verifier)) {
    return {Code::invalid_program,
            format("%s: the flatbuffer in its first %zu bytes is damaged", program.file.c_str(), head.size())};
  }
  const fb::Program& p = *fb::GetProgram(head.data());
  if (p.version() > kSchemaVersion) {
    return {Code::unsupported_version,
            format("%s: program version %u, this runtime reads up to %u: use a newer runtime", program.file.c_str(),
                   unsigned(p.version()), unsigned(kSchemaVersion))};
  }
  return Reader(program, head.size()).read(p);
}

}  // namespace

Task<Result<std::unique_ptr<Program>>> readProgram(DataSource& source, uint64_t memory_cap) {
  auto program = std::make_unique<Program>();
  program->file = source.name();
  program->file_size = source.size();
  if (program->file_size == 0 && source.data()) co_return checkFileKind(program->file, {}, "ET12");
  HeadReader reader(source);
  const uint64_t probe_bytes = program->file_size ? std::min(program->file_size, kProbeBytes) : kProbeBytes;
  ETWGPU_CO_ASSIGN(std::span<const uint8_t> probe, co_await reader.take(probe_bytes));
  ETWGPU_CO_TRY(checkFileKind(program->file, probe, "ET12"));
  ETWGPU_CO_ASSIGN(const ExtendedHeader header, readExtendedHeader(program->file, probe, program->file_size));
  const uint64_t bytes = header.program_bytes ? header.program_bytes : program->file_size;
  if (bytes == 0)
    co_return Status(Code::invalid_program, program->file + ": a stream of unknown length needs an extended header");
  if (!source.data() && bytes > memory_cap) {
    co_return Status(Code::limit_exceeded,
                     format("%s: the program takes %llu bytes, the memory cap is %llu", program->file.c_str(),
                            (unsigned long long)bytes, (unsigned long long)memory_cap));
  }
  ETWGPU_CO_ASSIGN(program->head, co_await reader.take(bytes));
  program->owned_head = reader.owned();
  program->segment_base = header.segment_base;
  program->segment_bytes = header.segment_bytes;
  ETWGPU_CO_TRY(parse(*program));
  ETWGPU_CO_TRY(verifyProgram(*program));
  co_return std::move(program);
}

}  // namespace etwgpu
