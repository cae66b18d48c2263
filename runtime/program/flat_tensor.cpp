// `.ptd`: flatbuffer "FT01" with the header "FH01", then segments.
#include <cstring>

#include "generated/flat_tensor_generated.h"
#include "runtime/program/flatbuffer_view.h"
#include "runtime/program/head_reader.h"
#include "runtime/program/program.h"

namespace etwgpu {
namespace fb = flat_tensor_flatbuffer;
namespace {

constexpr uint32_t kFlatTensorVersion = 0;

struct Header {
  uint64_t flatbuffer_bytes = 0, segment_base = 0;
};

/// Magic, length, flatbuffer offset, flatbuffer size, segment base, segment bytes; right after the file identifier.
Result<Header> readHeader(const std::string& file, std::span<const uint8_t> probe, uint64_t file_size) {
  if (probe.size() < 48 || std::memcmp(probe.data() + 8, "FH01", 4) != 0) {
    return {Code::invalid_program, file + ": a .ptd file without its header FH01"};
  }
  const uint64_t length = littleEndian(probe.data() + 12, 4);
  if (length < 40) {
    return {Code::invalid_program,
            format("%s: header of %llu bytes, 40 expected", file.c_str(), (unsigned long long)length)};
  }
  // The flatbuffer starts at byte 0, around this header: the offset is where its rest goes on, the size is that of the
  // rest.
  const uint64_t offset = littleEndian(probe.data() + 16, 8);
  Header header{littleEndian(probe.data() + 24, 8), littleEndian(probe.data() + 32, 8)};
  if (__builtin_add_overflow(offset, header.flatbuffer_bytes, &header.flatbuffer_bytes))
    header.flatbuffer_bytes = UINT64_MAX;
  if (header.flatbuffer_bytes < 16 || (file_size && header.flatbuffer_bytes > file_size)) {
    return {Code::invalid_program,
            format("%s: the header says that the flatbuffer takes %llu bytes, the file has %llu: is the "
                   "download complete?",
                   file.c_str(), (unsigned long long)header.flatbuffer_bytes, (unsigned long long)file_size)};
  }
  if (file_size && header.segment_base > file_size) {
    return {Code::invalid_program,
            format("%s: segments start at byte %llu of a file of %llu: is the download complete?", file.c_str(),
                   (unsigned long long)header.segment_base, (unsigned long long)file_size)};
  }
  return header;
}

Status readEntry(const std::string& file, FlatbufferView& view, const fb::FlatTensor& root, const fb::NamedData& named,
                 uint64_t base, uint64_t file_size, FlatTensor::Entry& entry) {
  entry.key = view.text(named.key());
  const uint32_t segments = root.segments() ? root.segments()->size() : 0;
  if (named.segment_index() >= segments) {
    return {Code::invalid_program, format("%s: %s is in segment %u of %u", file.c_str(), entry.key.c_str(),
                                          unsigned(named.segment_index()), unsigned(segments))};
  }
  const auto* segment = root.segments()->Get(named.segment_index());
  if (__builtin_add_overflow(base, segment->offset(), &entry.range.offset) ||
      entry.range.offset + segment->size() < segment->size() ||
      (file_size && entry.range.offset + segment->size() > file_size)) {
    return {Code::invalid_program,
            format("%s: %s lies at bytes %llu + %llu of a file of %llu: is the download complete?", file.c_str(),
                   entry.key.c_str(), (unsigned long long)entry.range.offset, (unsigned long long)segment->size(),
                   (unsigned long long)file_size)};
  }
  entry.range.size = segment->size();
  if (const auto* layout = named.tensor_layout()) {
    entry.scalar_type = int(layout->scalar_type());
    for (int32_t s : view.span<int32_t>(layout->sizes())) entry.sizes.push_back(s);
    const auto dim_order = view.span<uint8_t>(layout->dim_order());
    if (dim_order.size() != entry.sizes.size()) {
      return {Code::invalid_program, format("%s: %s has %zu sizes, but a dim_order of %zu", file.c_str(),
                                            entry.key.c_str(), entry.sizes.size(), dim_order.size())};
    }
  }
  return view.status();
}

}  // namespace

Task<Result<FlatTensor>> readFlatTensor(DataSource& source, uint64_t memory_cap) {
  const std::string file = source.name();
  if (source.size() == 0 && source.data()) co_return checkFileKind(file, {}, "FT01");
  HeadReader reader(source);
  ETWGPU_CO_ASSIGN(std::span<const uint8_t> probe,
                   co_await reader.take(source.size() ? std::min(source.size(), kProbeBytes) : kProbeBytes));
  ETWGPU_CO_TRY(checkFileKind(file, probe, "FT01"));
  ETWGPU_CO_ASSIGN(const Header header, readHeader(file, probe, source.size()));
  if (!source.data() && header.flatbuffer_bytes > memory_cap) {
    co_return Status(Code::limit_exceeded,
                     format("%s: its flatbuffer takes %llu bytes, the memory cap is %llu", file.c_str(),
                            (unsigned long long)header.flatbuffer_bytes, (unsigned long long)memory_cap));
  }
  ETWGPU_CO_ASSIGN(std::span<const uint8_t> head, co_await reader.take(header.flatbuffer_bytes));
  flatbuffers::Verifier verifier(head.data(), head.size(), 64, flatbuffers::uoffset_t(head.size() / 8 + 64));
  if (head.size() >= FLATBUFFERS_MAX_BUFFER_SIZE || !fb::VerifyFlatTensorBuffer(verifier)) {
    co_return Status(Code::invalid_program,
                     format("%s: the flatbuffer in its first %zu bytes is damaged", file.c_str(), head.size()));
  }
  const fb::FlatTensor& root = *fb::GetFlatTensor(head.data());
  if (root.version() > kFlatTensorVersion) {
    co_return Status(Code::unsupported_version,
                     format("%s: version %u, this runtime reads up to %u: use a newer runtime", file.c_str(),
                            unsigned(root.version()), unsigned(kFlatTensorVersion)));
  }
  FlatbufferView view(file, head.size());
  FlatTensor out;
  const uint32_t count = view.tables(root.named_data());
  for (uint32_t i = 0; i < count; ++i) {
    out.entries.emplace_back();
    ETWGPU_CO_TRY(readEntry(file, view, root, *root.named_data()->Get(i), header.segment_base, source.size(),
                            out.entries.back()));
  }
  ETWGPU_CO_TRY(view.status());
  co_return std::move(out);
}

}  // namespace etwgpu
