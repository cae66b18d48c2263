// Reader, verifier and execution on programs built here: each test damages one number and expects its message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "runtime/executor/session.h"
#include "runtime/program/json.h"
#include "runtime/program/sources.h"
#include "tests/cpp/program_builder.h"

namespace etwgpu {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

template <class T>
T finish(Task<T> task) {
  task.start();
  EXPECT_TRUE(task.done());
  return task.take();
}

SessionConfig configFor(Bytes bytes) {
  SessionConfig config;
  config.backend = makeCpuBackend(config.options);
  config.source = makeMemorySource("test.pte", std::move(bytes));
  return config;
}
Result<std::unique_ptr<Session>> load(Bytes bytes) { return finish(Session::load(configFor(std::move(bytes)))); }
void expectLoadError(Bytes bytes, Code code, const std::string& message) {
  const auto session = load(std::move(bytes));
  EXPECT_EQ(codeName(session.status().code()), codeName(code)) << session.status().message();
  EXPECT_THAT(session.status().message(), HasSubstr(message));
}

/// forward(x[up to 4, 3]) = x + constant[3], as kernel calls; `damage` may change the builder's parts before the method
/// is closed.
struct AddProgram {
  ProgramBuilder b;
  ProgramBuilder::TensorOptions constant, x, out;
  std::vector<int32_t> sizes{4, 3};
  std::vector<int32_t> args;
  int op_index = 0;
  const char* op_overload = "out";
  uint32_t version = 0;

  AddProgram() {
    const float values[3] = {10, 20, 30};
    b.segment_data.assign(reinterpret_cast<const uint8_t*>(values), reinterpret_cast<const uint8_t*>(values) + 12);
    b.segment_table = {{0, 12}};
    b.constant_offsets = {0, 0};
    b.arenas = {0, 128};
    constant.data_index = 1;
    x.arena = out.arena = 1;
    x.shape = out.shape = ProgramBuilder::Shape::DYNAMIC_BOUND;
    out.arena_offset = 64;
    args = {0, 1, 2, 3, 3};
  }
  Bytes make() {
    b.tensor(sizes, x);
    b.tensor({3}, constant);
    b.integer(1);
    b.tensor(sizes, out);
    b.inputs = {0};
    b.outputs = {3};
    b.op("aten::add", op_overload);
    b.call(op_index, args);
    b.method("forward");
    return b.finish(version);
  }
};

TensorView viewOf(std::vector<float>& values, Sizes sizes) {
  return {DType::f32, std::move(sizes), values.data(), {}, nullptr};
}

TEST(Program, RunsAtEverySizeUpToTheBound) {
  auto session = load(AddProgram().make());
  ASSERT_TRUE(session.ok()) << session.status().message();
  for (int64_t rows = 0; rows <= 4; ++rows) {
    std::vector<float> x(size_t(rows) * 3);
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(i);
    auto result = finish((*session)->run("forward", {viewOf(x, {rows, 3})}));
    ASSERT_TRUE(result.ok()) << result.status().message();
    const HostTensor& y = std::get<HostTensor>((*result)[0]);
    EXPECT_EQ(y.sizes, (Sizes{rows, 3}));
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(reinterpret_cast<const float*>(y.bytes.data())[i], x[i] + 10 * float(i % 3 + 1));
  }
}

TEST(Program, InputsAreChecked) {
  auto session = load(AddProgram().make());
  ASSERT_TRUE(session.ok());
  std::vector<float> x(64);
  std::vector<int64_t> ids(64);
  const auto message = [&](std::vector<Input> inputs) {
    const auto result = finish((*session)->run("forward", std::move(inputs)));
    EXPECT_EQ(codeName(result.status().code()), "invalid_argument");
    return result.status().message();
  };
  EXPECT_THAT(message({}), HasSubstr("takes 1 inputs, got 0"));
  EXPECT_THAT(message({viewOf(x, {5, 3})}), HasSubstr("dimension 0 is 5, allowed are 0 to 4"));
  EXPECT_THAT(message({viewOf(x, {1, 12})}), HasSubstr("dimension 1 is 12"));  // the product would fit
  EXPECT_THAT(message({viewOf(x, {3})}), HasSubstr("rank 2"));
  EXPECT_THAT(message({TensorView{DType::i64, {4, 3}, ids.data(), {}, nullptr}}),
              HasSubstr("input 0 is i64, f32 is expected"));
  EXPECT_THAT(message({int64_t(3)}), HasSubstr("input 0 is an integer, a tensor is expected"));
  const auto unknown = finish((*session)->run("backward", {}));
  EXPECT_THAT(unknown.status().message(), HasSubstr("no method backward; the program has forward"));
}

TEST(Program, SaysWhatAWrongFileIs) {
  const auto is = [](std::string text, const char* message) {
    expectLoadError(Bytes(text.begin(), text.end()), Code::not_a_program, message);
  };
  is("", "is empty");
  is("<!DOCTYPE html><html><body>404</body></html>", "HTML page");
  is("\n  <HTML lang=en>", "HTML page");
  is("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git-LFS pointer");
  is(std::string("PK\x03\x04") + std::string(40, 'x'), "zip archive");
  is(std::string("\x1f\x8b\x08") + std::string(40, 'x'), "gzip");
  is(std::string("GGUF") + std::string(40, '\0'), "GGUF");
  is(std::string("\x40\0\0\0\0\0\0\0{\"a\":", 14) + std::string(60, ' '), "safetensors");
  is(std::string("\x08\x07\x12\x07pytorch") + std::string(40, 'x'), "ONNX");
  is(std::string("\x20\0\0\0FT01", 8) + std::string(40, '\0'), "is a .ptd file of weights");
  is("short", "it starts with 73 68 6f 72 74");
  is(std::string(100, 'z'), "bytes 4 to 7 should be \"ET12\"");
}

TEST(Program, NewerFormatsAreRefusedWithBothNumbers) {
  Bytes bytes = AddProgram().make();
  bytes[7] = '3';
  expectLoadError(bytes, Code::unsupported_version, "has format version ET13, this runtime reads ET12");
  AddProgram p;
  p.version = 7;
  expectLoadError(p.make(), Code::unsupported_version, "program version 7, this runtime reads up to 0");
}

TEST(Program, HeadersAreChecked) {
  const auto put = [](uint64_t at, uint64_t value, int width) {
    Bytes bytes = AddProgram().make();
    std::memcpy(&bytes[at], &value, size_t(width));
    return bytes;
  };
  expectLoadError(put(12, 8, 4), Code::invalid_program, "extended header of 8 bytes, at least 24 expected");
  expectLoadError(put(16, uint64_t(1) << 40, 8), Code::invalid_program,
                  "the program takes 1099511627776 bytes, the file has");
  expectLoadError(put(24, 16, 8), Code::invalid_program, "segments start at byte 16, inside the program's");
  expectLoadError(put(24, uint64_t(1) << 40, 8), Code::invalid_program,
                  "segments start at byte 1099511627776 of a file of");
  expectLoadError(put(32, UINT64_MAX, 8), Code::invalid_program, "more bytes of segments than can be addressed");
  Bytes cut = AddProgram().make();
  cut.resize(cut.size() - 4);
  expectLoadError(cut, Code::invalid_program, "is the download complete?");
  cut.resize(100);
  expectLoadError(cut, Code::invalid_program, "is the download complete?");
  // the header without the size of segments
  EXPECT_TRUE(load(put(12, 24, 4)).ok());
}

TEST(Program, DamagedNumbersAreFound) {
  const auto expect = [](const std::function<void(AddProgram&)>& damage, const char* message) {
    AddProgram p;
    damage(p);
    expectLoadError(p.make(), Code::invalid_program, message);
  };
  expect([](auto& p) { p.out.arena_offset = 96; }, "takes bytes 96 + 48 of an arena of 128");
  expect([](auto& p) { p.out.arena_offset = UINT64_MAX - 7; }, "of an arena of 128");
  expect([](auto& p) { p.out.arena_offset = 66; }, "not a multiple of its element of 4");
  expect([](auto& p) { p.out.arena = 2; }, "is in arena 2, the method has arenas 1 to 1");
  expect([](auto& p) { p.b.arenas = {0, -5}; }, "arena 1 has -5 bytes");
  expect([](auto& p) { p.sizes = {4, -3}; }, "has a dimension of -3");
  expect([](auto& p) { p.sizes = std::vector<int32_t>(4, INT32_MAX); }, "more bytes than can be addressed");
  expect([](auto& p) { p.sizes = std::vector<int32_t>(17, 1); }, "has 17 dimensions");
  expect([](auto& p) { p.x.dim_order = {0, 0}, p.x.default_dim_order = false; }, "no permutation");
  expect([](auto& p) { p.x.dim_order = {0, 2}, p.x.default_dim_order = false; }, "no permutation");
  expect([](auto& p) { p.x.dim_order = {0}, p.x.default_dim_order = false; }, "has 2 sizes, but a dim_order of 1");
  expect([](auto& p) { p.x.dtype = pte::ScalarType(99); }, "unknown scalar type 99");
  expect([](auto& p) { p.x.storage_offset = 3; }, "storage offset 3");
  expect([](auto& p) { p.constant.data_index = 9; }, "is stored value 9 of 2");
  expect([](auto& p) { p.b.constant_offsets = {0, 4}; }, "takes bytes 4 + 12 of a segment of 12");
  expect([](auto& p) { p.b.constant_offsets = {0, UINT64_MAX}; }, "of a segment of 12");
  expect([](auto& p) { p.b.constant_segment = 1; }, "constants in segment 1 of 1");
  expect([](auto& p) { p.b.segment_table = {{8, 12}}; }, "segment 0 takes bytes");
  expect([](auto& p) { p.b.segment_table = {{UINT64_MAX, 12}}; }, "segment 0 takes bytes");
  expect([](auto& p) { p.args = {0, 1, 2, 4, 3}; }, "argument 3 is value 4 of 4");
  expect([](auto& p) { p.args = {0, -1, 2, 3, 3}; }, "argument 1 is value -1 of 4");
  expect([](auto& p) { p.op_index = 1; }, "operator 1 of 1");
  expect([](auto& p) { p.op_index = -1; }, "operator -1 of 1");
}

TEST(Program, TablesThatShareAVectorCannotMultiplyWork) {
  // 20,000 lists of one vector of 20,000 items: 160 KB that would be 400 million checks
  ProgramBuilder b;
  const auto items = b.fbb.CreateVector(std::vector<int64_t>(20000, 0));
  std::vector<flatbuffers::Offset<pte::EValue>> values{
      pte::CreateEValue(b.fbb, pte::KernelTypes::Int, pte::CreateInt(b.fbb, 1).Union())};
  for (int i = 0; i < 20000; ++i) {
    values.push_back(pte::CreateEValue(b.fbb, pte::KernelTypes::IntList, pte::CreateIntList(b.fbb, items).Union()));
  }
  const std::vector methods{pte::CreateExecutionPlanDirect(b.fbb, "forward", 0, &values)};
  b.fbb.Finish(pte::CreateProgramDirect(b.fbb, 0, &methods), "ET12");
  expectLoadError(Bytes(b.fbb.GetBufferPointer(), b.fbb.GetBufferPointer() + b.fbb.GetSize()), Code::invalid_program,
                  "more items than");
}

TEST(Program, CallsAreChecked) {
  const auto message = [](const std::function<void(AddProgram&)>& damage) {
    AddProgram p;
    damage(p);
    auto session = load(p.make());
    EXPECT_TRUE(session.ok()) << session.status().message();
    std::vector<float> x(12);
    const auto result = finish((*session)->run("forward", {viewOf(x, {4, 3})}));
    EXPECT_EQ(codeName(result.status().code()), "invalid_program");
    return result.status().message();
  };
  EXPECT_THAT(message([](auto& p) { p.args = {2, 1, 2, 3, 3}; }), HasSubstr("argument 0 (value 2) has the wrong kind"));
  EXPECT_THAT(message([](auto& p) { p.args = {0, 1, 0, 3, 3}; }), HasSubstr("argument 2 (value 0) has the wrong kind"));
  EXPECT_THAT(message([](auto& p) { p.args = {0, 1, 2, 3}; }), HasSubstr("4 arguments, 5 expected"));
  EXPECT_THAT(message([](auto& p) { p.args = {0, 1, 2, 1, 1}; }), HasSubstr("may not be written"));  // a constant
  EXPECT_THAT(message([](auto& p) { p.out.arena_offset = 16; }), HasSubstr("overlaps an input"));
}

TEST(Program, MissingKernelsAreNamedWithCounts) {
  ProgramBuilder b;
  b.arenas = {0, 64};
  b.planned({2}, 0);
  const int a = b.op("aten::frobnicate", "out"), c = b.op("my::op", "Tensor_out");
  for (int i = 0; i < 3; ++i) b.call(a, {0, 0, 0});
  b.call(c, {0, 0, 0});
  b.method("forward");
  const Bytes bytes = b.finish();
  expectLoadError(bytes, Code::unsupported_operator, "no kernel for aten::frobnicate.out (3), my::op.Tensor_out (1)");
  SessionConfig config;
  config.source = makeMemorySource("test.pte", bytes);
  config.inspect_only = true;
  const auto session = finish(Session::load(std::move(config)));
  ASSERT_TRUE(session.ok());
  EXPECT_THAT((*session)->inspectJson(),
              HasSubstr(R"("missing_operators":{"aten::frobnicate.out":3,"my::op.Tensor_out":1})"));
}

TEST(Program, MissingDataIsNamed) {
  AddProgram p;
  p.constant = {};
  p.constant.external = "layer.bias";
  expectLoadError(p.make(), Code::data_missing,
                  "the data of 'layer.bias' is in none of the given files: load the program together with its .ptd");
}

TEST(Program, TheMemoryCapIsCheckedBeforeAllocation) {
  AddProgram p;
  p.b.arenas = {0, int64_t(1) << 50};
  expectLoadError(p.make(), Code::limit_exceeded, "the memory cap is 4294967296");
}

TEST(Program, EndlessLoopsEnd) {
  ProgramBuilder b;
  const int no = b.flag(false);
  b.jumpFalse(no, 0);
  b.method("forward");
  auto session = load(b.finish());
  ASSERT_TRUE(session.ok()) << session.status().message();
  (*session)->setInstructionLimit(1000);
  const auto result = finish((*session)->run("forward", {}));
  EXPECT_EQ(codeName(result.status().code()), "limit_exceeded");
  EXPECT_THAT(result.status().message(), HasSubstr("1000 instructions"));
}

TEST(Program, JumpsBeyondTheEndAreFound) {
  ProgramBuilder b;
  b.jumpFalse(b.flag(false), 2);
  b.method("forward");
  expectLoadError(b.finish(), Code::invalid_program, "jump to instruction 2 of 1");
}

TEST(Program, PrimitivesFollowPython) {
  // (op, a, b) → result
  struct Case {
    const char* op;
    int64_t a, b, result;
  };
  for (const Case& c : {Case{"add", 7, -9, -2},
                        {"sub", 7, 9, -2},
                        {"mul", -7, 9, -63},
                        {"floordiv", -7, 2, -4},
                        {"floordiv", 7, -2, -4},
                        {"mod", -7, 3, 2},
                        {"mod", 7, -3, -2},
                        {"sym_max", 3, 5, 5},
                        {"sym_min", 3, 5, 3},
                        {"floordiv", INT64_MIN, -1, INT64_MIN}}) {
    ProgramBuilder b;
    b.integer(c.a), b.integer(c.b), b.integer(0);
    b.call(b.op((std::string("executorch_prim::") + c.op).c_str(), "Scalar"), {0, 1, 2});
    b.outputs = {2};
    b.method("forward");
    auto session = load(b.finish());
    ASSERT_TRUE(session.ok()) << session.status().message();
    auto result = finish((*session)->run("forward", {}));
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(std::get<int64_t>((*result)[0]), c.result) << c.op << " " << c.a << " " << c.b;
  }
}

TEST(Program, ConstantMethodsAreValues) {
  ProgramBuilder b;
  b.integer(2), b.integer(3);
  b.outputs = {0, 1};
  b.method("get_eos_ids");
  b.integer(512);
  b.outputs = {0};
  b.method("get_max_seq_len");
  const auto session = load(b.finish());
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->constantIntegers("get_eos_ids"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*session)->constantInteger("get_max_seq_len"), 512);
  EXPECT_EQ((*session)->constantInteger("get_eos_ids"), std::nullopt);
}

TEST(Program, LoadingCanBeCancelled) {
  SessionConfig config = configFor(AddProgram().make());
  config.progress = [](uint64_t, uint64_t) { return false; };
  EXPECT_EQ(codeName(finish(Session::load(std::move(config))).status().code()), "cancelled");
}

TEST(Program, UnreadableFilesAreIoErrors) {
  EXPECT_EQ(codeName(openFileSource("/nonexistent/model.pte").status().code()), "io_error");
  EXPECT_EQ(codeName(openFileSource("/").status().code()), "io_error");
}

TEST(Json, TextOfDamagedFilesStaysValid) {
  JsonWriter j;
  j.string("a\"\\\n\x01\xff\xc3\xa4\xed\xa0\x80");
  EXPECT_EQ(j.take(), "\"a\\\"\\\\\\n\\u0001?\xc3\xa4???\"");
}

}  // namespace
}  // namespace etwgpu
