// Import: what is written is read again, what is broken is refused by name. Deleting this lets a bad file reach the
// kernels.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "runtime/graph/plan.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu {
namespace {

using testing::BuilderSizes;
using testing::GraphBuilder;
using testing::serialize;

Result<Graph> import(const GraphBuilder& b, uint32_t version = 1) {
  return importGraph(serialize(b.graph, version), BuilderSizes(b));
}

GraphBuilder small() {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, 9, 0, 0);
  const ValueId x = b.input("x", DType::f32, {s, 4});
  const ValueId w = b.constant("w", {8, 4});
  const ValueId state = b.state("state", {8, 4});
  const ValueId y = b.linear(x, w, "y", {s, 8});
  b.mutate(state, b.node("aten.mul.Scalar", {state, 0.5}, "decayed", {8, 4}));
  b.output(b.node("aten.cat.default", {std::vector<ValueId>{y, y}, b.i(1)}, "z", {s, 16}));
  return b;
}

TEST(Import, RoundTrip) {
  for (const GraphBuilder& b : {small(), testing::decoder(2, 5)}) {
    const auto g = import(b);
    ASSERT_TRUE(g.ok()) << g.status().message();
    EXPECT_EQ(toText(*g), toText(b.graph));
    EXPECT_EQ(g->symbols.size(), 1u);
  }
}

TEST(Import, EveryKindOfArgument) {
  GraphBuilder b;
  const ValueId x = b.input("x", DType::i64, {2});
  const std::vector<Arg> args{std::monostate{},
                              x,
                              std::vector<ValueId>{x, kNoValue},
                              b.i(-3),
                              b.is({4, 5}),
                              0.25,
                              std::vector<double>{1, -2},
                              true,
                              std::vector<bool>{true, false},
                              std::string("text"),
                              DType::f16};
  b.output(b.node("test.op", args, "y", {2}, DType::boolean));
  const auto g = import(b);
  ASSERT_TRUE(g.ok()) << g.status().message();
  EXPECT_EQ(g->nodes[0].args, args);
}

TEST(Import, Quantised) {
  const auto with = [](int bits, int group, bool symmetric, uint64_t offset, uint64_t size) {
    GraphBuilder b;
    const ValueId x = b.input("x", DType::f32, {1, 64}), w = b.value("w", DType::f32, {12, 64}, ValueKind::constant);
    b.graph.value(w).pieces.push_back({"w", 0, size});
    b.graph.value(w).quantization = {bits, group, symmetric, offset};
    b.data["w"].resize(size);
    b.output(b.linear(x, w, "y", {1, 12}));
    return import(b);
  };
  // 12 rows are padded to 16: 512 bytes of words, 16 · 2 groups · 4 bytes of scales and minima
  const auto g = with(4, 32, false, 512, 640);
  ASSERT_TRUE(g.ok()) << g.status().message();
  const Value& w = g->value(1);
  EXPECT_EQ(w.pieces, (std::vector<ConstantPiece>{{"w", 0, 512}}));
  EXPECT_EQ(w.constants_pieces, (std::vector<ConstantPiece>{{"w", 512, 128}}));
  EXPECT_TRUE(with(4, 32, true, 512, 576).ok());
  EXPECT_TRUE(with(8, 0, true, 1024, 1088).ok());
  EXPECT_FALSE(with(4, 32, false, 512, 639).ok());   // too short
  EXPECT_FALSE(with(4, 32, false, 256, 640).ok());   // planes overlap
  EXPECT_FALSE(with(4, 32, false, 520, 648).ok());   // not aligned
  EXPECT_FALSE(with(4, 48, false, 512, 4096).ok());  // K is no multiple of the group
  EXPECT_FALSE(with(3, 32, false, 512, 4096).ok());
  EXPECT_FALSE(with(4, 0, false, 512, 4096).ok());
  EXPECT_FALSE(with(4, 32, false, ~uint64_t(255), 640).ok());
}

TEST(Import, RefusesNewerVersionWithBothNumbers) {
  const auto g = import(small(), 7);
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.status().code(), Code::unsupported_version);
  EXPECT_EQ(g.status().message(), "payload version 7, this runtime reads up to 1");
}

TEST(Import, MissingDataNamesTheWeight) {
  GraphBuilder b = small();
  b.data.erase("w");
  const auto g = import(b);
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.status().code(), Code::data_missing);
  EXPECT_NE(g.status().message().find("w"), std::string::npos);
}

struct Bad {
  const char* name;
  std::function<void(GraphBuilder&)> damage;
  const char* message;  // part of it
};
class ImportBad : public ::testing::TestWithParam<Bad> {};
TEST_P(ImportBad, IsRefused) {
  GraphBuilder b = small();
  ASSERT_TRUE(import(b).ok()) << "the undamaged twin must be read";
  GetParam().damage(b);
  const auto g = import(b);
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.status().code(), Code::invalid_program) << g.status().message();
  EXPECT_NE(g.status().message().find(GetParam().message), std::string::npos) << g.status().message();
}
INSTANTIATE_TEST_SUITE_P(
    All, ImportBad,
    ::testing::Values(
        Bad{"argument", [](GraphBuilder& b) { b.graph.nodes[0].args[0] = ValueId(99); }, "value 99 of"},
        Bad{"negative", [](GraphBuilder& b) { b.graph.nodes[0].args[0] = ValueId(-2); }, "value -2 of"},
        Bad{"expression", [](GraphBuilder& b) { b.graph.value(0).dims[0] = ExprId{1000}; }, "expression 1000 of"},
        Bad{"output", [](GraphBuilder& b) { b.graph.nodes[0].outputs[0] = 99; }, "value 99 of"},
        Bad{"order", [](GraphBuilder& b) { std::swap(b.graph.nodes[0], b.graph.nodes[2]); }, "before it is defined"},
        Bad{"twice", [](GraphBuilder& b) { b.graph.nodes[1].outputs = b.graph.nodes[0].outputs; }, "defined already"},
        Bad{"writesInput", [](GraphBuilder& b) { b.graph.nodes[0].outputs[0] = 0; }, "no intermediate"},
        Bad{"rank", [](GraphBuilder& b) { b.graph.value(0).dims.assign(9, b.expr(1)); }, "rank 9"},
        Bad{"dtype", [](GraphBuilder& b) { b.graph.value(0).dtype = DType(9); }, "dtype 9"},
        Bad{"kind", [](GraphBuilder& b) { b.graph.value(0).kind = ValueKind(77); }, "kind 77"},
        Bad{"negativeDim", [](GraphBuilder& b) { b.graph.value(0).dims[1] = b.expr(-4); }, "negative"},
        Bad{"overflow", [](GraphBuilder& b) { b.graph.value(0).dims.assign(3, b.expr(int64_t(1) << 31)); },
            "too large"},
        Bad{"largest", [](GraphBuilder& b) { b.graph.value(0).dims.assign(8, b.expr(INT64_MAX)); }, "too large"},
        Bad{"weightSize", [](GraphBuilder& b) { b.data["w"].resize(127); }, "127 bytes, its shape needs 128"},
        Bad{"dynamicWeight", [](GraphBuilder& b) { b.graph.value(1).dims[0] = b.graph.exprs.symbol(0); }, "dynamic"},
        Bad{"symbolInput", [](GraphBuilder& b) { b.graph.symbols[0].input = 3; }, "input 3 of 1"},
        Bad{"symbolDim", [](GraphBuilder& b) { b.graph.symbols[0].dim = 2; }, "no dimension 2"},
        Bad{"symbolInt", [](GraphBuilder& b) { b.graph.symbols[0].dim = -1; }, "is a tensor"},
        Bad{"inputKind", [](GraphBuilder& b) { b.graph.inputs[0].value = 1; }, "not of kind input"},
        Bad{"inputTwice", [](GraphBuilder& b) { b.graph.inputs.push_back(b.graph.inputs[0]); }, "listed twice"},
        Bad{"noOutput", [](GraphBuilder& b) { b.graph.outputs.push_back({}); }, "neither"},
        Bad{"mutatesWeight", [](GraphBuilder& b) { b.graph.mutations[0].state = 1; }, "no state"},
        Bad{"mutationShape", [](GraphBuilder& b) { b.graph.mutations[0].value = 0; }, "differ in shape"},
        Bad{"noOperator", [](GraphBuilder& b) { b.graph.nodes[0].op.clear(); }, "no operator"},
        Bad{"fusedOperator", [](GraphBuilder& b) { b.graph.nodes[0].op = "etwgpu.linear"; }, "made by passes"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Import, RefusesForeignBytes) {
  const GraphBuilder b = small();
  const std::vector<uint8_t> good = serialize(b.graph);
  for (size_t n = 0; n < good.size(); n += 3) {
    const auto g = importGraph(std::span(good).first(n), BuilderSizes(b));
    if (!g.ok()) continue;
    EXPECT_EQ(toText(*g), toText(b.graph));  // only padding may be missing
  }
  std::vector<uint8_t> other = good;
  other[4] = 'X';
  EXPECT_EQ(importGraph(other, BuilderSizes(b)).status().code(), Code::invalid_program);
}

// What it computes then is what drafts are checked by: tests/program/test_speculation.py.
TEST(Import, LogitsOfAllPositions) {
  const GraphBuilder b = testing::decoder(1);
  const auto all = [&](const GraphBuilder& from) {
    return importGraph(serialize(from.graph), BuilderSizes(from), {.max_size = 3, .all_rows = true});
  };
  auto g = all(b);
  ASSERT_TRUE(g.ok()) << g.status().message();
  EXPECT_EQ(g->exprs.symbolBounds(0), (Bounds{1, 3}));
  const Value& logits = g->value(g->outputs[0].value);
  EXPECT_EQ(logits.dims, (std::vector<ExprId>{g->exprs.symbol(0), b.graph.value(b.graph.outputs[0].value).dims[1]}));
  EXPECT_EQ(g->nodes.size(), b.graph.nodes.size());
  ASSERT_TRUE(runPasses(*g).ok());
  EXPECT_TRUE(verify(*g).ok());

  const auto refused = [&](const GraphBuilder& from, const char* words) {
    const auto status = all(from).status();
    EXPECT_EQ(status.code(), Code::unsupported_operator);
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("--logits all"), std::string::npos);
  };
  const auto node = [](GraphBuilder& from, ValueId output) {
    return std::find_if(from.graph.nodes.begin(), from.graph.nodes.end(),
                        [&](const Node& n) { return n.outputs[0] == output; });
  };
  GraphBuilder other = b;
  other.graph.outputs.push_back(other.graph.outputs[0]);
  refused(other, "other outputs");
  other = b;
  const ValueId row = std::get<ValueId>(node(other, other.graph.outputs[0].value)->args[0]);
  node(other, row)->op = "aten.softmax.int";
  refused(other, "aten.softmax.int");
  other = b;
  const ValueId last = std::get<ValueId>(node(other, row)->args[0]);
  node(other, last)->args[2] = other.i(0);  // the first position
  refused(other, "does not select the last position");
  other = b;
  other.binary("add", last, last, "twice", {1, 16});
  refused(other, "is used elsewhere");
}

// Whatever a damaged payload still means, passes and planning neither crash nor leave an illegal graph.
TEST(Import, MutatedPayloadsAreRefusedOrValid) {
  const GraphBuilder b = testing::decoder(1, 5);
  const std::vector<uint8_t> good = serialize(b.graph);
  std::mt19937 rng(1);
  int read = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<uint8_t> bytes = good;
    for (int k = 0; k < 1 + i % 3; ++k) {
      uint8_t& at = bytes[rng() % bytes.size()];
      at = i % 2 ? uint8_t(rng()) : uint8_t(at ^ (1 << (rng() % 8)));
    }
    auto g = importGraph(bytes, BuilderSizes(b));
    if (!g.ok()) continue;
    ++read;
    const Status status = runPasses(*g);
    ASSERT_TRUE(status.ok()) << "mutation " << i << ": " << status.message() << "\n" << toText(*g);
    PlanOptions options;
    options.separate_outputs = true;
    (void)planMemory(*g, {}, options).ok();
  }
  EXPECT_GT(read, 100);   // else the test would say nothing about passes
  EXPECT_LT(read, 2900);  // nor about import
}

}  // namespace
}  // namespace etwgpu
