// What a program must satisfy before anything of it is used; the list is in program.h. Each check is an early return
// whose message holds both numbers.
#include <algorithm>
#include <set>

#include "runtime/program/program.h"

namespace etwgpu {
namespace {

using ull = unsigned long long;

constexpr size_t kMaxRank = 16;

/// Bytes of an element of each of ExecuTorch's scalar types; 0: no such type.
size_t scalarSize(int type) {
  if (isValidDType(type)) return dtypeSize(DType(type));
  switch (type) {
    case 12:
    case 13:  // qint8, quint8
    case 18:
    case 19:
    case 20:
    case 21:  // bits1x8, bits2x4, bits4x2, bits8
    case 16:
    case 17:  // quint4x2, quint2x4: packed, counted as bytes
    case 23:
    case 24:
    case 25:
    case 26:  // float8
      return 1;
    case 22:
    case 27:
      return 2;  // bits16, uint16
    case 8:
    case 14:
    case 28:
      return 4;  // complex of two halves, qint32, uint32
    case 9:
    case 29:
      return 8;  // complex of two floats, uint64
    case 10:
      return 16;  // complex of two doubles
    default:
      return 0;
  }
}

bool isPermutation(std::span<const uint8_t> order) {
  uint32_t seen = 0;
  for (uint8_t d : order) {
    if (d >= order.size() || (seen >> d & 1)) return false;
    seen |= 1u << d;
  }
  return true;
}

class MethodVerifier {
 public:
  MethodVerifier(const Program& program, Method& method)
      : program_(program), m_(method), where_(program.file + ": method " + std::string(method.name)) {}

  Status run() {
    ETWGPU_TRY(arenas());
    for (size_t i = 0; i < m_.values.size(); ++i) {
      if (const auto* ref = std::get_if<TensorRef>(&m_.values[i]))
        ETWGPU_TRY(tensor(m_.tensors[size_t(ref->index)], i));
    }
    for (size_t i = 0; i < m_.values.size(); ++i) ETWGPU_TRY(list(i));
    ETWGPU_TRY(indices(m_.inputs, "input"));
    ETWGPU_TRY(indices(m_.outputs, "output"));
    ETWGPU_TRY(delegates());
    for (size_t i = 0; i < m_.instructions.size(); ++i) ETWGPU_TRY(instruction(i));
    return {};
  }

 private:
  Status bad(const std::string& message) const { return {Code::invalid_program, where_ + ": " + message}; }
  bool isValue(int64_t index) const { return index >= 0 && uint64_t(index) < m_.values.size(); }
  bool isTensor(int64_t index) const {
    return isValue(index) && std::holds_alternative<TensorRef>(m_.values[size_t(index)]);
  }

  Status arenas() {
    for (size_t i = 1; i < m_.arenas.size(); ++i) {
      if (m_.arenas[i] < 0) return bad(format("arena %zu has %lld bytes", i, (long long)m_.arenas[i]));
    }
    return {};
  }

  Status tensor(TensorInfo& t, size_t value) {
    const auto at = [&](std::string message) { return bad(format("tensor at value %zu ", value) + message); };
    t.element_size = scalarSize(t.scalar_type);
    if (t.element_size == 0) return at(format("has the unknown scalar type %d", t.scalar_type));
    if (t.sizes.size() > kMaxRank)
      return at(format("has %zu dimensions, at most %zu are allowed", t.sizes.size(), kMaxRank));
    if (t.dim_order.size() != t.sizes.size()) {
      return at(format("has %zu sizes, but a dim_order of %zu", t.sizes.size(), t.dim_order.size()));
    }
    if (!isPermutation(t.dim_order)) return at("has a dim_order that is no permutation of its dimensions");
    uint64_t bytes = t.element_size;
    bool zero = false;  // a product with a zero may overflow on the way
    for (int32_t s : t.sizes) {
      if (s < 0) return at(format("has a dimension of %d", s));
      zero = zero || s == 0;
      // half of the address range, so that strides and sums can't overflow either
      if (__builtin_mul_overflow(bytes, uint64_t(std::max(s, 1)), &bytes) || bytes > uint64_t(INT64_MAX) / 2) {
        return at("has more bytes than can be addressed");
      }
    }
    t.bytes = zero || t.shape == ShapeKind::unbounded ? 0 : bytes;
    if (t.planned) ETWGPU_TRY(place(t, value));
    return data(t, value);
  }

  Status place(const TensorInfo& t, size_t value) {
    const auto at = [&](std::string message) { return bad(format("tensor at value %zu ", value) + message); };
    if (t.arena == 0 || t.arena >= m_.arenas.size()) {
      return at(format("is in arena %u, the method has arenas 1 to %lld", t.arena, (long long)m_.arenas.size() - 1));
    }
    const uint64_t arena = uint64_t(m_.arenas[t.arena]);
    if (t.arena_offset > arena || t.bytes > arena - t.arena_offset) {
      return at(format("takes bytes %llu + %llu of an arena of %llu", ull(t.arena_offset), ull(t.bytes), ull(arena)));
    }
    if (t.arena_offset % t.element_size) {
      return at(format("lies at byte %llu of its arena, not a multiple of its element of %zu", ull(t.arena_offset),
                       t.element_size));
    }
    return {};
  }

  /// Where the constant or the initial value is stored.
  Status data(TensorInfo& t, size_t value) {
    const auto at = [&](std::string message) { return bad(format("tensor at value %zu ", value) + message); };
    if (t.external) {
      return t.name.empty() ? at("has external data, but no name to find it by") : Status();
    }
    if (t.data_index == 0) return {};
    if (t.shape == ShapeKind::unbounded) return at("has stored data, but no shape");
    if (!t.planned && !program_.constant_buffers.empty()) {
      if (t.data_index >= program_.constant_buffers.size()) {
        return at(format("is constant %u of %zu", t.data_index, program_.constant_buffers.size()));
      }
      const auto storage = program_.constant_buffers[t.data_index];
      if (t.bytes > storage.size())
        return at(format("needs %llu bytes, its constant has %zu", ull(t.bytes), storage.size()));
      t.inline_data = storage.data();
      return {};
    }
    if (t.planned && t.data_segment >= program_.mutable_segments.size()) {
      return at(format("has its initial value in list %u of %zu", t.data_segment, program_.mutable_segments.size()));
    }
    const SubsegmentOffsets& offsets = t.planned ? program_.mutable_segments[t.data_segment] : program_.constants;
    if (t.data_index >= offsets.offsets.size()) {
      return at(format("is stored value %u of %zu", t.data_index, offsets.offsets.size()));
    }
    const uint64_t size = program_.segments[size_t(offsets.segment)].size;
    const uint64_t offset = offsets.offsets[t.data_index];
    if (offset > size || t.bytes > size - offset) {
      return at(format("takes bytes %llu + %llu of a segment of %llu", ull(offset), ull(t.bytes), ull(size)));
    }
    t.segment = offsets.segment;
    t.segment_offset = offset;
    return {};
  }

  Status list(size_t value) {
    if (const auto* integers = std::get_if<IntegerList>(&m_.values[value])) {
      for (int64_t item : integers->items) {
        if (!isValue(item))
          return bad(format("integer list at value %zu has item %lld of %zu values", value, (long long)item,
                            m_.values.size()));
        // one level: lists of lists do not exist, so nothing can recurse
        if (!std::holds_alternative<int64_t>(m_.values[size_t(item)])) {
          return bad(format("integer list at value %zu: value %lld is no integer", value, (long long)item));
        }
      }
    }
    if (const auto* tensors = std::get_if<TensorList>(&m_.values[value])) {
      for (int32_t item : tensors->items) {
        if (tensors->optional && item == -1) continue;
        // an optional list may also point to a value that is None
        const bool none =
            tensors->optional && isValue(item) && std::holds_alternative<std::monostate>(m_.values[size_t(item)]);
        if (!isTensor(item) && !none)
          return bad(format("tensor list at value %zu: value %d of %zu is no tensor", value, item, m_.values.size()));
      }
    }
    return {};
  }

  Status indices(std::span<const int32_t> list, const char* what) const {
    for (size_t i = 0; i < list.size(); ++i) {
      if (!isValue(list[i])) return bad(format("%s %zu is value %d of %zu", what, i, list[i], m_.values.size()));
    }
    return {};
  }

  Status delegates() const {
    for (const DelegateInfo& d : m_.delegates) {
      if (d.segment >= 0 && size_t(d.segment) >= program_.segments.size()) {
        return bad(format("delegate %.*s has its payload in segment %d of %zu", int(d.id.size()), d.id.data(),
                          d.segment, program_.segments.size()));
      }
    }
    return {};
  }

  Status instruction(size_t i) const {
    const Instruction& in = m_.instructions[i];
    const auto at = [&](std::string message) { return bad(format("instruction %zu: ", i) + message); };
    switch (in.kind) {
      case InstructionKind::kernel:
        if (in.index < 0 || size_t(in.index) >= m_.operators.size())
          return at(format("operator %d of %zu", in.index, m_.operators.size()));
        return indices(in.args, "an argument of a kernel call: argument");
      case InstructionKind::delegate:
        if (in.index < 0 || size_t(in.index) >= m_.delegates.size())
          return at(format("delegate %d of %zu", in.index, m_.delegates.size()));
        return indices(in.args, "an argument of a delegate call: argument");
      case InstructionKind::move:
        if (!isValue(in.target)) return at(format("moves into value %d of %zu", in.target, m_.values.size()));
        break;
      case InstructionKind::jump_false:
        if (in.target < 0 || size_t(in.target) > m_.instructions.size()) {
          return at(format("jumps to instruction %d of %zu", in.target, m_.instructions.size()));
        }
        break;
      case InstructionKind::free:
        break;
    }
    return isValue(in.index) ? Status() : at(format("value %d of %zu", in.index, m_.values.size()));
  }

  const Program& program_;
  Method& m_;
  const std::string where_;
};

Status segments(Program& p) {
  const uint64_t end = p.segment_bytes ? p.segment_base + p.segment_bytes : p.file_size;
  if (end < p.segment_base) return {Code::invalid_program, p.file + ": more bytes of segments than can be addressed"};
  // a program without any data has an empty segment of constants and no base
  const bool has_data =
      std::any_of(p.segments.begin(), p.segments.end(), [](const FileRange& s) { return s.size != 0; });
  if (has_data && p.segment_base == 0) {
    return {Code::invalid_program, format("%s: %zu segments, but no extended header that says where they start",
                                          p.file.c_str(), p.segments.size())};
  }
  if (p.file_size && end > p.file_size) {
    return {Code::invalid_program, format("%s: segments end at byte %llu of a file of %llu: is the download complete?",
                                          p.file.c_str(), ull(end), ull(p.file_size))};
  }
  for (size_t i = 0; i < p.segments.size(); ++i) {
    FileRange& s = p.segments[i];
    uint64_t segment_end = 0;
    if (__builtin_add_overflow(p.segment_base, s.offset, &s.offset) ||
        __builtin_add_overflow(s.offset, s.size, &segment_end) || (end && segment_end > end)) {
      return {Code::invalid_program,
              format("%s: segment %zu takes bytes %llu + %llu, the segments end at %llu: is the download "
                     "complete?",
                     p.file.c_str(), i, ull(s.offset), ull(s.size), ull(end))};
    }
  }
  return {};
}

Status segmentIndex(const Program& p, int64_t segment, const char* what) {
  if (segment >= 0 && uint64_t(segment) < p.segments.size()) return {};
  return {Code::invalid_program,
          format("%s: %s in segment %lld of %zu", p.file.c_str(), what, (long long)segment, p.segments.size())};
}

}  // namespace

bool TensorInfo::isContiguous() const {
  // dimensions of size 1 may stand anywhere
  int last = -1;
  for (uint8_t d : dim_order) {
    if (sizes[d] == 1) continue;
    if (int(d) < last) return false;
    last = d;
  }
  return true;
}

std::string scalarTypeName(int scalar_type) {
  return isValidDType(scalar_type) ? std::string(dtypeName(DType(scalar_type))) : format("scalar type %d", scalar_type);
}

std::string OperatorName::text() const {
  std::string s(name);
  if (!overload.empty()) s += "." + std::string(overload);
  return s;
}

const Method* Program::findMethod(std::string_view name) const {
  for (const Method& m : methods) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

Status verifyProgram(Program& p) {
  ETWGPU_TRY(segments(p));
  if (!p.constants.offsets.empty()) ETWGPU_TRY(segmentIndex(p, p.constants.segment, "constants"));
  for (const SubsegmentOffsets& s : p.mutable_segments) {
    if (!s.offsets.empty()) ETWGPU_TRY(segmentIndex(p, s.segment, "initial values"));
  }
  std::set<std::string_view> keys;
  for (const NamedSegment& n : p.named_data) {
    ETWGPU_TRY(segmentIndex(p, n.segment, "named data"));
    if (!keys.insert(n.key).second)
      return {Code::invalid_program, p.file + ": two pieces of named data are called " + std::string(n.key)};
  }
  if (p.methods.empty()) return {Code::invalid_program, p.file + ": a program without methods"};
  std::set<std::string_view> names;
  for (Method& m : p.methods) {
    if (m.name.empty() || !names.insert(m.name).second) {
      return {Code::invalid_program, p.file + ": two methods are called \"" + std::string(m.name) + "\""};
    }
    ETWGPU_TRY(MethodVerifier(p, m).run());
  }
  return {};
}

}  // namespace etwgpu
