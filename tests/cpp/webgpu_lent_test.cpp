// Tensors in buffers of the caller's (native Dawn): the same bits as through the host, no byte of them read or written
// there, and what cannot serve is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/program/sources.h"
#include "runtime/webgpu/device.h"
#include "runtime/webgpu/device_call.h"
#include "runtime/webgpu/gpu_backend.h"
#include "tests/cpp/dawn.h"
#include "tests/cpp/graph_builder.h"
#include "tests/cpp/program_builder.h"

namespace etwgpu::testing {
namespace {

using ::testing::HasSubstr;
constexpr auto kAll = WGPUBufferUsage_Storage | WGPUBufferUsage_CopyDst | WGPUBufferUsage_CopySrc;
constexpr int kRows = 700, kColumns = 6;  // at the bounds beyond what is uploaded as a small input

/// forward(a [n, 6], ids [n]) = a · a, softmax(a · a), ids + ids, a; islands: the same, and a kernel call on the CPU.
std::vector<uint8_t> makeProgram() {
  GraphBuilder g;
  const ExprId n = g.symbol("n", 1, kRows, 0, 0);
  const ValueId a = g.input("a", DType::f32, {n, kColumns}), ids = g.input("ids", DType::i64, {n});
  const ValueId square = g.binary("mul", a, a, "square", {n, kColumns});
  g.output(square);
  g.output(g.node("aten._softmax.default", {square, g.i(-1), false}, "softmax", {n, kColumns}));
  g.output(g.binary("add", ids, ids, "twice", {n}, DType::i64));
  g.output(a);
  const std::vector<uint8_t> payload = serialize(g.graph);

  ProgramBuilder b;
  for (const bool island : {false, true}) {
    ProgramBuilder::TensorOptions f32, i64;
    f32.shape = i64.shape = ProgramBuilder::Shape::DYNAMIC_BOUND;
    i64.dtype = pte::ScalarType::LONG;
    const std::vector<int32_t> sizes{kRows, kColumns};
    b.tensor(sizes, f32);
    b.tensor({kRows}, i64);
    for (const int like : {0, 0, 1, 0}) like ? b.tensor({kRows}, i64) : b.tensor(sizes, f32);
    b.inputs = {0, 1};
    b.outputs = {2, 3, 4, 5};
    b.callDelegate(b.delegate(payload), {0, 1, 2, 3, 4, 5});
    if (island) {
      b.integer(1);
      b.tensor(sizes, f32);
      b.op("aten::add", "out");
      b.call(0, {2, 3, 6, 7, 7});
      b.outputs = {7};
    }
    b.method(island ? "islands" : "forward");
  }
  return b.finish();
}

class Lent : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(test::loadDawn().ok());
    device_ = makeDevice();
  }
  static void TearDownTestSuite() { device_.reset(); }
  static std::unique_ptr<Device> makeDevice() {
    auto made = runBlocking(Device::create({}));
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(made).value() : nullptr;
  }
  void SetUp() override { load({}); }
  void load(LoadOptions options) {
    SessionConfig config;
    config.options = options;
    config.options.device = DeviceKind::webgpu;
    config.backend = makeGpuBackend(*device_, config.options);
    config.source = makeMemorySource("test.pte", makeProgram());
    auto session = runBlocking(Session::load(std::move(config)));
    ASSERT_TRUE(session.ok()) << session.status().message();
    session_ = std::move(session).value();
    for (int i = 0; i < kRows * kColumns; ++i) a_.push_back(std::sin(float(i)));
    for (int i = 0; i < kRows; ++i) ids_.push_back(i * 3 - 50), words_.push_back(int32_t(ids_.back()));
  }

  DeviceBuffer make(uint64_t size, WGPUBufferUsage usage = kAll, uint64_t offset = 0, Device* on = nullptr) {
    WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
    descriptor.size = offset + size;
    descriptor.usage = usage;
    held_.emplace_back(wg::DeviceCreateBuffer((on ? on : device_.get())->handle(), &descriptor));
    return {held_.back().get(), offset, size};
  }
  template <class T>
  void write(const DeviceBuffer& to, const std::vector<T>& values, size_t count) {
    wg::QueueWriteBuffer(device_->queue(), to.buffer, to.offset, values.data(), count * sizeof(T));
  }
  template <class T>
  std::vector<T> read(const DeviceBuffer& from, size_t count) {
    const DeviceBuffer staging = make(count * sizeof(T), WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst);
    const CommandEncoderHandle encoder(wg::DeviceCreateCommandEncoder(device_->handle(), nullptr));
    wg::CommandEncoderCopyBufferToBuffer(encoder.get(), from.buffer, from.offset, staging.buffer, 0, staging.size);
    device_->submit(encoder.get());
    std::vector<T> values(count);
    EXPECT_TRUE(runBlocking(mapForReading(*device_, staging.buffer, staging.size)).ok());
    EXPECT_TRUE(readMapped(*device_, staging.buffer, 0, values.data(), staging.size).ok());
    return values;
  }

  TensorView a(int n) { return {DType::f32, {n, kColumns}, a_.data(), {}, nullptr}; }
  TensorView ids(int n) { return {DType::i64, {n}, ids_.data(), {}, nullptr}; }
  static TensorView lentA(int n) { return {DType::f32, {n, kColumns}, nullptr, {}, nullptr}; }
  static TensorView lentIds(int n) { return {DType::i32, {n}, nullptr, {}, nullptr}; }

  /// What the same call answers through the host.
  template <class T>
  std::vector<T> expected(int n, size_t output) {
    auto result = runBlocking(session_->run("forward", {a(n), ids(n)}));
    EXPECT_TRUE(result.ok()) << result.status().message();
    const auto& bytes = std::get<HostTensor>((*result)[output]).bytes;
    const T* values = reinterpret_cast<const T*>(bytes.data());
    return {values, values + bytes.size() / sizeof(T)};
  }
  ExecuteStats stats() { return session_->soleDelegate("forward")->lastStats(); }
  void expectRefusal(std::vector<Input> inputs, DevicePlaces places, const std::string& message,
                     const char* method = "forward") {
    const auto result = runBlocking(runOnDevice(*session_, method, std::move(inputs), places));
    EXPECT_EQ(codeName(result.status().code()), "invalid_argument") << message;
    EXPECT_THAT(result.status().message(), HasSubstr(message));
    EXPECT_EQ(expected<float>(3, 0)[5], a_[5] * a_[5]);  // and the model goes on
  }

  static inline std::unique_ptr<Device> device_;
  std::unique_ptr<Session> session_;
  std::vector<BufferHandle> held_;
  std::vector<float> a_;
  std::vector<int64_t> ids_;
  std::vector<int32_t> words_;
};

TEST_F(Lent, BuffersInAndOutAreTheSameBitsWithoutTheHost) {
  const DeviceBuffer in = make(kRows * kColumns * 4), ids_in = make(kRows * 4 + 8, kAll, 256);
  std::vector<DeviceBuffer> outs;
  for (int i = 0; i < 4; ++i) outs.push_back(make(kRows * kColumns * 4, kAll, i % 2 ? 512 : 0));
  int last = 0;
  for (const int n : {kRows, 5, 5, 333}) {
    const size_t count = size_t(n) * kColumns;
    write(in, a_, count);
    write(ids_in, words_, size_t(n));
    DevicePlaces places{{in, ids_in}, {outs.begin(), outs.end()}};
    const auto result = runBlocking(runOnDevice(*session_, "forward", {lentA(n), lentIds(n)}, places));
    ASSERT_TRUE(result.ok()) << result.status().message();
    const uint64_t uploaded = stats().upload_bytes;
    EXPECT_EQ(stats().read_back_bytes, 0u);
    EXPECT_LE(uploaded, n == last ? 0u : 4096u);  // parameters of other sizes
    last = n;
    for (size_t k = 0; k < 4; ++k) {
      const HostTensor& t = std::get<HostTensor>((*result)[k]);
      EXPECT_EQ(t.sizes, k == 2 ? Sizes{n} : (Sizes{n, kColumns}));
      EXPECT_EQ(t.dtype, k == 2 ? DType::i32 : DType::f32);
      EXPECT_TRUE(t.bytes.empty());
      EXPECT_EQ(places.outputs[k]->buffer, outs[k].buffer);
    }
    const auto squares = read<float>(outs[0], count), softmax = read<float>(outs[1], count),
               same = read<float>(outs[3], count);
    const auto twice = read<int32_t>(outs[2], size_t(n));
    EXPECT_EQ(squares, expected<float>(n, 0));
    EXPECT_EQ(softmax, expected<float>(n, 1));
    EXPECT_EQ(same, std::vector(a_.begin(), a_.begin() + int(count)));
    const auto wide = expected<int64_t>(n, 2);
    EXPECT_EQ(std::vector<int64_t>(twice.begin(), twice.end()), wide);
  }
}

TEST_F(Lent, AnythingMayBeMixed) {
  const int n = 101;
  const size_t count = n * kColumns;
  const DeviceBuffer in = make(count * 4 + 8);
  write(in, a_, count);
  // an input on the GPU and one of the host; the host's, the model's own memory, and a buffer
  const DeviceBuffer out = make(kRows * 4);
  DevicePlaces places{{in, std::nullopt}, {std::nullopt, DeviceBuffer(), out, DeviceBuffer()}};
  const auto result = runBlocking(runOnDevice(*session_, "forward", {lentA(n), ids(n)}, places));
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(stats().read_back_bytes, count * 4);
  EXPECT_FALSE(places.outputs[0].has_value());
  EXPECT_EQ(places.outputs[3]->buffer, in.buffer);  // the input itself
  const auto softmax = read<float>(*places.outputs[1], count);
  const auto twice = read<int32_t>(out, size_t(n));
  const auto& bytes = std::get<HostTensor>((*result)[0]).bytes;
  ASSERT_EQ(bytes.size(), count * 4);
  EXPECT_EQ(std::memcmp(bytes.data(), expected<float>(n, 0).data(), bytes.size()), 0);
  EXPECT_EQ(softmax, expected<float>(n, 1));
  EXPECT_EQ(twice[7], ids_[7] * 2);
  // inputs of the host, and one place for all outputs
  DevicePlaces own{{}, {DeviceBuffer()}};
  const auto again = runBlocking(runOnDevice(*session_, "forward", {a(n), ids(n)}, own));
  ASSERT_TRUE(again.ok()) << again.status().message();
  ASSERT_EQ(own.outputs.size(), 4u);
  EXPECT_EQ(read<float>(*own.outputs[1], count), softmax);
  EXPECT_EQ(own.outputs[1]->size, count * 4);
}

TEST_F(Lent, ManyBuffersInTurn) {
  const int n = 9;
  const size_t count = n * kColumns;
  std::vector<DeviceBuffer> buffers;
  for (int i = 0; i < 12; ++i) buffers.push_back(make(count * 4 + 8));  // more than bind groups are kept for
  write(buffers[0], std::vector<float>(count, 1.001f), count);
  float x = 1.001f;
  for (int i = 1; i < 40; ++i) {  // a · a of a · a of …
    const DeviceBuffer from = buffers[size_t(i - 1) % buffers.size()], to = buffers[size_t(i) % buffers.size()];
    DevicePlaces places{{from, std::nullopt}, {to, DeviceBuffer(), DeviceBuffer(), DeviceBuffer()}};
    const auto result = runBlocking(runOnDevice(*session_, "forward", {lentA(n), ids(n)}, places));
    ASSERT_TRUE(result.ok()) << result.status().message();
    if (i % 13 == 0) {  // calls without buffers between
      ASSERT_EQ(expected<float>(3, 0)[5], a_[5] * a_[5]);
    }
    if (i > 11) continue;
    x *= x;
    if (i < 11) continue;
    EXPECT_EQ(read<float>(to, count), std::vector<float>(count, x));
    write(to, std::vector<float>(count, 1.001f), count);
  }
}

TEST_F(Lent, HalfPrecisionHasHalves) {
  if (!device_->capabilities().f16) GTEST_SKIP() << "no shader-f16";
  LoadOptions options;
  options.precision = Precision::f16;
  load(options);
  const int n = 5;
  const DeviceBuffer in = make(kRows * kColumns * 2);
  const std::vector<uint16_t> halves(n * kColumns, 0x3e00);  // 1.5
  write(in, halves, halves.size());
  DevicePlaces places{{in, std::nullopt}, {DeviceBuffer()}};
  const auto refused = runBlocking(runOnDevice(*session_, "forward", {lentA(n), ids(n)}, places));
  EXPECT_THAT(refused.status().message(), HasSubstr("input 0 must be f16 of rank 2 on the GPU, not f32"));
  TensorView half = lentA(n);
  half.dtype = DType::f16;
  places = {{in, std::nullopt}, {DeviceBuffer()}};
  const auto result = runBlocking(runOnDevice(*session_, "forward", {half, ids(n)}, places));
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(std::get<HostTensor>((*result)[0]).dtype, DType::f16);
  EXPECT_EQ(read<uint16_t>(*places.outputs[0], halves.size()), std::vector<uint16_t>(halves.size(), 0x4080));  // 2.25
}

TEST_F(Lent, WhatCannotServeIsRefused) {
  const int n = 10;
  const uint64_t bytes = n * kColumns * 4;
  const DeviceBuffer good = make(bytes), other = make(bytes);
  const auto in = [&](DeviceBuffer b) { return DevicePlaces{{b, std::nullopt}, {}}; };
  const auto out = [&](DeviceBuffer b) { return DevicePlaces{{}, {b, std::nullopt, std::nullopt, std::nullopt}}; };
  expectRefusal({lentA(n), ids(n)}, in(make(bytes - 16)),
                "input 0 needs 240 bytes from a multiple of 256 on, but its buffer has 224 from 0");
  expectRefusal({lentA(n), ids(n)}, in({good.buffer, 4, bytes - 4}), "from 4 on");
  expectRefusal({a(n), ids(n)}, out(make(bytes - 16)), "output 0 needs 240 bytes");
  expectRefusal({lentA(n), ids(n)}, in(make(bytes, WGPUBufferUsage_CopyDst)), "with the GPU buffers of this call");
  expectRefusal({a(n), ids(n)}, out(make(bytes, WGPUBufferUsage_CopyDst)), "with the GPU buffers of this call");
  const DeviceBuffer destroyed = make(bytes);
  wg::BufferDestroy(destroyed.buffer);
  expectRefusal({lentA(n), ids(n)}, in(destroyed), "estroyed");
  const auto device = makeDevice();
  ASSERT_TRUE(device);
  expectRefusal({lentA(n), ids(n)}, in(make(bytes, kAll, 0, device.get())), "with the GPU buffers of this call");
  held_.pop_back();  // before its device

  expectRefusal({lentA(n), ids(n)}, {{good, std::nullopt}, {good, std::nullopt, std::nullopt, std::nullopt}},
                "output 0: its buffer serves an input or another output");
  expectRefusal({a(n), ids(n)}, {{}, {good, good, std::nullopt, std::nullopt}}, "output 0: its buffer");
  expectRefusal({a(n), ids(n)}, {{}, {good}}, "output 0: its buffer");  // one for all of four
  expectRefusal({a(n), ids(n)}, {{}, {good, other}}, "places for 2 outputs, but there are 4");
  expectRefusal({lentA(n), lentIds(n)}, in(good), "input 1 has no data");
  TensorView wide = lentIds(n);
  wide.dtype = DType::i64;
  expectRefusal({a(n), wide}, {{std::nullopt, good}, {}}, "input 1 must be i32 of rank 1 on the GPU, not i64");
  expectRefusal({lentA(kRows + 1), ids(n)}, in(good), "701");
  expectRefusal({2.0, ids(n)}, {{}, {DeviceBuffer()}}, "input 0 must be a tensor or an integer");
  expectRefusal({lentA(n), ids(n)}, in(good), "parts of it run on the CPU", "islands");
  expectRefusal({lentA(n), ids(n)}, in(good), "no method backward", "backward");

  DevicePlaces own{{}, {DeviceBuffer()}};
  ASSERT_TRUE(runBlocking(runOnDevice(*session_, "forward", {a(n), ids(n)}, own)).ok());
  expectRefusal({lentA(n), ids(n)}, in(*own.outputs[0]), "a buffer of the model's own");
}

}  // namespace
}  // namespace etwgpu::testing
