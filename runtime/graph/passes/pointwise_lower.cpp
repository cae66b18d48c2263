// pointwise_lower: elementwise operators, casts, comparisons, fills and strided reads (permute, expand, slice, select)
// become etwgpu.pointwise, one node each; pointwise_merge joins them. Layout costs no instruction: it is in the strides
// of the loads. What a program cannot say (symbolic scalars, shapes that broadcast only at run time) stays an ATen
// operator.
#include <cmath>
#include <limits>
#include <map>

#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/passes/pointwise.h"

namespace etwgpu {

std::vector<ExprId> contiguousStrides(Exprs& exprs, const std::vector<ExprId>& dims) {
  std::vector<ExprId> strides(dims.size());
  ExprId s = exprs.constant(1);
  for (size_t d = dims.size(); d-- > 0;) {
    strides[d] = s;
    s = exprs.mul(s, dims[d]);
  }
  return strides;
}

int32_t emit(PointwiseProgram& program, const PointwiseInstruction& x) {
  for (size_t i = 0; i < program.code.size(); ++i) {
    const PointwiseInstruction& y = program.code[i];
    // bitwise: -0.0 and 0.0 are different constants
    const auto same = [](double a, double b) { return a == b && std::signbit(a) == std::signbit(b); };
    if (x.op == y.op && x.a == y.a && x.b == y.b && x.c == y.c && x.imm_index == y.imm_index && same(x.imm, y.imm) &&
        same(x.imm2, y.imm2) && x.dtype == y.dtype) {
      return int32_t(i);
    }
  }
  program.code.push_back(x);
  return int32_t(program.code.size() - 1);
}

int32_t addInput(Node& node, PointwiseProgram& program, ValueId value, PointwiseInput access) {
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (std::get<ValueId>(node.args[i]) == value && program.inputs[i].offset == access.offset &&
        program.inputs[i].strides == access.strides) {
      return int32_t(i);
    }
  }
  node.args.push_back(value);
  program.inputs.push_back(std::move(access));
  return int32_t(program.inputs.size() - 1);
}

namespace {

struct Rule {
  enum Kind { unary, binary, compare, logic } kind;
  PointwiseOp op;
};
const std::map<std::string_view, Rule>& rules() {
  using enum PointwiseOp;
  static const std::map<std::string_view, Rule> table = {
      {"aten.add.Tensor", {Rule::binary, add}},
      {"aten.add.Scalar", {Rule::binary, add}},
      {"aten.sub.Tensor", {Rule::binary, sub}},
      {"aten.sub.Scalar", {Rule::binary, sub}},
      {"aten.mul.Tensor", {Rule::binary, mul}},
      {"aten.mul.Scalar", {Rule::binary, mul}},
      {"aten.div.Tensor", {Rule::binary, PointwiseOp::div}},
      {"aten.div.Scalar", {Rule::binary, PointwiseOp::div}},
      {"aten.pow.Tensor_Scalar", {Rule::binary, PointwiseOp::pow}},
      {"aten.pow.Tensor_Tensor", {Rule::binary, PointwiseOp::pow}},
      {"aten.minimum.default", {Rule::binary, minimum}},
      {"aten.maximum.default", {Rule::binary, maximum}},
      {"aten.neg.default", {Rule::unary, neg}},
      {"aten.abs.default", {Rule::unary, PointwiseOp::abs}},
      {"aten.relu.default", {Rule::unary, relu}},
      {"aten.exp.default", {Rule::unary, PointwiseOp::exp}},
      {"aten.log.default", {Rule::unary, PointwiseOp::log}},
      {"aten.sqrt.default", {Rule::unary, PointwiseOp::sqrt}},
      {"aten.rsqrt.default", {Rule::unary, rsqrt}},
      {"aten.reciprocal.default", {Rule::unary, reciprocal}},
      {"aten.sin.default", {Rule::unary, PointwiseOp::sin}},
      {"aten.cos.default", {Rule::unary, PointwiseOp::cos}},
      {"aten.tanh.default", {Rule::unary, PointwiseOp::tanh}},
      {"aten.erf.default", {Rule::unary, PointwiseOp::erf}},
      {"aten.sigmoid.default", {Rule::unary, sigmoid}},
      {"aten.silu.default", {Rule::unary, silu}},
      {"aten.hardswish.default", {Rule::unary, hardswish}},
      {"aten.hardsigmoid.default", {Rule::unary, hardsigmoid}},
      {"aten.floor.default", {Rule::unary, PointwiseOp::floor}},
      {"aten.eq.Tensor", {Rule::compare, eq}},
      {"aten.ne.Tensor", {Rule::compare, ne}},
      {"aten.lt.Tensor", {Rule::compare, lt}},
      {"aten.le.Tensor", {Rule::compare, le}},
      {"aten.gt.Tensor", {Rule::compare, gt}},
      {"aten.ge.Tensor", {Rule::compare, ge}},
      {"aten.eq.Scalar", {Rule::compare, eq}},
      {"aten.ne.Scalar", {Rule::compare, ne}},
      {"aten.lt.Scalar", {Rule::compare, lt}},
      {"aten.le.Scalar", {Rule::compare, le}},
      {"aten.gt.Scalar", {Rule::compare, gt}},
      {"aten.ge.Scalar", {Rule::compare, ge}},
      {"aten.logical_and.default", {Rule::logic, logical_and}},
      {"aten.logical_or.default", {Rule::logic, logical_or}},
      {"aten.logical_not.default", {Rule::logic, logical_not}},
      {"aten.bitwise_and.Tensor", {Rule::logic, logical_and}},
      {"aten.bitwise_or.Tensor", {Rule::logic, logical_or}},
      {"aten.bitwise_not.default", {Rule::logic, logical_not}},
  };
  return table;
}

/// Types that the generated kernels compute in.
bool computable(DType t) { return t == DType::f32 || t == DType::i64 || t == DType::i32 || t == DType::boolean; }

class Lowering {
 public:
  Lowering(Graph& graph, const Node& source) : g_(graph), n_(source), out_(graph.value(source.outputs[0])) {}

  /// The pointwise node, or nullopt where the operator stays.
  std::optional<Node> run() {
    node_.op = kPointwise;
    node_.name = n_.name;
    node_.outputs = n_.outputs;
    if (!computable(out_.dtype) || !lower() || p_.code.empty() || p_.code.back().dtype != out_.dtype) return {};
    node_.pointwise = std::make_shared<PointwiseProgram>(std::move(p_));
    return std::move(node_);
  }

 private:
  // The result of emitting is the index of an instruction; failures set ok_.
  int32_t fail() {
    ok_ = false;
    return 0;
  }
  int32_t code(PointwiseOp op, DType t, int32_t a = -1, int32_t b = -1, int32_t c = -1) {
    PointwiseInstruction i{op};
    i.a = a, i.b = b, i.c = c, i.dtype = t;
    return emit(p_, i);
  }
  int32_t constant(double v, DType t) {
    PointwiseInstruction i{PointwiseOp::constant};
    i.imm = t == DType::boolean ? double(v != 0) : v;
    i.dtype = t;
    return emit(p_, i);
  }
  int32_t cast(int32_t x, DType to) { return p_.code[size_t(x)].dtype == to ? x : code(PointwiseOp::cast, to, x); }
  int32_t load(ValueId v, PointwiseInput access) {
    if (!computable(g_.value(v).dtype) || g_.value(v).quantization.bits != 0) return fail();
    PointwiseInstruction i{PointwiseOp::load};
    i.imm_index = addInput(node_, p_, v, std::move(access));
    i.dtype = g_.value(v).dtype;
    return emit(p_, i);
  }

  /// Reads a tensor broadcast to the output's dimensions.
  int32_t broadcast(ValueId v) {
    const std::vector<ExprId> dims = g_.value(v).dims;
    if (dims.size() > out_.dims.size()) return fail();
    const std::vector<ExprId> strides = contiguousStrides(g_.exprs, dims);
    PointwiseInput access{std::vector<ExprId>(out_.dims.size(), g_.exprs.constant(0)), g_.exprs.constant(0)};
    for (size_t d = 0; d < dims.size(); ++d) {
      const size_t o = out_.dims.size() - dims.size() + d;
      if (g_.exprs.isConstant(dims[d], 1)) continue;
      if (dims[d] != out_.dims[o]) return fail();
      access.strides[o] = strides[d];
    }
    return load(v, std::move(access));
  }

  /// Argument i, tensor or constant number, cast to t.
  int32_t operand(size_t i, DType t) {
    if (const ValueId v = tensorArg(n_, i); v != kNoValue) {
      const int32_t x = broadcast(v);
      return ok_ ? cast(x, t) : 0;
    }
    const auto number = numberArg(g_, n_, i);
    return number ? constant(*number, t) : fail();
  }

  bool lower() {
    const std::string& op = n_.op;
    if (const auto it = rules().find(op); it != rules().end()) return rule(it->second);
    if (op == "aten.where.self") return where();
    if (op == "aten.gelu.default") {
      code(textArg(n_, 1) == "tanh" ? PointwiseOp::gelu_tanh : PointwiseOp::gelu, out_.dtype, operand(0, out_.dtype));
      return ok_;
    }
    if (op == "aten.clamp.default" || op == "aten.hardtanh.default") return clamp();
    if (op == "aten.leaky_relu.default") return scaled(PointwiseOp::leaky_relu);
    if (op == "aten.elu.default") {
      if (numberArg(g_, n_, 2).value_or(1) != 1 || numberArg(g_, n_, 3).value_or(1) != 1) return false;
      return scaled(PointwiseOp::elu);
    }
    if (op == "aten._to_copy.default" || op == "dim_order_ops._to_dim_order_copy.default" ||
        op == "aten.clone.default" || op == "dim_order_ops._clone_dim_order.default") {
      const ValueId v = tensorArg(n_, 0);
      if (v == kNoValue || !sameDims(g_, v, n_.outputs[0])) return false;
      operand(0, out_.dtype);
      return ok_;
    }
    if (op == "aten.full.default" || op == "aten.full_like.default") return fill(1);
    if (op == "aten.scalar_tensor.default") return fill(0);
    if (op == "aten.arange.start_step") return arange();
    return strided();
  }

  bool rule(const Rule& r) {
    switch (r.kind) {
      case Rule::unary:
        code(r.op, out_.dtype, operand(0, out_.dtype));
        break;
      case Rule::binary: {
        const int32_t a = operand(0, out_.dtype);
        int32_t b = operand(1, out_.dtype);
        if (r.op == PointwiseOp::add || r.op == PointwiseOp::sub) {
          const auto alpha = n_.args.size() > 2 ? numberArg(g_, n_, 2) : std::optional<double>(1);
          if (!alpha) return false;
          if (ok_ && *alpha != 1) b = code(PointwiseOp::mul, out_.dtype, b, constant(*alpha, out_.dtype));
        }
        if (out_.dtype == DType::boolean) return false;
        code(r.op, out_.dtype, a, b);
        break;
      }
      case Rule::compare: {
        const DType t = compared();
        const int32_t a = operand(0, t), b = operand(1, t);
        code(r.op, DType::boolean, a, b);
        break;
      }
      case Rule::logic: {
        if (out_.dtype != DType::boolean) return false;
        if (n_.op.starts_with("aten.bitwise") && !booleanTensors()) return false;
        const int32_t a = operand(0, DType::boolean);
        code(r.op, DType::boolean, a, r.op == PointwiseOp::logical_not ? -1 : operand(1, DType::boolean));
        break;
      }
    }
    return ok_;
  }

  bool booleanTensors() const {
    bool all = true;
    forEachTensorArg(n_, [&](ValueId v) { all &= g_.value(v).dtype == DType::boolean; });
    return all;
  }

  /// The type in which two operands are compared: floating beats integer beats bool; a number that is no integer makes
  /// it f32.
  DType compared() const {
    const auto rank = [](DType t) { return isFloating(t) ? 3 : t == DType::i64 ? 2 : t == DType::boolean ? 0 : 1; };
    DType t = DType::boolean;
    for (size_t i = 0; i < 2; ++i) {
      const ValueId v = tensorArg(n_, i);
      DType other = DType::f32;
      if (v != kNoValue) {
        other = g_.value(v).dtype;
      } else {
        const auto number = numberArg(g_, n_, i);
        const ValueId tensor = tensorArg(n_, 1 - i);
        if (number && *number == std::floor(*number) && tensor != kNoValue &&
            g_.value(tensor).dtype != DType::boolean) {
          other = g_.value(tensor).dtype;
        }
      }
      if (rank(other) > rank(t)) t = other;
    }
    return t;
  }

  bool where() {
    const int32_t c = operand(0, DType::boolean), a = operand(1, out_.dtype), b = operand(2, out_.dtype);
    code(PointwiseOp::where, out_.dtype, c, a, b);
    return ok_;
  }
  bool clamp() {
    PointwiseInstruction i{PointwiseOp::clamp};
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const bool hardtanh = n_.op == "aten.hardtanh.default";
    const auto low = isNoneArg(n_, 1) ? std::optional(hardtanh ? -1.0 : -kInf) : numberArg(g_, n_, 1);
    const auto high = isNoneArg(n_, 2) ? std::optional(hardtanh ? 1.0 : kInf) : numberArg(g_, n_, 2);
    if (!low || !high) return false;
    i.a = operand(0, out_.dtype);
    i.imm = *low, i.imm2 = *high, i.dtype = out_.dtype;
    emit(p_, i);
    return ok_;
  }
  bool scaled(PointwiseOp op) {
    const auto factor = isNoneArg(n_, 1) ? std::optional(op == PointwiseOp::elu ? 1.0 : 0.01) : numberArg(g_, n_, 1);
    if (!factor) return false;
    PointwiseInstruction i{op};
    i.a = operand(0, out_.dtype);
    i.imm = *factor, i.dtype = out_.dtype;
    emit(p_, i);
    return ok_;
  }
  bool fill(size_t arg) {
    const auto number = numberArg(g_, n_, arg);
    if (!number) return false;
    constant(*number, out_.dtype);
    return true;
  }
  bool arange() {
    const auto start = numberArg(g_, n_, 0);
    const auto step = isNoneArg(n_, 2) ? std::optional(1.0) : numberArg(g_, n_, 2);
    if (!start || !step || out_.dims.size() != 1 || out_.dtype == DType::boolean) return false;
    PointwiseInstruction i{PointwiseOp::iota};
    i.dtype = DType::i64;
    int32_t x = cast(emit(p_, i), out_.dtype);
    if (*step != 1) x = code(PointwiseOp::mul, out_.dtype, x, constant(*step, out_.dtype));
    if (*start != 0) code(PointwiseOp::add, out_.dtype, x, constant(*start, out_.dtype));
    return true;
  }

  /// Strided reads: the program is one load.
  bool strided() {
    const ValueId v = tensorArg(n_, 0);
    if (v == kNoValue || g_.value(v).dtype != out_.dtype) return false;
    const std::string& op = n_.op;
    if (op == "aten.expand_copy.default" || op == "aten.expand.default") {
      broadcast(v);
      return ok_;
    }
    const std::vector<ExprId> dims = g_.value(v).dims, strides = contiguousStrides(g_.exprs, dims);
    PointwiseInput access{{}, g_.exprs.constant(0)};
    bool known = false;
    if (op == "aten.permute_copy.default" || op == "aten.permute.default") known = permute(dims, strides, access);
    if (op == "aten.slice_copy.Tensor" || op == "aten.slice.Tensor") known = slice(dims, strides, access);
    if (op == "aten.select_copy.int" || op == "aten.select.int") known = select(dims, strides, access);
    if (!known) return false;
    load(v, std::move(access));
    return ok_;
  }
  bool permute(const std::vector<ExprId>& dims, const std::vector<ExprId>& strides, PointwiseInput& access) const {
    const auto* order = n_.args.size() > 1 ? std::get_if<std::vector<IntArg>>(&n_.args[1]) : nullptr;
    if (!order || order->size() != dims.size() || out_.dims.size() != dims.size()) return false;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (!g_.exprs.isConstant((*order)[d].expr)) return false;
      const int64_t from = normalizedDim(g_.exprs.constantValue((*order)[d].expr), dims.size());
      if (from < 0 || size_t(from) >= dims.size() || dims[size_t(from)] != out_.dims[d]) return false;
      access.strides.push_back(strides[size_t(from)]);
    }
    return true;
  }
  /// An index along a dimension of this size: negative ones count from the end. nullopt if the sign depends on the
  /// call.
  std::optional<ExprId> position(size_t arg, ExprId size, bool clamped) const {
    if (isNoneArg(n_, arg)) return g_.exprs.constant(0);
    const auto e = exprArg(g_, n_, arg);
    if (!e) return {};
    const Bounds b = g_.exprs.bounds(*e);
    if (b.min >= 0) return *e;
    if (b.max >= 0) return {};
    const ExprId from_start = g_.exprs.add(size, *e);
    return clamped ? g_.exprs.binary(ExprOp::max, from_start, g_.exprs.constant(0)) : from_start;
  }
  std::optional<size_t> dimension(size_t arg, size_t rank) const {
    const auto d = isNoneArg(n_, arg) ? std::optional<int64_t>(0) : intArg(g_, n_, arg);
    if (!d) return {};
    const int64_t n = normalizedDim(*d, rank);
    if (n < 0 || size_t(n) >= rank) return {};
    return size_t(n);
  }
  bool slice(const std::vector<ExprId>& dims, const std::vector<ExprId>& strides, PointwiseInput& access) const {
    const auto dim = dimension(1, dims.size());
    const auto step = isNoneArg(n_, 4) ? std::optional<int64_t>(1) : intArg(g_, n_, 4);
    if (!dim || !step || *step < 1 || out_.dims.size() != dims.size()) return false;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (d != *dim && dims[d] != out_.dims[d]) return false;
    }
    const auto start = position(2, dims[*dim], true);
    if (!start) return false;
    access.strides = strides;
    access.strides[*dim] = g_.exprs.mul(strides[*dim], g_.exprs.constant(*step));
    access.offset = g_.exprs.mul(*start, strides[*dim]);
    return true;
  }
  bool select(const std::vector<ExprId>& dims, const std::vector<ExprId>& strides, PointwiseInput& access) const {
    const auto dim = dimension(1, dims.size());
    if (!dim || out_.dims.size() + 1 != dims.size() || isNoneArg(n_, 2)) return false;
    const auto at = position(2, dims[*dim], false);
    if (!at) return false;
    for (size_t d = 0, o = 0; d < dims.size(); ++d) {
      if (d == *dim) continue;
      if (dims[d] != out_.dims[o++]) return false;
      access.strides.push_back(strides[d]);
    }
    access.offset = g_.exprs.mul(*at, strides[*dim]);
    return true;
  }

  Graph& g_;
  const Node& n_;
  const Value out_;
  Node node_;
  PointwiseProgram p_;
  bool ok_ = true;
};

}  // namespace

std::optional<Node> loweredToPointwise(Graph& graph, const Node& node) {
  if (node.outputs.size() != 1 || node.outputs[0] == kNoValue || node.pointwise) return {};
  return Lowering(graph, node).run();
}

Status lowerPointwise(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (auto lowered = loweredToPointwise(graph, node)) node = std::move(*lowered);
  }
  return {};
}

}  // namespace etwgpu
