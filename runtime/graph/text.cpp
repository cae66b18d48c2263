// A graph as text: one line a node, "name: f32[1, s0, 64] = op(args)".
#include <cmath>

#include "runtime/graph/graph.h"
#include "runtime/graph/pointwise_text.h"

namespace etwgpu {
namespace {

std::string number(double d) {
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  std::string s = format("%.9g", d);
  return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
}

std::string shape(const Graph& g, const Value& v) {
  std::string s(dtypeName(v.dtype));
  if (v.quantization.bits) {
    s = format("q%d%s", v.quantization.bits, v.quantization.symmetric ? "s" : "a");
    if (v.quantization.group) s += "g" + std::to_string(v.quantization.group);
  }
  s += "[";
  for (size_t i = 0; i < v.dims.size(); ++i) s += (i ? ", " : "") + g.exprs.toString(v.dims[i]);
  return s + "]";
}

std::string valueRef(const Graph& g, ValueId id) { return id == kNoValue ? "None" : g.value(id).name; }

std::string terms(const Value& v) {
  std::string s;
  for (const LowRankTerm& t : v.terms)
    s +=
        format(" + adapter %d on rows %lld:%lld", t.adapter, (long long)t.first_row, (long long)(t.first_row + t.rows));
  return s;
}

template <class T, class F>
std::string list(const std::vector<T>& items, F f) {
  std::string s = "[";
  for (size_t i = 0; i < items.size(); ++i) s += (i ? ", " : "") + f(items[i]);
  return s + "]";
}

struct ArgText {
  const Graph& g;
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(ValueId v) const { return valueRef(g, v); }
  std::string operator()(const std::vector<ValueId>& v) const {
    return list(v, [&](ValueId id) { return valueRef(g, id); });
  }
  std::string operator()(IntArg i) const { return g.exprs.toString(i.expr); }
  std::string operator()(const std::vector<IntArg>& v) const {
    return list(v, [&](IntArg i) { return g.exprs.toString(i.expr); });
  }
  std::string operator()(double d) const { return number(d); }
  std::string operator()(const std::vector<double>& v) const { return list(v, number); }
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(const std::vector<bool>& v) const {
    return list(v, [](bool b) { return std::string(b ? "true" : "false"); });
  }
  std::string operator()(const std::string& s) const { return "\"" + s + "\""; }
  std::string operator()(DType t) const { return std::string(dtypeName(t)); }
};

}  // namespace

std::string_view pointwiseOpName(PointwiseOp op) {
  static constexpr std::string_view kNames[] = {
      "load",  "constant",    "add",        "sub",  "mul",   "div",       "pow",         "minimum",    "maximum",
      "eq",    "ne",          "lt",         "le",   "gt",    "ge",        "logical_and", "logical_or", "where",
      "neg",   "abs",         "exp",        "log",  "sqrt",  "rsqrt",     "reciprocal",  "sin",        "cos",
      "tanh",  "erf",         "sigmoid",    "silu", "gelu",  "gelu_tanh", "relu",        "hardswish",  "hardsigmoid",
      "floor", "logical_not", "leaky_relu", "elu",  "clamp", "cast",      "iota"};
  static_assert(std::size(kNames) == size_t(PointwiseOp::iota) + 1);
  return kNames[size_t(op)];
}

std::string pointwiseText(const Graph& graph, const Node& node) {
  const PointwiseProgram& p = *node.pointwise;
  std::string out;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    out += format("%s@", valueRef(graph, std::get<ValueId>(node.args[i])).c_str());
    if (!graph.exprs.isConstant(p.inputs[i].offset, 0)) out += graph.exprs.toString(p.inputs[i].offset) + "+";
    out += list(p.inputs[i].strides, [&](ExprId e) { return graph.exprs.toString(e); });
    out += i + 1 < p.inputs.size() ? ", " : "";
  }
  out += " ->";
  for (size_t i = 0; i < p.code.size(); ++i) {
    const PointwiseInstruction& c = p.code[i];
    out += format("%s %%%zu=", i ? ";" : "", i);
    out += pointwiseOpName(c.op);
    if (c.op == PointwiseOp::load) out += format(" in%d", c.imm_index);
    if (c.op == PointwiseOp::iota) out += format(" d%d", c.imm_index);
    if (c.op == PointwiseOp::constant || c.op == PointwiseOp::leaky_relu || c.op == PointwiseOp::elu)
      out += " " + number(c.imm);
    if (c.op == PointwiseOp::clamp) out += " " + number(c.imm) + ".." + number(c.imm2);
    for (int32_t operand : {c.a, c.b, c.c}) {
      if (operand >= 0) out += format(" %%%d", operand);
    }
    if (c.op == PointwiseOp::cast) out += " " + std::string(dtypeName(c.dtype));
  }
  return out;
}

std::string toText(const Graph& g) {
  std::string out;
  for (size_t i = 0; i < g.exprs.symbolCount(); ++i) {
    const Bounds b = g.exprs.symbolBounds(i);
    out += format("symbol %s in %lld..%lld\n", g.exprs.symbolName(i).c_str(), (long long)b.min, (long long)b.max);
  }
  for (const GraphInput& in : g.inputs) {
    out += in.value == kNoValue ? "input int\n"
                                : "input " + g.value(in.value).name + ": " + shape(g, g.value(in.value)) + "\n";
  }
  std::vector<bool> used(g.values.size(), false);
  const auto mark = [&](ValueId v) {
    for (; v != kNoValue; v = g.value(v).alias_of) used[size_t(v)] = true;
  };
  for (const Node& n : g.nodes) {
    for (const Arg& a : n.args) {
      if (const auto* v = std::get_if<ValueId>(&a)) mark(*v);
      if (const auto* vs = std::get_if<std::vector<ValueId>>(&a)) {
        for (ValueId v : *vs) mark(v);
      }
    }
  }
  for (const GraphOutput& o : g.outputs) mark(o.value);
  for (const GraphMutation& m : g.mutations) mark(m.state), mark(m.value);
  for (size_t i = 0; i < g.values.size(); ++i) {
    const Value& v = g.values[i];
    if (!used[i]) continue;
    if (v.kind == ValueKind::constant) out += "constant " + v.name + ": " + shape(g, v) + terms(v) + "\n";
    if (v.kind == ValueKind::state) out += "state " + v.name + ": " + shape(g, v) + "\n";
    if (v.alias_of != kNoValue) out += "alias " + v.name + ": " + shape(g, v) + " = " + valueRef(g, v.alias_of) + "\n";
  }
  for (const Node& n : g.nodes) {
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      out += i ? ", " : "";
      out += n.outputs[i] == kNoValue ? "_" : g.value(n.outputs[i]).name + ": " + shape(g, g.value(n.outputs[i]));
    }
    out += (n.outputs.empty() ? "" : " = ") + n.op + "(";
    if (n.pointwise) {
      out += pointwiseText(g, n);
    } else {
      for (size_t i = 0; i < n.args.size(); ++i) out += (i ? ", " : "") + std::visit(ArgText{g}, n.args[i]);
    }
    out += ")\n";
  }
  for (const GraphMutation& m : g.mutations)
    out += "mutate " + g.value(m.state).name + " <- " + g.value(m.value).name + "\n";
  out += "return";
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const GraphOutput& o = g.outputs[i];
    out += (i ? ", " : " ") + (o.value != kNoValue ? g.value(o.value).name : g.exprs.toString(o.expr));
  }
  return out + "\n";
}

}  // namespace etwgpu
