// What the two files of linear's GPU planning share: gpu.cpp (choice, GEMV) and gpu_gemm.cpp (GEMM, matrix products).
#pragma once

#include <string>

#include "runtime/graph/graph.h"
#include "runtime/operators/common/gpu_builder.h"
#include "runtime/operators/matmul/matmul.h"

namespace etwgpu::matmul {

struct Linear {
  ValueId x = kNoValue, weight = kNoValue, bias = kNoValue, residual = kNoValue, norm_weight = kNoValue, y = kNoValue;
  bool norm = false, glu = false;
  double eps = 0;
  std::string activation = "none";
  // found from the above:
  Quantization quantization;
  Weights weights = Weights::plain;
  int64_t rows_w = 0, n = 0, k = 0;  // rows of W; columns of y
  ExprId m;
};

/// Columns [first, first + count) of y, whose weights fit into a binding.
struct PartOfColumns {
  int64_t first, count;
};

/// Readable: storage, kernel and what is fused.
std::string kernelName(const DispatchBuilder& b, const Linear& l, const Kernel& kernel);
/// What both shapes have in common: bindings, epilogue, parameters.
void describeCommon(DispatchBuilder& b, GpuPlanContext& c, const Linear& l, const Kernel& kernel,
                    const PartOfColumns& part);
/// Describes the GEMM dispatches of a part for calls with at least min_rows rows of x.
Status planGemm(GpuPlanContext& c, const Linear& l, const PartOfColumns& part, int64_t min_rows);
/// aten.mm, bmm, matmul, addmm.
void registerMatrixProductsGpu(GpuRegistry& r);

}  // namespace etwgpu::matmul
