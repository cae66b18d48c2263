// Every WGSL variant that tools/validate_wgsl.py checks also runs: each one-node graph of the cases, at every tier,
// precision and class of device, on a real device (native Dawn, on lavapipe where there is no GPU), and gives what the
// CPU's kernel gives. The CPU's kernels are compared with eager in tests/operators.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "runtime/webgpu/gpu_delegate.h"
#include "runtime/webgpu/gpu_plan.h"
#include "runtime/webgpu/gpu_store.h"
#include "tests/cpp/all_variants.h"
#include "tests/cpp/cpu_call.h"
#include "tests/cpp/dawn.h"

namespace etwgpu::testing {
namespace {

/// Multiples of 1/16 in [-2, 2] without 0: exact in f16, so that f32 and f16 see the same.
float gridValue(std::mt19937& rng, bool positive) {
  const float v = float(1 + rng() % 32) / 16;
  return !positive && rng() % 2 ? -v : v;
}

HostTensor fill(DType dtype, Sizes sizes, uint32_t seed, bool positive, float scale = 1) {
  HostTensor t{dtype, std::move(sizes), {}};
  const int64_t count = elementCount(t.sizes);
  t.bytes.resize(size_t(count) * dtypeSize(dtype));
  std::mt19937 rng(seed);
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::f32) reinterpret_cast<float*>(t.bytes.data())[i] = scale * gridValue(rng, positive);
    if (dtype == DType::boolean) t.bytes[size_t(i)] = uint8_t(rng() % 2);
    // valid as indices, the first three different
    if (dtype == DType::i64) reinterpret_cast<int64_t*>(t.bytes.data())[i] = (2 * i + 2) % 3;
  }
  return t;
}

/// A case as a whole program: what no node makes is an input; constants and states have values.
class Program {
 public:
  explicit Program(KernelCase c) : name(std::move(c.name)), graph_(std::move(c.builder.graph)) {
    const Node& node = graph_.nodes.back();
    const std::set<ValueId> made(node.outputs.begin(), node.outputs.end());
    positive_ = std::any_of(std::begin(kPositive), std::end(kPositive),
                            [&](const char* op) { return node.op.find(op) != std::string::npos; });
    graph_.inputs.clear();
    weights_.resize(graph_.values.size());
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      Value& v = graph_.values[i];
      if (v.kind == ValueKind::intermediate && !made.contains(ValueId(i))) v.kind = ValueKind::input;
      if (v.kind == ValueKind::input) graph_.inputs.push_back({ValueId(i)});
      if (v.kind == ValueKind::state) states_.push_back(ValueId(i));
    }
    for (const ValueId v : node.outputs) graph_.outputs.push_back({v, {}});
  }

  const Graph& graph() const { return graph_; }

  /// Gives constants and states their values.
  void fillStorages() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      Value& v = graph_.values[i];
      if (v.kind != ValueKind::constant && v.kind != ValueKind::state) continue;
      if (v.quantization.bits) {
        weights_[i] = quantisedWeight(atMost(i)[0], atMost(i)[1], v.quantization.bits, v.quantization.group,
                                      v.quantization.symmetric, 7);
        v.pieces[0] = {v.name, 0, weights_[i].words.size()};
        v.constants_pieces[0] = {v.name + " constants", 0, weights_[i].constants.size()};
      } else {
        v.literal = fill(v.dtype, atMost(i), uint32_t(i), v.name == "var", kConstantScale).bytes;
      }
    }
  }

  /// Values for the symbols, the smallest first.
  std::vector<std::vector<int64_t>> calls() const {
    std::vector<std::vector<int64_t>> all;
    for (const int64_t n : {1, 2, 5, 33, 97, 300}) {
      std::vector<int64_t> symbols;
      for (size_t s = 0; s < graph_.exprs.symbolCount(); ++s) {
        const Bounds b = graph_.exprs.symbolBounds(s);
        symbols.push_back(std::clamp(n, b.min, longest(b.max)));
      }
      if (all.empty() || symbols != all.back()) all.push_back(std::move(symbols));
    }
    return all;
  }

  /// The inputs of a call.
  std::vector<HostTensor> inputs(const std::vector<int64_t>& symbols) const {
    std::vector<HostTensor> all;
    for (const GraphInput& input : graph_.inputs) {
      const Value& v = graph_.value(input.value);
      all.push_back(fill(v.dtype, sizes(input.value, symbols), uint32_t(input.value), positive_));
      if (v.name == "start") reinterpret_cast<int64_t*>(all.back().bytes.data())[0] = kStart;
      if (v.name == "late") reinterpret_cast<int64_t*>(all.back().bytes.data())[0] = kRingRows + 2;
    }
    return all;
  }

  /// What the CPU's kernel gives.
  Result<std::vector<HostTensor>> expected(std::vector<HostTensor>& inputs, const std::vector<int64_t>& symbols) {
    std::vector<HostTensor> stored(graph_.values.size());
    for (size_t i = 0; i < graph_.values.size(); ++i)
      if (!graph_.values[i].literal.empty()) stored[i] = {graph_.values[i].dtype, atMost(i), graph_.values[i].literal};
    std::vector<HostTensor*> tensors(graph_.values.size());
    for (size_t i = 0; i < stored.size(); ++i) tensors[i] = &stored[i];
    for (size_t i = 0; i < inputs.size(); ++i) tensors[size_t(graph_.inputs[i].value)] = &inputs[i];

    const Node& node = graph_.nodes.back();
    TestCall call;
    call.mode = Activations::exact;
    call.output_types.clear();
    for (const ValueId v : node.outputs) call.output_types.push_back(graph_.value(v).dtype);
    for (const Arg& arg : node.args) call.args.push_back(testArg(arg, tensors, symbols));
    ETWGPU_TRY(call.run(node.op));
    return std::move(call.outputs);
  }

  Sizes sizes(ValueId id, const std::vector<int64_t>& symbols) const {
    Sizes s;
    for (const ExprId e : graph_.value(id).dims) s.push_back(graph_.exprs.eval(e, symbols));
    return s;
  }

  NamedDataMap data(DataSource& source) const {
    NamedDataMap map;
    for (const QuantisedWeight& w : weights_) {
      if (w.words.empty()) continue;
      map.entries["w"] = {&source, 0, w.words.size()};
      map.entries["w constants"] = {&source, w.words.size(), w.constants.size()};
    }
    return map;
  }
  const uint8_t* bytes(uint64_t offset) const {
    for (const QuantisedWeight& w : weights_)
      if (!w.words.empty()) return offset < w.words.size() ? &w.words[offset] : &w.constants[offset - w.words.size()];
    return nullptr;
  }

  const std::string name;

 private:
  static constexpr const char* kPositive[] = {"log.", "sqrt", "pow"};
  static constexpr int64_t kStart = 20;
  static constexpr float kConstantScale = 0.125f;  // products stay within f16

  /// A cache has room for some positions after the start.
  int64_t longest(int64_t max) const {
    for (const ValueId s : states_) max = std::min(max, graph_.exprs.bounds(graph_.value(s).dims[2]).max - kStart);
    return max;
  }
  Sizes atMost(size_t id) const {
    Sizes s;
    for (const ExprId e : graph_.values[id].dims) s.push_back(graph_.exprs.bounds(e).max);
    return s;
  }

  TestArg testArg(const Arg& arg, const std::vector<HostTensor*>& tensors, const std::vector<int64_t>& symbols) {
    if (const auto* v = std::get_if<ValueId>(&arg)) {
      if (*v == kNoValue) return std::monostate();
      QuantisedWeight& weight = weights_[size_t(*v)];
      const auto& low_rank = graph_.value(*v).low_rank;
      if (!low_rank) return weight.words.empty() ? TestArg(tensors[size_t(*v)]) : TestArg(weight.view);
      const auto floats = [&](ValueId id) { return reinterpret_cast<const float*>(tensors[size_t(id)]->bytes.data()); };
      low_rank_ = {floats(low_rank->a), floats(low_rank->b), low_rank->first_rows, low_rank->rank,
                   std::vector<float>(low_rank->adapters.size(), 1.f)};
      TensorView view = weight.words.empty() ? tensors[size_t(*v)]->view() : weight.view;
      view.low_rank = &low_rank_;
      return view;
    }
    if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) {
      std::vector<HostTensor*> all;
      for (const ValueId v : *list) all.push_back(v == kNoValue ? nullptr : tensors[size_t(v)]);
      return all;
    }
    if (const auto* i = std::get_if<IntArg>(&arg)) return graph_.exprs.eval(i->expr, symbols);
    if (const auto* list = std::get_if<std::vector<IntArg>>(&arg)) {
      Sizes all;
      for (const IntArg i : *list) all.push_back(graph_.exprs.eval(i.expr, symbols));
      return all;
    }
    if (const auto* d = std::get_if<double>(&arg)) return *d;
    if (const auto* b = std::get_if<bool>(&arg)) return *b;
    if (const auto* s = std::get_if<std::string>(&arg)) return *s;
    if (const auto* t = std::get_if<DType>(&arg)) return *t;
    return std::monostate();
  }

  Graph graph_;
  bool positive_ = false;
  std::vector<QuantisedWeight> weights_;  // by value
  LowRankView low_rank_;                  // of the one weight that has adapters
  std::vector<ValueId> states_;
};

/// Serves a program's weights to host and GPU.
class WeightSource final : public DataSource {
 public:
  WeightSource(const Program& program, Device& device) : program_(program), device_(device) {}
  std::string name() const override { return "test"; }
  uint64_t size() const override { return 0; }
  Task<Status> read(std::vector<ReadRequest> requests) override {
    for (const ReadRequest& r : requests) {
      if (r.host) std::memcpy(r.host, program_.bytes(r.offset), r.size);
      if (r.gpu) wg::QueueWriteBuffer(device_.queue(), r.gpu, r.gpu_offset, program_.bytes(r.offset), r.size);
    }
    co_return Status();
  }

 private:
  const Program& program_;
  Device& device_;
};

double number(const HostTensor& t, int64_t i) {
  if (t.dtype == DType::f32) return reinterpret_cast<const float*>(t.bytes.data())[i];
  if (t.dtype == DType::i64) return double(reinterpret_cast<const int64_t*>(t.bytes.data())[i]);
  if (t.dtype == DType::i32) return reinterpret_cast<const int32_t*>(t.bytes.data())[i];
  return t.bytes[size_t(i)];
}

/// Runs programs, and keeps account of the variants that were dispatched.
class Runner {
 public:
  explicit Runner(Device& device) : device_(device) {}
  const std::set<WgslVariant>& dispatched() const { return dispatched_; }
  void skip(const std::vector<DispatchSpec>& dispatches) {
    for (const DispatchSpec& d : dispatches) dispatched_.insert(d.kernel);
  }

  /// Runs the calls that dispatch something new.
  void run(const KernelCase& c, const VariantSetting& setting) {
    Program program(c);
    const LoadOptions options = setting.options();
    const GpuCapabilities capabilities = c.on(setting.capabilities());
    Result<GpuPlan> plan = planGraph(program.graph(), capabilities, options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::vector<std::vector<int64_t>> calls;
    for (const std::vector<int64_t>& symbols : program.calls()) {
      const auto before = dispatched_.size();
      note(*plan, symbols);
      if (dispatched_.size() > before) calls.push_back(symbols);
    }
    if (calls.empty()) return;
    program.fillStorages();
    plan = planGraph(program.graph(), capabilities, options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto store = std::make_shared<GpuStore>(device_, options);
    GpuDelegate delegate(store, std::move(plan).value());
    WeightSource source(program, device_);
    Status status = delegate.prepare(program.data(source));
    ASSERT_TRUE(status.ok()) << status.message();
    std::vector<ReadRequest> requests;
    for (auto& [from, request] : delegate.takeReads()) requests.push_back(request);
    ASSERT_TRUE(runBlocking(source.read(requests)).ok());
    status = runBlocking(delegate.finishLoading());
    ASSERT_TRUE(status.ok()) << status.message();
    for (const std::vector<int64_t>& symbols : calls) compare(program, delegate, symbols, options.precision);
  }

 private:
  static bool runs(const Graph& graph, const PlannedDispatch& d, const std::vector<int64_t>& symbols) {
    if (d.only_argmax >= 0) return false;
    for (const ExprId e : d.spec.workgroups)
      if (graph.exprs.eval(e, symbols) == 0) return false;
    if (!d.spec.when.expr.valid()) return true;
    const int64_t value = graph.exprs.eval(d.spec.when.expr, symbols);
    return value >= d.spec.when.min && value <= d.spec.when.max;
  }
  void note(const GpuPlan& plan, const std::vector<int64_t>& symbols) {
    for (const PlannedDispatch& d : plan.dispatches)
      if (runs(plan.graph, d, symbols)) dispatched_.insert(d.spec.kernel);
  }

  void compare(Program& program, GpuDelegate& delegate, const std::vector<int64_t>& symbols, Precision precision) {
    std::vector<HostTensor> inputs = program.inputs(symbols), outputs;
    std::vector<DelegateArg> in, out;
    for (HostTensor& t : inputs) in.push_back({t.view(), false, 0});
    for (const GraphOutput& o : program.graph().outputs) {
      const DType dtype = program.graph().value(o.value).dtype;
      Sizes sizes = program.sizes(o.value, symbols);
      const size_t bytes = size_t(program.graph().maxBytes(o.value));
      outputs.push_back({dtype, std::move(sizes), std::vector<uint8_t>(bytes)});
    }
    for (HostTensor& t : outputs) out.push_back({t.view(), false, 0});
    const Status status = runBlocking(delegate.execute(in, out, {}));
    ASSERT_TRUE(status.ok()) << status.message();
    auto expected = program.expected(inputs, symbols);
    ASSERT_TRUE(expected.ok()) << expected.status().message();
    ASSERT_LE(1u, expected->size());
    for (size_t k = 0; k < outputs.size(); ++k) {
      const HostTensor& want = (*expected)[k];
      ASSERT_EQ(outputs[k].sizes, want.sizes);
      double largest = 1, worst = 0;
      for (int64_t i = 0; i < elementCount(want.sizes); ++i) {
        largest = std::max(largest, std::abs(number(want, i)));
        const double difference = std::abs(number(outputs[k], i) - number(want, i));
        worst = difference <= worst ? worst : difference;  // NaN counts as worst
      }
      const double allowed = !isFloating(want.dtype) ? 0 : (precision == Precision::f16 ? 4e-3 : 1e-4) * largest;
      EXPECT_LE(worst, allowed) << "output " << k << " of up to " << largest;
    }
  }

  Device& device_;
  std::set<WgslVariant> dispatched_;
};

TEST(Variants, EveryVariantRunsAndEqualsTheCpu) {
  ASSERT_TRUE(test::loadDawn().ok());
  auto device = runBlocking(Device::create({}));
  ASSERT_TRUE(device.ok()) << device.status().message();
  Runner runner(**device);
  const GpuCapabilities& capabilities = (*device)->capabilities();
  const uint32_t lanes = std::max<uint32_t>(capabilities.subgroup_min, 8);
  // as in deviceOf
  const bool matrices = capabilities.matrix_size == 16 && capabilities.max_workgroup_bytes >= 49152;
  // A software GPU takes minutes to compile them all: all of them in full runs, else a sample.
  const char* full = std::getenv("ETWGPU_TEST_FULL");
  const int every = full && *full == '1' ? 1 : 64;
  const char* chosen = std::getenv("ETWGPU_TEST_CASES");  // or those that have this in their names
  int number = 0;
  for (const VariantSetting& setting : variantSettings(lanes, matrices))
    for (KernelCase& c : allCases()) {
      if (!setting.takes(c)) continue;
      const bool wanted = chosen ? c.name.find(chosen) != std::string::npos : number++ % every == 0;
      if (c.steps || !wanted) {
        const auto dispatches = planCase(c, c.on(setting.capabilities()), setting.options());
        ASSERT_TRUE(dispatches.ok()) << dispatches.status().message();
        runner.skip(*dispatches);
        continue;
      }
      SCOPED_TRACE(c.name + " " + setting.name());
      runner.run(c, setting);
    }
  const std::set<WgslVariant> all = allVariants(lanes, matrices).all;
  GTEST_LOG_(INFO) << all.size() << " variants, subgroups of " << lanes << (matrices ? " and their matrices" : "")
                   << (every == 1 && !chosen ? ", each run here" : ", a sample run here");
  for (const WgslVariant& variant : all) {
    if (runner.dispatched().contains(variant)) continue;
    std::string defines;
    for (const auto& [name, value] : variant.defines) defines += " " + name + "=" + value;
    ADD_FAILURE() << "never dispatched: " << variant.name << defines
                  << "\nadd a case that reaches it to kernel_cases.h or vision_cases.h, or remove the variant";
  }
}

}  // namespace
}  // namespace etwgpu::testing
