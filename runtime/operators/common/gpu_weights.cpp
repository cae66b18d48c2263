#include "runtime/operators/common/gpu_weights.h"

#include <algorithm>

#include "runtime/operators/common/gpu_builder.h"

namespace etwgpu {
namespace {

constexpr int64_t kBlock = 8;  // rows; to a multiple of them packing R4 pads
constexpr uint64_t kPlaneAlignment = 256;

using Pieces = std::vector<ConstantPiece>;

/// Appends bytes [offset, offset + size) of all pieces one after another.
void appendSlice(const Pieces& pieces, uint64_t offset, uint64_t size, Pieces& out) {
  uint64_t at = 0;
  for (const ConstantPiece& p : pieces) {
    const uint64_t begin = std::max(offset, at), end = std::min(offset + size, at + p.size);
    if (begin < end) out.push_back({p.key, p.offset + (begin - at), end - begin});
    at += p.size;
  }
}

/// Host bytes of a row: of its values or words, and of its scales and minima.
struct RowBytes {
  uint64_t words = 0, constants = 0;
  uint64_t sum() const { return words + constants; }
};

RowBytes rowBytes(const Value& v, uint64_t elements) {
  const Quantization& q = v.quantization;
  if (q.bits == 0) return {elements * dtypeSize(v.dtype), 0};
  if (q.bits == 8) return {elements, 4};
  return {elements / 2, elements / uint64_t(q.group) * (q.symmetric ? 2 : 4)};
}

/// `count` rows from each of `firsts` on, one after another.
ValueId takeRows(Graph& graph, ValueId weight, const RowBytes& row, std::vector<int64_t> firsts, int64_t count) {
  const Value& from = graph.value(graph.storage(weight));
  Value part;
  part.name = format("%s[%lld:%lld]", from.name.c_str(), (long long)firsts[0], (long long)(firsts[0] + count));
  part.dtype = from.dtype;
  part.kind = ValueKind::constant;
  part.quantization = from.quantization;
  part.dims = graph.value(weight).dims;
  part.dims[0] = graph.exprs.constant(count * int64_t(firsts.size()));
  const bool quantised = from.quantization.bits != 0;
  const uint64_t stored = uint64_t(quantised ? (count + kBlock - 1) / kBlock * kBlock : count);
  for (const int64_t first : firsts) {
    appendSlice(from.pieces, uint64_t(first) * row.words, stored * row.words, part.pieces);
    appendSlice(from.constants_pieces, uint64_t(first) * row.constants, stored * row.constants, part.constants_pieces);
    if (from.literal.empty()) continue;
    const auto begin = from.literal.begin() + int64_t(uint64_t(first) * row.words);
    part.literal.insert(part.literal.end(), begin, begin + int64_t(stored * row.words));
  }
  if (quantised) {
    const uint64_t words = stored * firsts.size() * row.words;
    part.quantization.constants_offset = (words + kPlaneAlignment - 1) / kPlaneAlignment * kPlaneAlignment;
  }
  return graph.newValue(std::move(part));
}

}  // namespace

Status splitRows(GpuPlanContext& c, ValueId weight, bool gate, std::vector<WeightRows>& parts) {
  Graph& graph = c.graph;
  const Value& v = graph.value(graph.storage(weight));
  const int64_t rows = constantOf(c, dimOf(c, weight, 0)).value_or(0) / (gate ? 2 : 1);
  const uint64_t limit = std::min(c.caps.max_binding_bytes, c.caps.max_buffer_bytes);
  const uint64_t bytes = gpuBytes(graph, graph.storage(weight), c.options.precision);
  if (v.kind != ValueKind::constant || bytes <= limit || rows == 0) {
    parts.push_back({0, rows, weight});
    return {};
  }
  const auto elements = constantOf(c, dimProduct(c, weight, 1, int(graph.value(weight).dims.size())));
  const RowBytes row = rowBytes(v, uint64_t(elements.value_or(0)));
  // On the GPU a row may be wider than in the file (f64, bf16 are f32 there).
  const uint64_t wide = v.quantization.bits ? row.sum() : (bytes + uint64_t(rows) - 1) / uint64_t(rows);
  const uint64_t needed = std::max<uint64_t>(wide * (v.quantization.bits && gate ? 2 : 1), 1);
  const int64_t most = int64_t((limit - std::min(limit, kPlaneAlignment)) / needed) / kBlock * kBlock;
  if (most == 0)
    return Status(
        Code::limit_exceeded,
        format("%s: 8 rows of the weight %s of %llu bytes do not fit into the device's bindings of %llu bytes",
               c.node().name.c_str(), v.name.c_str(), (unsigned long long)bytes, (unsigned long long)limit));
  const int64_t count = (rows + most - 1) / most;
  const int64_t step = std::min(most, ((rows + count - 1) / count + kBlock - 1) / kBlock * kBlock);
  for (int64_t first = 0; first < rows; first += step) {
    std::vector<int64_t> firsts{first};
    if (gate) firsts.push_back(rows + first);
    const int64_t taken = std::min(step, rows - first);
    parts.push_back({first, taken, takeRows(graph, weight, row, std::move(firsts), taken)});
  }
  return {};
}

}  // namespace etwgpu
