// Passes: what each makes of a small graph. That the results agree is tested in graph_semantics_test.cpp.
#include <gtest/gtest.h>

#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes.h"
#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/ring.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu {
namespace {

using testing::Dims;
using testing::GraphBuilder;
using testing::nodesText;

/// Runs passes, each followed by the verifier.
void rewrite(Graph& g, std::initializer_list<Status (*)(Graph&)> passes) {
  ASSERT_TRUE(verify(g).ok()) << verify(g).message();
  for (const auto pass : passes) {
    ASSERT_TRUE(pass(g).ok());
    ASSERT_TRUE(verify(g).ok()) << verify(g).message() << "\n" << toText(g);
  }
}

TEST(Canonicalise, ViewsAndCopiesBecomeAliases) {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, 9, 0, 0);
  const ValueId x = b.input("x", DType::f32, {s, 6});
  const ValueId r = b.node("aten.relu.default", {x}, "r", {s, 6});
  const ValueId v = b.node("aten.view_copy.default", {r, b.is({s, 2, 3})}, "v", {s, 2, 3});
  const ValueId c = b.node("aten.clone.default", {v, std::monostate{}}, "c", {s, 2, 3});
  const ValueId e = b.node("aten.expand_copy.default", {c, b.is({s, 2, 3}), false}, "e", {s, 2, 3});
  const ValueId p = b.node("aten.permute_copy.default", {e, b.is({1, 0, 2})}, "p", {2, s, 3});
  const ValueId q = b.node("aten.permute_copy.default", {p, b.is({1, 0, 2})}, "q", {s, 2, 3});  // undoes p
  const ValueId t = b.node("aten._to_copy.default", {q, DType::f32}, "t", {s, 2, 3});
  const ValueId u = b.node("aten.unsqueeze_copy.default", {t, b.i(0)}, "u", {1, s, 2, 3});
  const ValueId w = b.node("aten.permute_copy.default", {u, b.is({1, 0, 2, 3})}, "w", {s, 1, 2, 3});  // moves a 1
  b.node("aten.exp.default", {w}, "unused", {s, 1, 2, 3});
  b.output(b.node("aten.neg.default", {w}, "y", {s, 1, 2, 3}));
  rewrite(b.graph, {canonicalise});
  EXPECT_EQ(nodesText(b.graph),
            "r: f32[s, 6] = aten.relu.default(x)\n"
            "y: f32[s, 1, 2, 3] = aten.neg.default(w)\n"
            "return y\n");
  EXPECT_EQ(b.graph.storage(w), r);
}

TEST(Canonicalise, OutputsKeepBytesOfTheirOwn) {
  GraphBuilder b;
  const ValueId x = b.input("x", DType::f32, {6});
  const ValueId r = b.node("aten.relu.default", {x}, "r", {6});
  b.output(b.node("aten.view_copy.default", {x, b.is({2, 3})}, "of_input", {2, 3}));
  b.output(b.node("aten.view_copy.default", {r, b.is({2, 3})}, "of_node", {2, 3}));
  b.output(b.node("aten.view_copy.default", {r, b.is({3, 2})}, "again", {3, 2}));
  rewrite(b.graph, {canonicalise});
  EXPECT_EQ(nodesText(b.graph),
            "r: f32[6] = aten.relu.default(x)\n"
            "of_input: f32[2, 3] = aten.view_copy.default(x, [2, 3])\n"
            "again: f32[3, 2] = aten.view_copy.default(r, [3, 2])\n"
            "return of_input, of_node, again\n");
}

GraphBuilder cacheWrite(bool read_old_later) {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, 4, 0, 1);
  const ValueId x = b.input("x", DType::f32, {2, s, 3}), at = b.input("at", DType::i64, {s});
  const ValueId cache = b.state("cache", {2, 8, 3});
  const ValueId put =
      b.node("aten.index_put.default", {cache, std::vector<ValueId>{-1, at}, x, false}, "put", {2, 8, 3});
  b.mutate(cache, put);
  b.output(b.node("aten.exp.default", {put}, "new", {2, 8, 3}));
  if (read_old_later) b.output(b.node("aten.neg.default", {cache}, "old", {2, 8, 3}));
  return b;
}

TEST(StateMutations, IndexPutInPlace) {
  GraphBuilder b = cacheWrite(false);
  rewrite(b.graph, {canonicalise, stateMutations, materialiseMutations});
  EXPECT_EQ(nodesText(b.graph),
            "etwgpu.state_index_put(cache, 1, at, x)\n"
            "new: f32[2, 8, 3] = aten.exp.default(put)\n"
            "return new\n");
}

TEST(StateMutations, NotWhereTheOldContentIsReadLater) {
  GraphBuilder b = cacheWrite(true);
  rewrite(b.graph, {canonicalise, stateMutations, materialiseMutations});
  EXPECT_EQ(nodesText(b.graph),
            "put: f32[2, 8, 3] = aten.index_put.default(cache, [None, at], x, false)\n"
            "new: f32[2, 8, 3] = aten.exp.default(put)\n"
            "old: f32[2, 8, 3] = aten.neg.default(cache)\n"
            "etwgpu.state_copy(cache, put)\n"
            "return new, old\n");
}

TEST(StateMutations, SwappedStatesAreSavedFirst) {
  GraphBuilder b;
  const ValueId p = b.state("p", {4}), q = b.state("q", {4});
  b.mutate(p, q);
  b.mutate(q, p);
  b.output(p);
  rewrite(b.graph, {materialiseMutations});
  EXPECT_EQ(nodesText(b.graph),
            "p.old: f32[4] = aten.clone.default(p, None)\n"
            "q.old: f32[4] = aten.clone.default(q, None)\n"
            "etwgpu.state_copy(p, q.old)\n"
            "etwgpu.state_copy(q, p.old)\n"
            "return p.old\n");
}

constexpr char kDecoderLayer[] =
    "0.sdpa.q.rope: f32[1, s, 4, 8] = etwgpu.qkv_cache_write(x, 0.q.w+0.k.w+0.v.w, None, true, 0.n1.w, 1e-05, rotary, "
    "start, 0.kc, 0.vc, 4, 2, None, None, 0.0)\n"
    "0.x1: f32[1, s, 16] = etwgpu.attention_linear(0.sdpa.q.rope, 0.kc, 0.vc, start, 0.25, %d, None, 0.o.w, None, x)\n"
    "0.mul: f32[1, s, 24] = etwgpu.linear(0.x1, 0.gate.w+0.up.w, None, None, true, 0.n2.w, 1e-05, \"silu\", true)\n"
    "0.x2: f32[1, s, 16] = etwgpu.linear(0.mul, 0.down.w, None, 0.x1, false, None, 0.0, \"none\", false)\n"
    "logits: f32[1, 32] = etwgpu.linear(0.x2, head.w, None, None, true, norm.w, 1e-05, \"none\", false, s - 1)\n"
    "return logits\n";

TEST(Pipeline, DecoderLayerIsFourNodes) {
  for (const int window : {0, 5}) {
    GraphBuilder b = testing::decoder(1, window);
    ASSERT_TRUE(runPasses(b.graph).ok());
    EXPECT_EQ(nodesText(b.graph), format(kDecoderLayer, window));
    for (const Value& v : b.graph.values) EXPECT_NE(v.name, "0.q.w") << "joined weights must not be loaded twice";
  }
}

/// Rows of the caches after all passes, in order.
std::vector<int64_t> cacheRows(GraphBuilder b, std::string_view disabled = {}) {
  EXPECT_TRUE(runPasses(b.graph, disabled).ok());
  std::vector<int64_t> rows;
  for (const Value& v : b.graph.values)
    if (v.kind == ValueKind::state) rows.push_back(b.graph.exprs.constantValue(v.dims[2]));
  return rows;
}

TEST(Pipeline, CachesOfWindowsAreRings) {
  const auto decoder = [](int window, int most) { return testing::decoder(1, window, 4, 2, false, 512, most); };
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(cacheRows(decoder(60, 68)), (Rows{128, 128}));
  EXPECT_EQ(cacheRows(decoder(60, 69)), (Rows{192, 192}));
  EXPECT_EQ(cacheRows(decoder(48, 1)), (Rows{64, 64})) << "16 steps may be given up";
  EXPECT_EQ(cacheRows(decoder(49, 1)), (Rows{128, 128}));
  EXPECT_EQ(cacheRows(decoder(60, 400)), (Rows{512, 512})) << "no less";
  EXPECT_EQ(cacheRows(decoder(60, 511)), (Rows{512, 512}));
  EXPECT_EQ(cacheRows(decoder(0, 8)), (Rows{512, 512})) << "no window";
  EXPECT_EQ(cacheRows(decoder(60, 8), "ring_cache"), (Rows{512, 512}));
  EXPECT_EQ(cacheRows(decoder(60, 8), "rope_cache_write"), (Rows{512, 512})) << "written by an index";
  GraphBuilder b = decoder(60, 8);
  ASSERT_TRUE(runPasses(b.graph).ok());
  const std::vector<RingCache> rings = ringCaches(b.graph);
  ASSERT_EQ(rings.size(), 1u);
  EXPECT_EQ((std::vector<int64_t>{rings[0].rows, rings[0].positions, rings[0].window}), (Rows{128, 512, 60}));
  EXPECT_EQ(b.graph.value(rings[0].start).name, "start");
}

TEST(Pipeline, CachesThatOthersReadAreNoRings) {
  using Change = void (*)(GraphBuilder&, ValueId cache);
  const Change changes[] = {
      [](GraphBuilder& b, ValueId cache) {
        b.output(b.binary("add", cache, cache, "twice", {1, 2, 512, 8}));
      },
      [](GraphBuilder& b, ValueId cache) { b.graph.value(cache).literal.resize(2 * 512 * 8 * 4); }};
  for (const Change change : changes) {
    GraphBuilder b = testing::decoder(1, 60, 4, 2, false, 512, 8);
    for (size_t v = 0; v < b.graph.values.size(); ++v) {
      if (b.graph.values[v].name != "0.vc") continue;
      change(b, ValueId(v));
      break;
    }
    EXPECT_EQ(cacheRows(b), (std::vector<int64_t>{512, 512}));
  }
}

// Heads of one are swapped by no permute: canonicalise made an alias of it.
TEST(Pipeline, OneHeadIsFusedToo) {
  const auto shape = [](int heads, int kv_heads) {
    GraphBuilder b = testing::decoder(1, 0, heads, kv_heads);
    EXPECT_TRUE(runPasses(b.graph).ok());
    std::string ops;
    for (const Node& n : b.graph.nodes) ops += n.op + "\n";
    return ops;
  };
  const std::string usual = shape(4, 2);
  EXPECT_EQ(shape(4, 1), usual);
  EXPECT_EQ(shape(1, 1), usual);
}

TEST(Pipeline, ValidWithAnyPassDisabled) {
  std::vector<std::string> disabled{"", "all"};
  for (const Pass& pass : passTable()) disabled.emplace_back(pass.name);
  for (const std::string& names : disabled) {
    for (const int window : {0, 5}) {
      GraphBuilder b = testing::decoder(2, window);
      const Status status = runPasses(b.graph, names);
      EXPECT_TRUE(status.ok()) << "without " << names << ": " << status.message() << "\n" << toText(b.graph);
      EXPECT_TRUE(b.graph.mutations.empty());
    }
  }
}

/// The decoder's text after the attention passes, with one thing changed.
std::string attentionWith(void (*change)(GraphBuilder&)) {
  GraphBuilder b = testing::decoder(1);
  change(b);
  rewrite(b.graph, {canonicalise, stateMutations, fuseCachedAttention, fuseRopeCacheWrite});
  return nodesText(b.graph);
}
Node& nodeNamed(GraphBuilder& b, std::string_view name) {
  for (Node& n : b.graph.nodes) {
    if (n.name == name) return n;
  }
  ADD_FAILURE() << "no node " << name;
  return b.graph.nodes[0];
}
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(CachedAttention, MatchesOnlyTheCausalMask) {
  EXPECT_TRUE(contains(attentionWith([](GraphBuilder&) {}), "cached_attention"));
  // j < p, keys from 1, positions from start + 1, is_causal: something else each
  EXPECT_FALSE(
      contains(attentionWith([](GraphBuilder& b) { nodeNamed(b, "mask").op = "aten.lt.Tensor"; }), "cached_attention"));
  EXPECT_FALSE(
      contains(attentionWith([](GraphBuilder& b) { nodeNamed(b, "keys").args[0] = b.i(1); }), "cached_attention"));
  EXPECT_FALSE(
      contains(attentionWith([](GraphBuilder& b) { nodeNamed(b, "steps").args[2] = b.i(2); }), "cached_attention"));
  EXPECT_FALSE(
      contains(attentionWith([](GraphBuilder& b) { nodeNamed(b, "0.sdpa").args[5] = true; }), "cached_attention"));
  EXPECT_FALSE(
      contains(attentionWith([](GraphBuilder& b) { nodeNamed(b, "pos").args[2] = b.i(2); }), "cached_attention"));
  // start + s >= j is the same mask
  EXPECT_TRUE(contains(attentionWith([](GraphBuilder& b) {
                         Node& n = nodeNamed(b, "mask");
                         n.op = "aten.ge.Tensor";
                         std::swap(n.args[0], n.args[1]);
                       }),
                       "cached_attention"));
}

TEST(RopeCacheWrite, MatchesOnlyTheHalfRotation) {
  EXPECT_TRUE(contains(attentionWith([](GraphBuilder&) {}), "rope_cache_write"));
  const auto fallback = [](void (*change)(GraphBuilder&)) {
    const std::string text = attentionWith(change);
    EXPECT_FALSE(contains(text, "rope_cache_write")) << text;
    EXPECT_TRUE(contains(text, "state_index_put")) << text;
    EXPECT_TRUE(contains(text, "cached_attention")) << text;
  };
  fallback([](GraphBuilder& b) { nodeNamed(b, "0.qh").op = "aten.sub.Tensor"; });
  fallback([](GraphBuilder& b) { nodeNamed(b, "0.kl").op = "aten.add.Tensor"; });
  fallback([](GraphBuilder& b) { std::swap(nodeNamed(b, "0.qac").args, nodeNamed(b, "0.qas").args); });
  fallback([](GraphBuilder& b) { std::swap(nodeNamed(b, "cos").args, nodeNamed(b, "sin").args); });
  fallback([](GraphBuilder& b) { nodeNamed(b, "0.kl").args[2] = b.i(2); });
}

TEST(RopeCacheWrite, TakesTheNormsOfTheHeads) {
  for (const int heads : {4, 1}) {
    GraphBuilder b = testing::decoder(1, 0, heads, heads == 1 ? 1 : 2, true);
    ASSERT_TRUE(runPasses(b.graph).ok());
    const std::string text = nodesText(b.graph);
    EXPECT_TRUE(contains(text, "etwgpu.qkv_cache_write")) << text;
    EXPECT_TRUE(contains(text, "0.qn.w, 0.kn.w, 1e-05)")) << text;
    EXPECT_FALSE(contains(text, "rms_norm")) << text;
  }
}

TEST(RopeCacheWrite, CatWhereWeightsDoNotJoin) {
  const std::string text = attentionWith([](GraphBuilder& b) {  // the weight of k has a second user
    const ValueId w = std::get<ValueId>(nodeNamed(b, "0.k").args[1]);
    b.output(b.node("aten.neg.default", {w}, "other", {16, 16}));
  });
  EXPECT_TRUE(contains(text, "0.q+0.k+0.v: f32[1, s, 64] = aten.cat.default([0.q, 0.k, 0.v], 2)")) << text;
  EXPECT_TRUE(contains(text, "rope_cache_write")) << text;
}

TEST(RopeCacheWrite, NotWhereAKeyHeadIsReadElsewhere) {
  GraphBuilder b = testing::decoder(1, 0, 4, 1);
  b.output(b.node("aten.neg.default", {std::get<ValueId>(nodeNamed(b, "0.kp").args[0])}, "other",
                  {1, b.graph.value(nodeNamed(b, "0.kp").outputs[0]).dims[2], 1, 8}));
  rewrite(b.graph, {canonicalise, stateMutations, fuseCachedAttention, fuseRopeCacheWrite});
  EXPECT_FALSE(contains(nodesText(b.graph), "rope_cache_write")) << nodesText(b.graph);
}

/// Operators of the decoder after all passes but `pointwise`, with one thing changed before the pass `decoder`.
std::string decoderOps(void (*change)(GraphBuilder&)) {
  GraphBuilder b = testing::decoder(1);
  rewrite(b.graph, {canonicalise, stateMutations, fuseCachedAttention, fuseRopeCacheWrite, fuseLinear});
  change(b);
  rewrite(b.graph, {fuseDecoder});
  return nodesText(b.graph);
}
Node& nodeOf(GraphBuilder& b, std::string_view op) {
  for (Node& n : b.graph.nodes) {
    if (n.op == op) return n;
  }
  ADD_FAILURE() << "no " << op;
  return b.graph.nodes[0];
}

TEST(Decoder, KeepsWhatIsUsedTwiceOrActivated) {
  const std::string usual = decoderOps([](GraphBuilder&) {});
  EXPECT_TRUE(contains(usual, "qkv_cache_write") && contains(usual, "attention_linear")) << usual;
  const std::string read = decoderOps([](GraphBuilder& b) {
    b.output(std::get<ValueId>(nodeOf(b, kRopeCacheWrite).args[kRopeQkv]));
    b.output(nodeOf(b, kCachedAttention).outputs[0]);
  });
  EXPECT_FALSE(contains(read, "qkv_cache_write") || contains(read, "attention_linear")) << read;
  const std::string activated = decoderOps([](GraphBuilder& b) {
    const ValueId qkv = std::get<ValueId>(nodeOf(b, kRopeCacheWrite).args[kRopeQkv]);
    const ValueId y = b.graph.storage(nodeOf(b, kCachedAttention).outputs[0]);
    for (Node& n : b.graph.nodes) {
      const bool first = n.outputs[0] == qkv,
                 last = n.op == kFusedLinear && b.graph.storage(std::get<ValueId>(n.args[0])) == y;
      if (first || last) n.args[kLinearActivation] = std::string("relu");
    }
  });
  EXPECT_FALSE(contains(activated, "qkv_cache_write") || contains(activated, "attention_linear")) << activated;
}

// The attention moves to the place of the linear: not past a write of its cache.
TEST(Decoder, DoesNotMoveAReadPastAWrite) {
  const std::string text = decoderOps([](GraphBuilder& b) {
    const Node& attention = nodeOf(b, kCachedAttention);
    Node copy;
    copy.op = std::string(kStateCopy);
    copy.name = "copy";
    const ValueId other = b.value("other", DType::f32, {1}, ValueKind::constant);
    b.graph.value(other).dims = b.graph.value(std::get<ValueId>(attention.args[kAttentionKCache])).dims;
    b.graph.value(other).pieces = {{"other", 0, b.graph.maxBytes(other)}};
    copy.args = {attention.args[kAttentionKCache], other};
    size_t at = 0;
    while (b.graph.nodes[at].op != kCachedAttention) ++at;
    b.graph.nodes.insert(b.graph.nodes.begin() + long(at) + 1, std::move(copy));
  });
  EXPECT_FALSE(contains(text, "attention_linear")) << text;
}

TEST(Linear, ActivationAndResidual) {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, 9, 0, 0);
  const ValueId x = b.input("x", DType::f32, {s, 8});
  const ValueId z = b.linear(x, b.constant("w", {8, 8}), "z", {s, 8});
  const ValueId a = b.node("aten.gelu.default", {z, std::string("tanh")}, "a", {s, 8});
  b.output(b.binary("add", x, a, "y", {s, 8}));
  rewrite(b.graph, {fuseLinear});
  EXPECT_EQ(nodesText(b.graph),
            "y: f32[s, 8] = etwgpu.linear(x, w, None, x, false, None, 0.0, \"gelu_tanh\", false)\nreturn y\n");
}

TEST(Linear, KeepsWhatIsUsedTwiceOrBroadcast) {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, 9, 0, 0);
  const ValueId x = b.input("x", DType::f32, {s, 8}), row = b.input("row", DType::f32, {8});
  const ValueId n = b.rmsNorm(x, b.constant("n.w", {8}), 8, "n", {s, 8});
  const ValueId z = b.linear(n, b.constant("w", {8, 8}), "z", {s, 8});
  const ValueId a = b.node("aten.relu.default", {z}, "a", {s, 8});
  const ValueId other = b.linear(a, b.constant("v", {8, 8}), "other", {s, 8});
  b.output(b.binary("add", other, row, "broadcast", {s, 8}));
  b.output(b.binary("add", z, n, "y", {s, 8}));
  rewrite(b.graph, {fuseLinear});
  EXPECT_EQ(nodesText(b.graph),
            "n: f32[s, 8] = aten.rms_norm.default(x, [8], n.w, 1e-05)\n"
            "z: f32[s, 8] = etwgpu.linear(n, w, None, None, false, None, 0.0, \"none\", false)\n"
            "a: f32[s, 8] = aten.relu.default(z)\n"
            "other: f32[s, 8] = etwgpu.linear(a, v, None, None, false, None, 0.0, \"none\", false)\n"
            "broadcast: f32[s, 8] = aten.add.Tensor(other, row, 1)\n"
            "y: f32[s, 8] = aten.add.Tensor(z, n, 1)\n"
            "return broadcast, y\n");
}

TEST(Linear, ReadsOneRowWhereItLies) {
  const auto text = [](int dim, int row, bool twice) {
    GraphBuilder b;
    const ExprId s = b.symbol("s", 1, 9, 0, 1);
    const ValueId x = b.input("x", DType::f32, {1, s, 8});
    const ValueId one = b.node("aten.select_copy.int", {x, b.i(dim), b.i(row)}, "one", {1, 8});
    b.output(b.linear(one, b.constant("w", {4, 8}), "y", {1, 4}));
    if (twice) b.output(one);
    EXPECT_TRUE(fuseLinear(b.graph).ok());
    EXPECT_TRUE(verify(b.graph).ok());
    return nodesText(b.graph);
  };
  EXPECT_TRUE(contains(text(1, -1, false), "linear(x, w, None, None, false, None, 0.0, \"none\", false, s - 1)"));
  EXPECT_TRUE(contains(text(-2, 0, false), "linear(x, w, None, None, false, None, 0.0, \"none\", false, 0)"));
  EXPECT_TRUE(contains(text(1, -1, true), "linear(one, w, None"));
}

TEST(Linear, GluJoinsQuantisedWeights) {
  const auto build = [](int rows, int up_group) {
    GraphBuilder b;
    const ValueId x = b.input("x", DType::f32, {1, 64});
    const auto weight = [&](const char* name, int group) {
      const ValueId w = b.value(name, DType::f32, {rows, 64}, ValueKind::constant);
      const auto words = uint64_t(rows) * 32, constants = uint64_t(rows) * 4 * (64 / uint64_t(group));
      b.graph.value(w).pieces = {{name, 0, words}};
      b.graph.value(w).constants_pieces = {{name, words, constants}};
      b.graph.value(w).quantization = {4, group, false, words};
      return w;
    };
    const ValueId gate = b.linear(x, weight("g", 32), "gate", {1, rows});
    const ValueId up = b.linear(x, weight("u", up_group), "up", {1, rows});
    b.output(b.binary("mul", up, b.node("aten.silu.default", {gate}, "act", {1, rows}), "y", {1, rows}));
    rewrite(b.graph, {fuseLinear});
    return b;
  };
  const GraphBuilder b = build(24, 32);
  EXPECT_EQ(nodesText(b.graph),
            "y: f32[1, 24] = etwgpu.linear(x, g+u, None, None, false, None, 0.0, \"silu\", true)\nreturn y\n");
  for (const Value& v : b.graph.values) {
    if (v.name != "g+u") continue;
    EXPECT_EQ(v.pieces, (std::vector<ConstantPiece>{{"g", 0, 768}, {"u", 0, 768}}));
    EXPECT_EQ(v.constants_pieces, (std::vector<ConstantPiece>{{"g", 768, 192}, {"u", 768, 192}}));
    EXPECT_EQ(v.quantization, (Quantization{4, 32, false, 1536}));
  }
  // rows that fill no block of 8, other groups: gate and up stay apart
  EXPECT_TRUE(contains(nodesText(build(20, 32).graph), "aten.mul.Tensor"));
  EXPECT_TRUE(contains(nodesText(build(24, 64).graph), "aten.mul.Tensor"));
}

TEST(Convolution, ActivationThenResidual) {
  GraphBuilder b;
  const ExprId n = b.symbol("n", 1, 4, 0, 0);
  const Dims dims{n, 4, 5, 5};
  const ValueId x = b.input("x", DType::f32, dims);
  const auto conv = [&](ValueId in, const char* name) {
    return b.node("aten.convolution.default",
                  {in, b.constant(std::string(name) + ".w", {4, 4, 3, 3}), std::monostate{}, b.is({1, 1}), b.is({1, 1}),
                   b.is({1, 1}), false, b.is({0, 0}), b.i(1)},
                  name, dims);
  };
  const ValueId a = b.node("aten.hardtanh.default", {conv(x, "c1"), 0.0, 6.0}, "a", dims);
  const ValueId c = b.node("aten.hardswish.default", {conv(a, "c2")}, "h", dims);
  b.output(b.binary("add", c, a, "y", dims));
  b.output(b.node("aten.hardtanh.default", {conv(x, "c3"), -1.0, 6.0}, "other", dims));
  rewrite(b.graph, {fuseConvolution});
  EXPECT_EQ(nodesText(b.graph),
            "a: f32[n, 4, 5, 5] = etwgpu.convolution(x, c1.w, None, [1, 1], [1, 1], [1, 1], false, [0, 0], 1, "
            "\"relu6\", None)\n"
            "y: f32[n, 4, 5, 5] = etwgpu.convolution(a, c2.w, None, [1, 1], [1, 1], [1, 1], false, [0, 0], 1, "
            "\"hardswish\", a)\n"
            "c3: f32[n, 4, 5, 5] = etwgpu.convolution(x, c3.w, None, [1, 1], [1, 1], [1, 1], false, [0, 0], 1, "
            "\"none\", None)\n"
            "other: f32[n, 4, 5, 5] = aten.hardtanh.default(c3, -1.0, 6.0)\n"
            "return y, other\n");
}

TEST(Pointwise, LayoutIsStrides) {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, 9, 0, 0);
  const ValueId x = b.input("x", DType::f32, {s, 6}), y = b.input("y", DType::f32, {6, s});
  const ValueId t = b.node("aten.permute_copy.default", {y, b.is({1, 0})}, "t", {s, 6});
  const ValueId sum = b.binary("add", x, t, "sum", {s, 6});
  const ValueId cut = b.node("aten.slice_copy.Tensor", {sum, b.i(1), b.i(2), b.i(6), b.i(2)}, "cut", {s, 2});
  b.output(b.node("aten.exp.default", {cut}, "out", {s, 2}));
  rewrite(b.graph, {lowerPointwise, mergePointwise});
  // the step 2 of the slice is no dimension of the sum, so that one stays
  EXPECT_EQ(nodesText(b.graph),
            "sum: f32[s, 6] = etwgpu.pointwise(x@[6, 1], y@[1, s] -> %0=load in0; %1=load in1; %2=add %0 %1)\n"
            "out: f32[s, 2] = etwgpu.pointwise(sum@2+[6, 2] -> %0=load in0; %1=exp %0)\n"
            "return out\n");
}

TEST(Pointwise, SlicesAndSelectsCompose) {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 2, 9, 0, 0);
  const ValueId x = b.input("x", DType::f32, {s, 6}), bias = b.input("bias", DType::f32, {6});
  const ValueId sum = b.binary("add", x, bias, "sum", {s, 6});
  const ValueId half = b.node("aten.slice_copy.Tensor", {sum, b.i(1), b.i(3), b.i(6), b.i(1)}, "half", {s, 3});
  const ValueId last = b.node("aten.select_copy.int", {half, b.i(0), b.i(-1)}, "last", {3});
  b.output(b.node("aten.exp.default", {last}, "out", {3}));
  rewrite(b.graph, {lowerPointwise, mergePointwise});
  EXPECT_EQ(nodesText(b.graph),
            "out: f32[3] = etwgpu.pointwise(x@(s - 1) * 6 + 3+[1], bias@3+[1] -> "
            "%0=load in0; %1=load in1; %2=add %0 %1; %3=exp %2)\n"
            "return out\n");
}

TEST(Pointwise, MaskIsOneKernelWithoutInputsButStart) {
  GraphBuilder b = testing::decoder(1, 5);
  b.graph.outputs.clear();
  for (const Node& n : b.graph.nodes) {
    if (n.name == "both") b.output(n.outputs[0]);
  }
  b.graph.mutations.clear();
  ASSERT_TRUE(runPasses(b.graph).ok());
  EXPECT_EQ(nodesText(b.graph),
            "both: bool[s, 16] = etwgpu.pointwise(start@[0, 0] -> %0=iota d1; %1=iota d0; %2=load in0; %3=add %1 %2; "
            "%4=le %0 %3; %5=constant 5.0; %6=sub %3 %5; %7=gt %0 %6; %8=logical_and %4 %7)\n"
            "return both\n");
}

TEST(Pointwise, KeepsWhatSeveralNodesUse) {
  GraphBuilder b;
  const ValueId x = b.input("x", DType::f32, {6});
  const ValueId e = b.node("aten.exp.default", {x}, "e", {6});
  b.output(b.node("aten.neg.default", {e}, "a", {6}));
  b.output(b.node("aten.abs.default", {e}, "b", {6}));
  rewrite(b.graph, {lowerPointwise, mergePointwise});
  EXPECT_EQ(b.graph.nodes.size(), 3u) << toText(b.graph);
}

TEST(Pointwise, DoesNotReadAStatePastItsWrite) {
  GraphBuilder b = cacheWrite(false);
  const ValueId cache = b.graph.mutations[0].state;
  // reads the old content before the write, is used after it
  Node old{
      "aten.neg.default", {cache}, {b.value("old", DType::f32, {2, 8, 3}, ValueKind::intermediate)}, "old", nullptr};
  b.graph.nodes.insert(b.graph.nodes.begin(), old);
  b.output(b.node("aten.exp.default", {old.outputs[0]}, "late", {2, 8, 3}));
  ASSERT_TRUE(runPasses(b.graph).ok());
  EXPECT_EQ(nodesText(b.graph),
            "old: f32[2, 8, 3] = etwgpu.pointwise(cache@[24, 3, 1] -> %0=load in0; %1=neg %0)\n"
            "etwgpu.state_index_put(cache, 1, at, x)\n"
            "new: f32[2, 8, 3] = etwgpu.pointwise(put@[24, 3, 1] -> %0=load in0; %1=exp %0)\n"
            "late: f32[2, 8, 3] = etwgpu.pointwise(old@[24, 3, 1] -> %0=load in0; %1=exp %0)\n"
            "return new, late\n");
}

TEST(Pointwise, AtMostSixInputs) {
  GraphBuilder b;
  ValueId sum = b.input("x0", DType::f32, {6});
  for (int i = 1; i < 9; ++i) {
    sum = b.binary("add", sum, b.input("x" + std::to_string(i), DType::f32, {6}), "s" + std::to_string(i), {6});
  }
  b.output(sum);
  rewrite(b.graph, {lowerPointwise, mergePointwise});
  EXPECT_EQ(b.graph.nodes.size(), 2u) << toText(b.graph);
  for (const Node& n : b.graph.nodes) EXPECT_LE(n.args.size(), 6u);
}

TEST(Pointwise, SymbolicScalarStays) {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, 9, 0, 0);
  const ValueId x = b.input("x", DType::f32, {s});
  b.output(b.node("aten.mul.Scalar", {x, b.i(s)}, "y", {s}));
  rewrite(b.graph, {lowerPointwise, mergePointwise});
  EXPECT_EQ(nodesText(b.graph), "y: f32[s] = aten.mul.Scalar(x, s)\nreturn y\n");
}

}  // namespace
}  // namespace etwgpu
