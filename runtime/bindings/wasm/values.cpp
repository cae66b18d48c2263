#include "runtime/bindings/wasm/values.h"

#include <cstring>

namespace etwgpu {
namespace {

using Kind = ValueSpec::Kind;
constexpr auto kDeviceTensor = Kind(6), kOutputPlace = Kind(7);

struct Record {
  uint32_t kind, dtype, rank, bytes;
};
constexpr uint32_t kMaxRank = 16;

size_t padded(size_t bytes) { return (bytes + 7) & ~size_t(7); }

Status malformed(const char* what) { return {Code::invalid_argument, std::string("malformed inputs: ") + what}; }

template <class T>
Result<Input> scalar(std::span<const uint8_t> data) {
  if (data.size() != sizeof(T)) return malformed("size of a number");
  T value;
  std::memcpy(&value, data.data(), sizeof(T));
  return Input(value);
}

Result<DeviceBuffer> place(std::span<const uint8_t> data) {
  double numbers[3];
  if (data.size() != sizeof(numbers)) return malformed("size of a place");
  std::memcpy(numbers, data.data(), sizeof(numbers));
  return DeviceBuffer{reinterpret_cast<WGPUBuffer>(uintptr_t(numbers[0])), uint64_t(numbers[1]), uint64_t(numbers[2])};
}

Result<Input> tensor(const Record& record, Sizes sizes, std::span<uint8_t> data, bool on_device) {
  if (!isValidDType(int(record.dtype))) return malformed("dtype");
  uint64_t bytes = dtypeSize(DType(record.dtype));
  for (int64_t s : sizes) {
    if (s < 0 || __builtin_mul_overflow(bytes, uint64_t(s), &bytes)) return malformed("sizes");
  }
  if (on_device) return Input(TensorView{DType(record.dtype), std::move(sizes), nullptr, {}, nullptr});
  if (bytes != data.size()) {
    return Status(Code::invalid_argument,
                  format("a tensor %s of %s takes %llu bytes, its data has %zu", sizesToString(sizes).c_str(),
                         std::string(dtypeName(DType(record.dtype))).c_str(), (unsigned long long)bytes, data.size()));
  }
  return Input(TensorView{DType(record.dtype), std::move(sizes), data.data(), {}, nullptr});
}

class Writer {
 public:
  void record(Kind kind, uint32_t dtype, const Sizes& sizes, const void* data, size_t bytes) {
    const Record header{uint32_t(kind), dtype, uint32_t(sizes.size()), uint32_t(bytes)};
    append(&header, sizeof(header));
    append(sizes.data(), sizes.size() * sizeof(int64_t));
    append(data, bytes);
    out_.resize(padded(out_.size()));
  }
  std::vector<uint8_t> take() { return std::move(out_); }

 private:
  void append(const void* data, size_t bytes) {
    const auto* begin = static_cast<const uint8_t*>(data);
    out_.insert(out_.end(), begin, begin + bytes);
  }
  std::vector<uint8_t> out_;
};

}  // namespace

Result<DecodedCall> decodeCall(std::span<uint8_t> bytes) {
  DecodedCall call;
  while (!bytes.empty()) {
    Record record;
    if (bytes.size() < sizeof(record)) return malformed("cut off");
    std::memcpy(&record, bytes.data(), sizeof(record));
    if (record.rank > kMaxRank) return malformed("rank");
    const size_t sizes_bytes = record.rank * sizeof(int64_t);
    const uint64_t total = sizeof(record) + sizes_bytes + uint64_t(padded(record.bytes));
    if (record.bytes > bytes.size() || total > bytes.size()) return malformed("cut off");
    Sizes sizes(record.rank);
    if (record.rank) std::memcpy(sizes.data(), bytes.data() + sizeof(record), sizes_bytes);
    const std::span<uint8_t> data = bytes.subspan(sizeof(record) + sizes_bytes, record.bytes);
    bytes = bytes.subspan(size_t(total));
    Result<Input> input;
    const bool on_device = Kind(record.kind) == kDeviceTensor;
    switch (Kind(record.kind)) {
      case kOutputPlace:
        call.places.outputs.emplace_back();
        if (record.bytes) {
          ETWGPU_ASSIGN(call.places.outputs.back(), place(data));
          call.on_device = true;
        }
        continue;
      case kDeviceTensor:
      case Kind::tensor:
        input = tensor(record, std::move(sizes), data, on_device);
        break;
      case Kind::integer:
        input = scalar<int64_t>(data);
        break;
      case Kind::number:
        input = scalar<double>(data);
        break;
      case Kind::flag:
        input = scalar<bool>(data);
        break;
      default:
        return malformed("kind");
    }
    if (!input.ok()) return input.status();
    call.inputs.push_back(std::move(*input));
    call.places.inputs.emplace_back();
    if (on_device) {
      ETWGPU_ASSIGN(call.places.inputs.back(), place(data));
      call.on_device = true;
    }
  }
  return call;
}

std::vector<uint8_t> encodeOutputs(std::span<const OutputValue> values,
                                   std::span<const std::optional<DeviceBuffer>> places) {
  Writer writer;
  for (size_t k = 0; k < values.size(); ++k) {
    const OutputValue& value = values[k];
    if (const auto* t = std::get_if<HostTensor>(&value); t && k < places.size() && places[k]) {
      const DeviceBuffer& p = *places[k];
      const double numbers[3] = {double(uintptr_t(p.buffer)), double(p.offset), double(p.size)};
      writer.record(kDeviceTensor, uint32_t(t->dtype), t->sizes, numbers, sizeof(numbers));
    } else if (t) {
      writer.record(Kind::tensor, uint32_t(t->dtype), t->sizes, t->bytes.data(), t->bytes.size());
    } else if (const auto* i = std::get_if<int64_t>(&value)) {
      writer.record(Kind::integer, 0, {}, i, sizeof(*i));
    } else if (const auto* d = std::get_if<double>(&value)) {
      writer.record(Kind::number, 0, {}, d, sizeof(*d));
    } else if (const auto* b = std::get_if<bool>(&value)) {
      writer.record(Kind::flag, 0, {}, b, sizeof(*b));
    } else if (const auto* s = std::get_if<std::string>(&value)) {
      writer.record(Kind::text, 0, {}, s->data(), s->size());
    } else {
      writer.record(Kind::none, 0, {}, nullptr, 0);
    }
  }
  return writer.take();
}

}  // namespace etwgpu
