// Integer expressions over bounded symbols: every dimension, integer argument, workgroup count and kernel parameter.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace etwgpu {

/// Index of an expression in its Exprs.
struct ExprId {
  int32_t index = -1;
  bool valid() const { return index >= 0; }
  friend bool operator==(ExprId, ExprId) = default;
};

enum class ExprOp : uint8_t { constant, symbol, add, sub, mul, floordiv, mod, min, max };

struct Bounds {
  int64_t min = 0, max = 0;
  friend bool operator==(const Bounds&, const Bounds&) = default;
};

/// Interning table: equal expressions (after simplification) have equal ids. Arithmetic saturates instead of
/// overflowing; floordiv and mod follow Python, and by zero give 0.
class Exprs {
 public:
  struct Node {
    ExprOp op;
    int32_t a, b;  // operands; symbol: a = index of the symbol
    int64_t value;
    friend bool operator==(const Node&, const Node&) = default;
  };

  /// A new symbol with inclusive bounds; symbols are numbered from 0.
  ExprId newSymbol(std::string name, Bounds bounds);
  ExprId constant(int64_t value);
  ExprId symbol(int32_t index);
  ExprId binary(ExprOp op, ExprId a, ExprId b);
  ExprId add(ExprId a, ExprId b) { return binary(ExprOp::add, a, b); }
  ExprId sub(ExprId a, ExprId b) { return binary(ExprOp::sub, a, b); }
  ExprId mul(ExprId a, ExprId b) { return binary(ExprOp::mul, a, b); }
  ExprId floordiv(ExprId a, ExprId b) { return binary(ExprOp::floordiv, a, b); }
  ExprId ceildiv(ExprId a, int64_t b) { return floordiv(add(a, constant(b - 1)), constant(b)); }
  /// Product; 1 for an empty list.
  ExprId product(std::span<const ExprId> factors);

  bool isConstant(ExprId e) const { return nodes_[size_t(e.index)].op == ExprOp::constant; }
  bool isConstant(ExprId e, int64_t value) const { return isConstant(e) && nodes_[size_t(e.index)].value == value; }
  /// Only for constants.
  int64_t constantValue(ExprId e) const { return nodes_[size_t(e.index)].value; }
  const Node& node(ExprId e) const { return nodes_[size_t(e.index)]; }
  Bounds bounds(ExprId e) const { return bounds_[size_t(e.index)]; }
  size_t size() const { return nodes_.size(); }
  size_t symbolCount() const { return symbols_.size(); }
  Bounds symbolBounds(size_t i) const { return symbols_[i].bounds; }
  const std::string& symbolName(size_t i) const { return symbols_[i].name; }

  int64_t eval(ExprId e, std::span<const int64_t> symbols) const;
  /// All expressions at once, in order: one pass per call. `out` has size() elements.
  void evalAll(std::span<const int64_t> symbols, std::span<int64_t> out) const;
  /// "(s0 + 1) * 64"
  std::string toString(ExprId e) const;

 private:
  struct SymbolInfo {
    std::string name;
    Bounds bounds;
    ExprId expr;
  };
  struct NodeHash {
    size_t operator()(const Node& n) const;
  };
  ExprId intern(Node node, Bounds bounds);
  static int64_t apply(ExprOp op, int64_t a, int64_t b);
  std::vector<Node> nodes_;
  std::vector<Bounds> bounds_;
  std::vector<SymbolInfo> symbols_;
  std::unordered_map<Node, int32_t, NodeHash> index_;
};

}  // namespace etwgpu
