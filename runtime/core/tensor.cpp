#include "runtime/core/tensor.h"

namespace etwgpu {

std::string sizesToString(std::span<const int64_t> sizes) {
  std::string s = "[";
  for (size_t i = 0; i < sizes.size(); ++i) s += (i ? ", " : "") + std::to_string(sizes[i]);
  return s + "]";
}

}  // namespace etwgpu
