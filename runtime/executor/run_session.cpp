// Running: inputs in, instructions one after another, outputs out.
#include <algorithm>
#include <cstring>

#include "runtime/executor/session.h"

namespace etwgpu {
namespace {

using ull = unsigned long long;

/// Clears the flag however the coroutine ends.
struct RunningGuard {
  bool& flag;
  explicit RunningGuard(bool& f) : flag(f) { flag = true; }
  ~RunningGuard() { flag = false; }
};

const char* inputKind(const Input& input) {
  if (std::holds_alternative<TensorView>(input)) return "a tensor";
  if (std::holds_alternative<int64_t>(input)) return "an integer";
  return std::holds_alternative<double>(input) ? "a float" : "a bool";
}

/// Whether a kernel call of the method may write this value: then the caller's bytes are not handed to it.
bool isWritten(const Method& m, int32_t value) {
  const auto names = [&](int32_t index) {
    if (index == value) return true;
    const auto* list = std::get_if<TensorList>(&m.values[size_t(index)]);
    return list && std::find(list->items.begin(), list->items.end(), value) != list->items.end();
  };
  for (const Instruction& in : m.instructions) {
    if (in.kind == InstructionKind::move && in.target == value) return true;
    if (in.kind != InstructionKind::kernel || in.args.empty()) continue;
    // out arguments come last and return as the last argument; et_copy_index writes its first
    if (names(in.args.back()) || (m.operators[size_t(in.index)].overload == "tensor" && names(in.args.front())))
      return true;
  }
  return false;
}

/// Of a jump: a bool, or a tensor of bools that must all be true.
Result<bool> condition(MethodState& state, int32_t index) {
  if (const bool* flag = std::get_if<bool>(&state.value(index))) return *flag;
  const RuntimeTensor* t = state.tensor(index);
  if (!t || !t->data || !t->info->hasDType() || t->info->dtype() != DType::boolean) {
    return state.error(Code::invalid_program, state.describe(index) + " is no bool that a jump could depend on");
  }
  return std::all_of(t->data, t->data + t->bytes(), [](uint8_t b) { return b != 0; });
}

}  // namespace

Status Session::setTensorInput(LoadedMethod& m, size_t k, const TensorView& view) {
  MethodState& state = *m.state;
  const int32_t index = state.method().inputs[k];
  RuntimeTensor& t = *state.tensor(index);
  const std::string what = format("input %zu", k);
  if (!t.info->hasDType() || view.dtype != t.info->dtype()) {
    return state.error(Code::invalid_argument, what + " is " + std::string(dtypeName(view.dtype)) + ", " +
                                                   scalarTypeName(t.info->scalar_type) + " is expected");
  }
  if (t.info->isConstant()) return state.error(Code::invalid_program, what + " is a constant");
  if (!t.info->planned && !t.own.data() && view.data && reinterpret_cast<uintptr_t>(view.data) % 16 == 0 &&
      !isWritten(state.method(), index)) {
    t.data = static_cast<uint8_t*>(view.data);  // borrowed for this call
    t.capacity = t.info->shape == ShapeKind::unbounded ? view.bytes() : t.info->bytes;
    t.writable = false;
    const Status status = state.resize(t, view.sizes, what);
    t.capacity = status.ok() ? t.bytes() : 0;
    return status;
  }
  ETWGPU_TRY(state.resize(t, view.sizes, what));
  if (t.bytes() && !view.data) return state.error(Code::invalid_argument, what + " has no data");
  if (t.bytes()) std::memmove(t.data, view.data, t.bytes());
  return {};
}

Status Session::setInput(LoadedMethod& m, size_t k, const Input& input) {
  MethodState& state = *m.state;
  ProgramValue& value = state.value(state.method().inputs[k]);
  if (std::holds_alternative<std::monostate>(value)) return {};  // an unused input
  if (std::holds_alternative<TensorRef>(value)) {
    const auto* view = std::get_if<TensorView>(&input);
    return view ? setTensorInput(m, k, *view)
                : state.error(Code::invalid_argument,
                              format("input %zu is %s, a tensor is expected", k, inputKind(input)));
  }
  const auto* i = std::get_if<int64_t>(&input);
  const auto* b = std::get_if<bool>(&input);
  const auto* d = std::get_if<double>(&input);
  if (std::holds_alternative<int64_t>(value) && (i || b)) return value = i ? *i : int64_t(*b), Status();
  if (std::holds_alternative<bool>(value) && (b || (i && (*i == 0 || *i == 1))))
    return value = b ? *b : *i == 1, Status();
  if (std::holds_alternative<double>(value) && (d || i)) return value = d ? *d : double(*i), Status();
  return state.error(Code::invalid_argument, format("input %zu may not be %s", k, inputKind(input)));
}

Task<Result<std::vector<OutputValue>>> Session::run(std::string method, std::vector<Input> inputs) {
  const auto found = std::find_if(specs_.begin(), specs_.end(), [&](const MethodSpec& s) { return s.name == method; });
  if (found == specs_.end()) {
    std::string names;
    for (const MethodSpec& s : specs_) names += (names.empty() ? "" : ", ") + s.name;
    co_return Status(Code::invalid_argument, "no method " + method + "; the program has " + names);
  }
  if (config_.inspect_only) co_return Status(Code::invalid_argument, "the program was opened for inspection only");
  if (running_) co_return Status(Code::invalid_argument, "another call of this session is running");
  const RunningGuard guard(running_);
  LoadedMethod& m = methods_[size_t(found - specs_.begin())];
  if (inputs.size() != found->inputs.size()) {
    co_return Status(Code::invalid_argument, format("method %s takes %zu inputs, got %zu", method.c_str(),
                                                    found->inputs.size(), inputs.size()));
  }
  ETWGPU_CO_TRY(m.state->prepare());
  m.state->beginCall();
  for (size_t k = 0; k < inputs.size(); ++k) ETWGPU_CO_TRY(setInput(m, k, inputs[k]));
  stats_ = ExecuteStats();
  ETWGPU_CO_TRY(co_await runInstructions(m));
  co_return outputs(m);
}

Task<Status> Session::runInstructions(LoadedMethod& m) {
  MethodState& state = *m.state;
  const std::vector<Instruction>& code = state.method().instructions;
  uint64_t executed = 0;
  for (size_t pc = 0; pc < code.size();) {
    if (++executed > instruction_limit_) {
      co_return state.error(Code::limit_exceeded, format("%llu instructions were executed without coming to an end",
                                                         ull(instruction_limit_)));
    }
    const Instruction& in = code[pc++];
    switch (in.kind) {
      case InstructionKind::kernel:
        if (!pool_) pool_ = makeThreadPool(std::max(1, config_.options.threads));
        ETWGPU_CO_TRY(state.runKernel(in, *pool_, config_.options.activations));
        break;
      case InstructionKind::delegate:
        ETWGPU_CO_TRY(co_await runDelegate(m, in));
        break;
      case InstructionKind::move:
        state.value(in.target) = ProgramValue(state.value(in.index));
        break;
      case InstructionKind::jump_false: {
        ETWGPU_CO_ASSIGN(const bool flag, condition(state, in.index));
        if (!flag) pc = size_t(in.target);
        break;
      }
      case InstructionKind::free:
        state.free(in.index);
        break;
    }
  }
  co_return Status();
}

Task<Status> Session::runDelegate(LoadedMethod& m, const Instruction& in) {
  MethodState& state = *m.state;
  Delegate& delegate = *m.delegates[size_t(in.index)].delegate;
  const Graph& graph = delegate.graph();
  const std::string where = format("delegate %d", in.index);
  const size_t in_count = graph.inputs.size(), out_count = graph.outputs.size();
  if (in.args.size() != in_count + out_count) {
    co_return state.error(Code::invalid_program, format("%s: %zu arguments, its graph has %zu inputs and %zu outputs",
                                                        where.c_str(), in.args.size(), in_count, out_count));
  }
  std::vector<DelegateArg> inputs(in_count), outputs(out_count);
  std::vector<HostBuffer> roomier(out_count);
  const auto tensorArg = [&](int32_t index, ValueId id, const char* role, size_t k) -> Result<RuntimeTensor*> {
    RuntimeTensor* t = state.tensor(index);
    if (!t || !t->info->hasDType() || t->info->dtype() != graph.value(id).dtype ||
        t->info->sizes.size() != graph.value(id).dims.size()) {
      return state.error(Code::invalid_program,
                         format("%s: %s %zu is not the tensor of its graph", where.c_str(), role, k));
    }
    if (!t->info->isContiguous()) {
      return state.error(Code::unsupported_operator,
                         format("%s: %s %zu is not in row-major order", where.c_str(), role, k));
    }
    return t;
  };
  for (size_t k = 0; k < in_count; ++k) {
    const ValueId id = graph.inputs[k].value;
    if (id == kNoValue) {
      const auto* i = std::get_if<int64_t>(&state.value(in.args[k]));
      if (!i) co_return state.error(Code::invalid_program, format("%s: input %zu is no integer", where.c_str(), k));
      inputs[k].is_int = true;
      inputs[k].integer = *i;
      continue;
    }
    ETWGPU_CO_ASSIGN(const RuntimeTensor* t, tensorArg(in.args[k], id, "input", k));
    if (!t->data)
      co_return state.error(Code::invalid_program, format("%s: input %zu has no value yet", where.c_str(), k));
    inputs[k].tensor = t->view();
  }
  for (size_t k = 0; k < out_count; ++k) {
    const ValueId id = graph.outputs[k].value;
    outputs[k].is_int = id == kNoValue;
    if (outputs[k].is_int) continue;
    ETWGPU_CO_ASSIGN(RuntimeTensor * t, tensorArg(in.args[in_count + k], id, "output", k));
    if (!t->writable)
      co_return state.error(Code::invalid_program, format("%s: output %zu may not be written", where.c_str(), k));
    if (!t->data) ETWGPU_CO_TRY(state.resize(*t, t->sizes, format("output %zu", k)));
    outputs[k].tensor = t->view();
    // The delegate's bound may be looser than the program's: then it writes elsewhere and what it wrote is checked.
    if (const uint64_t bytes = graph.maxBytes(id); bytes > t->capacity) {
      ETWGPU_CO_ASSIGN(roomier[k], data_.budget.allocate(bytes, format("output %zu of a delegate", k)));
      outputs[k].tensor.data = roomier[k].data();
    }
  }
  const Status status = co_await delegate.execute(inputs, outputs, ExecuteOptions());
  const ExecuteStats& s = delegate.lastStats();
  stats_.dispatches += s.dispatches;
  stats_.submits += s.submits;
  stats_.read_back_bytes += s.read_back_bytes;
  stats_.upload_bytes += s.upload_bytes;
  const bool told = status.ok() || status.code() == Code::non_finite;  // which names all there is to name
  Status result = told ? status : state.error(status.code(), where + ": " + status.message());
  for (size_t k = 0; k < out_count && result.ok(); ++k) {
    const int32_t index = in.args[in_count + k];
    if (outputs[k].is_int) {
      state.value(index) = outputs[k].integer;
      continue;
    }
    RuntimeTensor& t = *state.tensor(index);
    result = state.resize(t, outputs[k].tensor.sizes, format("%s: output %zu", where.c_str(), k));
    if (result.ok() && roomier[k].data()) std::memcpy(t.data, roomier[k].data(), t.bytes());
  }
  for (HostBuffer& b : roomier) data_.budget.release(b);
  co_return result;
}

Result<std::vector<OutputValue>> Session::outputs(LoadedMethod& m) {
  MethodState& state = *m.state;
  std::vector<OutputValue> out;
  for (size_t k = 0; k < state.method().outputs.size(); ++k) {
    const int32_t index = state.method().outputs[k];
    const ProgramValue& v = state.value(index);
    if (const RuntimeTensor* t = state.tensor(index)) {
      if (!t->info->hasDType())
        return state.error(Code::unsupported_operator,
                           format("output %zu is of ", k) + scalarTypeName(t->info->scalar_type));
      if (!t->info->isContiguous())
        return state.error(Code::unsupported_operator, format("output %zu is not in row-major order", k));
      if (!t->data) return state.error(Code::invalid_program, format("output %zu has no value", k));
      // tensors may be returned many times over
      uint64_t bytes = t->bytes();
      if (bytes > data_.budget.cap)
        return state.error(Code::limit_exceeded, format("output %zu has %llu bytes", k, ull(bytes)));
      out.emplace_back(HostTensor{t->info->dtype(), t->sizes, std::vector<uint8_t>(t->data, t->data + bytes)});
    } else if (const auto* i = std::get_if<int64_t>(&v)) {
      out.emplace_back(*i);
    } else if (const auto* d = std::get_if<double>(&v)) {
      out.emplace_back(*d);
    } else if (const auto* b = std::get_if<bool>(&v)) {
      out.emplace_back(*b);
    } else if (const auto* s = std::get_if<std::string_view>(&v)) {
      out.emplace_back(std::string(*s));
    } else {
      out.emplace_back(std::monostate());
    }
  }
  return out;
}

Task<Status> Session::reset() {
  if (running_) co_return Status(Code::invalid_argument, "another call of this session is running");
  for (LoadedMethod& m : methods_) m.state->resetStates();
  if (config_.backend) co_return co_await config_.backend->states().reset();
  co_return Status();
}

MemoryReport Session::memory() const {
  MemoryReport report = config_.backend ? config_.backend->memory() : MemoryReport();
  report.other += data_.budget.used;
  return report;
}

Task<Result<Sequence*>> Session::newSequence(std::vector<std::string> methods) {
  if (!config_.backend) co_return Status(Code::invalid_argument, "the program was opened for inspection only");
  std::vector<Delegate*> sole;
  for (const std::string& method : methods) {
    sole.push_back(soleDelegate(method));
    if (!sole.back()) co_return Status(Code::invalid_argument, "method " + method + " is not one delegate call alone");
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->session_ = this;
  ETWGPU_CO_ASSIGN(sequence->states_, co_await config_.backend->makeStates());
  for (size_t i = 0; i < methods.size(); ++i) {
    ETWGPU_CO_ASSIGN(auto delegate, sole[i]->withStates(sequence->states_));
    ETWGPU_CO_TRY(co_await delegate->finishLoading());
    sequence->delegates_.emplace_back(std::move(methods[i]), std::move(delegate));
  }
  sequences_.push_back(std::move(sequence));
  applyScales();
  co_return sequences_.back().get();
}

void Session::freeSequence(const Sequence* sequence) {
  std::erase_if(sequences_, [&](const auto& s) { return s.get() == sequence; });
}

Delegate* Sequence::soleDelegate(std::string_view method) const {
  for (const auto& [name, delegate] : delegates_)
    if (name == method) return delegate.get();
  return nullptr;
}

Task<Result<Delegate*>> Session::verifier(std::string method, int64_t rows) {
  LoadedMethod* m = soleMethod(method);
  if (!m) co_return Status(Code::invalid_argument, "method " + method + " is not one delegate call alone");
  if (!m->verifier) {
    const int32_t index = m->state->method().instructions[0].index;
    const DelegateOptions options{
        hasOneDelegate(),
        {.max_size = rows, .all_rows = true, .method = m->delegates[size_t(index)].delegate->graph().method}};
    ETWGPU_CO_ASSIGN(auto made,
                     config_.backend->createDelegate(m->delegates[size_t(index)].payload, named_data_, options));
    // a stream has gone by
    if (!made->takeReads().empty()) co_return Status(Code::internal, "a method needs other data for all positions");
    ETWGPU_CO_TRY(co_await made->finishLoading());
    m->verifier = std::move(made);
    applyScales();
  }
  co_return m->verifier.get();
}

Task<Result<Delegate*>> Sequence::verifier(std::string method, int64_t rows) {
  for (const auto& [name, delegate] : verifiers_)
    if (name == method) co_return delegate.get();
  if (!soleDelegate(method)) co_return Status(Code::invalid_argument, "the sequence has no method " + method);
  ETWGPU_CO_ASSIGN(Delegate * first, co_await session_->verifier(method, rows));
  ETWGPU_CO_ASSIGN(auto made, first->withStates(states_));
  ETWGPU_CO_TRY(co_await made->finishLoading());
  verifiers_.emplace_back(std::move(method), std::move(made));
  session_->applyScales();
  co_return verifiers_.back().second.get();
}

Delegate* Session::soleDelegate(std::string_view method) {
  LoadedMethod* m = soleMethod(method);
  return m ? m->delegates[size_t(m->state->method().instructions[0].index)].delegate.get() : nullptr;
}

/// A method that is one delegate call on its inputs and outputs in order; else nullptr.
Session::LoadedMethod* Session::soleMethod(std::string_view method) {
  for (LoadedMethod& m : methods_) {
    const Method& info = m.state->method();
    if (info.name != method) continue;
    if (info.instructions.size() != 1 || info.instructions[0].kind != InstructionKind::delegate) return nullptr;
    const Instruction& in = info.instructions[0];
    std::vector<int32_t> all(info.inputs.begin(), info.inputs.end());
    all.insert(all.end(), info.outputs.begin(), info.outputs.end());
    if (!std::equal(all.begin(), all.end(), in.args.begin(), in.args.end())) return nullptr;
    return &m;
  }
  return nullptr;
}

}  // namespace etwgpu
