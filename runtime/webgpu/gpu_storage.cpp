#include "runtime/webgpu/gpu_storage.h"

#include <algorithm>
#include <cstring>

namespace etwgpu {

Storage gpuStorage(DType dtype, bool constant, Precision precision) {
  switch (dtype) {
    case DType::f16:
      return Storage::f16;
    case DType::f32:
    case DType::f64:
    case DType::bf16:
      return precision == Precision::f16 && !constant ? Storage::f16 : Storage::f32;
    case DType::i16:
    case DType::i32:
    case DType::i64:
      return Storage::i32;
    case DType::boolean:
      return Storage::u32;
    case DType::u8:
    case DType::i8:
      return Storage::packed;
  }
  return Storage::f32;
}

bool sameRepresentation(DType dtype, Storage storage) {
  switch (storage) {
    case Storage::f32:
      return dtype == DType::f32;
    case Storage::f16:
      return dtype == DType::f16;
    case Storage::i32:
      return dtype == DType::i32;
    case Storage::u32:
      return false;
    case Storage::packed:
      return true;
  }
  return false;
}

DType deviceDType(DType dtype, Storage storage) {
  switch (storage) {
    case Storage::f32:
      return DType::f32;
    case Storage::f16:
      return DType::f16;
    case Storage::i32:
    case Storage::u32:
      return DType::i32;
    case Storage::packed:
      return dtype;
  }
  return dtype;
}

namespace {

uint16_t floatToBfloat(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);  // NaN stays NaN
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);                 // round to nearest even
}

float loadFloat(DType dtype, const void* host, int64_t i) {
  switch (dtype) {
    case DType::f16:
      return halfToFloat(static_cast<const uint16_t*>(host)[i]);
    case DType::bf16:
      return bfloatToFloat(static_cast<const uint16_t*>(host)[i]);
    case DType::f64:
      return float(static_cast<const double*>(host)[i]);
    default:
      return static_cast<const float*>(host)[i];
  }
}
void storeFloat(DType dtype, void* host, int64_t i, float f) {
  switch (dtype) {
    case DType::f16:
      static_cast<uint16_t*>(host)[i] = floatToHalf(f);
      break;
    case DType::bf16:
      static_cast<uint16_t*>(host)[i] = floatToBfloat(f);
      break;
    case DType::f64:
      static_cast<double*>(host)[i] = f;
      break;
    default:
      static_cast<float*>(host)[i] = f;
  }
}

Status integersToGpu(DType dtype, const void* host, int32_t* gpu, int64_t count) {
  if (dtype == DType::i16) {
    for (int64_t i = 0; i < count; ++i) gpu[i] = static_cast<const int16_t*>(host)[i];
    return {};
  }
  const auto* in = static_cast<const int64_t*>(host);
  for (int64_t i = 0; i < count; ++i) {
    if (in[i] != int32_t(in[i])) {
      return Status(Code::invalid_argument, format("element %lld is %lld, beyond the 32-bit integers of the GPU",
                                                   (long long)i, (long long)in[i]));
    }
    gpu[i] = int32_t(in[i]);
  }
  return {};
}

}  // namespace

Status toGpu(DType dtype, const void* host, Storage storage, void* gpu, int64_t count) {
  if (count == 0) return {};
  if (sameRepresentation(dtype, storage)) {
    std::memcpy(gpu, host, size_t(count) * dtypeSize(dtype));
    return {};
  }
  switch (storage) {
    case Storage::f32:
      for (int64_t i = 0; i < count; ++i) static_cast<float*>(gpu)[i] = loadFloat(dtype, host, i);
      return {};
    case Storage::f16:
      for (int64_t i = 0; i < count; ++i) static_cast<uint16_t*>(gpu)[i] = floatToHalf(loadFloat(dtype, host, i));
      return {};
    case Storage::i32:
      return integersToGpu(dtype, host, static_cast<int32_t*>(gpu), count);
    case Storage::u32:
      for (int64_t i = 0; i < count; ++i) static_cast<uint32_t*>(gpu)[i] = static_cast<const uint8_t*>(host)[i] != 0;
      return {};
    case Storage::packed:
      return {};
  }
  return {};
}

void toHost(Storage storage, const void* gpu, DType dtype, void* host, int64_t count) {
  if (count == 0) return;
  if (sameRepresentation(dtype, storage)) {
    std::memcpy(host, gpu, size_t(count) * dtypeSize(dtype));
    return;
  }
  switch (storage) {
    case Storage::f32:
      for (int64_t i = 0; i < count; ++i) storeFloat(dtype, host, i, static_cast<const float*>(gpu)[i]);
      return;
    case Storage::f16:
      for (int64_t i = 0; i < count; ++i) storeFloat(dtype, host, i, halfToFloat(static_cast<const uint16_t*>(gpu)[i]));
      return;
    case Storage::i32:
      for (int64_t i = 0; i < count; ++i) {
        const int32_t value = static_cast<const int32_t*>(gpu)[i];
        if (dtype == DType::i64) {
          static_cast<int64_t*>(host)[i] = value;
        } else {
          static_cast<int16_t*>(host)[i] = int16_t(value);
        }
      }
      return;
    case Storage::u32:
      for (int64_t i = 0; i < count; ++i) static_cast<uint8_t*>(host)[i] = static_cast<const uint32_t*>(gpu)[i] != 0;
      return;
    case Storage::packed:
      return;
  }
}

uint64_t gpuBytes(const Graph& graph, ValueId id, Precision precision) {
  const Value& value = graph.value(id);
  if (value.quantization.bits != 0) {
    uint64_t constants = 0;
    for (const ConstantPiece& piece : value.constants_pieces) constants += piece.size;
    return value.quantization.constants_offset + (constants + 3) / 4 * 4;
  }
  uint64_t bytes = storageSize(gpuStorage(value.dtype, value.kind == ValueKind::constant, precision));
  for (const ExprId dim : value.dims) {
    const uint64_t n = uint64_t(std::max<int64_t>(graph.exprs.bounds(dim).max, 0));
    if (n == 0) return 0;
    bytes = bytes > (uint64_t(1) << 62) / n ? uint64_t(1) << 62 : bytes * n;  // no limit lets such a value through
  }
  return (bytes + 3) / 4 * 4;
}

uint64_t gpuBytesF32(const Graph& graph, ValueId value) { return gpuBytes(graph, value, Precision::f32); }
uint64_t gpuBytesF16(const Graph& graph, ValueId value) { return gpuBytes(graph, value, Precision::f16); }

std::string_view gpuStorageType(const Graph& graph, ValueId id, Precision precision) {
  const Value& value = graph.value(graph.storage(id));
  switch (gpuStorage(value.dtype, value.kind == ValueKind::constant, precision)) {
    case Storage::f32:
      return "f32";
    case Storage::f16:
      return "f16";
    case Storage::i32:
      return "i32";
    case Storage::u32:
    case Storage::packed:
      return "u32";
  }
  return "f32";
}

}  // namespace etwgpu
