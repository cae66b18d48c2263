#include "runtime/program/safetensors.h"

#include <cstring>

#include "runtime/core/sort_by.h"
#include "runtime/program/head_reader.h"
#include "runtime/program/json_value.h"

namespace etwgpu {
namespace {

constexpr uint64_t kMaxHeader = 100 << 20;  // the format's own limit
constexpr size_t kMaxRank = 8;

std::optional<DType> dtypeOf(const JsonValue* name) {
  static constexpr std::pair<std::string_view, DType> kNames[] = {
      {"F32", DType::f32}, {"F16", DType::f16}, {"BF16", DType::bf16}, {"F64", DType::f64}, {"I64", DType::i64},
      {"I32", DType::i32}, {"I16", DType::i16}, {"I8", DType::i8},     {"U8", DType::u8},   {"BOOL", DType::boolean}};
  for (const auto& [text, dtype] : kNames)
    if (name && name->string == text) return dtype;
  return {};
}

struct Header {
  std::string file;
  uint64_t data_at, file_size;  // 0: unknown

  Status bad(const std::string& name, const std::string& what) const {
    return {Code::invalid_program, format("%s: tensor '%s' %s", file.c_str(), name.c_str(), what.c_str())};
  }

  Status entry(const std::string& name, const JsonValue& json, SafeTensors::Entry& e) const {
    e.name = name;
    const std::optional<DType> dtype = dtypeOf(json.find("dtype"));
    const JsonValue *shape = json.find("shape"), *offsets = json.find("data_offsets");
    if (!dtype) return bad(name, "has a dtype that is not known");
    if (!shape || shape->items.size() > kMaxRank || !offsets || offsets->items.size() != 2)
      return bad(name, "lacks its shape or its place");
    e.dtype = *dtype;
    uint64_t bytes = dtypeSize(e.dtype);
    for (const JsonValue& item : shape->items) {
      const auto n = item.count();
      if (!n || __builtin_mul_overflow(bytes, *n, &bytes)) return bad(name, "has an impossible shape");
      e.sizes.push_back(int64_t(*n));
    }
    const auto begin = offsets->items[0].count(), end = offsets->items[1].count();
    if (!begin || !end || *end < *begin || *end - *begin != bytes)
      return bad(name, format("lies in another number of bytes than the %llu of its shape", (unsigned long long)bytes));
    if (file_size && *end > file_size - data_at)
      return bad(name, "lies beyond the end of the file: is the download complete?");
    e.range = {data_at + *begin, bytes};
    return {};
  }
};

}  // namespace

Task<Result<SafeTensors>> readSafeTensors(DataSource& source, uint64_t memory_cap) {
  const std::string file = source.name();
  HeadReader reader(source);
  if (source.size() && source.size() < 10) {
    co_return Status(Code::not_a_program, format("%s has %llu bytes, it is no safetensors file", file.c_str(),
                                                 (unsigned long long)source.size()));
  }
  // The first characters of the header, too: what is another kind of file is told as such.
  ETWGPU_CO_ASSIGN(std::span<const uint8_t> probe, co_await reader.take(10));
  uint64_t length = 0;
  std::memcpy(&length, probe.data(), 8);
  if (probe[8] != '{' || length < 2 || length > kMaxHeader) {
    const std::string_view start(reinterpret_cast<const char*>(probe.data()), 10);
    const char* what = start[0] == '<'                   ? "is an HTML or XML document: check the URL"
                       : start.starts_with("version ht") ? "is a Git-LFS pointer, not the file it stands for"
                                                         : "is no safetensors file";
    co_return Status(Code::not_a_program, file + " " + what);
  }
  if (source.size() && length > source.size() - 8) {
    co_return Status(Code::invalid_program, format("%s: its header takes %llu bytes of a file of %llu", file.c_str(),
                                                   (unsigned long long)length, (unsigned long long)source.size()));
  }
  if (length > memory_cap) {
    co_return Status(Code::limit_exceeded,
                     format("%s: its header takes %llu bytes, the memory cap is %llu", file.c_str(),
                            (unsigned long long)length, (unsigned long long)memory_cap));
  }
  ETWGPU_CO_ASSIGN(std::span<const uint8_t> head, co_await reader.take(8 + length));
  Result<JsonValue> json = parseJson({reinterpret_cast<const char*>(head.data()) + 8, size_t(length)});
  if (!json.ok() || !json->is(JsonValue::Kind::object))
    co_return Status(Code::invalid_program, file + ": the header of the safetensors file is no JSON object");
  const Header header{file, 8 + length, source.size()};
  SafeTensors out;
  for (const auto& [name, member] : json->members) {
    if (name == "__metadata__") continue;
    out.entries.emplace_back();
    ETWGPU_CO_TRY(header.entry(name, member, out.entries.back()));
  }
  sortBy(out.entries, [](const SafeTensors::Entry& e) { return e.range.offset; });
  co_return std::move(out);
}

}  // namespace etwgpu
