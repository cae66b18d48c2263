#include "runtime/graph/passes/affine.h"

namespace etwgpu {
namespace {

constexpr int kMaxDepth = 32;

class AffineReader {
 public:
  AffineReader(const Graph& graph, const GraphIndex& index) : g_(graph), index_(index) {}

  std::optional<Affine> read(ValueId v, int depth = 0) const {
    const Value& value = g_.value(v);
    if (depth > kMaxDepth || isFloating(value.dtype) || value.dtype == DType::boolean) return {};
    if (value.alias_of != kNoValue) {
      const auto a = read(value.alias_of, depth + 1);
      return a ? reshaped(*a, g_.value(value.alias_of).dims, value.dims) : a;
    }
    const int32_t p = index_.producer(v);
    if (p < 0) return leaf(v);
    const Node& n = g_.nodes[size_t(p)];
    if (n.op == "aten.arange.start_step") return arange(n);
    if (n.op == "aten.full.default" || n.op == "aten.full_like.default" || n.op == "aten.scalar_tensor.default") {
      const auto c = intArg(g_, n, n.op == "aten.scalar_tensor.default" ? 0 : 1);
      if (!c) return {};
      return Affine{std::vector<int64_t>(value.dims.size(), 0), kNoValue, 0, *c};
    }
    if (n.op == "aten.add.Tensor" || n.op == "aten.sub.Tensor" || n.op == "aten.add.Scalar" ||
        n.op == "aten.sub.Scalar") {
      return sum(n, value, depth);
    }
    const bool cast = n.op == "aten._to_copy.default" || n.op == "dim_order_ops._to_dim_order_copy.default";
    const bool expand = n.op == "aten.expand_copy.default" || n.op == "aten.expand.default";
    const bool view = n.op == "aten.unsqueeze_copy.default" || n.op == "aten.view_copy.default" ||
                      n.op == "aten.squeeze_copy.dims" || n.op == "aten.alias_copy.default" ||
                      n.op == "aten.clone.default";
    if (!cast && !expand && !view) return leaf(v);
    const ValueId in = tensorArg(n, 0);
    const auto a = in == kNoValue ? std::nullopt : read(in, depth + 1);
    if (!a) return leaf(v);
    return expand ? broadcast(*a, g_.value(in).dims, value.dims) : reshaped(*a, g_.value(in).dims, value.dims);
  }

 private:
  /// One unknown element, such as the start position.
  std::optional<Affine> leaf(ValueId v) const {
    if (g_.value(g_.storage(v)).kind == ValueKind::state) return {};  // may have changed by where it would be read
    for (ExprId d : g_.value(v).dims) {
      if (!g_.exprs.isConstant(d, 1)) return {};
    }
    return Affine{std::vector<int64_t>(g_.value(v).dims.size(), 0), g_.storage(v), 1, 0};
  }

  std::optional<Affine> arange(const Node& n) const {
    const auto start = intArg(g_, n, 0);
    const auto step = n.args.size() > 2 && !isNoneArg(n, 2) ? intArg(g_, n, 2) : std::optional<int64_t>(1);
    if (!start || !step) return {};
    return Affine{{*step}, kNoValue, 0, *start};
  }

  std::optional<Affine> sum(const Node& n, const Value& out, int depth) const {
    const bool minus = n.op.starts_with("aten.sub");
    const auto alpha = n.args.size() > 2 ? intArg(g_, n, 2) : std::optional<int64_t>(1);
    const ValueId left = tensorArg(n, 0), right = tensorArg(n, 1);
    if (!alpha || left == kNoValue) return {};
    auto a = read(left, depth + 1);
    if (a) a = broadcast(*a, g_.value(left).dims, out.dims);
    if (!a) return {};
    const int64_t sign = minus ? -*alpha : *alpha;
    if (right == kNoValue) {
      const auto c = intArg(g_, n, 1);
      if (!c) return {};
      a->constant += sign * *c;
      return a;
    }
    auto b = read(right, depth + 1);
    if (b) b = broadcast(*b, g_.value(right).dims, out.dims);
    if (!b) return {};
    return combine(*a, *b, sign);
  }

 public:
  /// a + sign · b, both over the same dimensions.
  static std::optional<Affine> combine(Affine a, const Affine& b, int64_t sign) {
    for (size_t d = 0; d < a.coefficients.size(); ++d) a.coefficients[d] += sign * b.coefficients[d];
    a.constant += sign * b.constant;
    if (b.base == kNoValue) return a;
    if (a.base != kNoValue && a.base != b.base) return {};
    a.base = b.base;
    a.base_coefficient += sign * b.base_coefficient;
    if (a.base_coefficient == 0) a.base = kNoValue;
    return a;
  }

  std::optional<Affine> broadcast(const Affine& a, const std::vector<ExprId>& from,
                                  const std::vector<ExprId>& to) const {
    if (from.size() > to.size()) return {};
    Affine r = a;
    r.coefficients.assign(to.size(), 0);
    for (size_t d = 0; d < from.size(); ++d) {
      const size_t t = to.size() - from.size() + d;
      if (g_.exprs.isConstant(from[d], 1)) continue;  // the index along it is always 0
      if (from[d] != to[t]) return {};
      r.coefficients[t] = a.coefficients[d];
    }
    return r;
  }

 private:
  /// Only dimensions of 1 come or go.
  std::optional<Affine> reshaped(const Affine& a, const std::vector<ExprId>& from,
                                 const std::vector<ExprId>& to) const {
    Affine r = a;
    r.coefficients.assign(to.size(), 0);
    size_t f = 0;
    for (size_t t = 0; t < to.size(); ++t) {
      if (g_.exprs.isConstant(to[t], 1)) continue;
      while (f < from.size() && g_.exprs.isConstant(from[f], 1)) ++f;
      if (f == from.size() || from[f] != to[t]) return {};
      r.coefficients[t] = a.coefficients[f++];
    }
    while (f < from.size() && g_.exprs.isConstant(from[f], 1)) ++f;
    if (f != from.size()) return {};
    return r;
  }

  const Graph& g_;
  const GraphIndex& index_;
};

class MaskReader {
 public:
  MaskReader(const Graph& graph, const GraphIndex& index) : g_(graph), index_(index), reader_(graph, index) {}

  std::optional<CausalMask> read(ValueId mask) {
    const std::vector<ExprId>& dims = g_.value(mask).dims;
    if (dims.size() < 2 || !collect(mask, 0) || !causal_) return {};
    return result_;
  }

 private:
  /// Adds the condition f <= 0, or fails if it is neither of the two.
  bool condition(const Affine& f, size_t rank) {
    for (size_t d = 0; d + 2 < rank; ++d) {
      if (f.coefficients[d] != 0) return false;
    }
    const int64_t query = f.coefficients[rank - 2], key = f.coefficients[rank - 1];
    if (f.base == kNoValue || (result_.start != kNoValue && result_.start != f.base)) return false;
    result_.start = f.base;
    if (key == 1 && query == -1 && f.base_coefficient == -1 && f.constant == 0) {  // j - s - start <= 0
      causal_ = true;
      return true;
    }
    if (key == -1 && query == 1 && f.base_coefficient == 1 && f.constant <= 0 && result_.window == 0) {
      result_.window = 1 - f.constant;  // s + start - window - j + 1 <= 0
      return true;
    }
    return false;
  }

  bool collect(ValueId v, int depth) {
    const Value& value = g_.value(v);
    if (depth > kMaxDepth || value.dtype != DType::boolean) return false;
    const int32_t p = index_.producer(v);
    if (p < 0) return false;
    const Node& n = g_.nodes[size_t(p)];
    const Value& produced = g_.value(g_.storage(v));
    // A mask may have gained leading dimensions of 1; its last two stay.
    const size_t rank = produced.dims.size();
    if (rank < 2 || value.dims.size() < 2 || produced.dims[rank - 1] != value.dims[value.dims.size() - 1] ||
        produced.dims[rank - 2] != value.dims[value.dims.size() - 2]) {
      return false;
    }
    if (n.op == "aten.logical_and.default" || n.op == "aten.bitwise_and.Tensor") {
      return bothOperands(n, rank, produced, depth);
    }
    if (n.op == "aten.expand_copy.default" || n.op == "aten.clone.default" || n.op == "aten.view_copy.default" ||
        n.op == "aten.unsqueeze_copy.default") {
      return tensorArg(n, 0) != kNoValue && collect(tensorArg(n, 0), depth + 1);
    }
    const ValueId a = tensorArg(n, 0), b = tensorArg(n, 1);
    if (a == kNoValue || b == kNoValue) return false;
    auto fa = reader_.read(a), fb = reader_.read(b);
    if (fa) fa = reader_.broadcast(*fa, g_.value(a).dims, produced.dims);
    if (fb) fb = reader_.broadcast(*fb, g_.value(b).dims, produced.dims);
    if (!fa || !fb) return false;
    std::optional<Affine> f;
    if (n.op == "aten.le.Tensor" || n.op == "aten.lt.Tensor") {
      f = AffineReader::combine(*fa, *fb, -1);  // a <= b: a - b <= 0
    } else if (n.op == "aten.ge.Tensor" || n.op == "aten.gt.Tensor") {
      f = AffineReader::combine(*fb, *fa, -1);
    }
    if (!f) return false;
    if (n.op == "aten.lt.Tensor" || n.op == "aten.gt.Tensor") f->constant += 1;
    return condition(*f, rank);
  }

  bool bothOperands(const Node& n, size_t rank, const Value& produced, int depth) {
    for (size_t i = 0; i < 2; ++i) {
      const ValueId v = tensorArg(n, i);
      if (v == kNoValue) return false;
      const std::vector<ExprId>& dims = g_.value(v).dims;
      if (dims.size() < 2 || dims[dims.size() - 1] != produced.dims[rank - 1] ||
          dims[dims.size() - 2] != produced.dims[rank - 2]) {
        return false;
      }
      if (!collect(v, depth + 1)) return false;
    }
    return true;
  }

  const Graph& g_;
  const GraphIndex& index_;
  AffineReader reader_;
  CausalMask result_;
  bool causal_ = false;
};

}  // namespace

std::optional<Affine> affineOf(const Graph& graph, const GraphIndex& index, ValueId value) {
  return AffineReader(graph, index).read(value);
}

ValueId positionsStart(const Graph& graph, const GraphIndex& index, ValueId positions) {
  if (positions == kNoValue || graph.value(positions).dims.size() != 1) return kNoValue;
  const auto a = affineOf(graph, index, positions);
  const bool matches = a && a->coefficients[0] == 1 && a->base_coefficient == 1 && a->constant == 0;
  return matches ? a->base : kNoValue;
}

std::optional<CausalMask> causalMask(const Graph& graph, const GraphIndex& index, ValueId mask) {
  return MaskReader(graph, index).read(mask);
}

}  // namespace etwgpu
