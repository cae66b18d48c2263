// Views of contiguous tensors in host memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/dtype.h"

namespace etwgpu {

using Sizes = std::vector<int64_t>;

/// Product of sizes; callers have checked the sizes against bounds that cannot overflow.
inline int64_t elementCount(std::span<const int64_t> sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}
/// "[1, 7, 576]"
std::string sizesToString(std::span<const int64_t> sizes);

/// How a weight is quantised; data in packing R4 (docs/file-format.md). See Quantization in schema/graph.fbs.
struct Quantization {
  int bits = 0;   // 0: not quantised
  int group = 0;  // 0: one scale per row
  bool symmetric = false;
  uint64_t constants_offset = 0;  // bytes from the first word to the constants
  friend bool operator==(const Quantization&, const Quantization&) = default;
};

/// What is added to a product with a weight: LowRank (runtime/graph/graph.h) in host memory.
struct LowRankView {
  const float *a = nullptr, *b = nullptr;
  std::vector<int64_t> first_rows;
  int64_t rank = 0;
  std::vector<float> scales;
  int64_t columns() const { return int64_t(scales.size()) * rank; }  // of a part
};

/// A contiguous row-major tensor in host memory, owned by somebody else.
struct TensorView {
  DType dtype = DType::f32;
  Sizes sizes;
  void* data = nullptr;
  Quantization quantization;              // weights only: dtype is f32, sizes [N, K]
  const void* quant_constants = nullptr;  // start of the plane of constants
  const LowRankView* low_rank = nullptr;  // weights only: what adapters add

  int64_t count() const { return elementCount(sizes); }
  size_t bytes() const { return size_t(count()) * dtypeSize(dtype); }
  size_t rank() const { return sizes.size(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// A tensor that owns its bytes.
struct HostTensor {
  DType dtype = DType::f32;
  Sizes sizes;
  std::vector<uint8_t> bytes;
  TensorView view() { return {dtype, sizes, bytes.data(), {}, nullptr}; }
};

}  // namespace etwgpu
