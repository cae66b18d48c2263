// rope_cache_write: rotary embedding of query and key, and the write of key and value into the cache, as one operator
// behind one linear.
//   q = rotate(heads(linear_q(x))), k = rotate(heads(linear_k(x))), v = heads(linear_v(x))
//   state_index_put(K, 2, pos, k); state_index_put(V, 2, pos, v); cached_attention(permute(q, [0, 2, 1, 3]), K, V,
//   start) → qkv = linear(x, [Wq; Wk; Wv]);  q = rope_cache_write(qkv, table, start, K, V);  cached_attention(q, K, V,
//   start)
// with heads(y) = permute(view(y, [1, S, H, D]), [0, 2, 1, 3]) (a view where H or S is 1), pos = arange(S) + start, c,
// s = table[pos][:, 0], [:, 1] and
//   rotate(x) = cat([a c - b s, b c + a s], -1), a, b = halves of x.
// An RMS norm of each query and key head before the rotation becomes part of it.
// Where the weights cannot be joined, the three results are (cat).
#include <algorithm>

#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/affine.h"
#include "runtime/graph/passes/passes_list.h"

namespace etwgpu {
namespace {

/// The linear behind a head tensor [1, H, S, D], and the norm of each head between them.
struct Heads {
  int32_t linear = -1;
  int64_t heads = 0;
  ValueId norm_weight = kNoValue;
  double norm_eps = 0;
};
struct Rotated {
  ValueId table = kNoValue, positions = kNoValue;
  ValueId source = kNoValue;     // [1, H, S, D] before the rotation
  std::vector<int32_t> readers;  // nodes that read the source
};

class RopeMatcher {
 public:
  RopeMatcher(Graph& graph, NodeEditor& editor) : g_(graph), index_(graph), editor_(editor) {}

  void rewrite(int32_t attention) {
    const Node node = g_.nodes[size_t(attention)];
    const ValueId k_cache = tensorArg(node, kAttentionKCache), v_cache = tensorArg(node, kAttentionVCache);
    const ValueId start = tensorArg(node, kAttentionStart);
    const int32_t k_put = soleWrite(k_cache, attention), v_put = soleWrite(v_cache, attention);
    if (k_put < 0 || v_put < 0 || k_cache == v_cache) return;
    const Node &kp = g_.nodes[size_t(k_put)], &vp = g_.nodes[size_t(v_put)];

    const ValueId q_in = tensorArg(node, kAttentionQ);
    if (!index_.usedOnce(q_in)) return;
    const auto q = rotated(unswapped(q_in)), k = rotated(tensorArg(kp, kStateIndexPutValue));
    if (!q || !k || q->table != k->table || q->positions != k->positions) return;
    const ValueId positions = q->positions;
    for (const Node* put : {&kp, &vp}) {
      if (g_.storage(tensorArg(*put, kStateIndexPutIndex)) != g_.storage(positions)) return;
      if (intArg(g_, *put, kStateIndexPutDim) != 2) return;
    }
    if (positionsStart(g_, index_, positions) != g_.storage(start)) return;

    const auto hq = heads(q->source, q->readers), hk = heads(k->source, k->readers),
               hv = heads(tensorArg(vp, kStateIndexPutValue), {v_put});
    if (!hq || !hk || !hv || hk->heads != hv->heads || hv->norm_weight != kNoValue) return;
    const bool normed = hq->norm_weight != kNoValue;
    if (normed != (hk->norm_weight != kNoValue) || (normed && hq->norm_eps != hk->norm_eps)) return;
    const std::vector<ExprId> kd = g_.value(k_cache).dims;
    const ExprId width = kd[3];
    if (!g_.exprs.isConstant(kd[1], hk->heads) || g_.value(q_in).dims[3] != width) return;
    const std::vector<ExprId> td = g_.value(q->table).dims;
    if (td.size() != 3 || td[0] != kd[2] || g_.value(q->table).dtype != DType::f32) return;

    const ValueId qkv = joinLinears({hq->linear, hk->linear, hv->linear}, attention);
    if (qkv == kNoValue) return;
    Node rope;
    rope.op = kRopeCacheWrite;
    rope.name = kp.name + "+" + vp.name;
    rope.args = {qkv,
                 q->table,
                 start,
                 k_cache,
                 v_cache,
                 IntArg{g_.exprs.constant(hq->heads)},
                 IntArg{g_.exprs.constant(hk->heads)},
                 std::monostate{},
                 std::monostate{},
                 hq->norm_eps};
    if (normed) {
      rope.args[kRopeQNorm] = hq->norm_weight;
      rope.args[kRopeKNorm] = hk->norm_weight;
    }
    const ValueId out = newIntermediate(g_, DType::f32, g_.value(q_in).name + ".rope", g_.value(q_in).dims);
    rope.outputs = {out};
    editor_.insertBefore(attention, std::move(rope));  // nothing else touches the caches between the writes and here
    editor_.erase(k_put);
    editor_.erase(v_put);
    g_.nodes[size_t(attention)].args[kAttentionQ] = out;
  }

 private:
  /// The only write of the state, if nothing but the attention reads it.
  int32_t soleWrite(ValueId state, int32_t attention) const {
    int32_t write = -1;
    for (int32_t user : index_.users(state)) {
      if (user == attention) continue;
      if (g_.nodes[size_t(user)].op != kStateIndexPut || write >= 0 || editor_.erased(user)) return -1;
      write = user;
    }
    return write < attention && !index_.leavesGraph(state) ? write : -1;
  }

  const Node* headsPermute(ValueId v) const {
    const Node* n = index_.produced(v, "aten.permute_copy.default");
    if (!n || n->args.size() < 2 || tensorArg(*n, 0) == kNoValue) return nullptr;
    const auto* order = std::get_if<std::vector<IntArg>>(&n->args[1]);
    if (!order || order->size() != 4) return nullptr;
    constexpr int64_t kOrder[] = {0, 2, 1, 3};
    for (size_t d = 0; d < 4; ++d) {
      if (!g_.exprs.isConstant((*order)[d].expr)) return nullptr;
      if (normalizedDim(g_.exprs.constantValue((*order)[d].expr), 4) != kOrder[d]) return nullptr;
    }
    return n;
  }

  /// The value whose dimensions 1 and 2 are exchanged in v [1, A, B, D]: the permute's argument, or, where A or B is 1
  /// and canonicalise made the permute an alias, the value with these bytes. kNoValue if v is nothing of that.
  ValueId unswapped(ValueId v) const {
    if (const Node* permute = headsPermute(v)) return tensorArg(*permute, 0);
    const std::vector<ExprId>& d = g_.value(v).dims;
    const bool in_place = d.size() == 4 && (g_.exprs.isConstant(d[1], 1) || g_.exprs.isConstant(d[2], 1));
    return in_place ? g_.storage(v) : kNoValue;
  }

  /// v [1, H, S, D], read by `readers` alone where no permute stands before them.
  std::optional<Heads> heads(ValueId v, const std::vector<int32_t>& readers) const {
    ValueId split = unswapped(v);  // [1, S, H, D], a view of [1, S, H · D]
    if (split == kNoValue) return {};
    Heads result;
    bool alone = headsPermute(v) != nullptr;  // the permuted heads are read twice, the linear by its permute alone
    if (const int32_t norm = index_.producer(split); norm >= 0 && headNorm(norm, result)) {
      const ValueId normed = g_.storage(split);
      if (alone ? !index_.usedOnce(normed) : !readBy(normed, readers)) return {};
      split = tensorArg(g_.nodes[size_t(norm)], 0);
      alone = true;
    }
    const ValueId flat = g_.storage(split);
    const int32_t linear = index_.producer(flat);
    if (linear < 0 || g_.nodes[size_t(linear)].op != "aten.linear.default" || editor_.erased(linear)) return {};
    if (alone ? !index_.usedOnce(flat) : !readBy(flat, readers)) return {};
    const std::vector<ExprId>&d = g_.value(v).dims, &f = g_.value(flat).dims;
    const bool fits = d.size() == 4 && f.size() == 3 && g_.exprs.isConstant(d[0], 1) && d[0] == f[0] && d[2] == f[1] &&
                      g_.exprs.isConstant(d[1]) && g_.value(flat).dtype == DType::f32;
    if (!fits) return {};
    result.linear = linear;
    result.heads = g_.exprs.constantValue(d[1]);
    return result;
  }

  bool readBy(ValueId v, const std::vector<int32_t>& readers) const {
    const std::vector<int32_t>& users = index_.users(v);
    return !index_.leavesGraph(v) && std::all_of(users.begin(), users.end(), [&](int32_t user) {
      return std::find(readers.begin(), readers.end(), user) != readers.end();
    });
  }

  /// Is the node an RMS norm with a weight over the last dimension of [1, S, H, D]?
  bool headNorm(int32_t at, Heads& heads) const {
    const Node& norm = g_.nodes[size_t(at)];
    if (norm.op != "aten.rms_norm.default" || norm.args.size() < 3 || tensorArg(norm, 0) == kNoValue) return false;
    const auto* shape = std::get_if<std::vector<IntArg>>(&norm.args[1]);
    const ValueId weight = tensorArg(norm, 2);
    if (!shape || shape->size() != 1 || weight == kNoValue || g_.value(tensorArg(norm, 0)).dims.size() != 4)
      return false;
    if (g_.value(g_.storage(weight)).kind != ValueKind::constant || g_.value(weight).dtype != DType::f32) return false;
    heads.norm_weight = weight;
    heads.norm_eps = isNoneArg(norm, 3) ? kDefaultRmsEps : numberArg(g_, norm, 3).value_or(kDefaultRmsEps);
    return true;
  }

  /// x · table part: mul(slice of source, select of the table) in either order.
  struct Product {
    ValueId source = kNoValue, rows = kNoValue;
    int32_t slice = -1;
    bool upper_half = false;
    int64_t part = 0;  // 0: cosine, 1: sine
  };
  std::optional<Product> product(ValueId v) const {
    const Node* mul = index_.produced(v, "aten.mul.Tensor");
    if (!mul) return {};
    for (size_t i = 0; i < 2; ++i) {
      const ValueId x = tensorArg(*mul, i), t = tensorArg(*mul, 1 - i);
      if (x == kNoValue || t == kNoValue) continue;
      Product p;
      if (half(x, p) && tablePart(t, p)) return p;
    }
    return {};
  }
  bool half(ValueId v, Product& p) const {
    const Node* slice = index_.produced(v, "aten.slice_copy.Tensor");
    if (!slice) return false;
    p.source = tensorArg(*slice, 0);
    p.slice = index_.producer(v);
    if (p.source == kNoValue) return false;
    const std::vector<ExprId>& dims = g_.value(p.source).dims;
    const size_t rank = dims.size();
    const auto dim = intArg(g_, *slice, 1), step = intArg(g_, *slice, 4);
    const int64_t start = isNoneArg(*slice, 2) ? 0 : intArg(g_, *slice, 2).value_or(-1);
    if (rank != 4 || g_.value(v).dims.size() != 4 || !dim || normalizedDim(*dim, rank) != 3 || (step && *step != 1) ||
        !g_.exprs.isConstant(dims[3]))
      return false;
    const int64_t width = g_.exprs.constantValue(dims[3]);
    if (width % 2 != 0 || !g_.exprs.isConstant(g_.value(v).dims[3], width / 2)) return false;
    if (start != 0 && start != width / 2) return false;
    p.upper_half = start != 0;
    return true;
  }
  /// select(index(table, [positions]), 1, part), possibly with leading dimensions of 1.
  bool tablePart(ValueId v, Product& p) const {
    const ValueId s = g_.storage(v);
    const int32_t at = index_.producer(s);
    if (at < 0) return false;
    const Node& select = g_.nodes[size_t(at)];
    const std::vector<ExprId>&vd = g_.value(v).dims, &sd = g_.value(s).dims;
    if (select.op != "aten.select_copy.int" || sd.size() != 2 || vd.size() < 2) return false;
    if (vd[vd.size() - 1] != sd[1] || vd[vd.size() - 2] != sd[0]) return false;
    p.rows = tensorArg(select, 0);
    const auto dim = intArg(g_, select, 1), part = intArg(g_, select, 2);
    if (p.rows == kNoValue || !dim || !part || normalizedDim(*dim, 3) != 1) return false;
    p.part = *part < 0 ? *part + 2 : *part;
    return p.part == 0 || p.part == 1;
  }

  std::optional<Rotated> rotated(ValueId v) const {
    if (v == kNoValue) return {};
    const Node* cat = index_.produced(v, "aten.cat.default");
    if (!cat || cat->args.size() < 2) return {};
    const auto* parts = std::get_if<std::vector<ValueId>>(&cat->args[0]);
    const auto dim = intArg(g_, *cat, 1);
    if (!parts || parts->size() != 2 || !dim || normalizedDim(*dim, 4) != 3) return {};
    const Node* low = index_.produced((*parts)[0], "aten.sub.Tensor");
    const Node* high = index_.produced((*parts)[1], "aten.add.Tensor");
    if (!low || !high || numberArg(g_, *low, 2).value_or(1) != 1 || numberArg(g_, *high, 2).value_or(1) != 1) return {};
    const auto ac = product(tensorArg(*low, 0)), bs = product(tensorArg(*low, 1));
    auto bc = product(tensorArg(*high, 0)), as = product(tensorArg(*high, 1));
    if (!ac || !bs || !bc || !as) return {};
    if (bc->part == 1) std::swap(bc, as);
    const auto is = [](const Product& p, bool upper, int64_t part) { return p.upper_half == upper && p.part == part; };
    if (!is(*ac, false, 0) || !is(*bs, true, 1) || !is(*bc, true, 0) || !is(*as, false, 1)) return {};
    for (const Product& p : {*bs, *bc, *as}) {
      if (p.source != ac->source || p.rows != ac->rows) return {};
    }
    const Node* rows = index_.produced(ac->rows, "aten.index.Tensor");
    if (!rows || rows->args.size() < 2 || tensorArg(*rows, 0) == kNoValue) return {};
    const auto* indices = std::get_if<std::vector<ValueId>>(&rows->args[1]);
    if (!indices || indices->size() != 1 || (*indices)[0] == kNoValue) return {};
    const std::vector<ExprId>& td = g_.value(tensorArg(*rows, 0)).dims;
    if (td.size() != 3 || !g_.exprs.isConstant(td[1], 2)) return {};
    return Rotated{tensorArg(*rows, 0), (*indices)[0], ac->source, {ac->slice, bs->slice, bc->slice, as->slice}};
  }

  /// One linear of all rows where x and the schemes agree, else the concatenated results.
  ValueId joinLinears(std::vector<int32_t> nodes, int32_t before) {
    std::vector<ValueId> weights, biases, results;
    bool same_x = true, has_bias = false;
    for (int32_t n : nodes) {
      const Node& linear = g_.nodes[size_t(n)];
      same_x &= tensorArg(linear, 0) == tensorArg(g_.nodes[size_t(nodes[0])], 0);
      weights.push_back(tensorArg(linear, 1));
      biases.push_back(tensorArg(linear, 2));
      has_bias |= biases.back() != kNoValue;
      results.push_back(linear.outputs[0]);
    }
    std::vector<ExprId> dims = g_.value(results[0]).dims;
    std::string name;
    for (size_t i = 0; i < nodes.size(); ++i) name += (i ? "+" : "") + g_.nodes[size_t(nodes[i])].name;
    for (size_t i = 1; i < results.size(); ++i) dims[2] = g_.exprs.add(dims[2], g_.value(results[i]).dims[2]);
    const ValueId weight = same_x ? concatenateRows(g_, index_, weights) : kNoValue;
    const ValueId bias = weight != kNoValue && has_bias ? concatenateRows(g_, index_, biases) : kNoValue;
    const ValueId out = newIntermediate(g_, DType::f32, name, dims);
    Node node;
    node.name = name;
    node.outputs = {out};
    if (weight == kNoValue || (has_bias && bias == kNoValue)) {
      node.op = "aten.cat.default";
      node.args = {results, IntArg{g_.exprs.constant(2)}};
      editor_.insertBefore(before, std::move(node));
      return out;
    }
    node.op = "aten.linear.default";
    node.args = {tensorArg(g_.nodes[size_t(nodes[0])], 0), weight, std::monostate{}};
    if (bias != kNoValue) node.args[2] = bias;
    editor_.insertBefore(*std::min_element(nodes.begin(), nodes.end()), std::move(node));
    return out;
  }

  Graph& g_;
  const GraphIndex index_;
  NodeEditor& editor_;
};

}  // namespace

Status fuseRopeCacheWrite(Graph& graph) {
  NodeEditor editor(graph);
  RopeMatcher matcher(graph, editor);
  const size_t n = graph.nodes.size();
  for (size_t i = 0; i < n; ++i) {
    if (graph.nodes[i].op == kCachedAttention) matcher.rewrite(int32_t(i));
  }
  editor.apply();
  removeDeadNodes(graph);
  return {};
}

}  // namespace etwgpu
