// LoadOptions::check_values on both devices: what is named, what is no error, and that results stay what they are.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/executor/check_values.h"
#include "runtime/webgpu/device.h"
#include "runtime/webgpu/gpu_backend.h"
#include "tests/cpp/dawn.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();

HostTensor floats(Sizes sizes, float all) {
  HostTensor t{DType::f32, std::move(sizes), {}};
  const std::vector<float> values(size_t(elementCount(t.sizes)), all);
  t.bytes.resize(values.size() * 4);
  std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}
HostTensor with(HostTensor t, size_t i, float value) {
  std::memcpy(&t.bytes[4 * i], &value, 4);
  return t;
}
HostTensor bools(Sizes sizes, std::vector<uint8_t> values) { return {DType::boolean, std::move(sizes), values}; }

// ---- the rule ------------------------------------------------------------------------------------------------------

ScannedValue scanned(const char* name, std::vector<float> values, bool constant = false) {
  ScannedValue v;
  v.name = name;
  v.constant = constant;
  v.look({DType::f32, {2, int64_t(values.size()) / 2}, values.data(), {}, nullptr});
  return v;
}
Status judged(const char* op, ScannedValue output, std::vector<ScannedValue> inputs, double given = 0) {
  OperatorCheck check("forward", op, "n", 1 + inputs.size());
  check.given(given);
  check.outputs = 1;
  check.count = 1 + inputs.size();
  std::move(inputs.begin(), inputs.end(), &check.values[1]);
  check.values[0] = std::move(output);
  EXPECT_TRUE(check.suspicious());
  return check.verdict();
}
const std::vector<float> kFinite{1, 2, 3, 4}, kNan{1, 2, std::nanf(""), 4}, kMask{0, -kInf, 0, -kInf};

TEST(CheckValues, NansCountAlways) {
  for (const double given : {0.0, double(-kInf)}) {
    const Status s = judged("aten.mul.Tensor", scanned("y", kNan), {scanned("x", kMask)}, given);
    EXPECT_EQ(s.code(), Code::non_finite);
    EXPECT_EQ(
        s.message(),
        "method forward: aten.mul.Tensor (n) is the first to give what is not finite: y f32 [2, 2] NaN at [1, 0]; "
        "inputs: x f32 [2, 2] -inf at [0, 1]");
  }
}

TEST(CheckValues, InfinitiesCountUnlessTheyAreMeant) {
  const ScannedValue y = scanned("y", kMask);
  EXPECT_EQ(judged("aten.log.default", y, {scanned("x", kFinite)}).code(), Code::non_finite);
  EXPECT_TRUE(judged("aten.full.default", y, {}, -kInf).ok());
  EXPECT_TRUE(judged("aten.full.default", y, {}, kLowest).ok()) << "an infinity in f16";
  EXPECT_EQ(judged("aten.mul.Scalar", y, {scanned("x", kFinite)}, 1e6).code(), Code::non_finite);
  EXPECT_TRUE(judged("aten.where.self", y, {scanned("x", kFinite), scanned("m", kMask)}).ok());
  EXPECT_TRUE(judged("aten.where.self", y, {scanned("m", {0, kLowest, 0, 0}, true)}).ok());
  EXPECT_EQ(judged("aten.add.Tensor", y, {scanned("m", {0, kLowest, 0, 0})}).code(), Code::non_finite);
  for (const char* op : {"aten.scaled_dot_product_attention.default", "aten.bmm.default", "etwgpu.convolution"})
    EXPECT_EQ(judged(op, y, {scanned("mask", kMask)}).code(), Code::non_finite) << op;
}

TEST(CheckValues, HalvesAreScanned) {
  uint16_t half[] = {0x3c00, 0x7bff, 0xfc00, 0x7e00};
  ScannedValue v;
  v.look({DType::f16, {2, 2}, half, {}, nullptr});
  EXPECT_EQ(v.infinity, 2u);
  EXPECT_EQ(v.nan, 3u);
  EXPECT_TRUE(v.negative);
}

// ---- on devices ----------------------------------------------------------------------------------------------------

struct Where {
  const char* name;
  DeviceKind device;
  Precision precision;
};

class CheckedCalls : public ::testing::TestWithParam<Where>, public DataSource {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(test::loadDawn().ok());
    auto made = runBlocking(Device::create({}));
    ASSERT_TRUE(made.ok()) << made.status().message();
    device_ = std::move(made).value();
  }
  static void TearDownTestSuite() { device_.reset(); }

  std::string name() const override { return "test"; }
  uint64_t size() const override { return bytes_.size(); }
  Task<Status> read(std::vector<ReadRequest> requests) override {
    for (const ReadRequest& r : requests) {
      const uint8_t* from = bytes_.data() + r.offset;
      if (r.host) std::memcpy(r.host, from, r.size);
      if (r.gpu) wg::QueueWriteBuffer(device_->queue(), r.gpu, r.gpu_offset, from, r.size);
    }
    co_return Status();
  }

  bool half() const { return GetParam().precision == Precision::f16; }

  Status load(const GraphBuilder& b, bool check, const std::string& disabled = "") {
    delegate_.reset();
    NamedDataMap map;
    bytes_.clear();
    for (const auto& [key, data] : b.data) {
      bytes_.resize((bytes_.size() + 255) / 256 * 256);
      map.entries[key] = {this, bytes_.size(), data.size()};
      bytes_.insert(bytes_.end(), data.begin(), data.end());
    }
    LoadOptions options;
    options.device = GetParam().device;
    options.precision = GetParam().precision;
    options.check_values = check;
    options.disabled_passes = disabled;
    backend_ = options.device == DeviceKind::cpu ? makeCpuBackend(options) : makeGpuBackend(*device_, options);
    ETWGPU_ASSIGN(delegate_, backend_->createDelegate(serialize(b.graph), map, {.import = {.method = "forward"}}));
    std::vector<ReadRequest> requests;
    for (auto& [from, request] : delegate_->takeReads()) requests.push_back(request);
    ETWGPU_TRY(runBlocking(read(requests)));
    return runBlocking(delegate_->finishLoading());
  }

  /// The first of `outputs`.
  Result<std::vector<float>> call(std::vector<HostTensor> inputs, size_t outputs = 1) {
    std::vector<DelegateArg> in, out(outputs);
    for (HostTensor& t : inputs) in.push_back({t.view(), false, 0});
    std::vector<float> values(1 << 14), others(1 << 14);
    for (DelegateArg& o : out) o.tensor = {DType::f32, {}, &o == &out[0] ? values.data() : others.data(), {}, nullptr};
    ETWGPU_TRY(runBlocking(delegate_->execute(in, out, {})));
    values.resize(size_t(out[0].tensor.count()));
    return values;
  }

  /// The call must end with an error that says each of `words`.
  void fails(std::vector<HostTensor> inputs, std::initializer_list<std::string> words) {
    const auto result = call(std::move(inputs));
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::non_finite) << result.status().message();
    for (const std::string& word : words)
      EXPECT_NE(result.status().message().find(word), std::string::npos) << word << ": " << result.status().message();
  }

  static inline std::unique_ptr<Device> device_;
  std::vector<uint8_t> bytes_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Delegate> delegate_;
};

HostTensor prompt(int64_t rows) {
  HostTensor t = floats({1, rows, 16}, 0.5f);
  for (int64_t i = 0; i < rows * 16; ++i) t = with(std::move(t), size_t(i), 0.1f * float(i % 13) - 0.5f);
  return t;
}
HostTensor position(int64_t start) {
  HostTensor t{DType::i64, {1}, std::vector<uint8_t>(8)};
  std::memcpy(t.bytes.data(), &start, 8);
  return t;
}

TEST_P(CheckedCalls, WhatIsFiniteStaysBitByBitWhatItIs) {
  const GraphBuilder b = decoder(1);
  for (const char* disabled : {"", "all"}) {
    if (half() && *disabled) continue;  // a software adapter compiles slowly
    std::vector<std::vector<float>> found;
    for (const bool check : {false, true}) {
      const Status loaded = load(b, check, disabled);
      ASSERT_TRUE(loaded.ok()) << loaded.message();
      found.emplace_back();
      for (const auto& [rows, start] : {std::pair<int64_t, int64_t>{5, 0}, {1, 5}, {3, 6}}) {
        const auto logits = call({prompt(rows), position(start)});
        ASSERT_TRUE(logits.ok()) << logits.status().message();
        found.back().insert(found.back().end(), logits.value().begin(), logits.value().end());
      }
    }
    EXPECT_EQ(found[0], found[1]) << disabled;
    EXPECT_EQ(found[0].size(), 96u);
  }
}

TEST_P(CheckedCalls, NamesTheFirstOperatorAndGoesOn) {
  ASSERT_TRUE(load(decoder(1), true).ok());
  const std::string type = half() ? "f16" : "f32";
  fails({with(prompt(5), 2 * 16 + 3, std::nanf("")), position(0)},
        {"method forward: etwgpu.qkv_cache_write (", " NaN at [", "x " + type + " [1, 5, 16] NaN at [0, 2, 3]",
         "without graph passes"});
  // What lies in memory beyond the rows of a call is not looked at, nor what nobody reads of the caches.
  const auto after = call({prompt(1), position(0)});
  EXPECT_TRUE(after.ok()) << after.status().message();
  ASSERT_TRUE(load(decoder(1), true, "all").ok());
  fails({with(prompt(5), 2 * 16 + 3, std::nanf("")), position(0)},
        {"method forward: aten.rms_norm.default (0.n1)", "0.n1 " + type + " [1, 5, 16] NaN at [0, 2, 0]"});
}

TEST_P(CheckedCalls, ACacheIsAnInputOfWhatReadsIt) {
  ASSERT_TRUE(load(decoder(1), true).ok());
  ASSERT_TRUE(call({prompt(5), position(0)}).ok());
  const auto states = delegate_->states();
  const std::vector<uint8_t> nans(states[1].bytes(), 0xff);
  const StateRange range{1, 0, nans.size()};
  ASSERT_TRUE(runBlocking(delegate_->writeStates(std::span(&range, 1), nans)).ok());
  fails({prompt(1), position(5)}, {"etwgpu.attention_linear (", states[1].name + " f", " NaN at [0, 0, 0, 0]"});
}

TEST_P(CheckedCalls, OverflowInF16Alone) {
  GraphBuilder b;
  const ValueId x = b.input("x", DType::f32, {2, 8});
  const ValueId square = b.binary("mul", x, x, "square", {2, 8});
  b.output(b.rmsNorm(square, b.constant("w", {8}), 8, "scaled", {2, 8}));
  ASSERT_TRUE(load(b, true).ok());
  const HostTensor large = with(floats({2, 8}, 1), 13, 300);
  if (!half()) {
    EXPECT_TRUE(call({large}).ok());
    return;
  }
  fails({large}, {"(square)", "square f16 [2, 8] inf at [1, 5]", "x f16 [2, 8] finite", "try precision f32"});
}

TEST_P(CheckedCalls, DivisionByZero) {
  GraphBuilder b;
  const ValueId x = b.input("x", DType::f32, {2, 3}), y = b.input("y", DType::f32, {2, 3});
  b.output(b.binary("div", x, y, "ratio", {2, 3}));
  ASSERT_TRUE(load(b, true, "all").ok());
  EXPECT_TRUE(call({floats({2, 3}, 1), floats({2, 3}, 2)}).ok());
  fails({floats({2, 3}, -1), with(floats({2, 3}, 2), 4, 0)},
        {"aten.div.Tensor (ratio)", " [2, 3] -inf at [1, 1]; inputs: ", "[2, 3] finite"});
}

TEST_P(CheckedCalls, MasksAreNoErrors) {
  for (const float hidden : {-kInf, kLowest}) {
    GraphBuilder b;
    const ValueId x = b.input("x", DType::f32, {2, 4}), m = b.input("m", DType::boolean, {2, 4});
    const ValueId zero = b.constant("zero", {1}), low = b.constant("low", {1});
    b.data["zero"] = floats({1}, 0).bytes;
    b.data["low"] = floats({1}, hidden).bytes;
    const ValueId mask = b.node("aten.where.self", {m, zero, low}, "mask", {2, 4});
    const ValueId filled =
        b.node("aten.full.default",
               {b.is({2, 4}), double(hidden), std::monostate{}, std::monostate{}, std::monostate{}, std::monostate{}},
               "filled", {2, 4});
    const ValueId scores = b.binary("add", x, mask, "scores", {2, 4});
    const ValueId kept = b.node("aten.where.self", {m, scores, filled}, "kept", {2, 4});
    b.output(b.node("aten.softmax.int", {kept, b.i(-1), std::monostate{}}, "weights", {2, 4}));
    for (const char* disabled : {"", "all"}) {
      const Status loaded = load(b, true, disabled);
      ASSERT_TRUE(loaded.ok()) << loaded.message();
      const auto weights = call({floats({2, 4}, 1), bools({2, 4}, {1, 1, 0, 0, 1, 0, 0, 0})});
      ASSERT_TRUE(weights.ok()) << disabled << weights.status().message();
      EXPECT_EQ(weights.value(), (std::vector<float>{0.5f, 0.5f, 0, 0, 1, 0, 0, 0}));
      if (hidden != -kInf) continue;
      fails({floats({2, 4}, 1), bools({2, 4}, {1, 1, 0, 0, 0, 0, 0, 0})}, {"(weights)", " NaN at [1, 0]", " -inf at "});
    }
  }
}

TEST_P(CheckedCalls, StatesThatAreCopiedKeepTheirOrder) {
  GraphBuilder b;
  const ValueId x = b.input("x", DType::f32, {4}), total = b.state("total", {4});
  const ValueId sum = b.binary("add", total, x, "sum", {4});
  b.mutate(total, sum);
  const ValueId square = b.binary("mul", sum, sum, "square", {4});
  b.output(square);
  b.output(b.binary("add", square, x, "more", {4}));  // behind what is read back first
  ASSERT_TRUE(load(b, true, "all").ok());
  for (const float expected : {4.f, 16.f, 36.f}) {
    const auto squares = call({floats({4}, 2)}, 2);
    ASSERT_TRUE(squares.ok()) << squares.status().message();
    EXPECT_EQ(squares.value(), std::vector<float>(4, expected));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, CheckedCalls,
                         ::testing::Values(Where{"Cpu", DeviceKind::cpu, Precision::f32},
                                           Where{"Gpu", DeviceKind::webgpu, Precision::f32},
                                           Where{"GpuF16", DeviceKind::webgpu, Precision::f16}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace etwgpu::testing
