// Passes must not change results: the same payload on the CPU, with all rewrites, without any, and without each one
// alone. Deleting this lets a rewrite compute something else than the graph it replaces.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes.h"
#include "runtime/graph/ring.h"
#include "runtime/program/sources.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu {
namespace {

using testing::Dims;
using testing::GraphBuilder;

/// One run after another on one delegate: states live on.
struct Call {
  std::vector<HostTensor> inputs;
};

HostTensor floats(Sizes sizes, uint32_t seed) {
  HostTensor t{DType::f32, sizes, std::vector<uint8_t>(size_t(elementCount(sizes)) * 4)};
  auto* p = reinterpret_cast<float*>(t.bytes.data());
  for (int64_t i = 0; i < elementCount(sizes); ++i) {
    seed = seed * 1664525u + 1013904223u;
    p[i] = float(seed >> 8) / float(1 << 23) - 1.0f;
  }
  return t;
}
HostTensor ints(Sizes sizes, std::vector<int64_t> values) {
  HostTensor t{DType::i64, sizes, std::vector<uint8_t>(values.size() * 8)};
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}

/// All outputs of all calls, f32, in one row.
Result<std::vector<float>> runOnCpu(const GraphBuilder& b, const std::vector<Call>& calls,
                                    const std::string& disabled) {
  std::vector<std::unique_ptr<DataSource>> sources;
  NamedDataMap data;
  for (const auto& [key, bytes] : b.data) {
    sources.push_back(makeMemoryView(key, bytes));
    data.entries[key] = {sources.back().get(), 0, bytes.size()};
  }
  LoadOptions options;
  options.disabled_passes = disabled;
  options.activations = Activations::exact;
  const auto backend = makeCpuBackend(options);
  const std::vector<uint8_t> payload = testing::serialize(b.graph);
  ETWGPU_ASSIGN(auto delegate, backend->createDelegate(payload, data, {.alone = true}));
  for (auto& [source, request] : delegate->takeReads()) {
    std::memcpy(request.host, source->data() + request.offset, request.size);
  }
  Task<Status> loading = delegate->finishLoading();
  loading.start();
  ETWGPU_TRY(loading.take());
  std::vector<float> all;
  for (const Call& call : calls) {
    std::vector<DelegateArg> inputs, outputs;
    for (HostTensor t : call.inputs) inputs.push_back({TensorView{t.dtype, t.sizes, nullptr, {}, nullptr}, false, 0});
    for (size_t i = 0; i < inputs.size(); ++i)
      inputs[i].tensor.data = const_cast<uint8_t*>(call.inputs[i].bytes.data());
    std::vector<std::vector<uint8_t>> memory;
    for (const GraphOutput& o : b.graph.outputs) {
      memory.emplace_back(b.graph.maxBytes(o.value));
      outputs.push_back({TensorView{b.graph.value(o.value).dtype, {}, memory.back().data(), {}, nullptr}, false, 0});
    }
    Task<Status> run = delegate->execute(inputs, outputs, {});
    run.start();
    ETWGPU_TRY(run.take());
    for (const DelegateArg& o : outputs) {
      const float* p = o.tensor.as<float>();
      all.insert(all.end(), p, p + o.tensor.count());
    }
  }
  return all;
}

void comparePasses(const GraphBuilder& b, const std::vector<Call>& calls) {
  const auto expected = runOnCpu(b, calls, "all");
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  ASSERT_FALSE(expected->empty());
  float largest = 0;
  for (float x : *expected) {
    ASSERT_TRUE(std::isfinite(x));
    largest = std::max(largest, std::fabs(x));
  }
  ASSERT_GT(largest, 1e-3f) << "a graph of zeros would agree with anything";
  std::vector<std::string> variants{""};
  for (const Pass& pass : passTable()) variants.emplace_back(pass.name);
  for (const std::string& disabled : variants) {
    const auto got = runOnCpu(b, calls, disabled);
    ASSERT_TRUE(got.ok()) << "without " << disabled << ": " << got.status().message();
    ASSERT_EQ(got->size(), expected->size());
    for (size_t i = 0; i < got->size(); ++i) {
      ASSERT_NEAR((*got)[i], (*expected)[i], 2e-5f * std::max(1.0f, largest))
          << "element " << i << " without '" << disabled << "'";
    }
  }
}

TEST(Semantics, Decoder) {
  for (const int window : {0, 3}) {
    SCOPED_TRACE(window);
    // prefill, a step, a chunk, a step: the cache carries over
    std::vector<Call> calls;
    int64_t at = 0;
    for (const int64_t n : {5, 1, 4, 1}) {
      calls.push_back({{floats({1, n, 16}, uint32_t(n + at)), ints({1}, {at})}});
      at += n;
    }
    comparePasses(testing::decoder(2, window), calls);
    comparePasses(testing::decoder(1, window, 4, 2, true), calls);
  }
}

TEST(Semantics, CachesThatAreRings) {
  GraphBuilder b = testing::decoder(2, 5, 4, 2, true, 256, 20);
  ASSERT_TRUE(runPasses(b.graph).ok());
  ASSERT_EQ(ringCaches(b.graph).size(), 2u);
  ASSERT_EQ(ringCaches(b.graph)[0].rows, 64);
  std::vector<Call> calls;
  int64_t at = 0;
  for (const int64_t n : {20, 20, 1, 19, 1, 1, 1, 1, 1, 7, 20, 20, 13, 1, 1, 1, 20, 20, 20, 1, 20, 20, 1, 1}) {
    calls.push_back({{floats({1, n, 16}, uint32_t(n + at)), ints({1}, {at})}});
    at += n;
    if (at == 67) at -= 4;  // what was in flight is given up
  }
  ASSERT_GT(at, 3 * 64);
  comparePasses(testing::decoder(2, 5, 4, 2, true, 256, 20), calls);
}

TEST(Semantics, NormsThatAreAdded) {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, 9, 0, 1);
  const Dims dims{1, s, 16};
  ValueId x = b.input("x", DType::f32, dims);
  const auto norm = [&](ValueId v, const std::string& name) {
    return b.rmsNorm(v, b.constant(name + ".w", {16}), 16, name, dims);
  };
  const auto linear = [&](ValueId v, const std::string& name) {
    return b.linear(v, b.constant(name, {16, 16}), name + "y", dims);
  };
  x = b.binary("add", x, norm(linear(norm(x, "n1"), "w1"), "p1"), "x1", dims);
  x = b.binary("add", norm(linear(norm(x, "n2"), "w2"), "p2"), x, "x2", dims);
  const ValueId twice = norm(x, "n3");
  b.output(b.binary("add", twice, twice, "doubled", dims));
  Graph passed = b.graph;
  ASSERT_TRUE(runPasses(passed).ok());
  int fused = 0;
  for (const Node& n : passed.nodes) fused += n.op == kNormResidual;
  EXPECT_EQ(fused, 2);
  for (const int64_t n : {1, 4}) comparePasses(b, {{{floats({1, n, 16}, 7)}}});
}

TEST(Semantics, Pointwise) {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, 9, 0, 0);
  const ValueId x = b.input("x", DType::f32, {s, 6}), y = b.input("y", DType::f32, {6});
  const ValueId t = b.node("aten.permute_copy.default", {x, b.is({1, 0})}, "t", {6, s});
  const ValueId u = b.node("aten.unsqueeze_copy.default", {y, b.i(1)}, "u", {6, 1});
  const ValueId sum = b.binary("add", t, u, "sum", {6, s});
  const ValueId cut = b.node("aten.slice_copy.Tensor", {sum, b.i(0), b.i(1), b.i(6), b.i(2)}, "cut", {3, s});
  const ValueId low = b.node("aten.lt.Scalar", {cut, 0.25}, "low", {3, s}, DType::boolean);
  const ValueId g = b.node("aten.gelu.default", {cut, std::string("none")}, "g", {3, s});
  const ValueId c = b.node("aten.clamp.default", {cut, std::monostate{}, 0.5}, "c", {3, s});
  const ValueId w = b.node("aten.where.self", {low, g, c}, "w", {3, s});
  b.output(w);
  const ValueId last = b.node("aten.select_copy.int", {w, b.i(1), b.i(-1)}, "last", {3});
  const ValueId half = b.node("aten.slice_copy.Tensor", {last, b.i(0), b.i(1), b.i(3), b.i(1)}, "half", {2});
  b.output(b.node("aten.mul.Scalar", {half, 3.0}, "scaled", {2}));
  b.output(b.node("aten.sum.dim_IntList", {t, b.is({1}), false, std::monostate{}}, "total", {6}));
  for (const int64_t n : {1, 4, 9}) comparePasses(b, {{{floats({n, 6}, 7), floats({6}, 9)}}});
}

TEST(Semantics, ConvolutionAndLinear) {
  GraphBuilder b;
  const ExprId n = b.symbol("n", 1, 4, 0, 0);
  const Dims dims{n, 4, 5, 5};
  const ValueId x = b.input("x", DType::f32, dims);
  const auto conv = [&](ValueId in, const char* name) {
    return b.node("aten.convolution.default",
                  {in, b.constant(std::string(name) + ".w", {4, 4, 3, 3}), b.constant(std::string(name) + ".b", {4}),
                   b.is({1, 1}), b.is({1, 1}), b.is({1, 1}), false, b.is({0, 0}), b.i(1)},
                  name, dims);
  };
  const ValueId a = b.node("aten.hardtanh.default", {conv(x, "c1"), 0.0, 6.0}, "a", dims);
  const ValueId h = b.node("aten.silu.default", {conv(a, "c2")}, "h", dims);
  const ValueId r = b.binary("add", h, a, "r", dims);
  const ValueId m = b.node("aten.mean.dim", {r, b.is({2, 3}), false, std::monostate{}}, "m", {n, 4});
  const ValueId f = b.node("aten.gelu.default",
                           {b.linear(m, b.constant("w1", {8, 4}), "l1", {n, 8}), std::string("tanh")}, "f", {n, 8});
  b.output(b.binary("add", b.linear(f, b.constant("w2", {4, 8}), "l2", {n, 4}), m, "y", {n, 4}));
  for (const int64_t batch : {1, 3}) comparePasses(b, {{{floats({batch, 4, 5, 5}, 3)}}});
}

TEST(Semantics, StatesKeepTheirOldContentForWhoReadsIt) {
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, 4, 0, 1);
  const ValueId x = b.input("x", DType::f32, {2, s, 3}), at = b.input("at", DType::i64, {s});
  const ValueId cache = b.state("cache", {2, 8, 3}), sum = b.state("sum", {2, 8, 3});
  const ValueId old = b.node("aten.neg.default", {cache}, "old", {2, 8, 3});
  const ValueId put =
      b.node("aten.index_put.default", {cache, std::vector<ValueId>{-1, at}, x, false}, "put", {2, 8, 3});
  const ValueId total = b.binary("add", sum, put, "total", {2, 8, 3});
  b.mutate(cache, put);
  b.mutate(sum, total);
  b.output(b.node("aten.exp.default", {old}, "late", {2, 8, 3}));
  b.output(b.node("aten.mul.Tensor", {put, total}, "new", {2, 8, 3}));
  comparePasses(b, {{{floats({2, 2, 3}, 1), ints({2}, {0, 5})}},
                    {{floats({2, 1, 3}, 2), ints({1}, {5})}},
                    {{floats({2, 3, 3}, 3), ints({3}, {7, 1, 0})}}});
}

}  // namespace
}  // namespace etwgpu
