// Expressions: simplification must not change values. Deleting this lets a wrong rule give wrong sizes at run time.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "runtime/core/exprs.h"

namespace etwgpu {
namespace {

constexpr ExprOp kOps[] = {ExprOp::add, ExprOp::sub, ExprOp::mul, ExprOp::floordiv,
                           ExprOp::mod, ExprOp::min, ExprOp::max};

/// What an expression means, written down without simplification and in 128 bits.
struct Tree {
  ExprOp op;
  int64_t value = 0;  // constant, or index of the symbol
  std::unique_ptr<Tree> a, b;
};
__int128 clampTo64(__int128 x) { return x > INT64_MAX ? INT64_MAX : x < INT64_MIN ? INT64_MIN : x; }
__int128 meaning(const Tree& t, const std::vector<int64_t>& symbols) {
  if (t.op == ExprOp::constant) return t.value;
  if (t.op == ExprOp::symbol) return symbols[size_t(t.value)];
  const __int128 a = meaning(*t.a, symbols), b = meaning(*t.b, symbols);
  __int128 q = b == 0 ? 0 : a / b;
  if (b != 0 && a % b != 0 && (a < 0) != (b < 0)) --q;
  switch (t.op) {
    case ExprOp::add:
      return clampTo64(a + b);
    case ExprOp::sub:
      return clampTo64(a - b);
    case ExprOp::mul:
      return clampTo64(a * b);
    case ExprOp::floordiv:
      return clampTo64(q);
    case ExprOp::mod:
      return b == 0 ? 0 : a - q * b;
    case ExprOp::min:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

class Random {
 public:
  explicit Random(uint32_t seed) : rng_(seed) {}
  int64_t in(int64_t lo, int64_t hi) { return std::uniform_int_distribution<int64_t>(lo, hi)(rng_); }

  std::pair<std::unique_ptr<Tree>, ExprId> expression(Exprs& e, int depth, int64_t largest) {
    auto t = std::make_unique<Tree>();
    if (depth == 0 || in(0, 5) == 0) {
      if (in(0, 1)) {
        t->op = ExprOp::symbol, t->value = in(0, 2);
        return {std::move(t), e.symbol(int32_t(t->value))};
      }
      t->op = ExprOp::constant, t->value = in(0, 3) ? in(-4, 8) : in(-largest, largest);
      const int64_t v = t->value;
      return {std::move(t), e.constant(v)};
    }
    t->op = kOps[in(0, 6)];
    auto [ta, ea] = expression(e, depth - 1, largest);
    auto [tb, eb] = expression(e, depth - 1, largest);
    t->a = std::move(ta), t->b = std::move(tb);
    const ExprOp op = t->op;
    return {std::move(t), e.binary(op, ea, eb)};
  }

 private:
  std::mt19937 rng_;
};

void compareOnAllValues(uint32_t seed, int64_t largest) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  Exprs e;
  const Bounds range[3] = {{1, 5}, {0, 4}, {-3, 3}};
  for (int i = 0; i < 3; ++i) e.newSymbol("s" + std::to_string(i), range[i]);
  const auto [tree, id] = random.expression(e, 5, largest);
  const Bounds bounds = e.bounds(id);
  std::vector<int64_t> all(e.size());
  for (int64_t a = range[0].min; a <= range[0].max; ++a) {
    for (int64_t b = range[1].min; b <= range[1].max; ++b) {
      for (int64_t c = range[2].min; c <= range[2].max; ++c) {
        const std::vector<int64_t> s{a, b, c};
        const auto expected = int64_t(meaning(*tree, s));
        ASSERT_EQ(e.eval(id, s), expected) << e.toString(id) << " at " << a << ", " << b << ", " << c;
        e.evalAll(s, all);
        ASSERT_EQ(all[size_t(id.index)], expected);
        ASSERT_LE(bounds.min, expected) << e.toString(id);
        ASSERT_GE(bounds.max, expected) << e.toString(id);
      }
    }
  }
}

TEST(Exprs, SimplifiedEqualsOriginal) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    compareOnAllValues(seed, 100);
    if (HasFatalFailure()) return;
  }
}

TEST(Exprs, SaturatesInsteadOfOverflowing) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    compareOnAllValues(seed, INT64_MAX);
    if (HasFatalFailure()) return;
  }
}

TEST(Exprs, EqualExpressionsAreOne) {
  Exprs e;
  const ExprId s = e.newSymbol("s", {1, 100}), t = e.newSymbol("t", {2, 50});
  const auto c = [&](int64_t v) { return e.constant(v); };
  EXPECT_EQ(e.add(s, t), e.add(t, s));
  EXPECT_EQ(e.add(e.add(s, c(3)), c(-3)), s);
  EXPECT_EQ(e.sub(e.add(s, t), s), t);
  EXPECT_EQ(e.floordiv(e.mul(s, c(64)), c(64)), s);
  EXPECT_EQ(e.floordiv(e.mul(s, t), t), s);
  EXPECT_EQ(e.floordiv(e.mul(s, c(64)), c(16)), e.mul(s, c(4)));
  EXPECT_EQ(e.mul(e.mul(s, c(4)), c(16)), e.mul(s, c(64)));
  EXPECT_EQ(e.mul(e.mul(s, c(4)), t), e.mul(e.mul(t, s), c(4)));
  EXPECT_EQ(e.binary(ExprOp::mod, e.mul(s, c(32)), c(8)), c(0));
  EXPECT_EQ(e.binary(ExprOp::min, s, c(100)), s);
  EXPECT_EQ(e.binary(ExprOp::max, s, c(0)), s);
  EXPECT_EQ(e.sub(s, s), c(0));
}

TEST(Exprs, Text) {
  Exprs e;
  const ExprId s = e.newSymbol("s0", {1, 100});
  EXPECT_EQ(e.toString(e.mul(e.add(s, e.constant(1)), e.constant(64))), "(s0 + 1) * 64");
  EXPECT_EQ(e.toString(e.sub(s, e.constant(1))), "s0 - 1");
  EXPECT_EQ(e.toString(e.binary(ExprOp::min, s, e.constant(7))), "min(s0, 7)");
  // shared subexpressions: as a tree this one has 2^60 leaves
  ExprId x = s;
  for (int i = 0; i < 60; ++i) x = e.binary(ExprOp::mod, e.mul(x, x), e.add(x, e.constant(3)));
  EXPECT_LT(e.toString(x).size(), 4000u);
}

}  // namespace
}  // namespace etwgpu
