// What the two files of linear's GPU planning share: gpu.cpp (choice, GEMV) and gpu_gemm.cpp (GEMM, matrix products).
#pragma once

#include <string>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/operators/attention/gpu_attention.h"
#include "runtime/operators/common/gpu_builder.h"
#include "runtime/operators/common/gpu_weights.h"
#include "runtime/operators/matmul/matmul.h"

namespace etwgpu::matmul {

struct Linear {
  ValueId x = kNoValue, weight = kNoValue, bias = kNoValue, residual = kNoValue, norm_weight = kNoValue, y = kNoValue;
  bool norm = false, glu = false;
  double eps = 0;
  std::string activation = "none";
  /// Only GEMVs of one row: x is the attention's result in parts (x is then not read), or y the query, rotated, while
  /// key and value go into the caches.
  const attention::Partials* partials = nullptr;
  const attention::CacheWrite* cache_write = nullptr;
  int64_t head_dim = 0;           // with either
  ExprId x_row;                   // valid: this row of x alone
  ValueId low_rank_t = kNoValue;  // with low_rank: where A · x is, as planLowRank has it
  // found from the above:
  Quantization quantization;
  Weights weights = Weights::plain;
  int64_t rows_w = 0, n = 0, k = 0;  // rows of W; columns of y
  ExprId m;
  std::shared_ptr<const LowRank> low_rank;  // what adapters add
  /// Rows of W behind these columns of y.
  int64_t rowsOf(const WeightRows& part) const { return glu ? 2 * part.count : part.count; }
  /// All columns.
  WeightRows all() const { return {0, n, weight}; }
};

/// Readable: storage, kernel and what is fused.
std::string kernelName(const DispatchBuilder& b, const Linear& l, const Kernel& kernel);
/// What both shapes have in common: bindings, epilogue, parameters. part: the columns of y.
void describeCommon(DispatchBuilder& b, GpuPlanContext& c, const Linear& l, const Kernel& kernel,
                    const WeightRows& part);
/// Fills what is found from the values; fails where no kernel fits.
Status describeLinear(GpuPlanContext& c, Linear& l);
/// Describes all dispatches of a linear for calls with at least min_rows rows of x.
Status planLinear(GpuPlanContext& c, Linear l, int64_t min_rows = 1);
/// Describes A · x of a linear with adapters, for calls with at least min_rows rows of x; single: for one row alone, by
/// a GEMV that reads x as the linear's own does.
Status planLowRank(GpuPlanContext& c, Linear& l, int64_t min_rows, bool single = false);
/// The bindings, defines and parameters of low_rank.wgsl. width: columns that are read at once, 1 or 4.
void describeLowRank(DispatchBuilder& b, GpuPlanContext& c, const Linear& l, int width);
/// Describes the GEMV of a part for calls of min_rows to max_rows rows.
Status planGemv(GpuPlanContext& c, const Linear& l, const WeightRows& part, int64_t min_rows, int64_t max_rows);
/// Can the GEMV of one row do what `partials` or `cache_write` ask for? If not, dispatches of their own must.
bool canFuse(const GpuPlanContext& c, const Linear& l);
/// Binds `words` and, of quantised weights in GEMMs, `constants`; GEMVs, which are short of bindings, have both in one.
/// vec4: of plain weights.
void bindWeights(DispatchBuilder& b, const Linear& l, const WeightRows& part, bool vec4, Shape shape);
/// Describes the GEMM dispatches of all parts for calls with at least min_rows rows of x.
Status planGemm(GpuPlanContext& c, Linear l, const std::vector<WeightRows>& parts, int64_t min_rows);
/// aten.mm, bmm, matmul, addmm.
void registerMatrixProductsGpu(GpuRegistry& r);

}  // namespace etwgpu::matmul
