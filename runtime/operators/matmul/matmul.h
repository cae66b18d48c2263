// Matrix products.
//   linear:  y[m, n] = act(norm(x)[m, :] · W[n, :] + bias[n]) [· gate] + residual[m, n]      (contract:
//   graph/fused_ops.h) matmul:  y[b, m, n] = beta · c + alpha · sum_k a[b, m, k] · b[b, k, n]
// m, n, k count rows of x, rows of W and the summed dimension. Few rows take the GEMV kernel (one row of x at a time, a
// team of invocations per four rows of W), more the tiled GEMM. Names: dtype of storage, operator, weights, shape,
// tier.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/executor/gpu_kernel.h"

namespace etwgpu::matmul {

/// plain: [N, K] f32; transposed: [K, N] f32 (aten.mm); int4, int8: packing R4 of [N, K].
enum class Weights : uint8_t { plain, transposed, int4, int8 };
enum class Shape : uint8_t { gemv, gemm };

struct Kernel {
  std::string_view name;
  Tier tier;
  Weights weights;
  Shape shape;
};
/// All kernels, the preferred first (variants.inc).
std::span<const Kernel> kernels();

/// What the choice may depend on, besides capabilities.
struct Problem {
  int64_t n = 0, k = 0;  // upper bounds; n counts rows of W (2F with a gate)
  Weights weights = Weights::plain;
  bool glu = false;
  /// Software adapters and subgroups of at most 8 lanes: barriers and shuffles cost more than they save, pipelines
  /// compile slowly. Few lanes a sum, one size of tile.
  bool narrow = false;
};
/// Up to this many rows of x the GEMV kernel runs, once a row.
constexpr int64_t kGemvMaxRows = 4;
/// From this many rows on the GEMM uses its large tile.
constexpr int64_t kLargeTileMinRows = 97;

/// The kernel of a shape class. `tier`: the highest that device and options allow (subgroups or baseline). Never null
/// for a combination in variants.inc.
const Kernel* choose(Weights weights, Shape shape, Tier tier);

/// Invocations of a workgroup, and of a team, which sums over K for four rows of W.
struct GemvSize {
  int invocations, team;
  /// Rows of y a workgroup computes.
  int rows(bool glu) const { return invocations / team * 4 / (glu ? 2 : 1); }
};
GemvSize gemvSize(const Problem& problem);

/// A workgroup computes tile_m x tile_n of the product, each invocation per_m rows x 8 columns.
struct GemmSize {
  int tile_m, tile_n, per_m;
  int invocations() const { return tile_m / per_m * (tile_n / 8); }
  int columns(bool glu) const { return glu ? tile_n / 2 : tile_n; }
};
GemmSize gemmSize(bool many_rows);

}  // namespace etwgpu::matmul
