// One-node graphs that reach every kernel of the matmul, attention, normalization and sampling families: for the choice
// test and for the offline validation of WGSL.
#pragma once

#include <string>
#include <vector>

#include "runtime/executor/gpu_kernel.h"
#include "runtime/graph/fused_ops.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu::testing {

struct KernelCase {
  std::string name;
  GraphBuilder builder;          // its last node is the one to plan
  bool tuned = false;            // for the candidates of Tuning, else for the defaults
  bool steps = false;            // no operator of models: webgpu_steps_test.cpp runs it within a graph
  uint32_t storage_buffers = 0;  // not 0: of the device

  GpuCapabilities on(GpuCapabilities caps) const {
    if (storage_buffers) caps.max_storage_buffers = storage_buffers;
    return caps;
  }
};

/// A weight [n, k]: bits 0 (plain), 4 or 8.
inline ValueId weightOf(GraphBuilder& b, int64_t n, int64_t k, int bits, int group, bool symmetric) {
  const ValueId w = b.value("w", DType::f32, {n, k}, ValueKind::constant);
  if (bits) {
    Quantization& q = b.graph.value(w).quantization;
    q = {bits, group, symmetric, 0};
    const int64_t padded = (n + 7) / 8 * 8;
    const uint64_t words = uint64_t(padded * k * bits / 8);
    const uint64_t constants = uint64_t(bits == 8 ? padded * 4 : padded * (k / group) * (symmetric ? 2 : 4));
    q.constants_offset = (words + 255) / 256 * 256;
    b.graph.value(w).pieces.push_back({"w", 0, words});
    b.graph.value(w).constants_pieces.push_back({"w", q.constants_offset, constants});
  }
  return w;
}

struct LinearOptions {
  int64_t max_rows = 300, n = 64, k = 256;
  int bits = 4, group = 64;
  bool symmetric = true, norm = false, glu = false, bias = false, residual = false;
  std::string activation = "none";
};
/// etwgpu.linear over x [1, M, K], M in [1, max_rows].
inline KernelCase linearCase(const std::string& name, const LinearOptions& o) {
  KernelCase c{name, {}};
  GraphBuilder& b = c.builder;
  const ExprId m = b.symbol("m", 1, o.max_rows, 0, 1);
  const ValueId x = b.value("x", DType::f32, {1, m, o.k}, ValueKind::intermediate);
  std::vector<Arg> args{x, weightOf(b, o.glu ? 2 * o.n : o.n, o.k, o.bits, o.group, o.symmetric)};
  args.push_back(o.bias ? Arg(b.value("bias", DType::f32, {o.glu ? 2 * o.n : o.n}, ValueKind::constant)) : Arg());
  args.push_back(o.residual ? Arg(b.value("r", DType::f32, {1, m, o.n}, ValueKind::intermediate)) : Arg());
  args.push_back(o.norm);
  args.push_back(o.norm ? Arg(b.value("nw", DType::f32, {o.k}, ValueKind::constant)) : Arg());
  args.push_back(1e-5);
  args.push_back(o.activation);
  args.push_back(o.glu);
  b.node(std::string(kFusedLinear), args, "y", {1, m, o.n});
  return c;
}

/// The start of cases whose caches are rings: from "late" on, which the tests let wrap around.
inline ValueId startOf(GraphBuilder& b, bool ring) { return b.input(ring ? "late" : "start", DType::i64, {1}); }
constexpr int64_t kRingRows = 128, kRingPositions = 1000, kRingWindow = 60;

/// etwgpu.cached_attention, S in [1, 64], over a cache of `length` positions; ring: of kRingRows rows, with a window.
inline KernelCase cachedAttentionCase(const std::string& name, int64_t heads, int64_t kv_heads, int64_t d,
                                      int64_t length, bool ring = false) {
  KernelCase c{name, {}};
  GraphBuilder& b = c.builder;
  const ExprId s = b.symbol("s", 1, 64, 0, 1);
  const ValueId q = b.value("q", DType::f32, {1, s, heads, d}, ValueKind::intermediate);
  const ValueId start = startOf(b, ring);
  const ValueId k = b.state("k", {1, kv_heads, length, d}), v = b.state("v", {1, kv_heads, length, d});
  Arg positions;
  if (ring) positions = b.i(kRingPositions);
  b.node(std::string(kCachedAttention), {q, k, v, start, 0.125, b.i(ring ? kRingWindow : 0), positions}, "y",
         {1, s, heads * d});
  return c;
}

/// The two weights and the epsilon of head norms, or none.
inline void addHeadNorms(GraphBuilder& b, int64_t d, bool norms) {
  std::vector<Arg>& args = b.graph.nodes.back().args;
  for (const char* name : {"q_norm", "k_norm"})
    args.push_back(norms ? Arg(b.value(name, DType::f32, {d}, ValueKind::constant)) : Arg());
  args.push_back(1e-6);
}

inline KernelCase ropeCase(int64_t d, bool norms = false, bool ring = false) {
  KernelCase c{ring ? "rope_ring" : "rope", {}};
  GraphBuilder& b = c.builder;
  const ExprId s = b.symbol("s", 1, 64, 0, 1);
  const ValueId qkv = b.value("qkv", DType::f32, {1, s, 8 * d}, ValueKind::intermediate);
  const ValueId table = b.value("table", DType::f32, {ring ? kRingPositions : 128, 2, d / 2}, ValueKind::constant);
  const ValueId start = startOf(b, ring);
  const ValueId k = b.state("k", {1, 2, 128, d}), v = b.state("v", {1, 2, 128, d});
  b.node(std::string(kRopeCacheWrite), {qkv, table, start, k, v, b.i(4), b.i(2)}, "q", {1, s, 4, d});
  addHeadNorms(b, d, norms);
  return c;
}

/// etwgpu.qkv_cache_write with 4 query and 2 key heads.
inline KernelCase qkvCase(const std::string& name, int64_t d, int64_t k, int bits, bool symmetric, bool bias,
                          bool norms = false, bool ring = false) {
  KernelCase c{name, {}};
  GraphBuilder& b = c.builder;
  const ExprId s = b.symbol("s", 1, 64, 0, 1);
  const ValueId x = b.value("x", DType::f32, {1, s, k}, ValueKind::intermediate);
  const ValueId w = weightOf(b, 8 * d, k, bits, 64, symmetric);
  const Arg bias_arg = bias ? Arg(b.value("bias", DType::f32, {8 * d}, ValueKind::constant)) : Arg();
  const ValueId norm = b.value("nw", DType::f32, {k}, ValueKind::constant);
  const ValueId table = b.value("table", DType::f32, {ring ? kRingPositions : 128, 2, d / 2}, ValueKind::constant);
  const ValueId start = startOf(b, ring);
  const ValueId kc = b.state("k", {1, 2, 128, d}), vc = b.state("v", {1, 2, 128, d});
  b.node(std::string(kQkvCacheWrite), {x, w, bias_arg, true, norm, 1e-5, table, start, kc, vc, b.i(4), b.i(2)}, "q",
         {1, s, 4, d});
  addHeadNorms(b, d, norms);
  return c;
}

/// etwgpu.attention_linear with a residual.
inline KernelCase attentionLinearCase(const std::string& name, int64_t heads, int64_t kv_heads, int64_t d,
                                      int64_t length, int64_t n, int bits, bool symmetric, bool ring = false) {
  KernelCase c = cachedAttentionCase(name, heads, kv_heads, d, length, ring);
  GraphBuilder& b = c.builder;
  Node& node = b.graph.nodes.back();
  const ExprId s = b.graph.value(node.outputs[0]).dims[1];
  node.op = kAttentionLinear;
  node.args.push_back(weightOf(b, n, heads * d, bits, 32, symmetric));
  node.args.push_back(std::monostate{});
  node.args.push_back(b.value("r", DType::f32, {1, s, n}, ValueKind::intermediate));
  node.outputs = {b.value("z", DType::f32, {1, s, n}, ValueKind::intermediate)};
  return c;
}

/// mask: no argument, bool or float of [S, T].
inline KernelCase sdpaCase(const std::string& name, const char* mask, bool causal) {
  KernelCase c{name, {}};
  GraphBuilder& b = c.builder;
  const ExprId s = b.symbol("s", 1, 64, 0, 2), t = b.symbol("t", 1, 99, 1, 2);
  const ValueId q = b.value("q", DType::f32, {2, 4, s, 40}, ValueKind::intermediate);
  const ValueId k = b.value("k", DType::f32, {2, 2, t, 40}, ValueKind::intermediate);
  const ValueId v = b.value("v", DType::f32, {2, 2, t, 40}, ValueKind::intermediate);
  Arg m;
  if (mask) m = b.input("mask", mask == std::string("bool") ? DType::boolean : DType::f32, {s, t});
  b.node("aten.scaled_dot_product_attention.default", {q, k, v, m, 0.0, causal, Arg(), true}, "y", {2, 4, s, 40});
  return c;
}

inline KernelCase productCase(const std::string& name, int64_t k, int64_t n, bool bias) {
  KernelCase c{name, {}};
  GraphBuilder& b = c.builder;
  const ExprId m = b.symbol("m", 1, 300, 0, 0);
  const ValueId x = b.value("a", DType::f32, {m, k}, ValueKind::intermediate);
  const ValueId y = b.value("b", DType::f32, {k, n}, ValueKind::intermediate);
  std::vector<Arg> args{x, y};
  if (bias) {
    args.insert(args.begin(), b.value("c", DType::f32, {n}, ValueKind::constant));
    args.push_back(b.i(1));
    args.push_back(b.i(1));
  }
  b.node(bias ? "aten.addmm.default" : "aten.mm.default", args, "y", {m, n});
  return c;
}

inline KernelCase normCase(const std::string& op, int64_t width, bool affine) {
  KernelCase c{op + std::to_string(width), {}};
  GraphBuilder& b = c.builder;
  const ExprId m = b.symbol("m", 1, 100, 0, 0);
  const bool channels = op == "group_norm" || op[0] == '_';
  const Dims dims = channels ? Dims{m, 8, width} : Dims{m, width};
  const int64_t size = channels ? 8 : width;
  const ValueId x = b.value("x", DType::f32, dims, ValueKind::intermediate);
  const Arg w = affine ? Arg(b.value("w", DType::f32, {size}, ValueKind::constant)) : Arg();
  const Arg bias = affine ? Arg(b.value("b", DType::f32, {size}, ValueKind::constant)) : Arg();
  std::vector<Arg> args;
  if (op == "rms_norm") args = {x, b.is({width}), w, 1e-6};
  if (op == "layer_norm") args = {x, b.is({width}), w, bias, 1e-5, true};
  if (op == "native_layer_norm") args = {x, b.is({width}), w, bias, 1e-5};
  if (op == "group_norm") args = {x, b.i(2), w, bias, 1e-5, true};
  if (op[0] == '_') {
    const ValueId mean = b.value("mean", DType::f32, {size}, ValueKind::constant);
    args = {x, w, bias, mean, b.value("var", DType::f32, {size}, ValueKind::constant), 0.1, 1e-5};
  }
  b.node("aten." + op + (op[0] == '_' ? "" : ".default"), args, "y", dims);
  if (op == "native_layer_norm") {
    for (const char* name : {"mean", "rstd"})
      b.graph.nodes.back().outputs.push_back(b.value(name, DType::f32, {m, 1}, ValueKind::intermediate));
  }
  return c;
}

/// etwgpu.norm_residual
inline KernelCase normResidualCase(int64_t width) {
  KernelCase c = normCase("rms_norm", width, true);
  Node& node = c.builder.graph.nodes.back();
  c.name = "norm_residual" + std::to_string(width);
  node.op = kNormResidual;
  Value residual = c.builder.graph.value(node.outputs[0]);
  residual.name = "r";
  node.args.push_back(c.builder.graph.newValue(std::move(residual)));
  return c;
}

inline KernelCase argmaxCase() {
  KernelCase c{"argmax", {}};
  const ValueId x = c.builder.value("x", DType::f32, {1, 3, 5000}, ValueKind::intermediate);
  c.builder.node("etwgpu.argmax", {x}, "ids", {1, 3}, DType::i32);
  return c;
}

inline KernelCase feedbackCase() {
  KernelCase c{.name = "argmax_feedback", .builder = {}, .steps = true};
  const ValueId x = c.builder.value("x", DType::f32, {1, 5000}, ValueKind::intermediate);
  const ValueId start = c.builder.value("start", DType::i64, {1}, ValueKind::intermediate);
  c.builder.node("etwgpu.argmax", {x, start, c.builder.i(4)}, "ids", {1}, DType::i32);
  return c;
}

inline KernelCase sampleCase() {
  KernelCase c{.name = "sample", .builder = {}, .steps = true};
  const ValueId x = c.builder.value("x", DType::f32, {1, 5000}, ValueKind::intermediate);
  const ValueId start = c.builder.value("start", DType::i64, {1}, ValueKind::intermediate);
  const ValueId options = c.builder.value("options", DType::i32, {8}, ValueKind::intermediate);
  const ValueId seen = c.builder.value("seen", DType::i32, {314}, ValueKind::intermediate);
  c.builder.node("etwgpu.sample", {x, start, c.builder.i(4), options, seen}, "ids", {1}, DType::i32);
  c.builder.graph.nodes.back().outputs.push_back(c.builder.value("result", DType::i32, {2}, ValueKind::intermediate));
  return c;
}

/// The case with adapters of this rank on its weight, which was joined of parts that begin with these rows.
inline KernelCase adapted(KernelCase c, std::vector<int64_t> first_rows, int adapters, int64_t rank) {
  GraphBuilder& b = c.builder;
  ValueId w = 0;
  while (b.graph.value(w).name != "w") ++w;
  auto low_rank = std::make_shared<LowRank>();
  low_rank->first_rows = std::move(first_rows);
  low_rank->rank = rank;
  for (int i = 0; i < adapters; ++i) low_rank->adapters.push_back(i);
  const std::vector<ExprId> dims = b.graph.value(w).dims;
  const int64_t n = b.graph.exprs.constantValue(dims[0]), k = b.graph.exprs.constantValue(dims[1]);
  low_rank->a = b.value("lora_a", DType::f32, {low_rank->width(), k}, ValueKind::constant);
  low_rank->b = b.value("lora_b", DType::f32, {adapters * rank, n}, ValueKind::constant);
  b.graph.value(w).low_rank = std::move(low_rank);
  c.name += "_adapters";
  c.storage_buffers = 12;
  return c;
}

inline std::vector<KernelCase> adapterCases() {
  return {
      adapted(linearCase("qkv", {.n = 96, .k = 192, .norm = true, .bias = true}), {0, 32, 64}, 2, 8),
      adapted(linearCase("glu", {.n = 96, .k = 192, .norm = true, .glu = true, .activation = "silu"}), {0, 96}, 1, 4),
      adapted(linearCase("down", {.bits = 8, .residual = true}), {0}, 1, 16),
      adapted(linearCase("odd", {.n = 13, .k = 37, .bits = 0, .norm = true, .glu = true}), {0}, 1, 4),
      adapted(qkvCase("qkv", 64, 192, 4, true, false), {0, 256, 384}, 1, 8),
      adapted(attentionLinearCase("o", 8, 2, 64, 2048, 96, 4, true), {0}, 1, 8)};
}

inline std::vector<KernelCase> kernelCases() {
  std::vector<KernelCase> cases;
  for (int bits : {0, 4, 8}) {
    const std::string w = "linear" + std::to_string(bits);
    cases.push_back(linearCase(w, {.bits = bits}));
    cases.push_back(linearCase(w + "_qkv", {.n = 96, .k = 192, .bits = bits, .norm = true, .bias = true}));
    cases.push_back(linearCase(w + "_down", {.n = 64, .k = 8192, .bits = bits, .residual = true}));
    cases.push_back(linearCase(w + "_chunks", {.max_rows = 1, .n = 64, .k = 2304, .bits = bits, .norm = true}));
    cases.push_back(linearCase(w + "_head", {.n = 4608, .k = 64, .bits = bits, .norm = true}));
    for (const char* activation : {"silu", "gelu", "gelu_tanh", "relu"})
      cases.push_back(
          linearCase(w + "_glu_" + activation,
                     {.n = 96, .k = 192, .bits = bits, .norm = true, .glu = true, .activation = activation}));
  }
  for (int group : {32, 128}) cases.push_back(linearCase("affine", {.k = 256, .group = group, .symmetric = false}));
  cases.push_back(
      linearCase("odd", {.n = 13, .k = 37, .bits = 0, .norm = true, .glu = true, .bias = true, .residual = true}));
  cases.push_back(productCase("mm", 64, 32, false));
  cases.push_back(productCase("mm_odd", 37, 13, false));
  cases.push_back(productCase("addmm", 64, 32, true));
  cases.push_back(productCase("addmm_odd", 37, 13, true));
  cases.push_back(cachedAttentionCase("attention", 9, 3, 64, 2048));
  cases.push_back(cachedAttentionCase("attention_wide", 4, 1, 256, 64));
  cases.push_back(cachedAttentionCase("attention_odd", 3, 3, 20, 64));
  for (int bits : {0, 4, 8}) {
    const std::string w = std::to_string(bits);
    cases.push_back(qkvCase("qkv" + w, 64, 192, bits, true, false));
    cases.push_back(attentionLinearCase("attention_linear" + w, 8, 2, 64, 2048, 96, bits, true));
  }
  for (const int64_t d : {64, 128, 256}) {
    cases.push_back(qkvCase("qkv_norms" + std::to_string(d), d, 192, 4, true, false, true));
    cases.push_back(ropeCase(d, true));
  }
  cases.push_back(ropeCase(20, true));
  cases.push_back(qkvCase("qkv_affine", 80, 192, 4, false, true));
  cases.push_back(attentionLinearCase("attention_linear_affine", 14, 2, 64, 999, 96, 4, false));
  cases.push_back(attentionLinearCase("attention_linear_odd", 3, 3, 20, 64, 60, 0, true));
  for (const int64_t d : {20, 64, 256}) {
    cases.push_back(cachedAttentionCase("attention_ring" + std::to_string(d), 4, 2, d, kRingRows, true));
    cases.push_back(ropeCase(d, d == 256, true));
  }
  for (const bool norms : {false, true}) cases.push_back(qkvCase("qkv_ring", 64, 192, 4, true, false, norms, true));
  cases.push_back(attentionLinearCase("attention_linear_ring", 8, 2, 64, kRingRows, 96, 4, true, true));
  cases.push_back(ropeCase(64));
  cases.push_back(ropeCase(20));
  cases.push_back(sdpaCase("sdpa", nullptr, false));
  cases.push_back(sdpaCase("sdpa_causal", nullptr, true));
  cases.push_back(sdpaCase("sdpa_bool", "bool", false));
  cases.push_back(sdpaCase("sdpa_float", "float", true));
  for (const char* op :
       {"rms_norm", "layer_norm", "native_layer_norm", "group_norm", "_native_batch_norm_legit_no_training.default"})
    for (int64_t width : {7, 576})
      for (bool affine : {false, true}) cases.push_back(normCase(op, width, affine));
  for (int64_t width : {7, 576}) cases.push_back(normResidualCase(width));
  for (KernelCase c : {linearCase("residual", {.n = 1024, .k = 1024, .norm = true, .residual = true}),
                       linearCase("gate", {.n = 512, .k = 1024, .norm = true, .glu = true, .activation = "silu"}),
                       linearCase("affine", {.n = 1024, .k = 1024, .symmetric = false}),
                       linearCase("int8", {.n = 1024, .k = 1024, .bits = 8}), qkvCase("qkv", 64, 1024, 4, true, false),
                       attentionLinearCase("attention", 8, 2, 64, 2048, 512, 4, true)}) {
    c.name = "tuned_" + c.name;
    c.tuned = true;
    cases.push_back(std::move(c));
  }
  cases.push_back(argmaxCase());
  cases.push_back(feedbackCase());
  cases.push_back(sampleCase());
  for (KernelCase& c : adapterCases()) cases.push_back(std::move(c));
  return cases;
}

/// Plans the last node of a case.
inline Result<std::vector<DispatchSpec>> planCase(KernelCase& c, const GpuCapabilities& caps,
                                                  const LoadOptions& options) {
  const Node& node = c.builder.graph.nodes.back();
  const GpuPlanFunction plan = findGpuKernel(node.op);
  if (!plan) return Status(Code::unsupported_operator, "no kernel for " + node.op);
  GpuPlanContext context(c.builder.graph, caps, options, int(c.builder.graph.nodes.size()) - 1);
  ETWGPU_TRY(plan(context));
  return std::move(context.dispatches);
}

}  // namespace etwgpu::testing
