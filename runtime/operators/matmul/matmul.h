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
#include <vector>

#include "runtime/executor/gpu_kernel.h"

namespace etwgpu::matmul {

/// plain: [N, K] f32; transposed: [K, N] f32 (aten.mm); int4, int8: packing R4 of [N, K].
enum class Weights : uint8_t { plain, transposed, int4, int8 };
enum class Shape : uint8_t { gemv_wide, gemv, gemm };

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
  int64_t processors = GpuPlanContext::kProcessors;
  bool half = false;  // f16 arithmetic
};
/// Up to this many rows of x the GEMV kernel runs, once a row.
constexpr int64_t kGemvMaxRows = 4;
/// From this many rows on the GEMM uses larger tiles.
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

/// The shape of a GEMV of gemv_wide.wgsl. A workgroup is s x t teams of `lanes` invocations: the s of a set split K, a
/// team sums `blocks` blocks of four rows of W.
struct GemvShape {
  int lanes = 32, s = 1, t = 8, blocks = 1;
  int ahead = 1;        // iterations of a team whose weights are loaded before x is staged
  bool paired = false;  // a gate's or rotary pair's two blocks belong to one team, not to the two halves of the teams
  // from the above and K:
  int iterations = 1, chunks = 1;  // of a team and chunk; chunks of x that are staged one after the other
  int invocations() const { return lanes * s * t; }
  int rows() const { return 4 * t * blocks; }  // of W
  int chunkUnits() const { return lanes * s * iterations; }
  int perInvocation() const { return (chunkUnits() + invocations() - 1) / invocations(); }  // units staged, of a chunk
  friend bool operator==(const GemvShape&, const GemvShape&) = default;
};
enum class RowPairs : uint8_t { none, gate, rotary };
/// What a shape depends on.
struct GemvProblem {
  int64_t n = 0, k = 0;  // rows of W, columns
  Weights weights = Weights::int4;
  bool half = false;  // f16 arithmetic
  RowPairs pairs = RowPairs::none;
  bool affine = false;
  int lanes = 32;              // of a team
  int64_t workgroup_rows = 0;  // exactly so many rows of W (a head, a power of two) belong to a workgroup; 0: any
  int64_t max_invocations = 256, max_workgroup_bytes = 16384;
  const Tuning::Values* tuned = nullptr;  // under gemvKey(): instead of the table
  int64_t processors = GpuPlanContext::kProcessors;
};
/// The kind of problem, by which shapes are tabled and tuned: "gemv.gate.f16".
std::string gemvKey(const GemvProblem& problem);
/// The best known shape: the tuned one or that of the table in matmul.cpp, made to fit the problem and the limits.
GemvShape gemvShape(const GemvProblem& problem);
/// Bytes of workgroup memory of gemv_wide.wgsl.
int64_t gemvWorkgroupBytes(const GemvProblem& problem, const GemvShape& shape);

/// A workgroup computes tile_m x tile_n of the product in steps of `step` columns of x, each invocation per_m rows x 8
/// columns.
struct GemmSize {
  int tile_m, tile_n, per_m;
  int step = 16;
  int invocations() const { return tile_m / per_m * (tile_n / 8); }
  int columns(bool glu) const { return glu ? tile_n / 2 : tile_n; }
};
/// Rows of x [min, max], and the tile that computes them.
struct GemmRange {
  int64_t min, max;
  GemmSize size;
};
/// Tiles for min_rows … max_rows rows of x and n rows of W (at least), in order and without gaps: the large one as soon
/// as it gives every processor two workgroups.
std::vector<GemmRange> gemmRanges(const Problem& problem, int64_t min_rows, int64_t max_rows);
/// Tasks of staging x and W in a step, each four rows wide.
int gemmTasksOfX(const GemmSize& size);
int gemmTasksOfW(Weights weights, const GemmSize& size);

/// The tile of a GEMM by subgroup matrices: a workgroup computes tile_m x tile_n in steps of tile_k, a subgroup of 32
/// invocations sub_m x sub_n of it.
struct MatrixTile {
  int tile_m, tile_n, tile_k, sub_m, sub_n;
  int invocations() const { return tile_m / sub_m * (tile_n / sub_n) * 32; }
  /// vec4u of workgroup memory: the rows of both factors, padded; the sums of the epilogue need less or as much.
  int words(int matrix_size) const;
  friend bool operator==(const MatrixTile&, const MatrixTile&) = default;
};
/// Rows of x [min, max], and the tile that computes them.
struct MatrixRange {
  int64_t min, max;
  MatrixTile tile;
};
/// Tiles for min_rows … max_rows rows of x, in order and without gaps: each the one that keeps the device's processors
/// busiest at the upper end of its range. Empty where the matrices cannot multiply this problem (K no multiple of 32,
/// or workgroups too small). n: rows of W.
std::vector<MatrixRange> matrixRanges(const Problem& problem, const GpuCapabilities& caps, int64_t min_rows,
                                      int64_t max_rows);

}  // namespace etwgpu::matmul
