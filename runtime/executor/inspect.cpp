// Session::inspectJson:
//   {file, file_bytes, methods: [{name, constant, inputs, outputs, values, arenas, instructions: [{kind, operator,
//     served_by, kernel, tensors: [{dtype, rank}]} | {kind, index, target?}],
//     delegates: [{id, payload_bytes, error?, exporter, symbols, nodes, operators, fused_operators, weights,
//     state_bytes, arena_bytes, arena_without_reuse, graph}], islands: [{first, last, operators, bytes_copied}]}],
//    memory: {arenas, constants, weights, state}, adapters: [{name, scale, linears: {weight: rank}}],
//    missing_operators: {name: calls}, missing_data: [name]}
#include <algorithm>
#include <set>

#include "runtime/executor/session.h"
#include "runtime/graph/plan.h"
#include "runtime/program/json.h"

namespace etwgpu {
namespace {

using ull = unsigned long long;

/// Sizes of named data; a key that is nowhere is noted and passes for large enough, so that the graph can be shown.
struct LenientSizes final : NamedDataSizes {
  explicit LenientSizes(const NamedDataMap& map) : map(map) {}
  std::optional<uint64_t> size(std::string_view key) const override {
    const auto size = map.size(key);
    if (size) return size;
    missing.emplace(key);
    return uint64_t(1) << 60;
  }
  const NamedDataMap& map;
  mutable std::set<std::string> missing;
};

std::string schemeName(const Value& v) {
  const Quantization& q = v.quantization;
  if (q.bits == 0) return std::string(dtypeName(v.dtype));
  std::string s = format("int%d", q.bits);
  s += q.group ? format(" group %d", q.group) : " per row";
  return s + (q.symmetric ? " symmetric" : q.bits == 4 ? " affine" : "");
}

std::map<std::string, int> countOperators(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& n : graph.nodes) ++counts[n.op];
  return counts;
}

void writeCounts(JsonWriter& j, std::string_view name, const std::map<std::string, int>& counts) {
  j.key(name);
  j.beginObject();
  for (const auto& [op, count] : counts) j.field(op, count);
  j.endObject();
}

}  // namespace

class Inspector {
 public:
  explicit Inspector(const Session& session) : s_(session), sizes_(session.named_data_) {}

  std::string run() {
    j_.beginObject();
    j_.field("file", s_.program_->file);
    j_.field("file_bytes", s_.program_->file_size);
    j_.key("methods");
    j_.beginArray();
    for (size_t i = 0; i < s_.program_->methods.size(); ++i) writeMethod(i);
    j_.endArray();
    writeMemory();
    writeAdapters();
    writeCounts(j_, "missing_operators", s_.missing_operators_);
    j_.key("missing_data");
    j_.beginArray();
    for (const std::string& name : s_.missing_data_) sizes_.missing.insert(name);
    for (const std::string& name : sizes_.missing) j_.string(name);
    j_.endArray();
    j_.endObject();
    return j_.take();
  }

 private:
  void writeMethod(size_t index) {
    const Method& m = s_.program_->methods[index];
    const MethodSpec& spec = s_.specs_[index];
    j_.beginObject();
    j_.field("name", spec.name);
    j_.field("constant", spec.constant);
    writeSpecs("inputs", spec.inputs);
    writeSpecs("outputs", spec.outputs);
    if (spec.constant) writeValues(spec.values);
    j_.key("arenas");
    j_.beginArray();
    for (size_t i = 1; i < m.arenas.size(); ++i) j_.number(int64_t(m.arenas[i]));
    j_.endArray();
    j_.key("instructions");
    j_.beginArray();
    for (const Instruction& in : m.instructions) writeInstruction(index, in);
    j_.endArray();
    j_.key("delegates");
    j_.beginArray();
    for (size_t k = 0; k < m.delegates.size(); ++k)
      writeDelegate(m.delegates[k], s_.methods_[index].delegates[k].payload);
    j_.endArray();
    writeIslands(index);
    j_.endObject();
  }

  void writeSpecs(std::string_view name, const std::vector<ValueSpec>& specs) {
    static constexpr const char* kKinds[] = {"none", "tensor", "int", "float", "bool", "str"};
    j_.key(name);
    j_.beginArray();
    for (const ValueSpec& v : specs) {
      j_.beginObject();
      j_.field("kind", kKinds[size_t(v.kind)]);
      if (v.kind == ValueSpec::Kind::tensor) {
        j_.field("dtype", scalarTypeName(v.scalar_type));
        j_.key("sizes");
        j_.beginArray();
        for (int64_t s : v.sizes) j_.number(s);
        j_.endArray();
        j_.field("dynamic", v.dynamic);
      }
      j_.endObject();
    }
    j_.endArray();
  }

  void writeValues(const std::vector<OutputValue>& values) {
    j_.key("values");
    j_.beginArray();
    for (const OutputValue& v : values) {
      if (const auto* i = std::get_if<int64_t>(&v)) {
        j_.number(*i);
      } else if (const auto* d = std::get_if<double>(&v)) {
        j_.number(*d);
      } else if (const auto* b = std::get_if<bool>(&v)) {
        j_.boolean(*b);
      } else if (const auto* t = std::get_if<std::string>(&v)) {
        j_.string(*t);
      } else {
        j_.null();
      }
    }
    j_.endArray();
  }

  void writeInstruction(size_t method, const Instruction& in) {
    static constexpr const char* kKinds[] = {"kernel", "delegate", "move", "jump_false", "free"};
    j_.beginObject();
    j_.field("kind", kKinds[size_t(in.kind)]);
    if (in.kind == InstructionKind::kernel) {
      const Method& m = s_.program_->methods[method];
      const ResolvedOperator& op = s_.methods_[method].state->operators()[size_t(in.index)];
      const OperatorName& name = m.operators[size_t(in.index)];
      j_.field("operator", name.text());
      j_.field("served_by", op.primitive ? "primitive" : op.kernel ? "kernel" : "nothing");
      j_.field("kernel", op.primitive ? name.text() : functionalName(name.name, name.overload));
      writeTensors(m, in);
    } else {
      j_.field("index", in.index);
      if (in.kind == InstructionKind::move || in.kind == InstructionKind::jump_false) j_.field("target", in.target);
    }
    j_.endObject();
  }

  /// Of a kernel call: what decides, with the operator, whether a delegate could have taken it.
  void writeTensors(const Method& m, const Instruction& in) {
    j_.key("tensors");
    j_.beginArray();
    for (int32_t arg : in.args) {
      const auto* ref = std::get_if<TensorRef>(&m.values[size_t(arg)]);
      if (!ref) continue;
      const TensorInfo& tensor = m.tensors[size_t(ref->index)];
      j_.beginObject();
      j_.field("dtype", scalarTypeName(tensor.scalar_type));
      j_.field("rank", uint64_t(tensor.sizes.size()));
      j_.endObject();
    }
    j_.endArray();
  }

  void writeDelegate(const DelegateInfo& info, std::span<const uint8_t> payload) {
    j_.beginObject();
    j_.field("id", info.id);
    j_.field("payload_bytes", uint64_t(payload.size()));
    if (info.id == "WebGPUBackend") {
      Result<Graph> graph = importGraph(payload, sizes_);
      if (graph.ok()) {
        writeGraph(*graph);
      } else {
        j_.field("error", graph.status().message());
      }
    }
    j_.endObject();
  }

  void writeGraph(Graph& graph) {
    j_.field("exporter", graph.exporter);
    j_.key("symbols");
    j_.beginArray();
    for (size_t i = 0; i < graph.exprs.symbolCount(); ++i) {
      j_.beginObject();
      j_.field("name", graph.exprs.symbolName(i));
      j_.field("min", graph.exprs.symbolBounds(i).min);
      j_.field("max", graph.exprs.symbolBounds(i).max);
      j_.endObject();
    }
    j_.endArray();
    j_.field("nodes", uint64_t(graph.nodes.size()));
    writeCounts(j_, "operators", countOperators(graph));
    writeWeights(graph);
    const std::string text = toText(graph);
    if (const Status status = runPasses(graph, s_.config_.options.disabled_passes); !status.ok()) {
      j_.field("error", status.message());
    } else {
      writeCounts(j_, "fused_operators", countOperators(graph));
      PlanOptions options;
      options.bytes = [](const Graph& g, ValueId id) { return g.maxBytes(id); };
      if (const Result<MemoryPlan> plan = planMemory(graph, {}, options); plan.ok()) {
        uint64_t arena = 0;
        for (uint64_t bytes : plan->arena_bytes) arena += bytes;
        j_.field("arena_bytes", arena);
        j_.field("arena_without_reuse", plan->sum_of_values);
      }
    }
    j_.field("graph", text);
  }

  void writeWeights(const Graph& graph) {
    struct Sum {
      int count = 0;
      uint64_t bytes = 0;
    };
    std::map<std::string, Sum> schemes;
    uint64_t state_bytes = 0;
    for (ValueId id = 0; id < ValueId(graph.values.size()); ++id) {
      const Value& v = graph.value(id);
      if (v.kind == ValueKind::state && states_.insert(v.name).second) state_bytes += graph.maxBytes(id);
      if (v.kind != ValueKind::constant) continue;
      Sum& sum = schemes[schemeName(v)];
      ++sum.count;
      for (const auto* pieces : {&v.pieces, &v.constants_pieces}) {
        for (const ConstantPiece& p : *pieces) sum.bytes += p.size;
      }
      sum.bytes += v.literal.size();
    }
    state_total_ += state_bytes;
    j_.field("state_bytes", state_bytes);
    j_.key("weights");
    j_.beginObject();
    for (const auto& [scheme, sum] : schemes) {
      j_.key(scheme);
      j_.beginObject();
      j_.field("tensors", sum.count);
      j_.field("bytes", sum.bytes);
      j_.endObject();
    }
    j_.endObject();
  }

  /// Kernel calls in a row between delegates: what is copied from and to the device for them.
  void writeIslands(size_t method) {
    const Method& m = s_.program_->methods[method];
    std::set<int32_t> crossing;  // values that a delegate takes or gives
    for (const Instruction& in : m.instructions) {
      if (in.kind == InstructionKind::delegate) crossing.insert(in.args.begin(), in.args.end());
    }
    j_.key("islands");
    j_.beginArray();
    for (size_t i = 0; i < m.instructions.size() && !m.delegates.empty(); ++i) {
      if (m.instructions[i].kind == InstructionKind::delegate) continue;
      const size_t first = i;
      std::set<int32_t> copied;
      std::vector<std::string> operators;
      for (; i < m.instructions.size() && m.instructions[i].kind != InstructionKind::delegate; ++i) {
        const Instruction& in = m.instructions[i];
        if (in.kind != InstructionKind::kernel || s_.methods_[method].state->operators()[size_t(in.index)].primitive)
          continue;
        operators.push_back(m.operators[size_t(in.index)].text());
        for (int32_t arg : in.args) collectTensors(m, arg, crossing, copied);
      }
      if (!operators.empty()) writeIsland(m, first, i - 1, operators, copied);
    }
    j_.endArray();
  }

  static void collectTensors(const Method& m, int32_t arg, const std::set<int32_t>& crossing,
                             std::set<int32_t>& copied) {
    if (const auto* list = std::get_if<TensorList>(&m.values[size_t(arg)])) {
      for (int32_t item : list->items) {
        if (crossing.count(item)) copied.insert(item);
      }
    } else if (crossing.count(arg) && std::holds_alternative<TensorRef>(m.values[size_t(arg)])) {
      copied.insert(arg);
    }
  }

  void writeIsland(const Method& m, size_t first, size_t last, const std::vector<std::string>& operators,
                   const std::set<int32_t>& copied) {
    uint64_t bytes = 0;
    for (int32_t value : copied) {
      if (const auto* ref = std::get_if<TensorRef>(&m.values[size_t(value)]))
        bytes += m.tensors[size_t(ref->index)].bytes;
    }
    j_.beginObject();
    j_.field("first", uint64_t(first));
    j_.field("last", uint64_t(last));
    j_.key("operators");
    j_.beginArray();
    for (const std::string& op : operators) j_.string(op);
    j_.endArray();
    j_.field("bytes_copied", bytes);
    j_.endObject();
  }

  void writeMemory() {
    uint64_t arenas = 0, constants = 0, weights = 0;
    for (const Method& m : s_.program_->methods) {
      for (size_t i = 1; i < m.arenas.size(); ++i) arenas += uint64_t(m.arenas[i]);
    }
    if (s_.program_->constants.segment >= 0)
      constants = s_.program_->segments[size_t(s_.program_->constants.segment)].size;
    std::set<std::pair<DataSource*, uint64_t>> seen;
    for (const auto& [key, data] : s_.named_data_.entries) {
      if (seen.emplace(data.source, data.offset).second) weights += data.size;
    }
    j_.key("memory");
    j_.beginObject();
    j_.field("arenas", arenas);
    j_.field("constants", constants);
    j_.field("weights", weights);
    j_.field("state", state_total_);
    j_.endObject();
  }

  void writeAdapters() {
    const AdapterSet& set = s_.adapters_;
    j_.key("adapters");
    j_.beginArray();
    for (size_t i = 0; i < set.adapters().size(); ++i) {
      j_.beginObject();
      j_.field("name", set.adapters()[i].name);
      j_.field("scale", double(set.scales()[i]));
      j_.key("linears");
      j_.beginObject();
      for (const AdapterModule& m : set.adapters()[i].modules) j_.field(m.weight, m.rank);
      j_.endObject();
      j_.endObject();
    }
    j_.endArray();
  }

  const Session& s_;
  LenientSizes sizes_;
  JsonWriter j_;
  std::set<std::string> states_;  // counted already: methods share them by name
  uint64_t state_total_ = 0;
};

std::string Session::inspectJson() const { return Inspector(*this).run(); }

}  // namespace etwgpu
