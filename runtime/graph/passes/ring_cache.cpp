// ring_cache: a cache of which nobody sees more than a window holds the window and what one call brings, not all
// positions.
//   rope_cache_write(…, K, V); cached_attention(q, K, V, start, scale, window > 0), K and V [1, H, L, D] →
//   the same over K and V [1, H, C, D], C = window + the most queries of a call, rounded up to kRingAlignment, if that
//   is less than L; position p lies in row p mod C.
// Legal where nothing but the two touches K and V, which begin as zeros, and where start is an input, so that executors
// can tell calls that go back to what has been overwritten (RingMark). Executors shrink caches only of programs with a
// single delegate: another one might read the same state.
#include "runtime/graph/ring.h"

#include <algorithm>

#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {
namespace {

/// Rows for more positions than a call may bring: so many steps may have been started and given up again.
constexpr int64_t kLeastSpare = 16;

bool isStateOfZeros(const Graph& g, ValueId v) {
  const Value& value = g.value(v);
  return value.kind == ValueKind::state && value.pieces.empty() && value.literal.empty() && value.dims.size() == 4;
}

/// An input of one integer.
bool isPosition(const Graph& g, ValueId v) {
  const Value& value = g.value(g.storage(v));
  return value.kind == ValueKind::input && (value.dtype == DType::i64 || value.dtype == DType::i32) &&
         std::all_of(value.dims.begin(), value.dims.end(), [&](ExprId d) { return g.exprs.isConstant(d, 1); });
}

/// Do the cache write before it and this attention alone use the state?
bool isPrivate(const Graph& g, const GraphIndex& index, ValueId state, int32_t attention) {
  const std::vector<int32_t>& users = index.users(state);
  return users.size() == 2 && users[1] == attention && g.nodes[size_t(users[0])].op == kRopeCacheWrite &&
         !index.leavesGraph(state);
}

void setRows(Graph& g, ValueId state, ExprId rows) {
  for (size_t v = 0; v < g.values.size(); ++v) {
    if (g.storage(ValueId(v)) == state && g.values[v].dims.size() == 4) g.values[v].dims[2] = rows;
  }
}

class RingMaker {
 public:
  explicit RingMaker(Graph& graph) : g_(graph), index_(graph) {}

  void shrink(int32_t at) {
    Node& node = g_.nodes[size_t(at)];
    const ValueId k = tensorArg(node, kAttentionKCache), v = tensorArg(node, kAttentionVCache);
    const ValueId start = tensorArg(node, kAttentionStart);
    const int64_t window = intArg(g_, node, kAttentionWindow).value_or(0);
    if (window < 1 || node.args.size() != kAttentionArgCount || k == v || start == kNoValue) return;
    for (const ValueId state : {k, v}) {
      if (!isStateOfZeros(g_, state) || !isPrivate(g_, index_, state, at)) return;
    }
    const int32_t write = index_.users(k)[0];
    const Node& rope = g_.nodes[size_t(write)];
    if (index_.users(v)[0] != write || g_.storage(tensorArg(rope, kRopeStart)) != g_.storage(start)) return;
    const ExprId length = g_.value(k).dims[2], queries = g_.value(tensorArg(node, kAttentionQ)).dims[1];
    if (!g_.exprs.isConstant(length) || g_.value(v).dims != g_.value(k).dims || !isPosition(g_, start)) return;
    // one guard serves all rings of a graph
    if (start_ != kNoValue && (g_.storage(start) != start_ || queries != queries_)) return;
    // states are shared with delegates for longer calls
    const int64_t positions = g_.exprs.constantValue(length),
                  most = std::max(g_.exprs.bounds(queries).max, g_.exported_size);
    if (most >= positions) return;
    const int64_t needed = window + std::max(most, kLeastSpare);
    const int64_t rows = (needed + kRingAlignment - 1) / kRingAlignment * kRingAlignment;
    if (rows >= positions) return;
    start_ = g_.storage(start);
    queries_ = queries;
    node.args[kAttentionPositions] = IntArg{length};
    for (const ValueId state : {k, v}) setRows(g_, state, g_.exprs.constant(rows));
  }

 private:
  Graph& g_;
  const GraphIndex index_;
  ValueId start_ = kNoValue;
  ExprId queries_;
};

}  // namespace

Status shrinkToRings(Graph& graph) {
  RingMaker maker(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op == kCachedAttention) maker.shrink(int32_t(i));
  }
  return {};
}

std::vector<RingCache> ringCaches(const Graph& graph) {
  std::vector<RingCache> rings;
  for (const Node& node : graph.nodes) {
    if ((node.op != kCachedAttention && node.op != kAttentionLinear) || node.args.size() <= kAttentionPositions)
      continue;
    const auto positions = intArg(graph, node, kAttentionPositions);
    if (!positions) continue;
    RingCache ring{tensorArg(node, kAttentionKCache), tensorArg(node, kAttentionVCache),
                   graph.storage(tensorArg(node, kAttentionStart)), graph.value(tensorArg(node, kAttentionQ)).dims[1]};
    ring.rows = graph.exprs.bounds(graph.value(ring.k).dims[2]).max;
    ring.positions = *positions;
    ring.window = intArg(graph, node, kAttentionWindow).value_or(0);
    if (ring.positions > ring.rows) rings.push_back(ring);
  }
  return rings;
}

}  // namespace etwgpu
