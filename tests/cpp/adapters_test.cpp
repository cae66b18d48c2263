// Adapters before any device sees them: JSON, safetensors, and what becomes of a graph. tests/models/test_adapters.py
// compares what runs with PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/executor/adapters.h"
#include "runtime/graph/passes/rewrite.h"
#include "runtime/program/json_value.h"
#include "runtime/program/safetensors.h"
#include "runtime/program/sources.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu::testing {
namespace {

using ::testing::HasSubstr;

TEST(Json, Reads) {
  const auto json = parseJson(R"( {"a": [1, -2.5e3, true, null], "b": {"c": "\u00e9\ud83d\ude00\n\""}, "d": 12} )");
  ASSERT_TRUE(json.ok()) << json.status().message();
  const JsonValue* a = json->find("a");
  ASSERT_TRUE(a);
  ASSERT_EQ(a->items.size(), 4u);
  EXPECT_EQ(a->items[1].number, -2500);
  EXPECT_FALSE(a->items[1].count());
  EXPECT_TRUE(a->items[2].boolean);
  EXPECT_TRUE(a->items[3].is(JsonValue::Kind::null));
  EXPECT_EQ(json->find("b")->find("c")->string, "é😀\n\"");
  EXPECT_EQ(json->find("d")->count(), 12u);
  EXPECT_EQ(json->find("e"), nullptr);
}

TEST(Json, Refuses) {
  for (const std::string text : {"", "{", "[1,]", "{\"a\":}", "{\"a\" 1}", "nul", "1 2", "\"", "\"\\x\"", "\"\\ud800\"",
                                 "+1", ".5", "1e", "--1", "\"\n\"", "{1: 2}", "[1"}) {
    EXPECT_EQ(parseJson(text).status().code(), Code::invalid_program) << text;
  }
  EXPECT_FALSE(parseJson(std::string(100000, '[')).ok());
}

std::vector<uint8_t> safetensors(const std::string& header, size_t data) {
  std::vector<uint8_t> bytes(8 + header.size() + data);
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

Result<SafeTensors> readBytes(std::vector<uint8_t> bytes) {
  const auto source = makeMemorySource("file", std::move(bytes));
  Task<Result<SafeTensors>> task = readSafeTensors(*source, 1 << 20);
  task.start();
  return task.take();
}

TEST(SafeTensors, Reads) {
  const auto file =
      readBytes(safetensors(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2],"data_offsets":[24,28]},)"
                            R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})",
                            28));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto& e = file.value().entries;
  ASSERT_EQ(e.size(), 2u);
  EXPECT_EQ(e[0].name, "a");
  EXPECT_EQ(e[0].sizes, (Sizes{2, 3}));
  EXPECT_EQ(e[1].dtype, DType::f16);
  EXPECT_EQ(e[1].range.offset, e[0].range.offset + 24);
}

TEST(SafeTensors, Refuses) {
  const auto entry = [](const std::string& fields) { return safetensors("{\"a\":{" + fields + "}}", 24); };
  for (const std::string fields :
       {R"("dtype":"F99","shape":[6],"data_offsets":[0,24])", R"("dtype":"F32","shape":[5],"data_offsets":[0,24])",
        R"("dtype":"F32","shape":[6],"data_offsets":[24,0])", R"("dtype":"F32","shape":[6],"data_offsets":[8,32])",
        R"("dtype":"F32","shape":[-6],"data_offsets":[0,24])", R"("dtype":"F32","shape":[6])",
        R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,24])"}) {
    EXPECT_EQ(readBytes(entry(fields)).status().code(), Code::invalid_program) << fields;
  }
  EXPECT_EQ(readBytes(safetensors("[1]", 0)).status().code(), Code::not_a_program);
  EXPECT_EQ(readBytes(safetensors("{", 8)).status().code(), Code::not_a_program);
  std::vector<uint8_t> cut = safetensors("{\"a\":1}", 0);
  cut.resize(12);
  EXPECT_EQ(readBytes(cut).status().code(), Code::invalid_program);
  const std::string page = "<!doctype html><title>404</title>";
  const auto html = readBytes({page.begin(), page.end()});
  EXPECT_EQ(html.status().code(), Code::not_a_program);
  EXPECT_THAT(html.status().message(), HasSubstr("HTML"));
}

/// A module of rank 2 for the decoder of graph_builder.h, whose a holds `a` and whose b holds `b`.
AdapterModule moduleOf(const std::string& path, int64_t outputs, int64_t inputs, float a, float b) {
  return {
      path, 2, inputs, outputs, std::vector<float>(size_t(2 * inputs), a), std::vector<float>(size_t(2 * outputs), b),
      {}};
}

/// The decoder, whose weights have the names that exporters give.
Graph decoderGraph() {
  GraphBuilder b = decoder(1);
  for (Value& v : b.graph.values)
    if (v.name.ends_with(".w")) v.name += "eight";
  return std::move(b.graph);
}

TEST(Adapters, FollowTheirWeightsThroughThePasses) {
  AdapterSet set;
  // In the order of the rows of the joined weight: q, k, v (32, 16, 16 rows of 16).
  ASSERT_TRUE(set.add({"x", 1, {moduleOf("model.0.q", 32, 16, 1, 2), moduleOf("model.0.v", 16, 16, 3, 4)}}, 0.5f).ok());
  ASSERT_TRUE(set.add({"y", 2, {moduleOf("0.k", 16, 16, 5, 6)}}, 1).ok());
  Graph graph = decoderGraph();
  ASSERT_TRUE(set.attach(graph).ok());
  ASSERT_TRUE(set.allFound().ok());
  EXPECT_THAT(toText(graph), HasSubstr("constant 0.v.weight: f32[16, 16] + adapter 0 on rows 0:16"));
  ASSERT_TRUE(runPasses(graph).ok());
  ASSERT_TRUE(set.pack(graph).ok());
  const Value* joined = nullptr;
  for (const Value& v : graph.values)
    if (v.low_rank) joined = &v;
  ASSERT_TRUE(joined);
  EXPECT_EQ(joined->name, "0.q.weight+0.k.weight+0.v.weight");
  const LowRank& r = *joined->low_rank;
  EXPECT_EQ(r.first_rows, (std::vector<int64_t>{0, 32, 48}));
  EXPECT_EQ(r.adapters, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(r.rank, 4);  // padded
  const auto floats = [&](ValueId id) {
    return reinterpret_cast<const float*>(set.find(graph.value(id).pieces[0].key)->source->data());
  };
  const float *a = floats(r.a), *b = floats(r.b);
  const auto at = [&](int part, int adapter, int row) { return a[((part * 2 + adapter) * 4 + row) * 16 + 7]; };
  EXPECT_EQ(at(0, 0, 1), 1);
  EXPECT_EQ(at(0, 0, 2), 0);
  EXPECT_EQ(at(0, 1, 0), 0);
  EXPECT_EQ(at(1, 1, 0), 5);
  EXPECT_EQ(at(2, 0, 0), 3);
  EXPECT_EQ(b[0 * 64 + 31], 2);  // adapter x, column 0, the last row of q
  EXPECT_EQ(b[0 * 64 + 32], 0);  // … a row of k
  EXPECT_EQ(b[1 * 64 + 63], 4);  // … of v
  EXPECT_EQ(b[4 * 64 + 40], 6);  // adapter y
  EXPECT_EQ(b[2 * 64 + 0], 0);   // padding
  EXPECT_TRUE(verify(graph).ok());
}

TEST(Adapters, ATiedEmbeddingStaysAsItIs) {
  GraphBuilder b;
  const ValueId ids = b.input("ids", DType::i64, {1, 3}), table = b.constant("embed.weight", {8, 4});
  const ValueId x = b.node("aten.embedding.default", {table, ids}, "x", {1, 3, 4});
  b.output(b.linear(x, table, "y", {1, 3, 8}));
  AdapterSet set;
  ASSERT_TRUE(set.add({"x", 0, {moduleOf("embed", 8, 4, 1, 1)}}, 1).ok());
  ASSERT_TRUE(set.attach(b.graph).ok());
  EXPECT_TRUE(b.graph.value(tensorArg(b.graph.nodes[0], 0)).terms.empty());
  EXPECT_EQ(b.graph.value(tensorArg(b.graph.nodes[1], 1)).terms.size(), 1u);
  ASSERT_TRUE(runPasses(b.graph).ok());
  EXPECT_TRUE(set.pack(b.graph).ok());
}

TEST(Adapters, Refuse) {
  const auto attached = [](std::vector<AdapterModule> modules) {
    AdapterSet set;
    EXPECT_TRUE(set.add({"mine", 0, std::move(modules)}, 1).ok());
    Graph graph = decoderGraph();
    const Status status = set.attach(graph);
    return status.ok() ? set.allFound() : status;
  };
  Status s = attached({moduleOf("0.q", 32, 8, 1, 1)});
  EXPECT_EQ(s.code(), Code::invalid_argument);
  EXPECT_THAT(s.message(), HasSubstr("0.q is of a linear of 32 x 8, but in this program it has 32 x 16"));
  s = attached({moduleOf("a.0.q", 32, 16, 1, 1), moduleOf("b.0.q", 32, 16, 1, 1)});
  EXPECT_THAT(s.message(), HasSubstr("both of the program's 0.q"));
  s = attached({moduleOf("0.q", 32, 16, 1, 1), moduleOf("7.q", 32, 16, 1, 1)});
  EXPECT_THAT(s.message(), HasSubstr("1 of its 2 linears are not in this program: 7.q"));
  AdapterSet set;
  EXPECT_TRUE(set.add({"mine", 0, {}}, 1).ok());
  EXPECT_FALSE(set.add({"mine", 0, {}}, 1).ok());
  EXPECT_FALSE(set.add({"other", 0, {}}, NAN).ok());
  EXPECT_THAT(set.setScale("his", 1).message(), HasSubstr("known are mine"));
}

}  // namespace
}  // namespace etwgpu::testing
