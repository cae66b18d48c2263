// Attention of a tile of query rows over the keys of one head: blocks of 64 keys with a running maximum and sum, so
// that scores never leave L1, and only visible keys are read.
#pragma once

#include "runtime/core/tensor.h"

namespace etwgpu::cpu {

struct AttentionRow {
  const float* q = nullptr;    // D values
  float* out = nullptr;        // Dv values
  int64_t begin = 0, end = 0;  // visible keys
  // What is added to the scores (f32) or which keys are visible (bool); element j at [j · mask_stride].
  const float* bias = nullptr;
  const uint8_t* visible = nullptr;
  int64_t mask_stride = 1;
};
/// T: float, or uint16_t for keys and values in half precision.
template <class T>
struct AttentionHead {
  const T *k = nullptr, *v = nullptr;
  int64_t k_stride = 0, v_stride = 0;  // between keys
  int64_t D = 0, Dv = 0;
  float scale = 1;
  int64_t ring = 0;  // rows that there are: key j is in row j mod ring; 0: in row j
};

/// Rows that a tile should have at most.
constexpr int64_t kAttentionTile = 48;
/// A row with no visible key gives zeros.
template <class T>
void attendTile(const AttentionHead<T>& head, std::span<const AttentionRow> rows);
extern template void attendTile(const AttentionHead<float>&, std::span<const AttentionRow>);
extern template void attendTile(const AttentionHead<uint16_t>&, std::span<const AttentionRow>);

}  // namespace etwgpu::cpu
