// One-node graphs that reach every kernel of the elementwise, layout, indexing, reduction and convolution families.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/cpp/kernel_cases.h"

namespace etwgpu::testing {

/// An operator over x (and y) of one dtype; the index space is a vector of 64, or [m, 3] with y broadcast.
inline KernelCase elementwiseCase(const std::string& op, DType dtype, bool flat, std::vector<Arg> more = {},
                                  bool binary = false, DType result = DType::f32) {
  KernelCase c{op, {}};
  GraphBuilder& b = c.builder;
  const ExprId m = b.symbol("m", 1, 300, 0, 0);
  const Dims dims = flat ? Dims{64} : Dims{m, 3};
  std::vector<Arg> args{b.value("x", dtype, dims, ValueKind::intermediate)};
  if (binary) args.push_back(b.value("y", dtype, {flat ? 1 : 3}, ValueKind::intermediate));
  for (Arg& a : more) args.push_back(std::move(a));
  b.node(op, args, "z", dims, result);
  return c;
}

inline void addElementwise(std::vector<KernelCase>& cases) {
  const auto add = [&](const std::string& op, std::vector<Arg> more, bool binary = false) {
    for (bool flat : {false, true})
      cases.push_back(elementwiseCase("aten." + op, DType::f32, flat, more, binary, DType::f32));
  };
  for (const char* op : {"exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf", "sigmoid", "silu",
                         "gelu", "relu", "neg", "abs", "hardswish", "floor", "hardsigmoid"})
    add(std::string(op) + ".default", {});
  add("gelu.default", {std::string("tanh")});
  add("hardtanh.default", {-1.0, 2.0});
  add("clamp.default", {-1.0, std::monostate{}});
  add("leaky_relu.default", {0.25});
  add("elu.default", {1.5});
  for (const char* op : {"add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "pow.Tensor_Tensor", "minimum.default",
                         "maximum.default"})
    add(op, {}, true);
  for (const char* op : {"add.Scalar", "mul.Scalar", "div.Scalar", "pow.Tensor_Scalar"}) add(op, {2.5});
  for (const char* op : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    cases.push_back(elementwiseCase(format("aten.%s.Tensor", op), DType::f32, true, {}, true, DType::boolean));
    cases.push_back(elementwiseCase(format("aten.%s.Tensor", op), DType::boolean, false, {}, true, DType::boolean));
    cases.push_back(elementwiseCase(format("aten.%s.Scalar", op), DType::i64, false, {2.0}, false, DType::boolean));
  }
  for (const char* op : {"logical_and.default", "logical_or.default", "bitwise_and.Tensor", "bitwise_or.Tensor"})
    cases.push_back(elementwiseCase(format("aten.%s", op), DType::boolean, false, {}, true, DType::boolean));
  for (const char* op : {"logical_not.default", "bitwise_not.default"})
    cases.push_back(elementwiseCase(format("aten.%s", op), DType::boolean, true, {}, false, DType::boolean));
  for (const char* op : {"add.Tensor", "mul.Tensor", "minimum.default", "maximum.default"})
    cases.push_back(elementwiseCase(format("aten.%s", op), DType::i64, false, {}, true, DType::i64));
  for (const char* op : {"neg.default", "abs.default", "relu.default"})
    cases.push_back(elementwiseCase(format("aten.%s", op), DType::i64, true, {}, false, DType::i64));
  for (DType from : {DType::f32, DType::i64, DType::boolean})
    for (DType to : {DType::f32, DType::i64, DType::boolean})
      cases.push_back(elementwiseCase("aten._to_copy.default", from, true, {to}, false, to));
  KernelCase where{"where", {}};
  GraphBuilder& b = where.builder;
  const ValueId condition = b.value("c", DType::boolean, {8}, ValueKind::intermediate);
  const ValueId x = b.value("x", DType::f32, {8}, ValueKind::intermediate);
  b.node("aten.where.self", {condition, x, b.value("y", DType::f32, {1}, ValueKind::intermediate)}, "z", {8});
  cases.push_back(std::move(where));
}

inline void addLayout(std::vector<KernelCase>& cases) {
  const auto start = [&](const char* name, DType dtype = DType::f32) {
    cases.push_back({name, {}});
    return cases.back().builder.value("x", dtype, {4, 8}, ValueKind::intermediate);
  };
  const auto b = [&]() -> GraphBuilder& { return cases.back().builder; };
  for (DType t : {DType::f32, DType::i64, DType::boolean}) {
    const ValueId x = start("permute", t);
    b().node("aten.permute_copy.default", {x, b().is({1, 0})}, "y", {8, 4}, t);
    const ValueId v = start("view", t);
    b().node("aten.view_copy.default", {v, b().is({32})}, "y", {32}, t);
  }
  ValueId x = start("cat");
  b().node("aten.cat.default", {std::vector<ValueId>{x, x}, b().i(1)}, "y", {4, 16});
  x = start("pad");
  b().node("aten.constant_pad_nd.default", {x, b().is({1, -1}), 2.0}, "y", {4, 8});
  x = start("pad_infinite");
  b().node("aten.constant_pad_nd.default", {x, b().is({1, -1}), -INFINITY}, "y", {4, 8});
}

inline void addIndexing(std::vector<KernelCase>& cases) {
  const auto embedding = [&](int bits, int group, bool symmetric) {
    cases.push_back({"embedding", {}});
    GraphBuilder& b = cases.back().builder;
    const ValueId w = weightOf(b, 13, 256, bits, group, symmetric);
    b.node("aten.embedding.default", {w, b.value("i", DType::i64, {3}, ValueKind::intermediate)}, "y", {3, 256});
  };
  embedding(0, 0, true);
  embedding(8, 0, true);
  for (int group : {32, 64, 128})
    for (bool symmetric : {false, true}) embedding(4, group, symmetric);
  for (DType t : {DType::f32, DType::i64}) {
    cases.push_back({"index", {}});
    GraphBuilder& b = cases.back().builder;
    const ValueId x = b.value("x", t, {5, 4}, ValueKind::intermediate);
    const ValueId i = b.value("i", DType::i64, {3}, ValueKind::intermediate);
    b.node("aten.index.Tensor", {x, std::vector<ValueId>{kNoValue, i}}, "y", {5, 3}, t);
    cases.push_back({"index_put", {}});
    GraphBuilder& p = cases.back().builder;
    const ValueId table = p.value("x", t, {5, 4}, ValueKind::intermediate);
    const ValueId at = p.value("i", DType::i64, {3}, ValueKind::intermediate);
    const ValueId v = p.value("v", t, {4}, ValueKind::intermediate);  // to be broadcast
    p.node("aten.index_put.default", {table, std::vector<ValueId>{at}, v, false}, "y", {5, 4}, t);
  }
}

inline void addReductions(std::vector<KernelCase>& cases) {
  // over rows, over columns, and over dimensions that are no neighbours
  for (const Dims& over : {Dims{2}, Dims{0}, Dims{0, 2}}) {
    const auto add = [&](const std::string& op, DType t, DType result, bool list) {
      cases.push_back({op, {}});
      GraphBuilder& b = cases.back().builder;
      const ValueId x = b.value("x", t, {2, 3, 300}, ValueKind::intermediate);
      Dims out;
      for (int d = 0; d < 3; ++d)
        if (std::none_of(over.begin(), over.end(), [&](const Int& o) { return o.number == d; }))
          out.push_back(d == 0 ? 2 : d == 1 ? 3 : 300);
      const Arg dims = list ? Arg(b.is(over)) : Arg(b.i(over[0]));
      b.node("aten." + op, {x, dims, false}, "y", op.find("softmax") == std::string::npos ? out : Dims{2, 3, 300},
             result);
    };
    for (const char* op : {"sum.dim_IntList", "mean.dim", "amax.default", "amin.default"})
      add(op, DType::f32, DType::f32, true);
    for (const char* op : {"sum.dim_IntList", "amax.default", "amin.default"}) add(op, DType::i64, DType::i64, true);
    if (over.size() > 1) continue;
    add("argmax.default", DType::f32, DType::i64, false);
    for (const char* op : {"_softmax.default", "_log_softmax.default"}) add(op, DType::f32, DType::f32, false);
  }
}

/// channels in and out, groups, kernel size: the implicit product, 1x1, and depthwise.
inline KernelCase convolutionCase(int64_t in, int64_t out, int64_t groups, int64_t kernel, const char* activation,
                                  bool bias, bool residual, ValueKind weights = ValueKind::constant) {
  KernelCase c{"convolution", {}};
  GraphBuilder& b = c.builder;
  const ExprId m = b.symbol("m", 1, 4, 0, 0);
  const ValueId x = b.value("x", DType::f32, {m, in, 9, 9}, ValueKind::intermediate);
  const ValueId w = b.value("w", DType::f32, {out, in / groups, kernel, kernel}, weights);
  const Dims dims{m, out, 9 - kernel + 1, 9 - kernel + 1};
  b.node(std::string(kFusedConvolution),
         {x, w, bias ? Arg(b.value("b", DType::f32, {out}, weights)) : Arg(), b.is({1, 1}), b.is({0, 0}), b.is({1, 1}),
          false, b.is({0, 0}), b.i(groups), std::string(activation),
          residual ? Arg(b.value("r", DType::f32, dims, ValueKind::intermediate)) : Arg()},
         "y", dims);
  return c;
}

inline void addConvolutions(std::vector<KernelCase>& cases) {
  for (const char* activation : {"none", "relu", "relu6", "silu", "hardswish"})
    for (bool on : {false, true}) {
      cases.push_back(convolutionCase(6, 8, 1, 3, activation, on, on));
      cases.push_back(convolutionCase(6, 8, 2, 1, activation, on, on));
      cases.push_back(convolutionCase(6, 12, 6, 3, activation, on, on));
    }
  cases.push_back(convolutionCase(6, 8, 1, 3, "none", true, false, ValueKind::intermediate));
  cases.push_back(convolutionCase(6, 6, 6, 3, "none", true, false, ValueKind::intermediate));
  for (const std::string op : {"avg_pool2d", "max_pool2d", "adaptive_avg_pool2d"}) {
    cases.push_back({op, {}});
    GraphBuilder& b = cases.back().builder;
    const ValueId x = b.value("x", DType::f32, {2, 3, 8, 8}, ValueKind::intermediate);
    const bool adaptive = op[1] == 'd';
    std::vector<Arg> args{x, b.is({2, 2})};
    if (!adaptive) args.push_back(b.is({2, 2}));
    b.node("aten." + op + ".default", args, "y", {2, 3, adaptive ? 2 : 4, adaptive ? 2 : 4});
  }
}

inline std::vector<KernelCase> visionCases() {
  std::vector<KernelCase> cases;
  addElementwise(cases);
  addLayout(cases);
  addIndexing(cases);
  addReductions(cases);
  addConvolutions(cases);
  return cases;
}

}  // namespace etwgpu::testing
