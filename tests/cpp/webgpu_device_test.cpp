// The GPU layer on a real device (native Dawn, on lavapipe where there is no GPU), with kernels of its own.
#include <gtest/gtest.h>

#include "runtime/webgpu/device.h"
#include "runtime/webgpu/gpu_delegate.h"
#include "runtime/webgpu/gpu_plan.h"
#include "runtime/webgpu/gpu_store.h"
#include "runtime/webgpu/pipelines.h"
#include "tests/cpp/dawn.h"

namespace etwgpu {
namespace {

std::unique_ptr<Device> makeDevice(DeviceOptions options = {}) {
  if (const Status status = test::loadDawn(); !status.ok()) {
    ADD_FAILURE() << status.message();
    return nullptr;
  }
  Result<std::unique_ptr<Device>> device = runBlocking(Device::create(options));
  if (!device.ok()) {
    ADD_FAILURE() << device.status().message();
    return nullptr;
  }
  return std::move(device).value();
}
#define MAKE_DEVICE(name, ...)         \
  auto name = makeDevice(__VA_ARGS__); \
  if (!name) return

// y = x * 2 + n as f32; total (a state) += x; ids = i64(x). n: rows, dynamic.
constexpr const char* kDouble = R"(
struct P { n: u32, add: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: P;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) g: vec3u) {
  if (g.x < p.n) { y[g.x] = x[g.x] * 2 + p.add; }
})";
constexpr const char* kAccumulate = R"(
struct P { n: u32 }
@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> total: array<f32>;
@group(0) @binding(3) var<storage, read_write> ids: array<i32>;
@group(0) @binding(4) var<uniform> p: P;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) g: vec3u) {
  if (g.x < p.n) { total[g.x] += y[g.x] * w[g.x]; ids[g.x] = i32(total[g.x]); }
})";

constexpr int kMax = 100;

struct Model {
  std::shared_ptr<GpuStore> store;
  std::unique_ptr<GpuDelegate> delegate;
};

Status planMemoryOf(GpuPlan& plan) {
  PlanOptions options;
  options.separate_outputs = true;
  options.bytes = &gpuBytesF32;
  ETWGPU_ASSIGN(plan.memory, planMemory(plan.graph, {}, options));
  plan.input_offsets.assign(plan.graph.values.size(), -1);
  plan.input_offsets[0] = 0;
  plan.input_bytes = 512;
  return {};
}

GpuPlan makePlan() {
  GpuPlan plan;
  Graph& g = plan.graph;
  const ExprId n = g.exprs.newSymbol("n", {1, kMax});
  const ExprId one = g.exprs.constant(1), most = g.exprs.constant(kMax);
  g.symbols.push_back({0, 0});
  const auto value = [&](const char* name, DType dtype, ExprId dim, ValueKind kind) {
    Value v;
    v.name = name;
    v.dtype = dtype;
    v.dims = {dim};
    v.kind = kind;
    return g.newValue(std::move(v));
  };
  const ValueId x = value("x", DType::f32, n, ValueKind::input);
  const ValueId y = value("y", DType::f32, n, ValueKind::intermediate);
  const ValueId ids = value("ids", DType::i64, n, ValueKind::intermediate);
  const ValueId total = value("total", DType::f32, most, ValueKind::state);
  const ValueId w = value("w", DType::f32, most, ValueKind::constant);
  std::vector<float> weights(kMax);
  for (int i = 0; i < kMax; ++i) weights[size_t(i)] = float(i % 7);
  g.value(w).literal.assign(reinterpret_cast<uint8_t*>(weights.data()),
                            reinterpret_cast<uint8_t*>(weights.data() + kMax));
  g.nodes.push_back({"test.double", {Arg(x)}, {y}, "double", nullptr});
  g.nodes.push_back({"test.accumulate", {Arg(y), Arg(w), Arg(total)}, {ids}, "accumulate", nullptr});
  g.inputs = {{x}};
  g.outputs = {{y, {}}, {ids, {}}};
  const std::array<ExprId, 3> grid{g.exprs.ceildiv(n, 64), one, one};
  DispatchSpec first{{"", kDouble, {}, "test_double"},
                     {{x, Access::read}, {y, Access::read_write}},
                     {{n}, {{}, 0.5f, true}},
                     grid,
                     {}};
  DispatchSpec second{{"", kAccumulate, {}, "test_accumulate"},
                      {{y, Access::read}, {w, Access::read}, {total, Access::read_write}, {ids, Access::read_write}},
                      {{n}},
                      grid,
                      {}};
  plan.dispatches = {{first, "double", -1}, {second, "accumulate", -1}};
  plan.constants = {w};
  plan.states = {total};
  return plan;
}

Result<Model> makeModel(Device& device, LoadOptions options = {}, GpuPlan plan = makePlan()) {
  Model m;
  ETWGPU_TRY(planMemoryOf(plan));
  m.store = std::make_shared<GpuStore>(device, options);
  m.delegate = std::make_unique<GpuDelegate>(m.store, std::move(plan));
  const NamedDataMap none;
  ETWGPU_TRY(m.delegate->prepare(none));
  EXPECT_TRUE(m.delegate->takeReads().empty());
  ETWGPU_TRY(runBlocking(m.delegate->finishLoading()));
  return m;
}

struct Outcome {
  Status status;
  std::vector<float> y;
  std::vector<int64_t> ids;
};
Outcome run(Model& m, std::vector<float> x) {
  Outcome o;
  o.y.resize(kMax);
  o.ids.resize(kMax);
  DelegateArg input;
  input.tensor = {DType::f32, {int64_t(x.size())}, x.data(), {}, nullptr};
  std::vector<DelegateArg> outputs(2);
  outputs[0].tensor = {DType::f32, {kMax}, o.y.data(), {}, nullptr};
  outputs[1].tensor = {DType::i64, {kMax}, o.ids.data(), {}, nullptr};
  o.status = runBlocking(m.delegate->execute(std::span(&input, 1), outputs, {}));
  if (o.status.ok()) {
    EXPECT_EQ(outputs[0].tensor.sizes, Sizes{int64_t(x.size())});
    o.y.resize(x.size());
    o.ids.resize(x.size());
  }
  return o;
}
std::vector<float> ramp(int n, float start = 0) {
  std::vector<float> x;
  for (int i = 0; i < n; ++i) x.push_back(start + float(i));
  return x;
}

TEST(GpuDevice, ComputesWithDynamicSizesAndState) {
  MAKE_DEVICE(device);
  auto model = makeModel(*device);
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::vector<float> total(kMax);
  for (const int n : {1, 65, 100, 3}) {
    const auto x = ramp(n, float(n));
    const Outcome o = run(*model, x);
    ASSERT_TRUE(o.status.ok()) << o.status.message();
    for (int i = 0; i < n; ++i) {
      const float y = x[size_t(i)] * 2 + 0.5f;
      total[size_t(i)] += y * float(i % 7);
      ASSERT_EQ(o.y[size_t(i)], y) << n << " " << i;
      ASSERT_EQ(o.ids[size_t(i)], int64_t(total[size_t(i)])) << n << " " << i;
    }
    EXPECT_EQ(model->delegate->lastStats().dispatches, 2);
    EXPECT_EQ(model->delegate->lastStats().submits, 1);
    EXPECT_EQ(model->delegate->lastStats().read_back_bytes, uint64_t(8 * n));
  }
}

TEST(GpuDevice, SteadyCallsUploadChangedInputsOnly) {
  MAKE_DEVICE(device);
  auto model = makeModel(*device);
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_TRUE(run(*model, ramp(4)).status.ok());
  EXPECT_GT(model->delegate->lastStats().upload_bytes, 16u);  // parameters too
  ASSERT_TRUE(run(*model, ramp(4, 1)).status.ok());
  EXPECT_EQ(model->delegate->lastStats().upload_bytes, 16u);
  ASSERT_TRUE(run(*model, ramp(4, 1)).status.ok());
  EXPECT_EQ(model->delegate->lastStats().upload_bytes, 0u);
}

TEST(GpuDevice, WrongInputsAreNamed) {
  MAKE_DEVICE(device);
  auto model = makeModel(*device);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Outcome o = run(*model, ramp(kMax + 1));
  EXPECT_EQ(o.status.code(), Code::invalid_argument);
  EXPECT_NE(o.status.message().find("101"), std::string::npos) << o.status.message();
  EXPECT_TRUE(run(*model, ramp(2)).status.ok());  // and the model goes on
}

TEST(GpuDevice, MemoryIsCountedAndFreed) {
  MAKE_DEVICE(device);
  auto model = makeModel(*device);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto store = model->store;
  EXPECT_EQ(store->report().weights, 512u);
  EXPECT_EQ(store->report().state, 512u);
  EXPECT_GE(store->report().arena, 1024u);
  EXPECT_EQ(store->report().other, 1024u);  // the input and two slices of parameters
  ASSERT_TRUE(run(*model, ramp(2)).status.ok());
  EXPECT_EQ(store->report().other, 1280u);  // and the read-back
  model->delegate.reset();
  EXPECT_EQ(store->report().arena, 0u);
  EXPECT_EQ(store->report().other, 0u);
}

TEST(GpuDevice, MemoryCapNamesTheTensor) {
  MAKE_DEVICE(device);
  LoadOptions options;
  options.memory_cap = 600;
  const auto model = makeModel(*device, options);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), Code::limit_exceeded);
  EXPECT_NE(model.status().message().find("total"), std::string::npos) << model.status().message();
}

TEST(GpuDevice, CompileErrorsNameKernelAndCause) {
  MAKE_DEVICE(device);
  GpuPlan plan = makePlan();
  plan.dispatches[1].spec.kernel = {
      "", "@compute @workgroup_size(64) fn main() { let x: u32 = 1.5; }", {}, "test_broken"};
  const auto model = makeModel(*device, {}, std::move(plan));
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), Code::gpu_error);
  EXPECT_NE(model.status().message().find("test_broken"), std::string::npos) << model.status().message();
  EXPECT_NE(model.status().message().find("1.5"), std::string::npos) << model.status().message();
}

TEST(GpuDevice, LossFailsCallsAndANewDeviceWorks) {
  MAKE_DEVICE(device);
  auto model = makeModel(*device);
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_TRUE(run(*model, ramp(2)).status.ok());
  // A call that is under way when the device goes.
  std::vector<float> x = ramp(2), y(kMax);
  std::vector<int64_t> ids(kMax);
  DelegateArg input;
  input.tensor = {DType::f32, {2}, x.data(), {}, nullptr};
  std::vector<DelegateArg> outputs(2);
  outputs[0].tensor = {DType::f32, {kMax}, y.data(), {}, nullptr};
  outputs[1].tensor = {DType::i64, {kMax}, ids.data(), {}, nullptr};
  const ExecuteOptions options;  // like the arguments, must outlive the task
  Task<Status> pending = model->delegate->execute(std::span(&input, 1), outputs, options);
  pending.start();
  device->destroy();
  for (int i = 0; i < 100000 && !pending.done(); ++i) device->pump();
  ASSERT_TRUE(pending.done());
  EXPECT_EQ(pending.take().code(), Code::device_lost);
  EXPECT_EQ(run(*model, ramp(2)).status.code(), Code::device_lost);
  EXPECT_EQ(makeModel(*device).status().code(), Code::device_lost);
  MAKE_DEVICE(again);
  auto reloaded = makeModel(*again);
  ASSERT_TRUE(reloaded.ok()) << reloaded.status().message();
  EXPECT_TRUE(run(*reloaded, ramp(2)).status.ok());
}

TEST(GpuDevice, ProfileNamesEveryDispatch) {
  MAKE_DEVICE(device);
  if (!device->hasTimestamps()) GTEST_SKIP() << "no timestamp-query";
  auto model = makeModel(*device);
  ASSERT_TRUE(model.ok()) << model.status().message();
  model->delegate->setProfiling(true);
  ASSERT_TRUE(run(*model, ramp(100)).status.ok());
  const auto profile = model->delegate->lastProfile();
  ASSERT_EQ(profile.size(), 2u);
  EXPECT_EQ(profile[0].kernel, "test_double");
  EXPECT_EQ(profile[1].node, "accumulate");
  model->delegate->setProfiling(false);
  EXPECT_TRUE(run(*model, ramp(100)).status.ok());
}

TEST(GpuDevice, TiersCanBeForced) {
  DeviceOptions options;
  options.default_limits = true;
  options.disable_f16 = true;
  options.disable_subgroups = true;
  MAKE_DEVICE(device, options);
  const GpuCapabilities& c = device->capabilities();
  EXPECT_FALSE(c.f16);
  EXPECT_FALSE(c.subgroups);
  EXPECT_EQ(c.max_storage_buffers, 8u);
  EXPECT_EQ(c.max_invocations, 256u);
  EXPECT_EQ(c.max_workgroup_bytes, 16384u);
  EXPECT_EQ(c.max_binding_bytes, uint64_t(128) << 20);
  auto model = makeModel(*device);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_TRUE(run(*model, ramp(100)).status.ok());
}

TEST(GpuDevice, SubgroupMatrixSizes) {
  constexpr uint32_t f32 = WGPUSubgroupMatrixComponentType_F32, f16 = WGPUSubgroupMatrixComponentType_F16,
                     i8 = WGPUSubgroupMatrixComponentType_I8, i32 = WGPUSubgroupMatrixComponentType_I32;
  const auto size = [](std::vector<uint32_t> words, size_t count) {
    return subgroupMatrixSize(words.data(), count, 32);
  };
  EXPECT_EQ(size({}, 0), 0u);
  EXPECT_EQ(size({f16, f16, 16, 16, 16, i8, i32, 16, 16, 32}, 2), 0u);
  EXPECT_EQ(size({f16, f32, 8, 8, 8, f16, f32, 16, 16, 16, f32, f32, 8, 8, 8}, 3), 16u);
  EXPECT_EQ(size({f16, f32, 16, 8, 16, f16, f32, 8, 8, 8}, 2), 8u);
  // with the sizes of subgroups
  EXPECT_EQ(size({i8, i32, 16, 16, 32, 32, 32, f16, f32, 16, 16, 16, 32, 32}, 2), 16u);
  EXPECT_EQ(size({i8, i32, 16, 16, 32, 32, 32, f16, f32, 16, 16, 16, 64, 64}, 2), 0u);
}

TEST(GpuDevice, PipelinesAreShared) {
  MAKE_DEVICE(device);
  auto first = makeModel(*device);
  const size_t made = device->pipelines().size();
  auto second = makeModel(*device);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(made, 2u);
  EXPECT_EQ(device->pipelines().size(), made);
}

TEST(GpuDevice, StateCopiesRunBetweenDispatches) {
  MAKE_DEVICE(device);
  GpuPlan plan = makePlan();
  // total := y after both dispatches; its dims are the upper bounds.
  Graph& g = plan.graph;
  g.value(1).dims = {g.exprs.constant(kMax)};
  plan.copies.push_back({3, 1, 2});
  auto model = makeModel(*device, {}, std::move(plan));
  ASSERT_TRUE(model.ok()) << model.status().message();
  ASSERT_TRUE(run(*model, ramp(100)).status.ok());
  const Outcome o = run(*model, ramp(100));
  ASSERT_TRUE(o.status.ok());
  for (int i = 0; i < 100; ++i) {
    const float y = float(i) * 2 + 0.5f;
    ASSERT_EQ(o.ids[size_t(i)], int64_t(y + y * float(i % 7))) << i;
  }
}

}  // namespace
}  // namespace etwgpu
