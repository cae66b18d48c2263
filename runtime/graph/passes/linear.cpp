// linear: what surrounds a linear becomes part of it (etwgpu.linear).
//   aten.linear                                    → etwgpu.linear
//   linear(rms_norm(x)), all uses of the norm      → norm inside every one of them
//   mul(act(linear_gate(x)), linear_up(x))         → one linear over the rows of both, glu
//   silu / gelu / relu (linear)                    → activation
//   add(linear, r), same shape                     → residual
//   linear(select(x, 1, row)), no residual         → row
// A linear with another use stays as it is.
#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {
namespace {

bool isLinear(const Node& n) { return n.op == kFusedLinear && n.args.size() == kLinearArgCount; }

std::string activationOf(const Node& n) {
  if (n.op == "aten.silu.default") return "silu";
  if (n.op == "aten.relu.default") return "relu";
  if (n.op == "aten.gelu.default") return textArg(n, 1) == "tanh" ? "gelu_tanh" : "gelu";
  return {};
}

bool plain(const Node& n) {  // neither activation nor glu nor residual yet
  return textArg(n, kLinearActivation) == "none" && !flagArg(n, kLinearGlu) && isNoneArg(n, kLinearResidual);
}

/// aten.linear → etwgpu.linear.
void convert(Graph& g) {
  for (Node& n : g.nodes) {
    const ValueId x = tensorArg(n, 0), w = tensorArg(n, 1);
    if (n.op != "aten.linear.default" || x == kNoValue || w == kNoValue || g.value(x).dims.empty()) continue;
    if (g.value(x).dtype != DType::f32 || g.value(w).dims.size() != 2) continue;
    Arg bias = n.args.size() > 2 ? n.args[2] : Arg();
    n.op = kFusedLinear;
    n.args.assign(kLinearArgCount, std::monostate{});
    n.args[kLinearX] = x;
    n.args[kLinearWeight] = w;
    n.args[kLinearBias] = std::move(bias);
    n.args[kLinearHasNorm] = false;
    n.args[kLinearNormEps] = 0.0;
    n.args[kLinearActivation] = std::string("none");
    n.args[kLinearGlu] = false;
  }
}

void absorbNorms(Graph& g) {
  const GraphIndex index(g);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& norm = g.nodes[i];
    if (norm.op != "aten.rms_norm.default" || norm.outputs.size() != 1 || index.leavesGraph(norm.outputs[0])) continue;
    const ValueId x = tensorArg(norm, 0), y = norm.outputs[0];
    const auto* shape = norm.args.size() > 1 ? std::get_if<std::vector<IntArg>>(&norm.args[1]) : nullptr;
    if (x == kNoValue || !shape || shape->size() != 1 || readsState(g, norm) || g.value(x).dims.empty()) continue;
    const ExprId width = g.value(x).dims.back();
    bool all_linear = true;
    for (int32_t u : index.users(y)) {
      const Node& user = g.nodes[size_t(u)];
      all_linear &= isLinear(user) && !flagArg(user, kLinearHasNorm) && !isNoneArg(user, kLinearX);
      if (!all_linear) break;
      const ValueId ux = tensorArg(user, kLinearX);
      all_linear &=
          g.storage(ux) == y && g.value(ux).dims.back() == width && tensorArg(user, kLinearResidual) == kNoValue;
    }
    if (!all_linear) continue;
    const double eps = isNoneArg(norm, 3) ? kDefaultRmsEps : numberArg(g, norm, 3).value_or(kDefaultRmsEps);
    const Arg weight = norm.args.size() > 2 ? norm.args[2] : Arg();
    for (int32_t u : index.users(y)) {
      Node& user = g.nodes[size_t(u)];
      const ValueId ux = tensorArg(user, kLinearX);
      const std::vector<ExprId> dims = g.value(ux).dims;
      user.args[kLinearX] = dims == g.value(x).dims ? x : newAlias(g, x, g.value(ux).name + ".x", dims);
      user.args[kLinearHasNorm] = true;
      user.args[kLinearNormWeight] = weight;
      user.args[kLinearNormEps] = eps;
    }
  }
  removeDeadNodes(g);
}

/// The linear that produces v, v being its only use; -1 otherwise.
int32_t soleLinear(const Graph& g, const GraphIndex& index, const NodeEditor& editor, ValueId v) {
  if (v == kNoValue || !index.usedOnce(v) || !index.produced(v, kFusedLinear)) return -1;
  const int32_t p = index.producer(v);
  return editor.erased(p) || !isLinear(g.nodes[size_t(p)]) || readsState(g, g.nodes[size_t(p)]) ? -1 : p;
}

bool sameInput(const Node& a, const Node& b) {
  for (int i : {kLinearX, kLinearHasNorm, kLinearNormWeight, kLinearNormEps}) {
    if (a.args[size_t(i)] != b.args[size_t(i)]) return false;
  }
  return true;
}

bool fuseGlu(Graph& g, const GraphIndex& index, NodeEditor& editor, int32_t at) {
  const Node& mul = g.nodes[size_t(at)];
  if (mul.op != "aten.mul.Tensor") return false;
  for (size_t i = 0; i < 2; ++i) {
    const ValueId activated = tensorArg(mul, i), up_value = tensorArg(mul, 1 - i);
    if (activated == kNoValue || up_value == kNoValue || !index.usedOnce(activated)) continue;
    const int32_t act = index.producer(activated);
    if (act < 0 || activationOf(g.nodes[size_t(act)]).empty()) continue;
    const int32_t gate = soleLinear(g, index, editor, tensorArg(g.nodes[size_t(act)], 0));
    const int32_t up = soleLinear(g, index, editor, up_value);
    if (gate < 0 || up < 0 || gate == up) continue;
    const Node &gn = g.nodes[size_t(gate)], &un = g.nodes[size_t(up)];
    if (!plain(gn) || !plain(un) || !sameInput(gn, un) || isNoneArg(gn, kLinearBias) != isNoneArg(un, kLinearBias))
      continue;
    if (!sameDims(g, gn.outputs[0], mul.outputs[0]) || !sameDims(g, un.outputs[0], mul.outputs[0])) continue;
    Node fused = gn;
    fused.name = gn.name + "+" + un.name + "+" + mul.name;
    fused.args[kLinearActivation] = activationOf(g.nodes[size_t(act)]);
    fused.args[kLinearGlu] = true;
    fused.outputs = mul.outputs;
    const ValueId weight = concatenateRows(g, index, {tensorArg(gn, kLinearWeight), tensorArg(un, kLinearWeight)});
    if (weight == kNoValue) continue;
    fused.args[kLinearWeight] = weight;
    if (!isNoneArg(gn, kLinearBias)) {
      const ValueId bias = concatenateRows(g, index, {tensorArg(gn, kLinearBias), tensorArg(un, kLinearBias)});
      if (bias == kNoValue) continue;
      fused.args[kLinearBias] = bias;
    }
    for (int32_t n : {act, gate, up}) editor.erase(n);
    editor.replace(at, std::move(fused));
    return true;
  }
  return false;
}

bool fuseActivation(Graph& g, const GraphIndex& index, NodeEditor& editor, int32_t at) {
  const Node& act = g.nodes[size_t(at)];
  const std::string name = activationOf(act);
  if (name.empty()) return false;
  const int32_t linear = soleLinear(g, index, editor, tensorArg(act, 0));
  if (linear < 0 || !plain(g.nodes[size_t(linear)])) return false;
  Node fused = g.nodes[size_t(linear)];
  if (!sameDims(g, fused.outputs[0], act.outputs[0])) return false;
  fused.name += "+" + act.name;
  fused.args[kLinearActivation] = name;
  fused.outputs = act.outputs;
  editor.erase(linear);
  editor.replace(at, std::move(fused));
  return true;
}

bool fuseResidual(Graph& g, const GraphIndex& index, NodeEditor& editor, int32_t at) {
  const Node& add = g.nodes[size_t(at)];
  if (add.op != "aten.add.Tensor" || numberArg(g, add, 2).value_or(1) != 1) return false;
  for (size_t i : {size_t(1), size_t(0)}) {
    const ValueId y = tensorArg(add, i), residual = tensorArg(add, 1 - i);
    const int32_t linear = soleLinear(g, index, editor, y);
    if (linear < 0 || residual == kNoValue || g.value(residual).dtype != DType::f32) continue;
    Node fused = g.nodes[size_t(linear)];
    if (!isNoneArg(fused, kLinearResidual) || !sameDims(g, residual, add.outputs[0]) || !sameDims(g, y, add.outputs[0]))
      continue;
    fused.name += "+" + add.name;
    fused.args[kLinearResidual] = residual;
    fused.outputs = add.outputs;
    editor.erase(linear);
    editor.replace(at, std::move(fused));
    return true;
  }
  return false;
}

/// linear(select(x, row)) reads the row where it lies: a decoder's head needs the last one.
bool fuseRow(Graph& g, const GraphIndex& index, NodeEditor& editor, int32_t at) {
  const Node& linear = g.nodes[size_t(at)];
  if (!isLinear(linear) || !isNoneArg(linear, kLinearResidual)) return false;
  const ValueId row = tensorArg(linear, kLinearX);
  const Node* select = index.produced(row, "aten.select_copy.int");
  if (!select || !index.usedOnce(row)) return false;
  const ValueId x = tensorArg(*select, 0);
  const auto dim = intArg(g, *select, 1), at_row = intArg(g, *select, 2);
  const std::vector<ExprId> dims = x == kNoValue ? std::vector<ExprId>() : g.value(x).dims;
  if (dims.size() != 3 || !g.exprs.isConstant(dims[0], 1) || !dim || normalizedDim(*dim, 3) != 1 || !at_row)
    return false;
  if (g.value(x).dtype != DType::f32 || readsState(g, *select)) return false;
  const ExprId index_row = g.exprs.constant(*at_row);
  Node fused = linear;
  fused.args[kLinearX] = x;
  fused.args.push_back(IntArg{*at_row < 0 ? g.exprs.add(dims[1], index_row) : index_row});
  editor.erase(index.producer(row));
  editor.replace(at, std::move(fused));
  return true;
}

}  // namespace

Status fuseLinear(Graph& graph) {
  convert(graph);
  absorbNorms(graph);
  // glu before activation, which would take the gate alone; residual last, being applied last
  applyToAll(graph, fuseGlu);
  applyToAll(graph, fuseActivation);
  applyToAll(graph, fuseResidual);
  applyToAll(graph, fuseRow);
  return {};
}

}  // namespace etwgpu
