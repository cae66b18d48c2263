#include "runtime/core/dtype.h"

#include <bit>

namespace etwgpu {

float bfloatToFloat(uint16_t b) { return std::bit_cast<float>(uint32_t(b) << 16); }

float halfToFloat(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16;
  const uint32_t rest = h & 0x7fff;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  // Shifted into place the exponent is too small by 112; a multiplication corrects it and normalises subnormals.
  const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

uint16_t floatToHalf(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  const uint32_t a = bits & 0x7fffffff;
  if (a > 0x7f800000) return uint16_t(sign | 0x7e00);
  if (a >= 0x477ff000) return uint16_t(sign | 0x7c00);  // rounds to 65520 or more
  if (a < 0x38800000) {                                 // subnormal: let the FPU round at 2^-24
    const float magnitude = std::bit_cast<float>(a) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(magnitude) - std::bit_cast<uint32_t>(0.5f)));
  }
  const uint32_t rounded = a + 0xfff + (a >> 13 & 1);
  return uint16_t(sign | ((rounded >> 13) - (112 << 10)));
}

}  // namespace etwgpu
