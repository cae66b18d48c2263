// Products of quantised weights (packing R4) with activations in int8 per 32, int16 per row, or f32.
#pragma once

#include "runtime/operators/matmul/cpu_gemm.h"

namespace etwgpu::cpu {

/// A quantised weight, N rows (stored: rounded up to 8) of K values, K a multiple of 32 and of the group.
struct R4Weight {
  const uint8_t* words = nullptr;
  const void* constants = nullptr;
  int64_t N = 0, K = 0;
  int bits = 4, group = 32;
  bool symmetric = false;

  int64_t blocks() const { return (N + 3) / 4; }
  /// u16 of int4 constants per block of 4 rows.
  int64_t blockConstants() const { return K / group * (symmetric ? 4 : 8); }
};

/// Panels of f32 for the exact products.
class R4Panels final : public PanelSource {
 public:
  explicit R4Panels(const R4Weight& weight) : w_(weight) {}
  void pack(int64_t n0, int64_t k0, int64_t depth, float* panel) const override;
  int64_t depthStep() const override { return 128; }

 private:
  const R4Weight& w_;
};

/// Exact products of a few rows, straight from the weight: y[m][4b..4b+3] for blocks [b0, b1).
void gemvExact(const R4Weight& w, const float* x, int64_t M, float* y, int64_t ldy, int64_t b0, int64_t b1);

/// How the int16 values of a row lie in memory, by what multiplies them: permuted for int4 or for int8 weights, or in
/// two planes of bytes, per 32 values their high bytes (value = 256 · high + low, low signed too), then their low ones.
enum class Int16Order : uint8_t { for_int4, for_int8, planes };

/// Rows of activations made integers.
struct QuantisedRows {
  Activations mode = Activations::int16;  // int8 or int16
  Int16Order order = Int16Order::for_int4;
  void* values = nullptr;   // int8 or int16 [M, K]
  float* scales = nullptr;  // int8: [M, K / 32], times 2^64; int16: [M]
  float* sums = nullptr;    // [M, K / 32]: sums of the integers, for int8 times the scale
};
size_t quantisedBytes(Activations mode, int64_t M, int64_t K);
/// `bits` of the weight that the rows are for.
QuantisedRows placeQuantised(Activations mode, int bits, void* memory, int64_t M, int64_t K);
/// Row m of `rows` from K floats at x.
void quantiseRow(const float* x, int64_t K, int64_t m, const QuantisedRows& rows);
/// Whether dots of four bytes are single instructions here: then int16 values are multiplied in planes.
bool hasFourWayDot();

/// y[m][4b..4b+3] (row stride ldy) for blocks [b0, b1) and M rows; b0 is even. May write the block after an odd b1.
void multiplyQuantised(const R4Weight& w, const QuantisedRows& rows, int64_t M, float* y, int64_t ldy, int64_t b0,
                       int64_t b1);

/// What `automatic` means for weights of so many bits: int16. int8 is 10 to 20 % faster on x86 with relaxed SIMD but
/// turns near ties: SmolLM2, 1,533 tokens, against f32: perplexity +0.8 %, same best token 96.4 % (int16: +0.01 %,
/// 99.8 %).
Activations resolveActivations(Activations requested, int bits);

}  // namespace etwgpu::cpu
