#include "runtime/executor/cpu_caches.h"

#include <algorithm>

#include "runtime/graph/fused_ops.h"

namespace etwgpu {
namespace {

/// Positions of a node's caches in its arguments; {-1, -1}: it has none.
std::pair<int, int> cacheArgs(const Node& node) {
  if (node.op == kRopeCacheWrite) return {kRopeKCache, kRopeVCache};
  if (node.op == kQkvCacheWrite) return {kQkvKCache, kQkvVCache};
  if (node.op == kCachedAttention || node.op == kAttentionLinear) return {kAttentionKCache, kAttentionVCache};
  return {-1, -1};
}

ValueId valueAt(const Node& node, int arg) {
  const auto* id = size_t(arg) < node.args.size() ? std::get_if<ValueId>(&node.args[size_t(arg)]) : nullptr;
  return id ? *id : kNoValue;
}

}  // namespace

std::vector<std::pair<ValueId, ValueId>> cachePairs(const Graph& graph) {
  std::vector<std::pair<ValueId, ValueId>> pairs;
  for (const Node& node : graph.nodes) {
    const auto [k, v] = cacheArgs(node);
    if (k >= 0) pairs.push_back({valueAt(node, k), valueAt(node, v)});
  }
  return pairs;
}

std::vector<bool> cachesInHalf(const Graph& graph) {
  std::vector<bool> half(graph.values.size());
  for (size_t i = 0; i < half.size(); ++i) {
    const Value& v = graph.values[i];
    half[i] = v.kind == ValueKind::state && v.dtype == DType::f32 && v.pieces.empty() && v.literal.empty();
  }
  const auto exclude = [&](ValueId id) {
    if (id != kNoValue) half[size_t(graph.storage(id))] = false;
  };
  for (size_t i = 0; i < half.size(); ++i)
    if (graph.values[i].alias_of != kNoValue) exclude(ValueId(i));
  for (const GraphOutput& o : graph.outputs) exclude(o.value);
  for (const GraphMutation& m : graph.mutations) exclude(m.state), exclude(m.value);
  for (const Node& node : graph.nodes) {
    const auto [k, v] = cacheArgs(node);
    for (size_t a = 0; a < node.args.size(); ++a) {
      if (int(a) == k || int(a) == v) continue;
      if (const auto* id = std::get_if<ValueId>(&node.args[a])) exclude(*id);
      if (const auto* ids = std::get_if<std::vector<ValueId>>(&node.args[a]))
        std::for_each(ids->begin(), ids->end(), exclude);
    }
    std::for_each(node.outputs.begin(), node.outputs.end(), exclude);
  }
  const auto pairs = cachePairs(graph);
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [k, v] : pairs) {
      const bool both = k != kNoValue && v != kNoValue && half[size_t(k)] && half[size_t(v)];
      for (const ValueId id : {k, v}) {
        if (both || id == kNoValue || !half[size_t(id)]) continue;
        half[size_t(id)] = false;
        changed = true;
      }
    }
  }
  return half;
}

}  // namespace etwgpu
