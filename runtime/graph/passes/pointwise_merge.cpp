// pointwise_merge: a pointwise node that feeds only pointwise nodes is computed inside them.
// A consumer reads its producer's result at strides; the pass finds the producer's dimension behind each of the
// consumer's and composes the accesses: index p[k] of the producer = shift[k] + (index d of the consumer, or 0).
#include <algorithm>

#include "runtime/graph/fused_ops.h"
#include "runtime/graph/passes/passes_list.h"
#include "runtime/graph/passes/pointwise.h"

namespace etwgpu {
namespace {

constexpr size_t kMaxInputs = 6;         // with the output within 8 storage buffers, one to spare
constexpr size_t kMaxInstructions = 48;  // registers and compile time
constexpr size_t kCheap = 4;             // instructions without arithmetic on data that several consumers may repeat

/// How one load of a consumer walks over the producer's dimensions.
struct Walk {
  std::vector<int32_t> dim;   // by producer dimension: the consumer's dimension, or -1
  std::vector<ExprId> shift;  // by producer dimension
};

class Merger {
 public:
  explicit Merger(Graph& graph) : g_(graph) {}

  void run() {
    index();
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (!g_.nodes[i].pointwise) continue;
      while (mergeOneInto(int32_t(i))) {
      }
    }
    removeDeadNodes(g_);
  }

 private:
  void index() {
    producer_.assign(g_.values.size(), -1);
    leaves_.assign(g_.values.size(), false);
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      for (ValueId v : g_.nodes[i].outputs) {
        if (v != kNoValue) producer_[size_t(v)] = int32_t(i);
      }
      for (ValueId s : writtenStates(g_.nodes[i])) writes_.emplace_back(int32_t(i), g_.storage(s));
    }
    for (const GraphOutput& o : g_.outputs) {
      if (o.value != kNoValue) leaves_[size_t(g_.storage(o.value))] = true;
    }
    for (const GraphMutation& m : g_.mutations) leaves_[size_t(g_.storage(m.value))] = true;
    users_.resize(g_.values.size());
    for (size_t i = 0; i < g_.nodes.size(); ++i) addUses(int32_t(i));
  }
  void addUses(int32_t node) {
    forEachTensorArg(g_.nodes[size_t(node)], [&](ValueId v) {
      auto& list = users_[size_t(g_.storage(v))];
      if (list.empty() || list.back() != node) list.push_back(node);
    });
  }

  bool mergeOneInto(int32_t consumer) {
    const Node& node = g_.nodes[size_t(consumer)];
    for (size_t a = 0; a < node.args.size(); ++a) {
      const ValueId v = std::get<ValueId>(node.args[a]);
      const int32_t p = producer_[size_t(g_.storage(v))];
      if (p >= 0 && g_.nodes[size_t(p)].pointwise && mayInline(p, consumer) && inlineInto(p, consumer)) return true;
    }
    return false;
  }

  bool mayInline(int32_t p, int32_t consumer) const {
    const Node& producer = g_.nodes[size_t(p)];
    const ValueId out = producer.outputs[0];
    if (leaves_[size_t(out)]) return false;
    // every user must take it in, else it would be computed twice; mere reads and fills may be
    const auto& users = users_[size_t(out)];
    const bool once = std::all_of(users.begin(), users.end(), [&](int32_t u) { return u == consumer; });
    const bool all_pointwise =
        std::all_of(users.begin(), users.end(), [&](int32_t u) { return g_.nodes[size_t(u)].pointwise != nullptr; });
    const bool fill = producer.pointwise->inputs.empty() && producer.pointwise->code.size() <= kCheap;
    if (!once && !fill && !(all_pointwise && isRead(*producer.pointwise))) return false;
    // reading a state later than before must not pass a write of it
    bool safe = true;
    forEachTensorArg(producer, [&](ValueId in) {
      const ValueId s = g_.storage(in);
      for (const auto& [at, state] : writes_) safe &= state != s || at < p || at > consumer;
    });
    return safe;
  }

  /// A strided read of one tensor, perhaps with casts.
  static bool isRead(const PointwiseProgram& program) {
    return program.inputs.size() <= 1 && program.code.size() <= kCheap &&
           std::all_of(program.code.begin(), program.code.end(), [](const PointwiseInstruction& x) {
             return x.op == PointwiseOp::load || x.op == PointwiseOp::cast;
           });
  }

  /// A node that nobody uses any more no longer counts as a user of its inputs.
  void release(int32_t node) {
    const ValueId out = g_.nodes[size_t(node)].outputs[0];
    if (!users_[size_t(out)].empty() || leaves_[size_t(out)]) return;
    forEachTensorArg(g_.nodes[size_t(node)], [&](ValueId v) {
      auto& list = users_[size_t(g_.storage(v))];
      list.erase(std::remove(list.begin(), list.end(), node), list.end());
    });
  }

  bool inlineInto(int32_t p, int32_t c) {
    const Node& producer = g_.nodes[size_t(p)];
    const Node& consumer = g_.nodes[size_t(c)];
    const ValueId out = producer.outputs[0];
    const PointwiseProgram &inner = *producer.pointwise, &outer = *consumer.pointwise;
    const std::vector<ExprId> rank_dims = g_.value(consumer.outputs[0]).dims;
    Node merged;
    merged.op = kPointwise;
    merged.outputs = consumer.outputs;
    merged.name = producer.name + "+" + consumer.name;
    PointwiseProgram program;
    std::vector<int32_t> at(outer.code.size(), -1);
    for (size_t i = 0; i < outer.code.size(); ++i) {
      PointwiseInstruction x = outer.code[i];
      if (x.op == PointwiseOp::load) {
        const ValueId v = std::get<ValueId>(consumer.args[size_t(x.imm_index)]);
        const PointwiseInput& access = outer.inputs[size_t(x.imm_index)];
        if (g_.storage(v) == out) {
          const auto walk = walkOf(access, rank_dims, g_.value(out).dims);
          if (!walk || !append(inner, producer, *walk, rank_dims.size(), merged, program, at[i])) return false;
          continue;
        }
        x.imm_index = addInput(merged, program, v, access);
      }
      for (int32_t* operand : {&x.a, &x.b, &x.c}) {
        if (*operand >= 0) *operand = at[size_t(*operand)];
      }
      at[i] = emit(program, x);
    }
    // the result is the last instruction, even where an equal one stood earlier
    const auto last = size_t(at.back());
    if (last + 1 != program.code.size()) program.code.push_back(program.code[last]);
    if (program.inputs.size() > kMaxInputs || program.code.size() > kMaxInstructions) return false;
    merged.pointwise = std::make_shared<PointwiseProgram>(std::move(program));
    auto& users = users_[size_t(out)];
    users.erase(std::remove(users.begin(), users.end(), c), users.end());
    g_.nodes[size_t(c)] = std::move(merged);
    addUses(c);
    release(p);
    return true;
  }

  /// Appends the producer's code under the walk; `result` is the index of its result.
  bool append(const PointwiseProgram& inner, const Node& producer, const Walk& walk, size_t rank, Node& merged,
              PointwiseProgram& program, int32_t& result) {
    std::vector<int32_t> at(inner.code.size(), -1);
    for (size_t i = 0; i < inner.code.size(); ++i) {
      PointwiseInstruction x = inner.code[i];
      if (x.op == PointwiseOp::load) {
        const PointwiseInput& in = inner.inputs[size_t(x.imm_index)];
        PointwiseInput access{std::vector<ExprId>(rank, g_.exprs.constant(0)), in.offset};
        for (size_t k = 0; k < walk.dim.size(); ++k) {
          access.offset = g_.exprs.add(access.offset, g_.exprs.mul(walk.shift[k], in.strides[k]));
          if (walk.dim[k] >= 0) access.strides[size_t(walk.dim[k])] = in.strides[k];
        }
        x.imm_index =
            addInput(merged, program, std::get<ValueId>(producer.args[size_t(x.imm_index)]), std::move(access));
      }
      if (x.op == PointwiseOp::iota) {
        if (!iota(walk, x, program, at[i])) return false;
        continue;
      }
      for (int32_t* operand : {&x.a, &x.b, &x.c}) {
        if (*operand >= 0) *operand = at[size_t(*operand)];
      }
      at[i] = emit(program, x);
    }
    result = at.back();
    return true;
  }

  /// A position along the producer's dimension in terms of the consumer's.
  bool iota(const Walk& walk, PointwiseInstruction x, PointwiseProgram& program, int32_t& result) {
    const auto k = size_t(x.imm_index);
    if (!g_.exprs.isConstant(walk.shift[k])) return false;
    PointwiseInstruction shift{PointwiseOp::constant};
    shift.imm = double(g_.exprs.constantValue(walk.shift[k]));
    shift.dtype = x.dtype;
    if (walk.dim[k] < 0) {
      result = emit(program, shift);
      return true;
    }
    x.imm_index = walk.dim[k];
    result = emit(program, x);
    if (shift.imm != 0) {
      PointwiseInstruction sum{PointwiseOp::add};
      sum.a = result;
      sum.b = emit(program, shift);
      sum.dtype = x.dtype;
      result = emit(program, sum);
    }
    return true;
  }

  /// Splits the flat access into steps along the producer's dimensions, or nullopt where a step is no dimension's.
  std::optional<Walk> walkOf(const PointwiseInput& access, const std::vector<ExprId>& consumer_dims,
                             const std::vector<ExprId>& dims) {
    Exprs& e = g_.exprs;
    const std::vector<ExprId> strides = contiguousStrides(e, dims);
    Walk w{std::vector<int32_t>(dims.size(), -1), std::vector<ExprId>(dims.size(), e.constant(0))};
    if (!split(access.offset, dims, strides, w.shift)) return {};
    for (size_t d = 0; d < consumer_dims.size(); ++d) {
      if (e.isConstant(access.strides[d], 0) || e.isConstant(consumer_dims[d], 1)) continue;
      bool found = false;
      for (size_t k = 0; k < dims.size() && !found; ++k) {
        if (access.strides[d] != strides[k] || w.dim[k] >= 0 || e.isConstant(dims[k], 1)) continue;
        // the steps must stay within the dimension
        const ExprId end = e.add(w.shift[k], consumer_dims[d]);
        if (end != dims[k] && e.bounds(end).max > e.bounds(dims[k]).min) continue;
        w.dim[k] = int32_t(d);
        found = true;
      }
      if (!found) return {};
    }
    return w;
  }

  /// A flat offset as indices along dimensions: mixed radix from the last one for constants, or one symbolic index ·
  /// stride.
  bool split(ExprId offset, const std::vector<ExprId>& dims, const std::vector<ExprId>& strides,
             std::vector<ExprId>& shift) {
    Exprs& e = g_.exprs;
    if (e.isConstant(offset)) {
      int64_t rest = e.constantValue(offset);
      for (size_t k = dims.size(); k-- > 0 && rest != 0;) {
        if (!e.isConstant(dims[k]) || e.constantValue(dims[k]) <= 0) return false;
        shift[k] = e.constant(rest % e.constantValue(dims[k]));
        rest /= e.constantValue(dims[k]);
      }
      return rest == 0;
    }
    const Exprs::Node n = e.node(offset);
    for (size_t k = 0; k < dims.size(); ++k) {
      if (e.isConstant(strides[k], 1) && e.bounds(offset).min >= 0 && e.bounds(offset).max < e.bounds(dims[k]).min) {
        shift[k] = offset;
        return true;
      }
      if (n.op != ExprOp::mul) continue;
      const ExprId left{n.a}, right{n.b};
      if (right == strides[k] && !e.isConstant(dims[k], 1)) return shift[k] = left, true;
      if (left == strides[k] && !e.isConstant(dims[k], 1)) return shift[k] = right, true;
    }
    return false;
  }

  Graph& g_;
  std::vector<int32_t> producer_;
  std::vector<bool> leaves_;
  std::vector<std::vector<int32_t>> users_;
  std::vector<std::pair<int32_t, ValueId>> writes_;  // node, state
};

}  // namespace

Status mergePointwise(Graph& graph) {
  Merger(graph).run();
  return {};
}

}  // namespace etwgpu
