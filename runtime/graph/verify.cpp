// What a legal graph is. Checked after import and, in tests, after every pass.
#include "runtime/graph/graph.h"

namespace etwgpu {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), defined_(graph.values.size(), false) {}

  Status run() {
    for (size_t v = 0; v < graph_.values.size(); ++v) ETWGPU_TRY(value(v));
    ETWGPU_TRY(inputs());
    for (const Node& node : graph_.nodes) ETWGPU_TRY(this->node(node));
    return outputs();
  }

 private:
  static Status bad(std::string message) { return {Code::invalid_program, "graph: " + std::move(message)}; }
  bool validExpr(ExprId e) const { return e.index >= 0 && size_t(e.index) < graph_.exprs.size(); }
  bool validValue(ValueId v) const { return v >= 0 && size_t(v) < graph_.values.size(); }
  const char* name(ValueId v) const { return graph_.value(v).name.c_str(); }

  Status value(size_t i) {
    const Value& v = graph_.values[i];
    if (dtypeSize(v.dtype) == 0) return bad(format("value %s has no dtype", v.name.c_str()));
    if (v.dims.size() > 8) return bad(format("value %s has rank %zu, above 8", v.name.c_str(), v.dims.size()));
    for (ExprId e : v.dims) {
      if (!validExpr(e)) return bad(format("value %s: a dimension is expression %d", v.name.c_str(), e.index));
    }
    if (v.kind == ValueKind::constant && v.pieces.empty() && v.literal.empty() && graph_.maxBytes(ValueId(i)) != 0) {
      return bad(format("constant %s has no data", v.name.c_str()));
    }
    if (v.alias_of != kNoValue) {
      // aliases refer to older or newer values, so follow the chain at most as often as there are values
      if (v.kind != ValueKind::intermediate)
        return bad(format("value %s is an alias but no intermediate", v.name.c_str()));
      ValueId s = ValueId(i);
      for (size_t steps = 0; validValue(s) && graph_.value(s).alias_of != kNoValue; ++steps) {
        if (steps > graph_.values.size()) return bad(format("value %s is an alias of itself", v.name.c_str()));
        s = graph_.value(s).alias_of;
      }
      if (!validValue(s)) return bad(format("value %s is an alias of value %d", v.name.c_str(), s));
      if (graph_.value(s).dtype != v.dtype)
        return bad(format("value %s is an alias of %s, of other dtype", v.name.c_str(), name(s)));
    }
    if (v.kind == ValueKind::constant || v.kind == ValueKind::state) defined_[i] = true;
    return {};
  }

  Status inputs() {
    for (const GraphInput& in : graph_.inputs) {
      if (in.value == kNoValue) continue;
      if (!validValue(in.value)) return bad(format("an input is value %d", in.value));
      if (graph_.value(in.value).kind != ValueKind::input)
        return bad(format("input %s is not of kind input", name(in.value)));
      if (defined_[size_t(in.value)]) return bad(format("input %s is listed twice", name(in.value)));
      defined_[size_t(in.value)] = true;
    }
    if (graph_.symbols.size() != graph_.exprs.symbolCount()) return bad("symbols and their bindings differ in number");
    for (const SymbolBinding& b : graph_.symbols) {
      if (b.input < 0 || size_t(b.input) >= graph_.inputs.size())
        return bad(format("a symbol comes from input %d", b.input));
    }
    return {};
  }

  Status use(ValueId v, const std::string& where) const {
    if (!validValue(v)) return bad(format("%s is value %d of %zu", where.c_str(), v, graph_.values.size()));
    if (!defined_[size_t(graph_.storage(v))])
      return bad(format("%s, %s, is used before it is defined", where.c_str(), name(v)));
    return {};
  }

  Status node(const Node& node) {
    if (node.op.empty()) return bad("a node has no operator");
    for (size_t i = 0; i < node.args.size(); ++i) {
      const auto where = [&] { return format("argument %zu of %s", i, node.name.c_str()); };
      if (const auto* v = std::get_if<ValueId>(&node.args[i])) {
        ETWGPU_TRY(use(*v, where()));
      } else if (const auto* list = std::get_if<std::vector<ValueId>>(&node.args[i])) {
        for (ValueId x : *list) {
          if (x != kNoValue) ETWGPU_TRY(use(x, where()));
        }
      } else if (const auto* e = std::get_if<IntArg>(&node.args[i])) {
        if (!validExpr(e->expr)) return bad(where() + " is no expression");
      } else if (const auto* es = std::get_if<std::vector<IntArg>>(&node.args[i])) {
        for (IntArg x : *es) {
          if (!validExpr(x.expr)) return bad(where() + " is no expression");
        }
      }
    }
    for (ValueId v : node.outputs) {
      if (v == kNoValue) continue;
      if (!validValue(v)) return bad(format("an output of %s is value %d", node.name.c_str(), v));
      if (graph_.value(v).kind != ValueKind::intermediate || graph_.value(v).alias_of != kNoValue) {
        return bad(format("%s writes %s, which is no intermediate of its own", node.name.c_str(), name(v)));
      }
      if (defined_[size_t(v)]) return bad(format("%s writes %s, which is defined already", node.name.c_str(), name(v)));
      defined_[size_t(v)] = true;
    }
    return pointwise(node);
  }

  Status pointwise(const Node& node) const {
    if (!node.pointwise) return {};
    const PointwiseProgram& p = *node.pointwise;
    const char* n = node.name.c_str();
    if (node.outputs.size() != 1 || node.outputs[0] == kNoValue) return bad(format("%s has not one output", n));
    if (p.inputs.size() != node.args.size())
      return bad(format("%s has %zu arguments for %zu inputs", n, node.args.size(), p.inputs.size()));
    const size_t rank = graph_.value(node.outputs[0]).dims.size();
    for (const PointwiseInput& in : p.inputs) {
      if (in.strides.size() != rank) return bad(format("%s: %zu strides for rank %zu", n, in.strides.size(), rank));
      if (!validExpr(in.offset)) return bad(format("%s: an offset is no expression", n));
      for (ExprId e : in.strides) {
        if (!validExpr(e)) return bad(format("%s: a stride is no expression", n));
      }
    }
    if (p.code.empty()) return bad(format("%s has no code", n));
    for (size_t i = 0; i < p.code.size(); ++i) {
      const PointwiseInstruction& c = p.code[i];
      for (int32_t operand : {c.a, c.b, c.c}) {
        if (operand < -1 || operand >= int32_t(i)) return bad(format("%s: instruction %zu reads %d", n, i, operand));
      }
      if (c.op == PointwiseOp::load && size_t(c.imm_index) >= p.inputs.size())
        return bad(format("%s loads input %d", n, c.imm_index));
      if (c.op == PointwiseOp::iota && size_t(c.imm_index) >= rank)
        return bad(format("%s: position along %d", n, c.imm_index));
    }
    if (p.code.back().dtype != graph_.value(node.outputs[0]).dtype)
      return bad(format("%s computes another dtype than its output's", n));
    return {};
  }

  Status outputs() const {
    for (const GraphOutput& out : graph_.outputs) {
      if (out.value == kNoValue) {
        if (!validExpr(out.expr)) return bad("an output is neither tensor nor integer");
      } else {
        ETWGPU_TRY(use(out.value, "an output"));
      }
    }
    for (const GraphMutation& m : graph_.mutations) {
      if (!validValue(m.state) || graph_.value(m.state).kind != ValueKind::state)
        return bad(format("value %d is mutated but no state", m.state));
      ETWGPU_TRY(use(m.value, "a mutation"));
      const Value &s = graph_.value(m.state), &v = graph_.value(m.value);
      if (s.dtype != v.dtype || s.dims != v.dims)
        return bad(format("state %s and its new value %s differ in shape or dtype", s.name.c_str(), v.name.c_str()));
    }
    return {};
  }

  const Graph& graph_;
  std::vector<bool> defined_;  // by value: has its memory a content here
};

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace etwgpu
