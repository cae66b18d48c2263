// Small graphs for tests: built by hand, printed, and written as payloads.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "flatbuffers/flatbuffers.h"
#include "generated/graph_generated.h"
#include "runtime/executor/delegate.h"
#include "runtime/graph/graph.h"

namespace etwgpu::testing {

/// A dimension or integer argument: a number or an expression.
struct Int {
  Int(int64_t n) : number(n) {}
  Int(int n) : number(n) {}
  Int(ExprId e) : expr(e) {}
  int64_t number = 0;
  ExprId expr;
};
using Dims = std::vector<Int>;

class GraphBuilder {
 public:
  Graph graph;
  std::map<std::string, std::vector<uint8_t>> data;  // named data of constants and states

  ExprId expr(Int i) { return i.expr.valid() ? i.expr : graph.exprs.constant(i.number); }
  std::vector<ExprId> exprs(const Dims& dims) {
    std::vector<ExprId> r;
    for (const Int& i : dims) r.push_back(expr(i));
    return r;
  }
  IntArg i(Int v) { return {expr(v)}; }
  std::vector<IntArg> is(const Dims& v) {
    std::vector<IntArg> r;
    for (const Int& x : v) r.push_back({expr(x)});
    return r;
  }

  /// A symbol that is dimension `dim` of the input that will be added as number `input`.
  ExprId symbol(const std::string& name, int64_t min, int64_t max, int32_t input, int32_t dim) {
    graph.symbols.push_back({input, dim});
    return graph.exprs.newSymbol(name, {min, max});
  }
  ValueId value(const std::string& name, DType dtype, const Dims& dims, ValueKind kind) {
    Value v;
    v.name = name;
    v.dtype = dtype;
    v.dims = exprs(dims);
    v.kind = kind;
    return graph.newValue(std::move(v));
  }
  ValueId input(const std::string& name, DType dtype, const Dims& dims) {
    graph.inputs.push_back({value(name, dtype, dims, ValueKind::input)});
    return graph.inputs.back().value;
  }
  /// A constant of its own named data, filled with a fixed pattern in [-0.5, 0.5).
  ValueId constant(const std::string& name, const Dims& dims, DType dtype = DType::f32) {
    const ValueId v = value(name, dtype, dims, ValueKind::constant);
    std::vector<uint8_t> bytes(graph.maxBytes(v));
    if (dtype == DType::f32) {
      uint32_t seed = uint32_t(std::hash<std::string>()(name)) | 1;
      for (size_t k = 0; k + 4 <= bytes.size(); k += 4) {
        seed = seed * 1664525u + 1013904223u;
        const float f = float(seed >> 8) / float(1 << 24) - 0.5f;
        std::memcpy(&bytes[k], &f, 4);
      }
    }
    graph.value(v).pieces.push_back({name, 0, bytes.size()});
    data[name] = std::move(bytes);
    return v;
  }
  ValueId state(const std::string& name, const Dims& dims, DType dtype = DType::f32) {
    return value(name, dtype, dims, ValueKind::state);
  }
  ValueId node(const std::string& op, std::vector<Arg> args, const std::string& name, const Dims& dims,
               DType dtype = DType::f32) {
    Node n;
    n.op = op;
    n.args = std::move(args);
    n.name = name;
    n.outputs = {value(name, dtype, dims, ValueKind::intermediate)};
    graph.nodes.push_back(std::move(n));
    return graph.nodes.back().outputs[0];
  }
  void output(ValueId v) { graph.outputs.push_back({v, {}}); }
  void mutate(ValueId state, ValueId v) { graph.mutations.push_back({state, v}); }

  // Frequent operators.
  ValueId linear(ValueId x, ValueId w, const std::string& name, const Dims& dims) {
    return node("aten.linear.default", {x, w, std::monostate{}}, name, dims);
  }
  ValueId rmsNorm(ValueId x, ValueId w, Int width, const std::string& name, const Dims& dims) {
    return node("aten.rms_norm.default", {x, is({width}), w, 1e-5}, name, dims);
  }
  ValueId binary(const std::string& op, ValueId a, ValueId b, const std::string& name, const Dims& dims,
                 DType dtype = DType::f32) {
    std::vector<Arg> args{a, b};
    if (op == "add" || op == "sub") args.push_back(i(1));
    return node("aten." + op + ".Tensor", std::move(args), name, dims, dtype);
  }
};

/// The lines of toText that are nodes or mutations: what a pass test compares.
inline std::string nodesText(const Graph& graph) {
  std::string out, line;
  for (char c : toText(graph)) {
    if (c != '\n') {
      line += c;
      continue;
    }
    const bool node = line.find('(') != std::string::npos &&
                      (line.find(" = ") != std::string::npos || line.starts_with("etwgpu.")) &&
                      !line.starts_with("alias ");
    if (node || line.starts_with("mutate ") || line.starts_with("return")) out += line + "\n";
    line.clear();
  }
  return out;
}

namespace detail {
struct ArgWriter {
  flatbuffers::FlatBufferBuilder& b;
  using Ids = std::vector<int32_t>;
  flatbuffers::Offset<fb::Arg> ids(fb::ArgKind kind, Ids v) const { return fb::CreateArg(b, kind, b.CreateVector(v)); }
  flatbuffers::Offset<fb::Arg> operator()(std::monostate) const { return fb::CreateArg(b, fb::ArgKind::none); }
  flatbuffers::Offset<fb::Arg> operator()(ValueId v) const { return ids(fb::ArgKind::value, {v}); }
  flatbuffers::Offset<fb::Arg> operator()(const std::vector<ValueId>& v) const { return ids(fb::ArgKind::values, v); }
  flatbuffers::Offset<fb::Arg> operator()(IntArg v) const { return ids(fb::ArgKind::int_, {v.expr.index}); }
  flatbuffers::Offset<fb::Arg> operator()(const std::vector<IntArg>& v) const {
    Ids list;
    for (IntArg x : v) list.push_back(x.expr.index);
    return ids(fb::ArgKind::ints, list);
  }
  flatbuffers::Offset<fb::Arg> operator()(double v) const {
    return (*this)(std::vector<double>{v}, fb::ArgKind::double_);
  }
  flatbuffers::Offset<fb::Arg> operator()(const std::vector<double>& v, fb::ArgKind k = fb::ArgKind::doubles) const {
    return fb::CreateArg(b, k, 0, b.CreateVector(v));
  }
  flatbuffers::Offset<fb::Arg> operator()(bool v) const { return flags(fb::ArgKind::bool_, {v}); }
  flatbuffers::Offset<fb::Arg> operator()(const std::vector<bool>& v) const {
    return flags(fb::ArgKind::bools, std::vector<uint8_t>(v.begin(), v.end()));
  }
  flatbuffers::Offset<fb::Arg> flags(fb::ArgKind kind, std::vector<uint8_t> v) const {
    return fb::CreateArg(b, kind, 0, 0, b.CreateVector(v));
  }
  flatbuffers::Offset<fb::Arg> operator()(const std::string& v) const {
    return fb::CreateArg(b, fb::ArgKind::string_, 0, 0, 0, b.CreateString(v));
  }
  flatbuffers::Offset<fb::Arg> operator()(DType v) const {
    return fb::CreateArg(b, fb::ArgKind::dtype, 0, 0, 0, 0, fb::DType(v));
  }
};
}  // namespace detail

/// The graph as a payload. Indices are written as they are, so that a broken graph gives a broken payload.
inline std::vector<uint8_t> serialize(const Graph& g, uint32_t version = 1) {
  flatbuffers::FlatBufferBuilder b;
  std::vector<fb::Expr> exprs;
  for (size_t i = 0; i < g.exprs.size(); ++i) {
    const Exprs::Node& n = g.exprs.node({int32_t(i)});
    exprs.emplace_back(fb::ExprOp(n.op), n.a, n.b, n.value);
  }
  std::vector<flatbuffers::Offset<fb::Symbol>> symbols;
  for (size_t i = 0; i < g.symbols.size(); ++i) {
    const SymbolBinding& s = g.symbols[i];
    const Bounds r = g.exprs.symbolBounds(i);
    symbols.push_back(fb::CreateSymbol(b, b.CreateString(g.exprs.symbolName(i)), r.min, r.max,
                                       s.dim < 0 ? fb::SymbolSource::input_int : fb::SymbolSource::input_dim, s.input,
                                       s.dim));
  }
  std::vector<flatbuffers::Offset<fb::Value>> values;
  for (const Value& v : g.values) {
    std::vector<int32_t> dims;
    for (ExprId e : v.dims) dims.push_back(e.index);
    flatbuffers::Offset<fb::Quantization> q;
    if (v.quantization.bits) {
      q = fb::CreateQuantization(b, v.quantization.bits, v.quantization.group, v.quantization.symmetric,
                                 v.quantization.constants_offset);
    }
    values.push_back(fb::CreateValue(b, b.CreateString(v.name), fb::DType(v.dtype), b.CreateVector(dims),
                                     fb::ValueKind(v.kind), v.pieces.empty() ? 0 : b.CreateString(v.pieces[0].key), q));
  }
  std::vector<flatbuffers::Offset<fb::Node>> nodes;
  for (const Node& n : g.nodes) {
    std::vector<flatbuffers::Offset<fb::Arg>> args;
    for (const Arg& a : n.args) args.push_back(std::visit(detail::ArgWriter{b}, a));
    nodes.push_back(fb::CreateNode(b, b.CreateString(n.op), b.CreateVector(args), b.CreateVector(n.outputs),
                                   b.CreateString(n.name)));
  }
  std::vector<flatbuffers::Offset<fb::Input>> inputs;
  for (const GraphInput& in : g.inputs) inputs.push_back(fb::CreateInput(b, in.value));
  std::vector<flatbuffers::Offset<fb::Output>> outputs;
  for (const GraphOutput& o : g.outputs) outputs.push_back(fb::CreateOutput(b, o.value, o.expr.index));
  std::vector<fb::Mutation> mutations;
  for (const GraphMutation& m : g.mutations) mutations.emplace_back(m.state, m.value);
  const auto root =
      fb::CreateGraph(b, version, b.CreateString("test"), b.CreateVectorOfStructs(exprs), b.CreateVector(symbols),
                      b.CreateVector(values), b.CreateVector(nodes), b.CreateVector(inputs), b.CreateVector(outputs),
                      b.CreateVectorOfStructs(mutations));
  fb::FinishGraphBuffer(b, root);
  return {b.GetBufferPointer(), b.GetBufferPointer() + b.GetSize()};
}

/// Sizes of named data from a builder.
struct BuilderSizes : NamedDataSizes {
  explicit BuilderSizes(const GraphBuilder& b) : builder(b) {}
  std::optional<uint64_t> size(std::string_view key) const override {
    const auto it = builder.data.find(std::string(key));
    return it == builder.data.end() ? std::nullopt : std::optional<uint64_t>(it->second.size());
  }
  const GraphBuilder& builder;
};

/// A Llama-like decoder of `layers` layers as the exporter writes it: dim 16, `query_heads` × 8 with `kv_heads` of keys
/// and values, `cache` positions, vocabulary 32; inputs x f32 [1, S, 16], S up to `most`, and start i64 [1], output
/// logits of the last token.
inline GraphBuilder decoder(int layers, int window = 0, int query_heads = 4, int kv_heads = 2, bool head_norms = false,
                            int cache = 16, int most = 15) {
  constexpr int kDim = 16, kWidth = 8, kFfn = 24, kVocab = 32;
  GraphBuilder b;
  const ExprId s = b.symbol("s", 1, most, 0, 1);
  ValueId x = b.input("x", DType::f32, {1, s, kDim});
  const ValueId start = b.input("start", DType::i64, {1});
  const auto none = std::monostate{};
  const auto range = [&](const char* name, Int n) {
    return b.node("aten.arange.start_step", {b.i(0), b.i(n), b.i(1), none, none, none, none}, name, {n}, DType::i64);
  };
  const ValueId pos = b.binary("add", range("steps", s), start, "pos", {s}, DType::i64);
  const ValueId column = b.node("aten.unsqueeze_copy.default", {pos, b.i(1)}, "column", {s, 1}, DType::i64);
  const ValueId keys = range("keys", cache);
  ValueId mask = b.binary("le", keys, column, "mask", {s, cache}, DType::boolean);
  if (window) {
    const ValueId low = b.node("aten.sub.Scalar", {column, b.i(window), b.i(1)}, "low", {s, 1}, DType::i64);
    const ValueId near = b.binary("gt", keys, low, "near", {s, cache}, DType::boolean);
    mask = b.node("aten.logical_and.default", {mask, near}, "both", {s, cache}, DType::boolean);
  }
  const ValueId table = b.constant("rotary", {cache, 2, kWidth / 2});
  const ValueId rows = b.node("aten.index.Tensor", {table, std::vector<ValueId>{pos}}, "rows", {s, 2, kWidth / 2});
  ValueId part[2];
  for (int p : {0, 1})
    part[p] = b.node("aten.select_copy.int", {rows, b.i(1), b.i(p)}, p ? "sin" : "cos", {s, kWidth / 2});
  for (int l = 0; l < layers; ++l) {
    const std::string n = std::to_string(l) + ".";
    const auto weight = [&](const char* name, int rows_, int columns) {
      return b.constant(n + name + ".w", {rows_, columns});
    };
    const ValueId h = b.rmsNorm(x, b.constant(n + "n1.w", {kDim}), kDim, n + "n1", {1, s, kDim});
    const auto heads = [&](const std::string& name, int count) {
      const ValueId y = b.linear(h, weight(name.c_str(), count * kWidth, kDim), n + name, {1, s, count * kWidth});
      ValueId v =
          b.node("aten.view_copy.default", {y, b.is({1, s, count, kWidth})}, n + name + "v", {1, s, count, kWidth});
      if (head_norms && name != "v")
        v = b.rmsNorm(v, b.constant(n + name + "n.w", {kWidth}), kWidth, n + name + "n", {1, s, count, kWidth});
      return b.node("aten.permute_copy.default", {v, b.is({0, 2, 1, 3})}, n + name + "p", {1, count, s, kWidth});
    };
    const auto rotate = [&](ValueId v, const std::string& name, int count) {
      const Dims half{1, count, s, kWidth / 2};
      const auto slice = [&](int from) {
        return b.node("aten.slice_copy.Tensor", {v, b.i(3), b.i(from), b.i(from + kWidth / 2), b.i(1)},
                      name + std::to_string(from), half);
      };
      const ValueId a = slice(0), c = slice(kWidth / 2);
      const ValueId low = b.binary("sub", b.binary("mul", a, part[0], name + "ac", half),
                                   b.binary("mul", c, part[1], name + "bs", half), name + "l", half);
      const ValueId high = b.binary("add", b.binary("mul", c, part[0], name + "bc", half),
                                    b.binary("mul", a, part[1], name + "as", half), name + "h", half);
      return b.node("aten.cat.default", {std::vector<ValueId>{low, high}, b.i(-1)}, name + "r", {1, count, s, kWidth});
    };
    const ValueId q = rotate(heads("q", query_heads), n + "q", query_heads),
                  k = rotate(heads("k", kv_heads), n + "k", kv_heads), v = heads("v", kv_heads);
    const auto write = [&](const char* name, ValueId new_rows) {
      const ValueId state = b.state(n + name, {1, kv_heads, cache, kWidth});
      const ValueId put = b.node("aten.index_put.default", {state, std::vector<ValueId>{-1, -1, pos}, new_rows, false},
                                 n + name + "put", {1, kv_heads, cache, kWidth});
      b.mutate(state, put);
      return put;
    };
    const ValueId kc = write("kc", k), vc = write("vc", v);
    const ValueId y = b.node("aten.scaled_dot_product_attention.default", {q, kc, vc, mask, 0.0, false, 0.25, true},
                             n + "sdpa", {1, query_heads, s, kWidth});
    const ValueId yp =
        b.node("aten.permute_copy.default", {y, b.is({0, 2, 1, 3})}, n + "yp", {1, s, query_heads, kWidth});
    const ValueId yc = b.node("dim_order_ops._clone_dim_order.default", {yp, false, b.is({0, 1, 2, 3})}, n + "yc",
                              {1, s, query_heads, kWidth});
    const ValueId yv = b.node("aten.view_copy.default", {yc, b.is({1, s, query_heads * kWidth})}, n + "yv",
                              {1, s, query_heads * kWidth});
    x = b.binary("add", x, b.linear(yv, weight("o", kDim, query_heads * kWidth), n + "o", {1, s, kDim}), n + "x1",
                 {1, s, kDim});
    const ValueId h2 = b.rmsNorm(x, b.constant(n + "n2.w", {kDim}), kDim, n + "n2", {1, s, kDim});
    const ValueId gate = b.linear(h2, weight("gate", kFfn, kDim), n + "gate", {1, s, kFfn});
    const ValueId act = b.node("aten.silu.default", {gate}, n + "act", {1, s, kFfn});
    const ValueId up = b.linear(h2, weight("up", kFfn, kDim), n + "up", {1, s, kFfn});
    const ValueId mul = b.binary("mul", act, up, n + "mul", {1, s, kFfn});
    x = b.binary("add", x, b.linear(mul, weight("down", kDim, kFfn), n + "down", {1, s, kDim}), n + "x2", {1, s, kDim});
  }
  const ValueId last = b.node("aten.select_copy.int", {x, b.i(1), b.i(-1)}, "last", {1, kDim});
  const ValueId norm = b.rmsNorm(last, b.constant("norm.w", {kDim}), kDim, "norm", {1, kDim});
  b.output(b.linear(norm, b.constant("head.w", {kVocab, kDim}), "logits", {1, kVocab}));
  return b;
}

}  // namespace etwgpu::testing
