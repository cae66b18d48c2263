#include "runtime/operators/common/cpu_common.h"

#include <cstring>

namespace etwgpu::cpu {

Result<Sizes> broadcastSizes(const char* op, std::span<const int64_t> a, std::span<const int64_t> b) {
  Sizes out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {  // from the last dimension
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      return invalid(std::string(op) + ": sizes " + sizesToString(a) + " and " + sizesToString(b) + " don't broadcast");
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

Sizes broadcastStrides(std::span<const int64_t> sizes, std::span<const int64_t> to) {
  Sizes strides(to.size(), 0);
  int64_t s = 1;
  for (size_t i = 0; i < sizes.size() && i < to.size(); ++i) {
    const int64_t size = sizes[sizes.size() - 1 - i];
    strides[to.size() - 1 - i] = size == 1 ? 0 : s;
    s *= size;
  }
  return strides;
}

namespace {

/// Drops dimensions of one element and merges those that are adjacent in both tensors.
void collapse(Sizes& sizes, Sizes& a, Sizes& b) {
  size_t n = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    if (n > 0 && a[n - 1] == a[d] * sizes[d] && b[n - 1] == b[d] * sizes[d]) {
      sizes[n - 1] *= sizes[d];
      a[n - 1] = a[d];
      b[n - 1] = b[d];
      continue;
    }
    sizes[n] = sizes[d];
    a[n] = a[d];
    b[n] = b[d];
    ++n;
  }
  if (n == 0) sizes.assign(1, 1), a.assign(1, 1), b.assign(1, 1), n = 1;
  sizes.resize(n), a.resize(n), b.resize(n);
}

template <class T>
void copyRow(T* out, int64_t so, const T* in, int64_t si, int64_t n) {
  if (so == 1 && si == 1) {
    std::memcpy(out, in, size_t(n) * sizeof(T));
  } else if (so == 1 && si == 0) {
    std::fill(out, out + n, *in);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i * so] = in[i * si];
  }
}

/// The last two dimensions in squares, so that a transposition touches few cache lines at once.
template <class T>
void copyPlane(T* out, int64_t so0, int64_t so1, const T* in, int64_t si0, int64_t si1, int64_t n0, int64_t n1) {
  if (si1 == 1 || si1 == 0 || n0 == 1) {
    for (int64_t i = 0; i < n0; ++i) copyRow(out + i * so0, so1, in + i * si0, si1, n1);
    return;
  }
  constexpr int64_t kSquare = 16;
  for (int64_t i = 0; i < n0; i += kSquare)
    for (int64_t j = 0; j < n1; j += kSquare)
      for (int64_t k = i; k < std::min(i + kSquare, n0); ++k)
        copyRow(out + k * so0 + j * so1, so1, in + k * si0 + j * si1, si1, std::min(kSquare, n1 - j));
}

template <class T>
void copyTyped(T* out, const Sizes& so, const T* in, const Sizes& si, const Sizes& sizes, ThreadPool& pool) {
  const size_t rank = sizes.size();
  if (rank == 1) {
    const int64_t grain = 16384;
    pool.parallelFor(sizes[0], grain,
                     [&](int64_t b, int64_t e) { copyRow(out + b * so[0], so[0], in + b * si[0], si[0], e - b); });
    return;
  }
  // Planes of the last two dimensions; with two dimensions alone, bands of the first.
  int64_t outer = 1;
  for (size_t d = 0; d + 2 < rank; ++d) outer *= sizes[d];
  const int64_t n0 = sizes[rank - 2], n1 = sizes[rank - 1];
  pool.parallelFor(outer * n0, outer == 1 ? std::max<int64_t>(16, rowGrain(n1)) : rowGrain(n1),
                   [&](int64_t b, int64_t e) {
                     while (b < e) {
                       int64_t plane = b / n0, first = b % n0, count = std::min(e - b, n0 - first);
                       int64_t o = first * so[rank - 2], i = first * si[rank - 2];
                       for (size_t d = rank - 2; d-- > 0;) {
                         const int64_t at = plane % sizes[d];
                         plane /= sizes[d];
                         o += at * so[d];
                         i += at * si[d];
                       }
                       copyPlane(out + o, so[rank - 2], so[rank - 1], in + i, si[rank - 2], si[rank - 1], count, n1);
                       b += count;
                     }
                   });
}

template <class T>
void fillTyped(void* out, int64_t n, T value) {
  std::fill(static_cast<T*>(out), static_cast<T*>(out) + n, value);
}

}  // namespace

void copyStrided(void* out, Sizes so, const void* in, Sizes si, Sizes sizes, size_t element, ThreadPool& pool) {
  if (elementCount(sizes) == 0) return;
  collapse(sizes, so, si);
  switch (element) {
    case 1:
      return copyTyped(static_cast<uint8_t*>(out), so, static_cast<const uint8_t*>(in), si, sizes, pool);
    case 2:
      return copyTyped(static_cast<uint16_t*>(out), so, static_cast<const uint16_t*>(in), si, sizes, pool);
    case 4:
      return copyTyped(static_cast<uint32_t*>(out), so, static_cast<const uint32_t*>(in), si, sizes, pool);
    default:
      return copyTyped(static_cast<uint64_t*>(out), so, static_cast<const uint64_t*>(in), si, sizes, pool);
  }
}

void fillElements(void* out, DType dtype, int64_t n, double v) {
  switch (dtype) {
    case DType::f32:
      return fillTyped(out, n, float(v));
    case DType::f64:
      return fillTyped(out, n, v);
    case DType::i64:
      return fillTyped(out, n, int64_t(v));
    case DType::i32:
      return fillTyped(out, n, int32_t(int64_t(v)));
    case DType::i16:
      return fillTyped(out, n, int16_t(v));
    case DType::f16:
      return fillTyped(out, n, floatToHalf(float(v)));
    case DType::i8:
      return fillTyped(out, n, int8_t(v));
    case DType::u8:
      return fillTyped(out, n, uint8_t(v));
    case DType::boolean:
      return fillTyped(out, n, uint8_t(v != 0));
    case DType::bf16:
      return;
  }
}

}  // namespace etwgpu::cpu
