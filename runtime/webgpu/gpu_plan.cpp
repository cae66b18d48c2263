#include "runtime/webgpu/gpu_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/sampling/sampling.h"
#include "runtime/webgpu/gpu_storage.h"

namespace etwgpu {
namespace {

constexpr uint64_t kSmallInput = 16 << 10;
constexpr size_t kMaxParams = 64;
// Graphs with many outputs (a training step) have no use for an argmax of each.
constexpr size_t kMaxArgmaxOutputs = 4;

class Planner {
 public:
  Planner(Graph graph, const GpuCapabilities& capabilities, const LoadOptions& options)
      : capabilities_(capabilities), options_(options) {
    plan_.graph = std::move(graph);
  }

  Result<GpuPlan> run() {
    if (!graph().mutations.empty()) return Status(Code::internal, "the passes have left a mutation");
    const size_t nodes = plan_.graph.nodes.size();
    ETWGPU_TRY(checkKernels());
    findFeedback();
    addArgmaxNodes();
    addSampleNode();
    for (size_t i = 0; i < plan_.graph.nodes.size(); ++i) ETWGPU_TRY(planNode(i, i >= nodes ? i - nodes : SIZE_MAX));
    placeInputs();
    ETWGPU_TRY(placeValues());
    collectStorages();
    for (const PlannedDispatch& d : plan_.dispatches) ETWGPU_TRY(check(d));
    plan_.graph.nodes.resize(nodes);  // callers see the model's graph
    return std::move(plan_);
  }

 private:
  Graph& graph() { return plan_.graph; }
  const std::string& nameOf(ValueId id) { return graph().value(id).name; }

  bool isAlias(const Node& node) {
    return !node.outputs.empty() && std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
      return v == kNoValue || graph().value(v).alias_of != kNoValue;
    });
  }

  bool needsNoKernel(const Node& node) { return node.op == kStateCopy || isAlias(node); }

  Status checkKernels() {
    std::map<std::string, int> missing;
    for (const Node& node : graph().nodes) {
      if (!needsNoKernel(node) && !findGpuKernel(node.op)) ++missing[node.op];
    }
    if (missing.empty()) return {};
    std::string list;
    for (const auto& [op, count] : missing) list += format("%s%s (%d)", list.empty() ? "" : ", ", op.c_str(), count);
    return Status(Code::unsupported_operator, "no GPU kernel for " + list);
  }

  void findFeedback() {
    Graph& g = graph();
    if (!findGpuKernel(kArgmax) || g.inputs.size() != 2 || g.outputs.size() != 1) return;
    const ValueId ids = g.inputs[0].value, start = g.inputs[1].value, logits = g.outputs[0].value;
    if (ids == kNoValue || start == kNoValue || logits == kNoValue || ids == start) return;
    const auto &i = g.value(ids).dims, &s = g.value(start).dims, &l = g.value(logits).dims;
    if (g.value(ids).dtype != DType::i64 || g.value(start).dtype != DType::i64 || !isFloating(g.value(logits).dtype))
      return;
    const ExprId one = g.exprs.constant(1);
    if (i.size() != 2 || i[0] != one || s.size() != 1 || s[0] != one || g.exprs.bounds(i[1]).min > 1) return;
    if (l.size() < 2 || l.size() > 3 || l[0] != one || (l.size() == 3 && l[1] != i[1])) return;
    plan_.feedback = {ids, start, l.size() == 2};
  }

  /// The step buffer has a place for each; the values need no other memory.
  void placeInStepBuffer(std::initializer_list<ValueId> same_place) {
    uint64_t bytes = 0;
    for (const ValueId id : same_place) {
      plan_.step_offsets.resize(graph().values.size(), -1);
      plan_.step_offsets[size_t(id)] = int64_t(plan_.step_bytes);
      bytes = std::max(bytes, gpuBytes(graph(), id, options_.precision));
    }
    plan_.step_bytes += (bytes + kGpuAlignment - 1) / kGpuAlignment * kGpuAlignment;
  }

  void addArgmaxNodes() {
    if (!findGpuKernel(kArgmax)) return;
    for (size_t i = 0; i < std::min(graph().outputs.size(), kMaxArgmaxOutputs); ++i) {
      const ValueId output = graph().outputs[i].value;
      if (output == kNoValue || !isFloating(graph().value(output).dtype) || graph().value(output).dims.size() < 2)
        continue;
      Value ids;
      ids.name = nameOf(output) + ".argmax";
      ids.dtype = DType::i32;
      ids.dims = graph().value(output).dims;
      ids.dims.pop_back();
      Node node;
      node.op = kArgmax;
      node.name = ids.name;
      node.args = {Arg(output)};
      node.outputs = {graph().newValue(std::move(ids))};
      plan_.argmax.push_back({int32_t(i), node.outputs[0]});
      if (plan_.feedback.present()) {
        node.args = {Arg(output), Arg(plan_.feedback.start), Arg(IntArg{graph().value(plan_.feedback.ids).dims[1]})};
        placeInStepBuffer({plan_.feedback.ids, node.outputs[0]});
        placeInStepBuffer({plan_.feedback.start});
      }
      graph().nodes.push_back(std::move(node));
    }
  }

  ValueId newWords(const char* name, int64_t count, ValueKind kind) {
    Value v;
    v.name = name;
    v.dtype = DType::i32;
    v.dims = {graph().exprs.constant(count)};
    v.kind = kind;
    return graph().newValue(std::move(v));
  }

  void addSampleNode() {
    if (!plan_.feedback.present() || plan_.argmax.empty() || !findGpuKernel(kSample)) return;
    const ValueId logits = graph().outputs[0].value, ids = plan_.feedback.ids, chosen = plan_.argmax[0].ids;
    const int64_t vocabulary = graph().exprs.bounds(graph().value(logits).dims.back()).max;
    PlannedSampling& s = plan_.sampling;
    s.options = newWords("sample.options", kSampleOptionWords, ValueKind::input);
    s.seen = newWords("sample.seen", (vocabulary + 31) / 32 * 2, ValueKind::intermediate);
    s.result = newWords("sample.result", 2, ValueKind::intermediate);
    placeInStepBuffer({s.seen});
    placeInStepBuffer({s.result});
    Node node;
    node.op = kSample;
    node.name = "sample";
    node.args = {Arg(logits), Arg(plan_.feedback.start), Arg(IntArg{graph().value(ids).dims[1]}), Arg(s.options),
                 Arg(s.seen)};
    node.outputs = {chosen, s.result};
    graph().nodes.push_back(std::move(node));
  }

  /// extra: which of the nodes that were added behind the model's it is; SIZE_MAX: one of the model's.
  Status planNode(size_t index, size_t extra) {
    const Node& node = graph().nodes[index];
    if (node.op == kStateCopy) {
      const ValueId state = std::get<ValueId>(node.args[0]), value = std::get<ValueId>(node.args[1]);
      if (graph().storage(state) != graph().storage(value))
        plan_.copies.push_back({state, value, plan_.dispatches.size()});
      return {};
    }
    if (isAlias(node)) return {};
    const std::string name = node.name.empty() ? node.op : node.name;
    GpuPlanContext context(graph(), capabilities_, options_, int(index));
    if (const Status status = findGpuKernel(node.op)(context); !status.ok()) {
      return Status(status.code(), format("node %s: %s", name.c_str(), status.message().c_str()));
    }
    plan_.tuned_keys.merge(context.tuned_keys);
    for (const ValueId value : context.scratch) scratch_.push_back({value, int32_t(index)});
    for (size_t i = 0; i < context.dispatches.size(); ++i) {
      PlannedDispatch d{std::move(context.dispatches[i]), name};
      d.node_index = index;
      if (extra < plan_.argmax.size()) d.only_argmax = plan_.argmax[extra].output;
      if (extra != SIZE_MAX && extra >= plan_.argmax.size()) d.only_sample = kSamplePasses[i];
      plan_.dispatches.push_back(std::move(d));
    }
    return {};
  }

  void placeInputs() {
    plan_.input_offsets.assign(graph().values.size(), -1);
    std::vector<GraphInput> inputs = graph().inputs;
    if (plan_.sampling.present()) inputs.push_back({plan_.sampling.options});
    for (const GraphInput& input : inputs) {
      if (input.value == kNoValue || plan_.input_offsets[size_t(input.value)] >= 0) continue;
      if (plan_.stepOffset(input.value) >= 0) continue;
      const uint64_t bytes = gpuBytes(graph(), input.value, options_.precision);
      if (bytes > kSmallInput) continue;
      plan_.input_offsets[size_t(input.value)] = int64_t(plan_.input_bytes);
      plan_.input_bytes += std::max<uint64_t>((bytes + kGpuAlignment - 1) / kGpuAlignment, 1) * kGpuAlignment;
    }
  }

  Status placeValues() {
    PlanOptions options;
    options.alignment = kGpuAlignment;
    options.max_arena_bytes = std::min(capabilities_.max_binding_bytes, capabilities_.max_buffer_bytes);
    options.separate_outputs = true;
    options.bytes = options_.precision == Precision::f16 ? &gpuBytesF16 : &gpuBytesF32;
    options.elsewhere.resize(graph().values.size());
    for (size_t v = 0; v < graph().values.size(); ++v)
      options.elsewhere[v] = plan_.input_offsets[v] >= 0 || plan_.stepOffset(ValueId(v)) >= 0;
    // What is read after the last dispatch lives as long as an output does.
    const size_t outputs = graph().outputs.size();
    for (const PlannedArgmax& a : plan_.argmax) graph().outputs.push_back({a.ids, {}});
    Result<MemoryPlan> memory = planMemory(graph(), scratch_, options);
    graph().outputs.resize(outputs);
    if (!memory.ok()) return memory.status();
    plan_.memory = std::move(memory).value();
    return {};
  }

  void collectStorages() {
    std::set<ValueId> seen;
    const auto use = [&](ValueId id) {
      if (id == kNoValue || !seen.insert(id = graph().storage(id)).second) return;
      if (graph().value(id).kind == ValueKind::constant) plan_.constants.push_back(id);
      if (graph().value(id).kind == ValueKind::state) plan_.states.push_back(id);
    };
    for (const PlannedDispatch& d : plan_.dispatches) {
      for (const Binding& b : d.spec.bindings) use(b.value);
    }
    for (const GraphOutput& o : graph().outputs) use(o.value);
    for (const PlannedCopy& m : plan_.copies) {
      use(m.state);
      use(m.value);
    }
  }

  /// Values of one space may share a buffer.
  int64_t space(ValueId id) {
    id = graph().storage(id);
    switch (graph().value(id).kind) {
      case ValueKind::constant:
        return -1;
      case ValueKind::state:
        return int64_t(1) << 32 | id;
      default:
        if (plan_.stepOffset(id) >= 0) return -3;
        return plan_.input_offsets[size_t(id)] >= 0 ? -2 : plan_.memory.placements[size_t(id)].arena;
    }
  }

  Status fail(const PlannedDispatch& d, Code code, const std::string& what) {
    return Status(code, format("node %s, kernel %s: %s", d.node.c_str(), d.spec.kernel.name.c_str(), what.c_str()));
  }

  Status check(const PlannedDispatch& d) {
    const DispatchSpec& spec = d.spec;
    if (spec.params.size() > kMaxParams) return fail(d, Code::internal, "more than 64 parameters");
    if (spec.bindings.size() > capabilities_.max_storage_buffers) {
      return fail(
          d, Code::limit_exceeded,
          format("%zu buffers, but the device allows %u", spec.bindings.size(), capabilities_.max_storage_buffers));
    }
    for (const ExprId e : spec.workgroups) {
      if (!e.valid()) return fail(d, Code::internal, "a workgroup count is missing");
    }
    std::map<int64_t, Access> access;
    for (const Binding& b : spec.bindings) {
      if (b.value < 0 || size_t(b.value) >= graph().values.size())
        return fail(d, Code::internal, "a binding without a value");
      const BindingRange range = bindingRange(graph(), b, options_.precision);
      const uint64_t total = gpuBytes(graph(), graph().storage(b.value), options_.precision);
      if (range.offset % kGpuAlignment != 0 || range.offset + range.size > std::max<uint64_t>(total, 4)) {
        return fail(d, Code::internal, format("bad range of %s", nameOf(b.value).c_str()));
      }
      if (range.size > capabilities_.max_binding_bytes) {
        return fail(d, Code::limit_exceeded,
                    format("%s takes %llu bytes, but the device binds %llu at most", nameOf(b.value).c_str(),
                           (unsigned long long)range.size, (unsigned long long)capabilities_.max_binding_bytes));
      }
      const int64_t where = space(b.value);
      if (b.access == Access::read_write && (where == -1 || where == -2)) {
        return fail(d, Code::internal, format("writes the constant or input %s", nameOf(b.value).c_str()));
      }
      if (where == -1 || where == -2) continue;
      if (!access.emplace(where, b.access).second && access[where] != b.access) {
        return fail(
            d, Code::internal,
            format("%s shares a buffer with a value that is bound with another access", nameOf(b.value).c_str()));
      }
    }
    return {};
  }

  GpuPlan plan_;
  const GpuCapabilities& capabilities_;
  const LoadOptions& options_;
  std::vector<ScratchUse> scratch_;
};

}  // namespace

BindingRange bindingRange(const Graph& graph, const Binding& binding, Precision precision) {
  const ValueId id = graph.storage(binding.value);
  const Value& value = graph.value(id);
  const uint64_t total = gpuBytes(graph, id, precision);
  BindingRange range{0, std::max<uint64_t>(total, 4)};
  if (value.quantization.bits != 0) {
    // The words end where the planes' padding begins; a kernel that asks for arrayLength gets whole blocks either way.
    if (binding.part == Part::quant_words) range.size = value.quantization.constants_offset;
    if (binding.part == Part::quant_constants) {
      range = {value.quantization.constants_offset, total - value.quantization.constants_offset};
    }
  }
  return range;
}

Result<GpuPlan> planGraph(Graph graph, const GpuCapabilities& capabilities, const LoadOptions& options) {
  return Planner(std::move(graph), capabilities, options).run();
}

}  // namespace etwgpu
