// One payload graph on the CPU: nodes in order, each a kernel that sees its arguments by position.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/executor/adapters.h"
#include "runtime/executor/check_values.h"
#include "runtime/executor/cpu_backend.h"
#include "runtime/executor/cpu_caches.h"
#include "runtime/graph/fused_ops.h"
#include "runtime/graph/plan.h"
#include "runtime/operators/sampling/cpu.h"

namespace etwgpu {
namespace {

constexpr uint64_t kArenaAlignment = 64;

uint64_t bytesOf(const Graph& graph, ValueId id) { return graph.maxBytes(id); }

class CpuDelegate;

/// The arguments of one node with the sizes of the current call.
class NodeCall final : public CpuCall {
 public:
  NodeCall(CpuDelegate& delegate, const Node& node) : delegate_(delegate), node_(node) {}
  size_t argCount() const override { return node_.args.size(); }
  bool isNone(size_t arg) const override;
  TensorView tensor(size_t arg) const override;
  std::vector<TensorView> tensors(size_t arg) const override;
  int64_t integer(size_t arg) const override;
  Sizes integers(size_t arg) const override;
  double number(size_t arg) const override;
  bool flag(size_t arg) const override;
  std::string text(size_t arg) const override;
  std::optional<DType> dtype(size_t arg) const override;
  Result<TensorView> output(size_t k, const Sizes& sizes) override;
  DType outputDType(size_t k) const override;
  Sizes outputSizes(size_t k) const override;
  const PointwiseProgram* pointwise() const override { return node_.pointwise.get(); }
  int64_t evaluate(ExprId e) const override;
  void* scratch(size_t bytes) override;
  ThreadPool& pool() const override;
  Activations activations() const override;

 private:
  template <class T>
  const T* get(size_t arg) const {
    return arg < node_.args.size() ? std::get_if<T>(&node_.args[arg]) : nullptr;
  }
  CpuDelegate& delegate_;
  const Node& node_;
};

/// What delegates over different states share.
struct CpuProgram {
  Graph graph;
  MemoryPlan plan;
  std::vector<CpuKernel> kernels;  // per node
  std::vector<std::shared_ptr<CpuWeight>> weights;
  std::vector<uint64_t> capacity;                        // bytes per value
  std::vector<ValueId> dynamic;                          // values whose sizes depend on symbols
  std::vector<std::pair<ValueId, ValueId>> cache_pairs;  // keys and values
  std::vector<std::pair<std::unique_ptr<LowRankView>, std::vector<int32_t>>> low_rank;  // with whose scales
};

class CpuDelegate final : public Delegate {
 public:
  CpuDelegate(std::shared_ptr<CpuShared> shared, std::shared_ptr<CpuProgram> program)
      : shared_(std::move(shared)), program_(std::move(program)) {}

  Status load(std::span<const uint8_t> payload, const NamedDataMap& data, const DelegateOptions& options);
  const Graph& graph() const override { return graph_; }
  Result<std::unique_ptr<Delegate>> withStates(std::shared_ptr<StateSet> states) override;
  std::vector<std::pair<DataSource*, ReadRequest>> takeReads() override;
  Task<Status> finishLoading() override { co_return prepare(); }
  Task<Status> execute(std::span<const DelegateArg> inputs, std::span<DelegateArg> outputs,
                       ExecuteOptions options) override {
    co_return run(inputs, outputs, options);
  }
  std::vector<StateLayout> states() const override;
  Task<Status> readStates(std::span<const StateRange> ranges, std::span<uint8_t> to) override;
  Task<Status> writeStates(std::span<const StateRange> ranges, std::span<const uint8_t> from) override;
  RingMark* rings() override { return marks().present() ? &marks() : nullptr; }
  void applyScales(std::span<const float> scales) override {
    for (auto& [view, adapters] : low_rank_)
      for (size_t i = 0; i < adapters.size(); ++i) view->scales[i] = scales[size_t(adapters[i])];
  }
  const ExecuteStats& lastStats() const override { return stats_; }

  const Value& value(ValueId id) const { return graph_.value(id); }
  const TensorView& view(ValueId id) const { return views_[size_t(id)]; }
  int64_t evaluated(ExprId e) const { return evaluated_[size_t(e.index)]; }
  CpuShared& shared() const { return *shared_; }
  uint64_t capacity(ValueId id) const { return capacity_[size_t(id)]; }

 private:
  Status findKernels();
  std::vector<bool> usedValues() const;
  Status loadConstants(const NamedDataMap& data);
  Status checkQuantised(const Value& value, uint64_t& words, uint64_t& constants) const;
  RingMark& marks() { return (set_ ? *set_ : shared_->states).rings; }
  void pairStates();
  Status prepare();
  Status bindStates();
  void bindArena();
  Status bindSymbols(std::span<const DelegateArg> inputs);
  Status copyInputs(std::span<const DelegateArg> inputs);
  Status copyOutputs(std::span<DelegateArg> outputs, const ExecuteOptions& options);
  Status argmax(const ExecuteOptions& options);
  Status run(std::span<const DelegateArg> inputs, std::span<DelegateArg> outputs, const ExecuteOptions& options);
  Status runNodes(const ExecuteOptions& options);
  Status check(const Node& node) const;

  std::shared_ptr<CpuShared> shared_;  // first: outlives what is counted in its report
  std::shared_ptr<CpuProgram> program_;
  // changed by load() only
  Graph& graph_ = program_->graph;
  MemoryPlan& plan_ = program_->plan;
  std::vector<CpuKernel>& kernels_ = program_->kernels;
  std::vector<std::shared_ptr<CpuWeight>>& weights_ = program_->weights;
  std::vector<uint64_t>& capacity_ = program_->capacity;
  std::vector<ValueId>& dynamic_ = program_->dynamic;
  // of all delegates of the program alike
  std::vector<std::pair<std::unique_ptr<LowRankView>, std::vector<int32_t>>>& low_rank_ = program_->low_rank;

  std::shared_ptr<CpuStates> set_;  // null: the program's first
  RingMark guard_;                  // how this graph's calls are checked
  std::vector<std::pair<ValueId, std::shared_ptr<CpuState>>> states_;
  std::vector<std::pair<CpuState*, CpuState*>> pairs_;  // key and value caches
  std::vector<TensorView> views_;                       // per value, with the sizes of the current call
  std::vector<int64_t> symbols_, evaluated_;
  const uint8_t* bound_arena_ = nullptr;
  bool ready_ = false;
  ExecuteStats stats_;
};

// ---- NodeCall ------------------------------------------------------------------------------------------------------

bool NodeCall::isNone(size_t arg) const {
  if (arg >= node_.args.size() || std::holds_alternative<std::monostate>(node_.args[arg])) return true;
  const auto* id = std::get_if<ValueId>(&node_.args[arg]);
  return id && *id == kNoValue;
}
TensorView NodeCall::tensor(size_t arg) const {
  const auto* id = get<ValueId>(arg);
  return id && *id != kNoValue ? delegate_.view(*id) : TensorView();
}
std::vector<TensorView> NodeCall::tensors(size_t arg) const {
  std::vector<TensorView> views;
  if (const auto* ids = get<std::vector<ValueId>>(arg)) {
    for (ValueId id : *ids) views.push_back(id == kNoValue ? TensorView() : delegate_.view(id));
  } else if (!isNone(arg)) {
    views.push_back(tensor(arg));
  }
  return views;
}
Sizes NodeCall::integers(size_t arg) const {
  Sizes sizes;
  if (const auto* list = get<std::vector<IntArg>>(arg)) {
    for (IntArg i : *list) sizes.push_back(delegate_.evaluated(i.expr));
  } else if (const auto* one = get<IntArg>(arg)) {
    sizes.push_back(delegate_.evaluated(one->expr));
  }
  return sizes;
}
int64_t NodeCall::integer(size_t arg) const {
  if (const auto* i = get<IntArg>(arg)) return delegate_.evaluated(i->expr);  // an open end is 2^63 − 1, no double
  return int64_t(number(arg));
}
double NodeCall::number(size_t arg) const {
  if (const auto* d = get<double>(arg)) return *d;
  if (const auto* i = get<IntArg>(arg)) return double(delegate_.evaluated(i->expr));
  if (const auto* b = get<bool>(arg)) return *b;
  return 0;
}
bool NodeCall::flag(size_t arg) const { return number(arg) != 0; }
std::string NodeCall::text(size_t arg) const {
  const auto* s = get<std::string>(arg);
  return s ? *s : std::string();
}
std::optional<DType> NodeCall::dtype(size_t arg) const {
  const auto* t = get<DType>(arg);
  return t ? std::optional(*t) : std::nullopt;
}
DType NodeCall::outputDType(size_t k) const {
  return k < node_.outputs.size() && node_.outputs[k] != kNoValue ? delegate_.value(node_.outputs[k]).dtype
                                                                  : DType::f32;
}
Sizes NodeCall::outputSizes(size_t k) const {
  return k < node_.outputs.size() && node_.outputs[k] != kNoValue ? delegate_.view(node_.outputs[k]).sizes : Sizes();
}
Result<TensorView> NodeCall::output(size_t k, const Sizes& sizes) {
  const ValueId id = k < node_.outputs.size() ? node_.outputs[k] : kNoValue;
  TensorView out = id == kNoValue ? TensorView() : delegate_.view(id);
  if (id != kNoValue && out.sizes != sizes)
    return Status(Code::invalid_program, "output " + std::to_string(k) + " has sizes " + sizesToString(sizes) +
                                             ", the graph says " + sizesToString(out.sizes));
  out.sizes = sizes;
  if (!out.data) {  // nobody reads it
    out.data = delegate_.shared().scratch(std::max<size_t>(out.bytes(), 1));
    if (!out.data) return Status(Code::out_of_memory, "no memory for output " + std::to_string(k));
  }
  return out;
}
int64_t NodeCall::evaluate(ExprId e) const { return e.valid() ? delegate_.evaluated(e) : 0; }
void* NodeCall::scratch(size_t bytes) { return delegate_.shared().scratch(bytes); }
ThreadPool& NodeCall::pool() const { return *delegate_.shared().pool; }
Activations NodeCall::activations() const { return delegate_.shared().options.activations; }

// ---- loading -------------------------------------------------------------------------------------------------------

Status CpuDelegate::findKernels() {
  std::map<std::string_view, int> missing;
  for (const Node& node : graph_.nodes) {
    kernels_.push_back(findCpuKernel(node.op));
    if (!kernels_.back()) ++missing[node.op];
  }
  if (missing.empty()) return {};
  std::string list;
  for (const auto& [op, count] : missing) list += (list.empty() ? "" : ", ") + std::string(op) + format(" (%d)", count);
  return Status(Code::unsupported_operator, "the CPU has no kernel for: " + list);
}

/// Bytes of the words and of the constants of a quantised weight in packing R4.
Status CpuDelegate::checkQuantised(const Value& v, uint64_t& words, uint64_t& constants) const {
  const Quantization& q = v.quantization;
  const auto bad = [&](const char* what) {
    return Status(Code::invalid_program, "quantised weight '" + v.name + "': " + what);
  };
  if (v.dims.size() != 2 || !graph_.exprs.isConstant(v.dims[0]) || !graph_.exprs.isConstant(v.dims[1]))
    return bad("must have two fixed dimensions");
  const int64_t n = graph_.exprs.constantValue(v.dims[0]), k = graph_.exprs.constantValue(v.dims[1]);
  if (n < 1 || k < 1 || n > (int64_t(1) << 31) || k > (int64_t(1) << 31) || k % 32 != 0)
    return bad("K must be a multiple of 32");
  const uint64_t padded = uint64_t(n + 7) / 8 * 8;
  if (q.bits == 8) {
    if (q.group != 0) return bad("int8 weights have one scale a row");
    words = padded * uint64_t(k);
    constants = padded * 4;
    return {};
  }
  if (q.bits != 4) return bad("only 4 and 8 bits are known");
  if (q.group != 32 && q.group != 64 && q.group != 128) return bad("groups are of 32, 64 or 128");
  if (k % q.group != 0) return bad("K must be a multiple of the group");
  words = padded * uint64_t(k) / 2;
  constants = padded * uint64_t(k / q.group) * (q.symmetric ? 2 : 4);
  return {};
}

/// Values that nodes, outputs or mutations touch: passes leave behind what they have replaced.
std::vector<bool> CpuDelegate::usedValues() const {
  std::vector<bool> used(graph_.values.size());
  const auto use = [&](ValueId id) {
    if (id == kNoValue) return;
    used[size_t(graph_.storage(id))] = true;
    if (const auto& terms = graph_.value(id).low_rank) used[size_t(terms->a)] = used[size_t(terms->b)] = true;
  };
  for (const Node& node : graph_.nodes) {
    for (const Arg& arg : node.args) {
      if (const auto* id = std::get_if<ValueId>(&arg)) use(*id);
      if (const auto* ids = std::get_if<std::vector<ValueId>>(&arg)) std::for_each(ids->begin(), ids->end(), use);
    }
  }
  for (const GraphOutput& o : graph_.outputs) use(o.value);
  for (const GraphMutation& m : graph_.mutations) use(m.state), use(m.value);
  return used;
}

Status CpuDelegate::loadConstants(const NamedDataMap& data) {
  const std::vector<bool> used = usedValues(), half = cachesInHalf(graph_);
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const Value& v = graph_.values[i];
    if (!used[i]) continue;
    TensorView& view = views_[i];
    if (v.kind == ValueKind::state) {
      ETWGPU_ASSIGN(auto state, shared_->state(v, capacity_[i], half[i], data));
      states_.emplace_back(ValueId(i), std::move(state));
    } else if (v.kind == ValueKind::constant && !v.literal.empty()) {
      if (v.literal.size() < capacity_[i])
        return Status(Code::invalid_program, "constant '" + v.name + "' is shorter than its type");
      view.data = const_cast<uint8_t*>(v.literal.data());
    } else if (v.kind == ValueKind::constant) {
      uint64_t words = capacity_[i], constants = 0;
      if (v.quantization.bits) ETWGPU_TRY(checkQuantised(v, words, constants));
      ETWGPU_ASSIGN(auto weight, shared_->weight(v, words, constants, data));
      view.data = const_cast<uint8_t*>(weight->data);
      view.quant_constants = weight->constants;
      view.quantization = v.quantization;
      weights_.push_back(std::move(weight));
    }
  }
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const auto& terms = graph_.values[i].low_rank;
    if (!terms || !used[i]) continue;
    auto low_rank = std::make_unique<LowRankView>();
    low_rank->a = view(terms->a).as<const float>();
    low_rank->b = view(terms->b).as<const float>();
    low_rank->first_rows = terms->first_rows;
    low_rank->rank = terms->rank;
    low_rank->scales.assign(terms->adapters.size(), 1.f);
    views_[i].low_rank = low_rank.get();
    low_rank_.emplace_back(std::move(low_rank), terms->adapters);
  }
  program_->cache_pairs = cachePairs(graph_);
  pairStates();
  return {};
}

void CpuDelegate::pairStates() {
  const auto stateOf = [&](ValueId id) {
    const auto it = std::find_if(states_.begin(), states_.end(), [&](const auto& s) { return s.first == id; });
    return it == states_.end() ? nullptr : it->second.get();
  };
  for (const auto& [k, v] : program_->cache_pairs)
    if (CpuState* a = stateOf(k), *b = stateOf(v); a && b) pairs_.emplace_back(a, b);
}

Result<std::unique_ptr<Delegate>> CpuDelegate::withStates(std::shared_ptr<StateSet> states) {
  auto made = std::make_unique<CpuDelegate>(shared_, program_);
  made->set_ = std::static_pointer_cast<CpuStates>(std::move(states));
  for (const auto& [id, state] : states_) {
    const auto it = made->set_->entries.find(value(id).name);
    if (it == made->set_->entries.end()) return Status(Code::internal, "no state '" + value(id).name + "'");
    made->states_.emplace_back(id, it->second);
  }
  made->pairStates();
  made->guard_ = guard_;
  made->views_ = views_;
  made->symbols_.resize(symbols_.size());
  made->evaluated_.resize(evaluated_.size());
  return std::unique_ptr<Delegate>(std::move(made));
}

Status CpuDelegate::load(std::span<const uint8_t> payload, const NamedDataMap& data, const DelegateOptions& options) {
  ETWGPU_ASSIGN(graph_, loadGraph(payload, data, disabledPasses(shared_->options, options.alone), options.import));
  guard_ = RingMark(graph_);
  if (options.alone && options.import.max_size == 0) shared_->states.rings = guard_;
  ETWGPU_TRY(findKernels());
  const PlanOptions plan{.alignment = kArenaAlignment, .bytes = bytesOf};
  ETWGPU_ASSIGN(plan_, planMemory(graph_, {}, plan));
  const size_t values = graph_.values.size();
  views_.resize(values);
  capacity_.resize(values);
  for (size_t i = 0; i < values; ++i) {
    const Value& v = graph_.values[i];
    views_[i].dtype = v.dtype;
    views_[i].sizes.resize(v.dims.size());
    capacity_[i] = v.quantization.bits ? 0 : graph_.maxBytes(ValueId(i));
    bool fixed = true;
    for (size_t d = 0; d < v.dims.size(); ++d) {
      fixed = fixed && graph_.exprs.isConstant(v.dims[d]);
      if (graph_.exprs.isConstant(v.dims[d])) views_[i].sizes[d] = graph_.exprs.constantValue(v.dims[d]);
    }
    if (!fixed) dynamic_.push_back(ValueId(i));
  }
  symbols_.resize(graph_.exprs.symbolCount());
  evaluated_.resize(graph_.exprs.size());
  if (graph_.symbols.size() != symbols_.size())
    return Status(Code::invalid_program, "the graph doesn't say where its symbols come from");
  ETWGPU_TRY(loadConstants(data));
  shared_->memory.arena_without_reuse += plan_.sum_of_values;
  return {};
}

std::vector<std::pair<DataSource*, ReadRequest>> CpuDelegate::takeReads() {
  std::vector<std::pair<DataSource*, ReadRequest>> reads;
  const auto take = [&](CpuWeight& w) {
    std::move(w.reads.begin(), w.reads.end(), std::back_inserter(reads));
    w.reads.clear();
  };
  for (const auto& w : weights_) take(*w);
  for (const auto& [id, s] : states_)
    if (s->initial) take(*s->initial);
  return reads;
}

Status CpuDelegate::prepare() {
  uint64_t bytes = 0;
  for (uint64_t b : plan_.arena_bytes) bytes += (b + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  if (Status s = shared_->growArena(bytes); !s.ok()) return {s.code(), s.message() + describeLargest(graph_, plan_)};
  for (const auto& [id, s] : states_)
    if (!s->initialised) s->reset();
  ready_ = true;
  return {};
}

/// Another method of the program that was loaded later may need a cache in f32; then its partner is f32, too.
Status CpuDelegate::bindStates() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto& [k, v] : pairs_) {
      if (k->half == v->half) continue;
      ETWGPU_TRY(shared_->widen(*k));
      ETWGPU_TRY(shared_->widen(*v));
      changed = true;
    }
  }
  for (const auto& [id, state] : states_) {
    TensorView& view = views_[size_t(id)];
    view.data = state->buffer.data();
    view.dtype = state->half ? DType::f16 : value(id).dtype;
  }
  return {};
}

/// The arena moves when another method of the program needs a larger one.
void CpuDelegate::bindArena() {
  if (bound_arena_ == shared_->arena()) return;
  bound_arena_ = shared_->arena();
  std::vector<uint64_t> base(plan_.arena_bytes.size(), 0);
  for (size_t a = 1; a < base.size(); ++a)
    base[a] = base[a - 1] + (plan_.arena_bytes[a - 1] + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  for (size_t i = 0; i < views_.size(); ++i) {
    const Placement& p = plan_.placements[i];
    if (p.arena >= 0) views_[i].data = shared_->arena() + base[size_t(p.arena)] + p.offset;
  }
  for (size_t i = 0; i < views_.size(); ++i) {
    const ValueId storage = graph_.storage(ValueId(i));
    if (storage == ValueId(i)) continue;
    views_[i].data = views_[size_t(storage)].data;
    views_[i].quant_constants = views_[size_t(storage)].quant_constants;
    views_[i].quantization = views_[size_t(storage)].quantization;
  }
}

// ---- states --------------------------------------------------------------------------------------------------------

std::vector<StateLayout> CpuDelegate::states() const {
  std::vector<StateLayout> out;
  for (const auto& [id, state] : states_)
    out.push_back({value(id).name, state->half ? DType::f16 : value(id).dtype, view(id).sizes});
  return out;
}

Task<Status> CpuDelegate::readStates(std::span<const StateRange> ranges, std::span<uint8_t> to) {
  for (const StateRange& r : ranges) {
    std::memcpy(to.data(), states_[r.state].second->buffer.data() + r.offset, size_t(r.size));
    to = to.subspan(size_t(r.size));
  }
  co_return Status();
}

Task<Status> CpuDelegate::writeStates(std::span<const StateRange> ranges, std::span<const uint8_t> from) {
  for (const StateRange& r : ranges) {
    std::memcpy(states_[r.state].second->buffer.data() + r.offset, from.data(), size_t(r.size));
    from = from.subspan(size_t(r.size));
  }
  co_return Status();
}

// ---- calls ---------------------------------------------------------------------------------------------------------

Status CpuDelegate::bindSymbols(std::span<const DelegateArg> inputs) {
  for (size_t s = 0; s < symbols_.size(); ++s) {
    const SymbolBinding& b = graph_.symbols[s];
    if (b.input < 0 || size_t(b.input) >= inputs.size())
      return Status(Code::invalid_program, "symbol '" + graph_.exprs.symbolName(s) + "' comes from no input");
    const DelegateArg& in = inputs[size_t(b.input)];
    if (b.dim >= 0 && (in.is_int || size_t(b.dim) >= in.tensor.rank()))
      return Status(Code::invalid_argument, format("input %d has no dimension %d", b.input, b.dim));
    symbols_[s] = b.dim >= 0 ? in.tensor.sizes[size_t(b.dim)] : in.integer;
    const Bounds bounds = graph_.exprs.symbolBounds(s);
    if (symbols_[s] < bounds.min || symbols_[s] > bounds.max)
      return Status(Code::invalid_argument,
                    format("input %d: %s %lld is outside of what was exported, %lld to %lld", b.input,
                           b.dim >= 0 ? format("size of dimension %d,", b.dim).c_str() : "value",
                           (long long)symbols_[s], (long long)bounds.min, (long long)bounds.max));
  }
  graph_.exprs.evalAll(symbols_, evaluated_);
  for (ValueId id : dynamic_) {
    const Value& v = graph_.value(id);
    for (size_t d = 0; d < v.dims.size(); ++d) {
      const int64_t size = evaluated(v.dims[d]);
      if (size < 0) return Status(Code::invalid_argument, "value '" + v.name + "' would have a negative size");
      views_[size_t(id)].sizes[d] = size;
    }
    if (views_[size_t(id)].bytes() > capacity_[size_t(id)])
      return Status(Code::invalid_program, "value '" + v.name + "' exceeds its bounds");
  }
  return {};
}

Status CpuDelegate::copyInputs(std::span<const DelegateArg> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId id = graph_.inputs[i].value;
    if (id == kNoValue) continue;
    const TensorView &in = inputs[i].tensor, &to = view(id);
    if (in.dtype != to.dtype || in.sizes != to.sizes)
      return Status(Code::invalid_argument,
                    format("input %zu ('%s') must be %s %s, not %s %s", i, value(id).name.c_str(),
                           std::string(dtypeName(to.dtype)).c_str(), sizesToString(to.sizes).c_str(),
                           std::string(dtypeName(in.dtype)).c_str(), sizesToString(in.sizes).c_str()));
    if (to.data && to.bytes()) std::memcpy(to.data, in.data, to.bytes());
  }
  return {};
}

Status CpuDelegate::runNodes(const ExecuteOptions& options) {
  using Clock = std::chrono::steady_clock;
  for (size_t n = 0; n < graph_.nodes.size(); ++n) {
    const Node& node = graph_.nodes[n];
    const auto start = options.profile ? Clock::now() : Clock::time_point();
    NodeCall call(*this, node);
    const Status status = kernels_[n](call);
    shared_->scratchReset();
    if (!status.ok()) return Status(status.code(), node.op + " ('" + node.name + "'): " + status.message());
    ++stats_.dispatches;
    if (shared_->options.check_values) ETWGPU_TRY(check(node));
    if (options.profile)
      options.profile->push_back(
          {node.op, node.name, std::chrono::duration<double, std::micro>(Clock::now() - start).count()});
  }
  for (const GraphMutation& m : graph_.mutations) {
    const TensorView &from = view(m.value), &to = view(m.state);
    if (from.data != to.data) std::memmove(to.data, from.data, std::min(from.bytes(), to.bytes()));
  }
  return {};
}

/// LoadOptions::check_values.
Status CpuDelegate::check(const Node& node) const {
  OperatorCheck check(graph_, node);
  for (size_t i = 0; check.wants(i); ++i) check.values[i].look(view(check.values[i].id));
  return check.verdict();
}

Status CpuDelegate::argmax(const ExecuteOptions& options) {
  const size_t k = size_t(options.argmax_output);
  const ValueId id = k < graph_.outputs.size() ? graph_.outputs[k].value : kNoValue;
  if (id == kNoValue || !options.ids) return Status(Code::invalid_argument, "argmax of an output that is no tensor");
  const TensorView& t = view(id);
  if (t.dtype != DType::f32 || t.rank() == 0 || t.sizes.back() == 0)
    return Status(Code::invalid_argument, "argmax of an output that is not f32 rows");
  const int64_t n = t.sizes.back();
  options.ids->clear();
  for (int64_t r = 0; r < t.count() / n; ++r)
    options.ids->push_back(int32_t(cpu::argmaxRow(t.as<const float>() + r * n, n)));
  return {};
}

Status CpuDelegate::copyOutputs(std::span<DelegateArg> outputs, const ExecuteOptions& options) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const GraphOutput& o = graph_.outputs[i];
    if (o.value == kNoValue) {
      outputs[i].integer = evaluated(o.expr);
      continue;
    }
    const TensorView& from = view(o.value);
    TensorView& to = outputs[i].tensor;
    to.sizes = from.sizes;
    if (options.argmax_output >= 0) continue;
    if (to.dtype != from.dtype)
      return Status(Code::invalid_argument, format("output %zu ('%s') is %s", i, value(o.value).name.c_str(),
                                                   std::string(dtypeName(from.dtype)).c_str()));
    if (from.bytes() == 0) continue;
    if (!to.data) return Status(Code::invalid_argument, format("output %zu has no memory", i));
    std::memcpy(to.data, from.data, from.bytes());
    stats_.read_back_bytes += from.bytes();
  }
  return {};
}

Status CpuDelegate::run(std::span<const DelegateArg> inputs, std::span<DelegateArg> outputs,
                        const ExecuteOptions& options) {
  if (!ready_) return Status(Code::internal, "execute before finishLoading");
  if (inputs.size() != graph_.inputs.size() || outputs.size() != graph_.outputs.size())
    return Status(Code::invalid_argument,
                  format("the delegate takes %zu inputs and gives %zu outputs, not %zu and %zu", graph_.inputs.size(),
                         graph_.outputs.size(), inputs.size(), outputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].is_int != (graph_.inputs[i].value == kNoValue))
      return Status(Code::invalid_argument,
                    format("input %zu must be %s", i, inputs[i].is_int ? "a tensor" : "an integer"));
  stats_ = {};
  ETWGPU_TRY(bindStates());
  bindArena();
  ETWGPU_TRY(bindSymbols(inputs));
  ETWGPU_TRY(copyInputs(inputs));
  ETWGPU_TRY(marks().enter(guard_, inputs, evaluated_));
  shared_->pool->beginRun();
  Status status = runNodes(options);
  shared_->pool->endRun();
  ETWGPU_TRY(status);
  if (options.argmax_output >= 0) ETWGPU_TRY(argmax(options));
  return copyOutputs(outputs, options);
}

}  // namespace

Result<std::unique_ptr<Delegate>> makeCpuDelegate(std::shared_ptr<CpuShared> shared, std::span<const uint8_t> payload,
                                                  const NamedDataMap& data, const DelegateOptions& options) {
  auto delegate = std::make_unique<CpuDelegate>(std::move(shared), std::make_shared<CpuProgram>());
  ETWGPU_TRY(delegate->load(payload, data, options));
  return std::unique_ptr<Delegate>(std::move(delegate));
}

}  // namespace etwgpu
