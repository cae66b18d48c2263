// decoder: the linears around an attention become one operator with it, for whose single row (decoding) there are
// kernels that need no dispatch of their own for the rotation and for the sum over the parts of the cache.
//   rope_cache_write(linear(x), table, start, K, V)          → qkv_cache_write
//   linear(cached_attention(q, K, V, start)) [+ residual]    → attention_linear
// The inner result must have no other use. A linear before the cache write may have a norm and a bias, one behind the
// attention a bias and a residual.
#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {
namespace {

/// Neither activation nor gate.
bool isPlain(const Node& linear) {
  return linear.args.size() == kLinearArgCount && textArg(linear, kLinearActivation) == "none" &&
         !flagArg(linear, kLinearGlu);
}

bool fuseCacheWrite(const Graph& g, const GraphIndex& index, NodeEditor& editor, int32_t at) {
  const Node& rope = g.nodes[size_t(at)];
  if (rope.op != kRopeCacheWrite || rope.args.size() != kRopeArgCount) return false;
  const ValueId qkv = tensorArg(rope, kRopeQkv);
  const Node* linear = index.produced(qkv, kFusedLinear);
  if (!linear || !index.usedOnce(qkv) || !isPlain(*linear) || !isNoneArg(*linear, kLinearResidual)) return false;
  if (readsState(g, *linear) || g.value(tensorArg(*linear, kLinearX)).dims.size() != 3) return false;
  Node fused;
  fused.op = kQkvCacheWrite;
  fused.name = linear->name + "+" + rope.name;
  fused.outputs = rope.outputs;
  fused.args.assign(kQkvArgCount, std::monostate{});
  constexpr std::pair<int, int> of_linear[] = {{kQkvX, kLinearX},
                                               {kQkvWeight, kLinearWeight},
                                               {kQkvBias, kLinearBias},
                                               {kQkvHasNorm, kLinearHasNorm},
                                               {kQkvNormWeight, kLinearNormWeight},
                                               {kQkvNormEps, kLinearNormEps}};
  constexpr std::pair<int, int> of_rope[] = {
      {kQkvTable, kRopeTable},   {kQkvStart, kRopeStart}, {kQkvKCache, kRopeKCache},
      {kQkvVCache, kRopeVCache}, {kQkvHeads, kRopeHeads}, {kQkvKvHeads, kRopeKvHeads},
      {kQkvQNorm, kRopeQNorm},   {kQkvKNorm, kRopeKNorm}, {kQkvHeadEps, kRopeHeadEps}};
  for (const auto& [to, from] : of_linear) fused.args[size_t(to)] = linear->args[size_t(from)];
  for (const auto& [to, from] : of_rope) fused.args[size_t(to)] = rope.args[size_t(from)];
  editor.erase(index.producer(qkv));
  editor.replace(at, std::move(fused));
  return true;
}

/// Does a node in (from, to) write one of the states?
bool writtenBetween(const Graph& g, int32_t from, int32_t to, ValueId a, ValueId b) {
  for (int32_t i = from + 1; i < to; ++i) {
    for (const ValueId state : writtenStates(g.nodes[size_t(i)])) {
      if (g.storage(state) == g.storage(a) || g.storage(state) == g.storage(b)) return true;
    }
  }
  return false;
}

bool fuseAttention(const Graph& g, const GraphIndex& index, NodeEditor& editor, int32_t at) {
  const Node& linear = g.nodes[size_t(at)];
  if (linear.op != kFusedLinear || !isPlain(linear) || flagArg(linear, kLinearHasNorm)) return false;
  const ValueId x = tensorArg(linear, kLinearX);
  const Node* attention = index.produced(x, kCachedAttention);
  if (!attention || attention->args.size() != kAttentionArgCount || !index.usedOnce(x)) return false;
  const int32_t producer = index.producer(x);
  if (writtenBetween(g, producer, at, tensorArg(*attention, kAttentionKCache), tensorArg(*attention, kAttentionVCache)))
    return false;
  Node fused = *attention;
  fused.op = kAttentionLinear;
  fused.name += "+" + linear.name;
  fused.outputs = linear.outputs;
  for (int i : {kLinearWeight, kLinearBias, kLinearResidual}) fused.args.push_back(linear.args[size_t(i)]);
  editor.erase(producer);
  editor.replace(at, std::move(fused));
  return true;
}

}  // namespace

Status fuseDecoder(Graph& graph) {
  applyToAll(graph, [](Graph& g, const GraphIndex& index, NodeEditor& editor, int32_t at) {
    return fuseCacheWrite(g, index, editor, at) || fuseAttention(g, index, editor, at);
  });
  return {};
}

}  // namespace etwgpu
