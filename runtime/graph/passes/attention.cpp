// cached_attention: attention over states under a causal mask → etwgpu.cached_attention, which needs no mask and reads
// only the part of the cache in use.
//   sdpa(q [1, Hq, S, D], K, V, mask): K, V states [1, Hkv, L, D]; mask[s, j] = j <= start + s (and j > start + s -
//   window) → q' = permute(q, [0, 2, 1, 3]);  y = cached_attention(q', K, V, start);  permute(view(y, [1, S, Hq, D]),
//   [0, 2, 1, 3])
// The permutes cancel with those of the exported graph.
#include <cmath>

#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/affine.h"
#include "runtime/graph/passes/passes_list.h"

namespace etwgpu {
namespace {

enum SdpaArg { kQuery, kKey, kValue, kMask, kDropout, kIsCausal, kScale, kEnableGqa };

/// The state behind a value, or kNoValue.
ValueId stateOf(const Graph& g, ValueId v) {
  if (v == kNoValue) return kNoValue;
  const ValueId s = g.storage(v);
  return g.value(s).kind == ValueKind::state && sameDims(g, s, v) ? s : kNoValue;
}

Node permuteHeads(Graph& g, ValueId in, ValueId out) {
  Node n;
  n.op = "aten.permute_copy.default";
  n.name = g.value(out).name;
  std::vector<IntArg> order;
  for (int64_t d : {0, 2, 1, 3}) order.push_back({g.exprs.constant(d)});
  n.args = {in, std::move(order)};
  n.outputs = {out};
  return n;
}

bool rewrite(Graph& g, const GraphIndex& index, NodeEditor& editor, int32_t at) {
  const Node node = g.nodes[size_t(at)];
  const ValueId q = tensorArg(node, kQuery), mask = tensorArg(node, kMask);
  const ValueId k = stateOf(g, tensorArg(node, kKey)), v = stateOf(g, tensorArg(node, kValue));
  if (q == kNoValue || mask == kNoValue || k == kNoValue || v == kNoValue || flagArg(node, kIsCausal)) return false;
  if (numberArg(g, node, kDropout).value_or(0) != 0) return false;
  const std::vector<ExprId> qd = g.value(q).dims, kd = g.value(k).dims;
  if (qd.size() != 4 || kd.size() != 4 || g.value(v).dims != kd || g.value(q).dtype != DType::f32) return false;
  const Exprs& e = g.exprs;
  if (!e.isConstant(qd[0], 1) || !e.isConstant(kd[0], 1) || qd[3] != kd[3]) return false;
  if (!e.isConstant(qd[1]) || !e.isConstant(qd[3])) return false;
  const int64_t heads = e.constantValue(qd[1]), kv_heads = e.constantValue(kd[1]), width = e.constantValue(qd[3]);
  if (kv_heads == 0 || width == 0 || heads % kv_heads != 0 || (heads != kv_heads && !flagArg(node, kEnableGqa)))
    return false;
  const std::vector<ExprId>& md = g.value(mask).dims;
  if (md.size() < 2 || md[md.size() - 1] != kd[2] || md[md.size() - 2] != qd[2]) return false;
  const auto causal = causalMask(g, index, mask);
  if (!causal) return false;
  const double scale = isNoneArg(node, kScale) ? 1 / std::sqrt(double(width)) : numberArg(g, node, kScale).value_or(0);

  const std::string name = node.name;
  const ExprId columns = g.exprs.constant(heads * width);
  const ValueId q2 = newIntermediate(g, DType::f32, name + ".q", {qd[0], qd[2], qd[1], qd[3]});
  const ValueId y = newIntermediate(g, DType::f32, name + ".heads", {qd[0], qd[2], columns});
  const ValueId y4 = newAlias(g, y, name + ".heads4", {qd[0], qd[2], qd[1], qd[3]});
  Node attention;
  attention.op = kCachedAttention;
  attention.name = name;
  attention.args = {q2, k, v, causal->start, scale, IntArg{g.exprs.constant(causal->window)}, std::monostate{}};
  attention.outputs = {y};
  editor.insertBefore(at, permuteHeads(g, q, q2));
  editor.insertBefore(at, std::move(attention));
  editor.replace(at, permuteHeads(g, y4, node.outputs[0]));
  return true;
}

}  // namespace

Status fuseCachedAttention(Graph& graph) {
  bool changed = false;
  {
    const GraphIndex index(graph);
    NodeEditor editor(graph);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.op != "aten.scaled_dot_product_attention.default" || node.outputs.size() != 1) continue;
      changed |= rewrite(graph, index, editor, int32_t(i));
    }
    editor.apply();
  }
  return changed ? canonicalise(graph) : Status();  // permutes of permutes, the mask
}

}  // namespace etwgpu
