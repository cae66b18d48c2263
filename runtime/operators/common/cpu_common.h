// What the CPU kernels of all families share: argument checks, strides, strided copies, row-parallel loops.
#pragma once

#include <algorithm>
#include <string>

#include "runtime/executor/cpu_kernel.h"

namespace etwgpu::cpu {

inline Status invalid(std::string message) { return Status(Code::invalid_argument, std::move(message)); }
inline Status outOfMemory(const char* op) {
  return Status(Code::out_of_memory, std::string(op) + ": no memory for temporaries");
}

/// dim in [-rank, rank) to [0, rank); -1 where it is outside. A scalar counts as rank 1.
inline int64_t wrapDim(int64_t dim, size_t rank) {
  const int64_t n = std::max<int64_t>(int64_t(rank), 1);
  if (dim < -n || dim >= n) return -1;
  return dim < 0 ? dim + n : dim;
}

inline Sizes contiguousStrides(std::span<const int64_t> sizes) {
  Sizes strides(sizes.size());
  int64_t s = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = s;
    s *= sizes[d];
  }
  return strides;
}

/// The sizes of a tensor as [outer, n, inner] around one dimension.
struct Around {
  int64_t outer = 1, n = 1, inner = 1;
};
inline Around around(std::span<const int64_t> sizes, int64_t dim) {
  Around a;
  for (size_t d = 0; d < sizes.size(); ++d)
    (int64_t(d) < dim ? a.outer : int64_t(d) == dim ? a.n : a.inner) *= sizes[d];
  return a;
}

/// NumPy's rule; fails where a dimension differs and neither is 1.
Result<Sizes> broadcastSizes(const char* op, std::span<const int64_t> a, std::span<const int64_t> b);
/// Strides, in elements, of a contiguous tensor of `sizes` read as `to`: 0 where it is broadcast.
Sizes broadcastStrides(std::span<const int64_t> sizes, std::span<const int64_t> to);

/// out[i · out_strides] = in[i · in_strides] for all i below sizes; strides in elements of `element` bytes (1, 2, 4 or
/// 8).
void copyStrided(void* out, Sizes out_strides, const void* in, Sizes in_strides, Sizes sizes, size_t element,
                 ThreadPool& pool);

/// Fills n elements of a dtype with a number (integers truncate, bool: not zero).
void fillElements(void* out, DType dtype, int64_t n, double value);

/// Index element i of an i32 or i64 tensor.
inline int64_t indexAt(const TensorView& t, int64_t i) {
  return t.dtype == DType::i64 ? t.as<const int64_t>()[i] : int64_t(t.as<const int32_t>()[i]);
}
inline bool isIndexType(DType t) { return t == DType::i64 || t == DType::i32; }

inline Status requireF32(const char* op, const TensorView& t, const char* name) {
  if (t.dtype == DType::f32 && t.quantization.bits == 0) return {};
  return invalid(std::string(op) + ": " + name + " must be f32, not " +
                 (t.quantization.bits ? "quantised" : std::string(dtypeName(t.dtype))));
}

/// Rows per task so that a task is worth handing to another thread (about 20,000 elements).
inline int64_t rowGrain(int64_t elements_per_row) {
  return std::max<int64_t>(1, 20000 / std::max<int64_t>(1, elements_per_row));
}
inline int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t roundUp(int64_t a, int64_t b) { return ceilDiv(a, b) * b; }

}  // namespace etwgpu::cpu
