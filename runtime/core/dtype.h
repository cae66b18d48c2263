// Element types. The numbers are ExecuTorch's ScalarType, as in .pte files and in graph.fbs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace etwgpu {

enum class DType : uint8_t {
  u8 = 0,
  i8 = 1,
  i16 = 2,
  i32 = 3,
  i64 = 4,
  f16 = 5,
  f32 = 6,
  f64 = 7,
  boolean = 11,
  bf16 = 15
};

/// Bytes of one element; 0 for a number that is no DType.
constexpr size_t dtypeSize(DType t) {
  switch (t) {
    case DType::u8:
    case DType::i8:
    case DType::boolean:
      return 1;
    case DType::i16:
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i32:
    case DType::f32:
      return 4;
    case DType::i64:
    case DType::f64:
      return 8;
  }
  return 0;
}
constexpr bool isFloating(DType t) { return t == DType::f16 || t == DType::f32 || t == DType::f64 || t == DType::bf16; }
constexpr bool isValidDType(int t) { return t >= 0 && t < 256 && dtypeSize(DType(t)) != 0; }
/// "f32", "i64", "bool" …
constexpr std::string_view dtypeName(DType t) {
  switch (t) {
    case DType::u8:
      return "u8";
    case DType::i8:
      return "i8";
    case DType::i16:
      return "i16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::f16:
      return "f16";
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::boolean:
      return "bool";
    case DType::bf16:
      return "bf16";
  }
  return "invalid";
}

/// IEEE half to single and back (round to nearest even).
float halfToFloat(uint16_t h);
uint16_t floatToHalf(float f);
float bfloatToFloat(uint16_t b);

}  // namespace etwgpu
