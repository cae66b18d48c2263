// A kernel call of a program, as CPU kernels see it.
#include <algorithm>
#include <cstring>

#include "runtime/executor/check_values.h"
#include "runtime/executor/method_state.h"

namespace etwgpu {
namespace {

struct Kind {
  char letter = 'x';
  bool optional = false;
};
std::vector<Kind> parseKinds(std::string_view text) {
  std::vector<Kind> kinds;
  for (char c : text) {
    if (c == '?') {
      kinds.back().optional = true;
    } else {
      kinds.push_back({c, false});
    }
  }
  return kinds;
}

class ProgramCall final : public CpuCall {
 public:
  ProgramCall(MethodState& m, const KernelName& name, std::span<const int32_t> args, ThreadPool& pool,
              Activations activations)
      : m_(m), name_(name), args_(args), pool_(pool), activations_(activations), kinds_(parseKinds(name.kinds)) {
    first_out_ = size_t(std::count_if(name.places.begin(), name.places.end(), [](char c) { return c != '-'; }));
  }
  ~ProgramCall() override {
    for (HostBuffer& b : scratch_) m_.data().budget.release(b);
  }

  /// Kinds, dtypes and layouts of all arguments, and that no output overlaps an input. After this the accessors can't
  /// fail.
  Status check() {
    const size_t wanted = first_out_ + size_t(name_.outs) + 1;
    if (args_.size() != wanted) {
      return error(format("%zu arguments, %zu expected", args_.size(), wanted));
    }
    for (size_t i = 0; i < kinds_.size(); ++i) {
      if (name_.places[i] == '-') continue;
      if (!matches(*valueOf(i), kinds_[i])) {
        return error(format("argument %zu (%s) has the wrong kind, '%c' is expected", i,
                            m_.describe(indexOf(i)).c_str(), kinds_[i].letter));
      }
    }
    for (const RuntimeTensor* t : inputs_) ETWGPU_TRY(usable(*t, "an input"));
    for (int k = 0; k < name_.outs; ++k) {
      RuntimeTensor* out = m_.tensor(args_[first_out_ + size_t(k)]);
      if (!out) return error(format("output %d is no tensor", k));
      if (!out->writable)
        return error(
            format("output %d (%s) may not be written", k, m_.describe(args_[first_out_ + size_t(k)]).c_str()));
      if (!out->data) ETWGPU_TRY(m_.resize(*out, out->sizes, format("output %d", k)));  // gives it memory
      ETWGPU_TRY(usable(*out, "an output"));
      ETWGPU_TRY(disjoint(*out, k));
      outs_.push_back(out);
    }
    return {};
  }

  /// After the kernel has run: LoadOptions::check_values.
  Status checkValues() const {
    const auto text = [](std::string_view s) { return s.empty() ? "" : s.data(); };  // flatbuffers end theirs by a NUL
    OperatorCheck check(text(m_.method().name), name_.kernel.data(), "a kernel call", outs_.size() + inputs_.size());
    check.outputs = outs_.size();
    check.count = outs_.size() + inputs_.size();
    for (size_t i = 0; check.wants(i); ++i) {
      const RuntimeTensor& t = i < check.outputs ? *outs_[i] : *inputs_[i - check.outputs];
      check.values[i].name = text(t.info->name);
      check.values[i].constant = t.info->isConstant();
      check.values[i].look(t.view());
    }
    for (const int32_t arg : args_) {
      if (const auto* number = std::get_if<double>(&m_.value(arg))) check.given(*number);
    }
    return check.verdict();
  }

  size_t argCount() const override { return kinds_.size(); }
  bool isNone(size_t arg) const override {
    const ProgramValue* v = valueOf(arg);
    return !v || std::holds_alternative<std::monostate>(*v);
  }
  TensorView tensor(size_t arg) const override {
    const ProgramValue* v = valueOf(arg);
    const auto* ref = v ? std::get_if<TensorRef>(v) : nullptr;
    return ref ? m_.tensorAt(*ref).view() : TensorView();
  }
  std::vector<TensorView> tensors(size_t arg) const override {
    std::vector<TensorView> views;
    const ProgramValue* v = valueOf(arg);
    if (const auto* list = v ? std::get_if<TensorList>(v) : nullptr) {
      for (int32_t item : list->items) {
        RuntimeTensor* t = item < 0 ? nullptr : m_.tensor(item);
        views.push_back(t ? t->view() : TensorView());
      }
    }
    return views;
  }
  int64_t integer(size_t arg) const override {
    const ProgramValue* v = valueOf(arg);
    if (!v) return 0;
    if (const auto* i = std::get_if<int64_t>(v)) return *i;
    if (const auto* d = std::get_if<double>(v)) return toInteger(*d);
    if (const auto* b = std::get_if<bool>(v)) return *b;
    return 0;
  }
  Sizes integers(size_t arg) const override {
    Sizes out;
    const ProgramValue* v = valueOf(arg);
    if (const auto* list = v ? std::get_if<IntegerList>(v) : nullptr) {
      for (int64_t item : list->items) out.push_back(*std::get_if<int64_t>(&m_.value(int32_t(item))));
    }
    return out;
  }
  double number(size_t arg) const override {
    const ProgramValue* v = valueOf(arg);
    if (const auto* d = v ? std::get_if<double>(v) : nullptr) return *d;
    return double(integer(arg));
  }
  bool flag(size_t arg) const override {
    const ProgramValue* v = valueOf(arg);
    if (!v) return false;
    if (const auto* b = std::get_if<bool>(v)) return *b;
    return integer(arg) != 0;
  }
  std::string text(size_t arg) const override {
    const ProgramValue* v = valueOf(arg);
    const auto* s = v ? std::get_if<std::string_view>(v) : nullptr;
    return s ? std::string(*s) : std::string();
  }
  std::optional<DType> dtype(size_t arg) const override {
    if (isNone(arg)) return std::nullopt;
    return DType(integer(arg));
  }
  Result<TensorView> output(size_t k, const Sizes& sizes) override {
    if (k >= outs_.size()) return error(format("a kernel asked for output %zu of %zu", k, outs_.size()));
    const Status status = m_.resize(*outs_[k], sizes, m_.describe(args_[first_out_ + k]));
    if (!status.ok()) return Status(status.code(), std::string(name_.kernel) + ": " + status.message());
    return outs_[k]->view();
  }
  DType outputDType(size_t k) const override { return outs_[std::min(k, outs_.size() - 1)]->info->dtype(); }
  void* scratch(size_t bytes) override {
    Result<HostBuffer> buffer = m_.data().budget.allocate(bytes, "scratch");
    if (!buffer.ok()) return nullptr;
    scratch_.push_back(std::move(buffer).value());
    return scratch_.back().data();
  }
  ThreadPool& pool() const override { return pool_; }
  Activations activations() const override { return activations_; }

 private:
  Status error(const std::string& message) const {
    return m_.error(Code::invalid_program,
                    "call of " + std::string(name_.name) + "." + std::string(name_.overload) + ": " + message);
  }
  static int64_t toInteger(double d) {
    return d >= -0x1p62 && d <= 0x1p62 ? int64_t(d) : d > 0 ? INT64_MAX : INT64_MIN;
  }
  int32_t indexOf(size_t arg) const { return args_[size_t(name_.places[arg] - '0')]; }
  const ProgramValue* valueOf(size_t arg) const {
    return arg >= kinds_.size() || name_.places[arg] == '-' ? nullptr : &m_.value(indexOf(arg));
  }

  bool matches(const ProgramValue& v, Kind kind) {
    if (std::holds_alternative<std::monostate>(v)) return kind.optional || kind.letter == 'x';
    const bool is_int = std::holds_alternative<int64_t>(v);
    const bool is_bool = std::holds_alternative<bool>(v), is_double = std::holds_alternative<double>(v);
    switch (kind.letter) {
      case 'T':
        if (const auto* ref = std::get_if<TensorRef>(&v)) return inputs_.push_back(&m_.tensorAt(*ref)), true;
        return false;
      case 'L':
      case 'O':
        return matchesTensors(v, kind.letter == 'O');
      case 'i':
        return is_int;
      case 'I':
        return matchesIntegers(v);
      case 's':
        return is_int || is_double || is_bool;
      case 'd':
        return is_int || is_double;
      case 'b':
        return is_bool || is_int;
      case 'S':
        return std::holds_alternative<std::string_view>(v);
      case 'D':
        return is_int && std::get_if<int64_t>(&v)[0] >= 0 && std::get_if<int64_t>(&v)[0] < 64 &&
               isValidDType(int(*std::get_if<int64_t>(&v)));
      default:
        return true;
    }
  }
  bool matchesTensors(const ProgramValue& v, bool optional) {
    const auto* list = std::get_if<TensorList>(&v);
    if (!list) return false;
    for (int32_t item : list->items) {
      RuntimeTensor* t = item < 0 ? nullptr : m_.tensor(item);
      if (!t && !(optional && (item < 0 || std::holds_alternative<std::monostate>(m_.value(item))))) return false;
      if (t) inputs_.push_back(t);
    }
    return true;
  }
  bool matchesIntegers(const ProgramValue& v) const {
    const auto* list = std::get_if<IntegerList>(&v);
    if (!list) return false;
    return std::all_of(list->items.begin(), list->items.end(),
                       [&](int64_t item) { return std::holds_alternative<int64_t>(m_.value(int32_t(item))); });
  }

  Status usable(const RuntimeTensor& t, const char* what) const {
    if (!t.info->hasDType())
      return Status(Code::unsupported_operator,
                    std::string(name_.kernel) + ": " + what + " is of " + scalarTypeName(t.info->scalar_type));
    if (!t.info->isContiguous()) {
      return Status(Code::unsupported_operator,
                    std::string(name_.kernel) + ": " + what + " is not in row-major order (channels last?)");
    }
    return t.data ? Status() : error(std::string(what) + " has no value yet");
  }
  /// In place on exactly the same bytes is fine; anything else would read what the kernel has just written.
  Status disjoint(const RuntimeTensor& out, int k) const {
    const auto overlaps = [&](const RuntimeTensor& t) {
      return &t != &out && t.data < out.data + out.capacity && out.data < t.data + t.bytes();
    };
    for (const RuntimeTensor* t : inputs_) {
      if (overlaps(*t) && t->data != out.data) return error(format("output %d overlaps an input in memory", k));
    }
    for (const RuntimeTensor* t : outs_) {
      if (t == &out || overlaps(*t)) return error(format("output %d overlaps another output", k));
    }
    return {};
  }

  MethodState& m_;
  const KernelName& name_;
  std::span<const int32_t> args_;
  ThreadPool& pool_;
  Activations activations_;
  std::vector<Kind> kinds_;
  size_t first_out_ = 0;
  std::vector<RuntimeTensor*> inputs_, outs_;
  std::vector<HostBuffer> scratch_;
};

}  // namespace

Status MethodState::runKernel(const Instruction& in, ThreadPool& pool, Activations activations) {
  const ResolvedOperator& op = operators_[size_t(in.index)];
  if (op.primitive) return op.primitive(*this, in.args);
  if (!op.kernel) {
    return error(Code::unsupported_operator, "no kernel for " + method_.operators[size_t(in.index)].text());
  }
  ProgramCall call(*this, *op.name, in.args, pool, activations);
  ETWGPU_TRY(call.check());
  const Status status = op.kernel(call);
  if (status.ok()) return data_.check_values ? call.checkValues() : status;
  return error(status.code(), std::string(op.name->kernel) + ": " + status.message());
}

}  // namespace etwgpu
