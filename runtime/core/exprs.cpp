#include "runtime/core/exprs.h"

#include <algorithm>
#include <utility>

namespace etwgpu {
namespace {

constexpr int64_t kMin = INT64_MIN, kMax = INT64_MAX;

int64_t saturatingAdd(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_add_overflow(a, b, &r) ? (a < 0 ? kMin : kMax) : r;
}
int64_t saturatingSub(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_sub_overflow(a, b, &r) ? (a < 0 ? kMin : kMax) : r;
}
int64_t saturatingMul(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r) ? ((a < 0) != (b < 0) ? kMin : kMax) : r;
}
int64_t floorDiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return a == kMin ? kMax : -a;
  const int64_t q = a / b;
  return q - int64_t(a % b != 0 && (a < 0) != (b < 0));
}
int64_t floorMod(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

Bounds hull(std::initializer_list<int64_t> values) { return {std::min(values), std::max(values)}; }

Bounds divBounds(Bounds a, Bounds b) {
  // Monotonic in each operand as long as the divisor keeps its sign: the extremes are at corners, with divisors -1, 1
  // and (by definition 0) 0 where the interval reaches over zero.
  Bounds r{kMax, kMin};
  for (int64_t d : {b.min, b.max, int64_t(-1), int64_t(0), int64_t(1)}) {
    if (d < b.min || d > b.max) continue;
    for (int64_t n : {a.min, a.max}) {
      const int64_t q = floorDiv(n, d);
      r = {std::min(r.min, q), std::max(r.max, q)};
    }
  }
  return r;
}
Bounds modBounds(Bounds a, Bounds b) {
  // The result has the divisor's sign and is nearer to zero than it; for 0 <= a it is at most a.
  Bounds r{b.min < 0 ? std::min<int64_t>(b.min + 1, 0) : 0, b.max > 0 ? b.max - 1 : 0};
  if (a.min >= 0 && b.min >= 0) r.max = std::min(r.max, a.max);
  return r;
}
Bounds binaryBounds(ExprOp op, Bounds a, Bounds b) {
  switch (op) {
    case ExprOp::add:
      return {saturatingAdd(a.min, b.min), saturatingAdd(a.max, b.max)};
    case ExprOp::sub:
      return {saturatingSub(a.min, b.max), saturatingSub(a.max, b.min)};
    case ExprOp::mul:
      return hull({saturatingMul(a.min, b.min), saturatingMul(a.min, b.max), saturatingMul(a.max, b.min),
                   saturatingMul(a.max, b.max)});
    case ExprOp::floordiv:
      return divBounds(a, b);
    case ExprOp::mod:
      return modBounds(a, b);
    case ExprOp::min:
      return {std::min(a.min, b.min), std::min(a.max, b.max)};
    case ExprOp::max:
      return {std::max(a.min, b.min), std::max(a.max, b.max)};
    case ExprOp::constant:
    case ExprOp::symbol:
      break;
  }
  return {};
}
bool saturated(Bounds b) { return b.min == kMin || b.max == kMax; }
bool commutative(ExprOp op) { return op == ExprOp::add || op == ExprOp::mul || op == ExprOp::min || op == ExprOp::max; }

}  // namespace

size_t Exprs::NodeHash::operator()(const Node& n) const {
  uint64_t h = uint64_t(n.op) * 0x9E3779B97F4A7C15u;
  for (uint64_t x : {uint64_t(uint32_t(n.a)), uint64_t(uint32_t(n.b)), uint64_t(n.value)}) {
    h = (h ^ x) * 0xBF58476D1CE4E5B9u;
    h ^= h >> 29;
  }
  return size_t(h);
}

int64_t Exprs::apply(ExprOp op, int64_t a, int64_t b) {
  switch (op) {
    case ExprOp::add:
      return saturatingAdd(a, b);
    case ExprOp::sub:
      return saturatingSub(a, b);
    case ExprOp::mul:
      return saturatingMul(a, b);
    case ExprOp::floordiv:
      return floorDiv(a, b);
    case ExprOp::mod:
      return floorMod(a, b);
    case ExprOp::min:
      return std::min(a, b);
    case ExprOp::max:
      return std::max(a, b);
    case ExprOp::constant:
    case ExprOp::symbol:
      break;
  }
  return 0;
}

ExprId Exprs::intern(Node node, Bounds bounds) {
  const auto [it, inserted] = index_.try_emplace(node, int32_t(nodes_.size()));
  if (inserted) {
    nodes_.push_back(node);
    bounds_.push_back(bounds);
  }
  return {it->second};
}

ExprId Exprs::newSymbol(std::string name, Bounds bounds) {
  const auto i = int32_t(symbols_.size());
  const ExprId e = intern({ExprOp::symbol, i, -1, 0}, bounds);
  symbols_.push_back({std::move(name), bounds, e});
  return e;
}
ExprId Exprs::symbol(int32_t index) { return symbols_[size_t(index)].expr; }
ExprId Exprs::constant(int64_t value) { return intern({ExprOp::constant, -1, -1, value}, {value, value}); }

ExprId Exprs::product(std::span<const ExprId> factors) {
  ExprId p = constant(1);
  for (ExprId f : factors) p = mul(p, f);
  return p;
}

ExprId Exprs::binary(ExprOp op, ExprId a, ExprId b) {
  if (isConstant(a) && isConstant(b)) return constant(apply(op, constantValue(a), constantValue(b)));
  // x - c = x + (-c), so that sums have one form
  if (op == ExprOp::sub && isConstant(b) && constantValue(b) != kMin) {
    return binary(ExprOp::add, a, constant(-constantValue(b)));
  }
  // constants to the right, otherwise the older operand to the left: a + b and b + a are one expression
  if (commutative(op) && (isConstant(a) || (!isConstant(b) && b.index < a.index))) std::swap(a, b);
  const Bounds ba = bounds(a), bb = bounds(b), range = binaryBounds(op, ba, bb);
  // The rules below regroup, which saturation would make visible.
  if (!saturated(range) && !saturated(ba) && !saturated(bb)) {
    if (range.min == range.max) return constant(range.min);
    const Node na = node(a), nb = node(b);
    const auto left = [](const Node& n) { return ExprId{n.a}; };
    const auto right = [](const Node& n) { return ExprId{n.b}; };
    const bool c = isConstant(b);
    const int64_t cv = c ? constantValue(b) : 0;
    switch (op) {
      case ExprOp::add:
        if (c && cv == 0) return a;                                // x + 0 = x
        if (c && na.op == ExprOp::add && isConstant(right(na))) {  // (x + c) + d = x + (c + d)
          return add(left(na), constant(saturatingAdd(constantValue(right(na)), cv)));
        }
        if (!c && na.op == ExprOp::add && isConstant(right(na)))
          return add(add(left(na), b), right(na));  // constants last
        if (!c && nb.op == ExprOp::add && isConstant(right(nb))) return add(add(a, left(nb)), right(nb));
        if (nb.op == ExprOp::sub && right(nb) == a) return left(nb);  // x + (y - x) = y
        if (na.op == ExprOp::sub && right(na) == b) return left(na);  // (y - x) + x = y
        break;
      case ExprOp::sub:
        if (a == b) return constant(0);                                                              // x - x = 0
        if (na.op == ExprOp::add && left(na) == b) return right(na);                                 // (x + y) - x = y
        if (na.op == ExprOp::add && right(na) == b) return left(na);                                 // (x + y) - y = x
        if (nb.op == ExprOp::add && left(nb) == a) return sub(constant(0), right(nb));               // x - (x + y) = -y
        if (na.op == ExprOp::add && isConstant(right(na))) return add(sub(left(na), b), right(na));  // (x + c) - y
        break;
      case ExprOp::mul:
        if (c && cv == 0) return b;                                // x * 0 = 0
        if (c && cv == 1) return a;                                // x * 1 = x
        if (c && na.op == ExprOp::mul && isConstant(right(na))) {  // (x * c) * d = x * (c * d)
          return mul(left(na), constant(saturatingMul(constantValue(right(na)), cv)));
        }
        if (!c && na.op == ExprOp::mul && isConstant(right(na))) return mul(mul(left(na), b), right(na));
        if (!c && nb.op == ExprOp::mul && isConstant(right(nb))) return mul(mul(a, left(nb)), right(nb));
        break;
      case ExprOp::floordiv:
        if (c && cv == 1) return a;                    // x // 1 = x
        if (a == b && ba.min > 0) return constant(1);  // x // x = 1
        if (c && cv > 0 && na.op == ExprOp::mul && isConstant(right(na))) {
          const int64_t f = constantValue(right(na));
          if (f % cv == 0) return mul(left(na), constant(f / cv));                // (x * (c d)) // c = x * d
          if (f > 0 && cv % f == 0) return floordiv(left(na), constant(cv / f));  // (x * d) // (c d) = x // c
        }
        if (!c && na.op == ExprOp::mul && right(na) == b && (bb.min > 0 || bb.max < 0))
          return left(na);  // (x * y) // y = x
        if (!c && na.op == ExprOp::mul && left(na) == b && (bb.min > 0 || bb.max < 0)) return right(na);
        if (c && cv > 0 && na.op == ExprOp::floordiv && isConstant(right(na)) && constantValue(right(na)) > 0) {
          return floordiv(left(na),
                          constant(saturatingMul(constantValue(right(na)), cv)));  // (x // c) // d = x // (c d)
        }
        if (c && cv > 0 && na.op == ExprOp::add) {  // (x * (c d) + y) // c = x * d + y // c
          for (const auto& [x, y] : {std::pair{left(na), right(na)}, std::pair{right(na), left(na)}}) {
            const Node nx = node(x);
            if (nx.op == ExprOp::mul && isConstant(right(nx)) && constantValue(right(nx)) % cv == 0) {
              return add(mul(left(nx), constant(constantValue(right(nx)) / cv)), floordiv(y, b));
            }
            if (nx.op == ExprOp::constant && nx.value % cv == 0) {  // (y + c d) // c = y // c + d
              return add(floordiv(y, b), constant(nx.value / cv));
            }
          }
        }
        break;
      case ExprOp::mod:
        if (a == b) return constant(0);                // x % x = 0
        if (ba.min >= 0 && ba.max < bb.min) return a;  // 0 <= x < y: x % y = x
        if (c && cv > 0 && na.op == ExprOp::mul && isConstant(right(na)) && constantValue(right(na)) % cv == 0) {
          return constant(0);  // (x * (c d)) % c = 0
        }
        if (c && cv > 0 && na.op == ExprOp::add && isConstant(right(na)) &&
            floorMod(constantValue(right(na)), cv) == 0) {
          return binary(ExprOp::mod, left(na), b);  // (x + c d) % c = x % c
        }
        break;
      case ExprOp::min:
        if (a == b || ba.max <= bb.min) return a;  // min(x, y) = x where x <= y always
        if (bb.max <= ba.min) return b;
        break;
      case ExprOp::max:
        if (a == b || ba.min >= bb.max) return a;  // max(x, y) = x where x >= y always
        if (bb.min >= ba.max) return b;
        break;
      case ExprOp::constant:
      case ExprOp::symbol:
        break;
    }
  }
  return intern({op, a.index, b.index, 0}, range);
}

int64_t Exprs::eval(ExprId e, std::span<const int64_t> symbols) const {
  const Node& root = node(e);
  if (root.op == ExprOp::constant) return root.value;
  if (root.op == ExprOp::symbol) return symbols[size_t(root.a)];
  // Bottom up over the table: expressions are shared, so that recursion could take exponential time.
  std::vector<int64_t> values(size_t(e.index) + 1);
  for (size_t i = 0; i <= size_t(e.index); ++i) {
    const Node& n = nodes_[i];
    values[i] = n.op == ExprOp::constant ? n.value
                : n.op == ExprOp::symbol ? symbols[size_t(n.a)]
                                         : apply(n.op, values[size_t(n.a)], values[size_t(n.b)]);
  }
  return values.back();
}

void Exprs::evalAll(std::span<const int64_t> symbols, std::span<int64_t> out) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    out[i] = n.op == ExprOp::constant ? n.value
             : n.op == ExprOp::symbol ? symbols[size_t(n.a)]
                                      : apply(n.op, out[size_t(n.a)], out[size_t(n.b)]);
  }
}

namespace {

// Precedence for brackets: sums below products; min and max are calls.
int precedence(ExprOp op) {
  switch (op) {
    case ExprOp::add:
    case ExprOp::sub:
      return 1;
    case ExprOp::mul:
    case ExprOp::floordiv:
    case ExprOp::mod:
      return 2;
    default:
      return 3;
  }
}

void print(const Exprs& exprs, ExprId e, std::string& out) {
  constexpr size_t kLongest = 400;  // shared subexpressions could make the text exponentially long
  if (out.size() > kLongest) {
    if (!out.ends_with("…")) out += "…";
    return;
  }
  const Exprs::Node& n = exprs.node(e);
  const auto operand = [&](int32_t i, int level) {
    const bool brackets = precedence(exprs.node({i}).op) < level;
    if (brackets) out += "(";
    print(exprs, {i}, out);
    if (brackets) out += ")";
  };
  switch (n.op) {
    case ExprOp::constant:
      out += std::to_string(n.value);
      return;
    case ExprOp::symbol:
      out += exprs.symbolName(size_t(n.a));
      return;
    case ExprOp::min:
    case ExprOp::max:
      out += n.op == ExprOp::min ? "min(" : "max(";
      print(exprs, {n.a}, out);
      out += ", ";
      print(exprs, {n.b}, out);
      out += ")";
      return;
    default:
      break;
  }
  const int level = precedence(n.op);
  operand(n.a, level);
  const Exprs::Node& right = exprs.node({n.b});
  if (n.op == ExprOp::add && right.op == ExprOp::constant && right.value < 0 && right.value != kMin) {
    out += " - " + std::to_string(-right.value);
    return;
  }
  static constexpr const char* kSigns[] = {" + ", " - ", " * ", " // ", " % "};
  out += kSigns[int(n.op) - int(ExprOp::add)];
  operand(n.b, n.op == ExprOp::add || n.op == ExprOp::mul ? level : level + 1);
}

}  // namespace

std::string Exprs::toString(ExprId e) const {
  if (!e.valid()) return "?";
  std::string out;
  print(*this, e, out);
  return out;
}

}  // namespace etwgpu
