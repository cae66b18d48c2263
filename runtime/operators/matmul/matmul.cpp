// Choice and sizes of matrix product kernels: pure functions, no device.
#include "runtime/operators/matmul/matmul.h"

#include <algorithm>
#include <array>
#include <limits>

namespace etwgpu::matmul {
namespace {

#define KERNEL(name, tier, weights, shape) {#name, Tier::tier, Weights::weights, Shape::shape},
constexpr Kernel kKernels[] = {
#include "runtime/operators/matmul/variants.inc"
};
#undef KERNEL

}  // namespace

std::span<const Kernel> kernels() { return kKernels; }

const Kernel* choose(Weights weights, Shape shape, Tier tier) {
  for (const Kernel& k : kKernels)
    if (k.weights == weights && k.shape == shape && k.tier <= tier) return &k;
  return nullptr;
}

GemvSize gemvSize(const Problem& p) {
  // SwiftShader, SmolLM2: 2.6 CPU-seconds a token instead of 13.7; llvmpipe: 0.15 instead of 0.57.
  if (p.narrow) return {64, 4};
  const int64_t units = p.k / (p.weights == Weights::int4 ? 8 : 4);
  // Long sums need more invocations in flight than small matrices have rows.
  const int team = units >= 1024 ? 128 : units >= 512 ? 64 : 32;
  return {p.n > 4096 && team == 32 ? 256 : 128, p.glu && team == 128 ? 64 : team};
}

namespace {

/// Of a team, unrolled. Where subgroups are small (software, in tests), compilers take seconds for long kernels.
int64_t maxIterations(int lanes) { return lanes <= 8 ? 4 : 16; }

/// Measured on an H200 with the shapes of a model of 1 billion parameters; see
/// docs/architecture.md for what decides: enough workgroups for all processors, enough loads in flight in each.
struct TableRow {
  std::string_view kind;
  std::array<int, 5> f16, f32;  // s, t, blocks, ahead, paired
};
constexpr TableRow kTable[] = {
    {"int8", {1, 8, 1, 4, 0}, {1, 8, 2, 1, 0}},   {"rotary", {4, 2, 2, 2, 1}, {4, 2, 2, 2, 1}},
    {"gate", {1, 16, 1, 2, 0}, {1, 16, 1, 2, 0}}, {"head", {1, 8, 1, 4, 0}, {1, 8, 2, 1, 0}},
    {"long", {4, 4, 1, 2, 0}, {4, 4, 1, 2, 0}},   {"many", {1, 16, 1, 2, 0}, {1, 16, 1, 2, 0}},
    {"plain", {2, 4, 1, 4, 0}, {2, 4, 1, 2, 0}},
};

std::string_view kindOf(const GemvProblem& p) {
  if (p.weights == Weights::int8) return "int8";
  if (p.pairs != RowPairs::none) return p.pairs == RowPairs::rotary ? "rotary" : "gate";
  return p.n > 32768 ? "head" : p.k > 4096 ? "long" : p.n > 8192 ? "many" : "plain";
}

GemvShape tableShape(const GemvProblem& p) {
  const auto* row = std::find_if(std::begin(kTable), std::end(kTable), [&](auto& r) { return r.kind == kindOf(p); });
  const int* v = p.tuned ? p.tuned->data() : (p.half ? row->f16 : row->f32).data();
  GemvShape g;
  g.s = v[0], g.t = v[1], g.blocks = v[2], g.ahead = v[3], g.paired = v[4] != 0 && p.pairs != RowPairs::none;
  return g;
}

int64_t ceilTo(int64_t n, int64_t d) { return (n + d - 1) / d; }

}  // namespace

int64_t gemvWorkgroupBytes(const GemvProblem& p, const GemvShape& g) {
  const int64_t unit = p.weights == Weights::int4 ? (p.half ? 16 : 32) : (p.half ? 8 : 16);
  // staged x and its sums, a partial sum of squares per subgroup, sums of the teams (per subgroup of 4 lanes at worst)
  return g.chunkUnits() * (unit + (p.affine ? 4 : 0)) + g.invocations() + int64_t(g.invocations()) * g.blocks * 4;
}

std::string gemvKey(const GemvProblem& p) { return "gemv." + std::string(kindOf(p)) + (p.half ? ".f16" : ".f32"); }

GemvShape gemvShape(const GemvProblem& p) {
  constexpr int64_t kLeastInvocations = 128;  // that share the staging of x
  GemvShape g = tableShape(p);
  g.lanes = p.lanes;
  if (p.workgroup_rows) {
    g.s = g.blocks = 1;
    g.paired = false;
    for (g.t = int(p.workgroup_rows / 4); g.t > 2 && g.invocations() > std::min<int64_t>(p.max_invocations, 512);
         g.t /= 2)
      g.blocks *= 2;
  }
  const int least = p.pairs != RowPairs::none && !g.paired ? 2 : 1;
  const int64_t units = p.k / (p.weights == Weights::int4 ? 8 : 4), steps = ceilTo(units, g.lanes);
  // A team without work, or with a much shorter share, would wait for the others.
  while (g.s > 1 && ceilTo(steps, g.s) * g.s * 10 > steps * 11) g.s /= 2;
  const auto tooFew = [&] { return ceilTo(p.n, g.rows()) < p.processors && g.invocations() > kLeastInvocations; };
  while (!p.workgroup_rows && g.t > least && (g.invocations() > p.max_invocations || tooFew())) g.t /= 2;
  while (g.s > 1 && g.invocations() > p.max_invocations) g.s /= 2;
  const int64_t share = ceilTo(steps, g.s);
  g.chunks = 0;
  do {
    ++g.chunks;
    g.iterations = int(ceilTo(share, g.chunks));
  } while (g.iterations > 1 &&
           (g.iterations > maxIterations(g.lanes) || gemvWorkgroupBytes(p, g) > p.max_workgroup_bytes));
  g.chunks = int(ceilTo(share, g.iterations));
  g.ahead = std::min(g.ahead, g.iterations);
  return g;
}

std::vector<GemmRange> gemmRanges(const Problem& p, int64_t min_rows, int64_t max_rows) {
  constexpr GemmSize kSmall{32, 64, 4}, kMiddle{64, 64, 4}, kLarge{64, 128, 8};
  const int64_t workgroups = 2 * p.processors, columns = ceilTo(p.n, kLarge.tile_n);
  const int64_t middle = p.narrow ? INT64_MAX : kLargeTileMinRows;
  const int64_t large = p.narrow ? INT64_MAX : std::max(middle, (ceilTo(workgroups, columns) - 1) * kLarge.tile_m + 1);
  std::vector<GemmRange> ranges;
  const auto add = [&](int64_t first, int64_t last, GemmSize size) {
    first = std::max(first, min_rows);
    last = std::min(last, max_rows);
    if (p.half) size.step = 32;  // the same bytes
    if (first <= last) ranges.push_back({first, last, size});
  };
  add(min_rows, middle - 1, kSmall);
  add(middle, large - 1, kMiddle);
  add(large, INT64_MAX, kLarge);
  return ranges;
}

int gemmTasksOfX(const GemmSize& size) { return size.tile_m / 4 * (size.step / 4); }

int gemmTasksOfW(Weights weights, const GemmSize& size) {
  return size.tile_n / 4 * (size.step / (weights == Weights::int4 ? 8 : weights == Weights::transposed ? 1 : 4));
}

int MatrixTile::words(int matrix_size) const {
  const int staged = (tile_m + tile_n) * (tile_k / 8 + 1), sums = invocations() / 32 * matrix_size * 9;
  return std::max(staged, sums);
}

namespace {

/// Speed of a tile on a device that it fills, relative to the best (H200, int4: 225 TFLOP/s).
struct RatedTile {
  MatrixTile tile;
  double speed;
};

std::vector<RatedTile> ratedTiles(const Problem& p, const GpuCapabilities& caps) {
  const int small_k = p.k % 64 == 0 ? 64 : 32;
  const auto fits = [&](const MatrixTile& t) {
    return t.invocations() <= int(caps.max_invocations) &&
           t.words(int(caps.matrix_size)) * 16 <= int(caps.max_workgroup_bytes);
  };
  constexpr MatrixTile kLarge = {128, 128, 32, 64, 64};
  std::vector<RatedTile> tiles = {{{64, 32, small_k, 16, 32}, 0.5}, {{64, 64, small_k, 32, 32}, 0.7}};
  if (fits(kLarge)) {
    tiles.push_back({kLarge, 0.93});
    tiles.push_back({{128, 256, 32, 64, 64}, 1.0});
  } else {  // within the default limits: no 64 k of 128 rows, half the columns
    for (RatedTile& t : tiles) t.tile.tile_k = 32;
    tiles.push_back({{128, 64, 32, 64, 32}, 0.75});
  }
  std::erase_if(tiles, [&](const RatedTile& t) { return !fits(t.tile); });
  return tiles;
}

const MatrixTile& bestTile(const std::vector<RatedTile>& tiles, int64_t rows, const Problem& p) {
  const MatrixTile* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [tile, speed] : tiles) {
    const int64_t workgroups = (rows + tile.tile_m - 1) / tile.tile_m * ((p.n + tile.tile_n - 1) / tile.tile_n);
    const int64_t waves = (workgroups + p.processors - 1) / p.processors;
    const double time = double(waves * tile.tile_m * tile.tile_n) / speed;
    if (time < least) best = &tile, least = time;
  }
  return *best;
}

}  // namespace

std::vector<MatrixRange> matrixRanges(const Problem& p, const GpuCapabilities& caps, int64_t min_rows,
                                      int64_t max_rows) {
  std::vector<MatrixRange> ranges;
  if (p.k % 32 || max_rows < min_rows) return ranges;
  const std::vector<RatedTile> tiles = ratedTiles(p, caps);
  if (tiles.empty()) return ranges;
  constexpr int64_t kMost = 4096;  // from here on the largest tiles fill any device
  for (int64_t end = 64, begin = min_rows; begin <= max_rows; end *= 2) {
    if (end < begin) continue;
    const bool last = end >= kMost || end >= max_rows;
    const MatrixTile& tile = bestTile(tiles, std::min(end, max_rows), p);
    if (!ranges.empty() && ranges.back().tile == tile) {
      ranges.back().max = last ? max_rows : end;
    } else {
      ranges.push_back({begin, last ? max_rows : end, tile});
    }
    if (last) break;
    begin = end + 1;
  }
  return ranges;
}

}  // namespace etwgpu::matmul
