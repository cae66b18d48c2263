// The memory plan, checked by properties: lifetimes are computed again here, in the slow and obvious way.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/graph/plan.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu {
namespace {

using testing::Dims;
using testing::GraphBuilder;

std::vector<ValueId> tensorsOf(const Node& n) {
  std::vector<ValueId> all;
  for (const Arg& a : n.args) {
    if (const auto* v = std::get_if<ValueId>(&a)) all.push_back(*v);
    if (const auto* l = std::get_if<std::vector<ValueId>>(&a)) all.insert(all.end(), l->begin(), l->end());
  }
  return all;
}

struct Life {
  int first = INT32_MAX, last = -2;
  void at(int i) { first = std::min(first, i), last = std::max(last, i); }
};

std::vector<Life> lifetimes(const Graph& g, const std::vector<ScratchUse>& scratch) {
  std::vector<Life> lives(g.values.size());
  for (const GraphInput& in : g.inputs) lives[size_t(in.value)].at(-1);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    for (ValueId v : tensorsOf(g.nodes[i])) lives[size_t(g.storage(v))].at(int(i));
    for (ValueId v : g.nodes[i].outputs) lives[size_t(v)].at(int(i));
  }
  for (const ScratchUse& s : scratch) lives[size_t(s.value)].at(s.node);
  for (const GraphOutput& o : g.outputs) lives[size_t(g.storage(o.value))].at(int(g.nodes.size()));
  return lives;
}

void check(const Graph& g, const std::vector<ScratchUse>& scratch, const PlanOptions& options) {
  const auto plan = planMemory(g, scratch, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto lives = lifetimes(g, scratch);
  const auto& p = plan->placements;
  ASSERT_EQ(p.size(), g.values.size());
  uint64_t total = 0;
  for (uint64_t bytes : plan->arena_bytes) {
    total += bytes;
    EXPECT_LE(bytes, options.max_arena_bytes);
  }
  EXPECT_LE(total, plan->sum_of_values);
  for (size_t a = 0; a < p.size(); ++a) {
    const ValueKind kind = g.values[a].kind;
    if (g.values[a].alias_of != kNoValue) {
      EXPECT_EQ(p[a].offset, p[size_t(g.storage(ValueId(a)))].offset);
      continue;
    }
    if (kind == ValueKind::constant || kind == ValueKind::state || lives[a].last < -1) {
      EXPECT_EQ(p[a].arena, -1) << g.values[a].name;
      continue;
    }
    ASSERT_GE(p[a].arena, 0) << g.values[a].name;
    EXPECT_EQ(p[a].offset % options.alignment, 0u);
    EXPECT_EQ(p[a].size, g.maxBytes(ValueId(a)));
    EXPECT_LE(p[a].offset + p[a].size, plan->arena_bytes[size_t(p[a].arena)]);
    for (size_t b = 0; b < a; ++b) {
      if (g.values[b].alias_of != kNoValue || p[b].arena != p[a].arena) continue;
      const bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
      const bool apart = p[a].offset + p[a].size <= p[b].offset || p[b].offset + p[b].size <= p[a].offset;
      EXPECT_TRUE(!together || apart) << g.values[a].name << " and " << g.values[b].name << "\n" << toText(g);
    }
  }
  if (!options.separate_outputs) return;
  const auto separate = [&](ValueId written, int node) {
    for (ValueId in : tensorsOf(g.nodes[size_t(node)])) {
      const int arena = p[size_t(g.storage(in))].arena;
      EXPECT_TRUE(arena < 0 || arena != p[size_t(written)].arena)
          << g.value(written).name << " lies with its input " << g.value(in).name << "\n"
          << toText(g);
    }
  };
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    for (ValueId v : g.nodes[i].outputs) separate(v, int(i));
  }
  for (const ScratchUse& s : scratch) separate(s.value, s.node);
}

TEST(MemoryPlan, RandomGraphs) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 rng(seed);
    const auto in = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    GraphBuilder b;
    const ExprId s = b.symbol("s", 1, 9, 0, 0);
    std::vector<ValueId> values;
    for (int i = 0; i < in(1, 3); ++i) values.push_back(b.input("in" + std::to_string(i), DType::f32, {s, in(1, 200)}));
    std::vector<ScratchUse> scratch;
    for (int i = 0; i < in(1, 40); ++i) {
      std::vector<Arg> args;
      for (int a = 0; a < in(1, 4); ++a)
        args.push_back(values[size_t(std::max<int>(0, int(values.size()) - in(1, 8)))]);
      values.push_back(b.node("op", args, "v" + std::to_string(i), {s, in(0, 300)}));
      if (in(0, 4) == 0) {
        scratch.push_back(
            {b.value("scratch" + std::to_string(i), DType::f32, {in(1, 500)}, ValueKind::intermediate), i});
      }
      if (in(0, 4) == 0) {
        const ValueId of = values.back(),
                      alias = b.value("alias" + std::to_string(i), DType::f32, {}, ValueKind::intermediate);
        b.graph.value(alias).dims = b.graph.value(of).dims;
        b.graph.value(alias).alias_of = of;
        values.push_back(alias);
      }
    }
    b.output(values.back());
    b.output(values[size_t(in(0, int(values.size()) - 1))]);
    ASSERT_TRUE(verify(b.graph).ok());
    for (const bool separate : {false, true}) {
      PlanOptions options;
      options.separate_outputs = separate;
      check(b.graph, scratch, options);
      options.max_arena_bytes = 16384;  // several arenas; the largest value has 10,800 bytes
      check(b.graph, scratch, options);
    }
    if (HasFailure()) return;
  }
}

TEST(MemoryPlan, ChainReusesTwoBuffers) {
  for (const bool separate : {false, true}) {
    GraphBuilder b;
    ValueId x = b.input("x", DType::f32, {256});
    for (int i = 0; i < 20; ++i) x = b.node("aten.relu.default", {x}, "r" + std::to_string(i), {256});
    b.output(x);
    PlanOptions options;
    options.separate_outputs = separate;
    check(b.graph, {}, options);
    const auto plan = planMemory(b.graph, {}, options);
    EXPECT_EQ(plan->arena_bytes.size(), separate ? 2u : 1u);
    uint64_t total = 0;
    for (uint64_t bytes : plan->arena_bytes) total += bytes;
    EXPECT_EQ(total, 2048u);
  }
}

TEST(MemoryPlan, DecoderNeedsFewArenas) {
  GraphBuilder b = testing::decoder(8);
  ASSERT_TRUE(runPasses(b.graph).ok());
  PlanOptions options;
  options.separate_outputs = true;
  check(b.graph, {}, options);
  const auto plan = planMemory(b.graph, {}, options);
  EXPECT_LE(plan->arena_bytes.size(), 4u);
  uint64_t total = 0;
  for (uint64_t bytes : plan->arena_bytes) total += bytes;
  EXPECT_LE(total * 2, plan->sum_of_values);  // the project's bound
}

TEST(MemoryPlan, ValueLargerThanABuffer) {
  GraphBuilder b;
  const ValueId x = b.input("x", DType::f32, {4});
  b.output(b.node("aten.expand_copy.default", {x, b.is({1000, 4})}, "wide", {1000, 4}));
  PlanOptions options;
  options.max_arena_bytes = 15999;
  const auto plan = planMemory(b.graph, {}, options);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().code(), Code::limit_exceeded);
  EXPECT_NE(plan.status().message().find("wide"), std::string::npos);
  EXPECT_NE(plan.status().message().find("16000"), std::string::npos);
  options.max_arena_bytes = 16384;
  EXPECT_TRUE(planMemory(b.graph, {}, options).ok());
}

}  // namespace
}  // namespace etwgpu
