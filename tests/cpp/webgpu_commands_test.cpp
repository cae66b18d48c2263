// What a call sends: only bytes that changed, in few writes; and the conversions between host and GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/webgpu/commands.h"
#include "runtime/webgpu/gpu_storage.h"

namespace etwgpu {
namespace {

struct Write {
  uint64_t offset;
  std::vector<uint32_t> words;
};
std::vector<Write> flush(ShadowBuffer& buffer) {
  std::vector<Write> writes;
  buffer.flush([&](uint64_t offset, const void* data, size_t size) {
    const auto* words = static_cast<const uint32_t*>(data);
    writes.push_back({offset, std::vector<uint32_t>(words, words + size / 4)});
  });
  return writes;
}

TEST(ShadowBuffer, SendsChangedWordsOnly) {
  ShadowBuffer buffer(8192);
  buffer.setWord(4096, 7);
  buffer.setWord(4100, 8);
  auto writes = flush(buffer);
  ASSERT_EQ(writes.size(), 1u);
  EXPECT_EQ(writes[0].offset, 4096u);
  EXPECT_EQ(writes[0].words, (std::vector<uint32_t>{7, 8}));
  buffer.setWord(4096, 7);  // the same: a steady step sends nothing
  EXPECT_TRUE(flush(buffer).empty());
}

TEST(ShadowBuffer, MergesNeighboursAndKeepsDistantWritesApart) {
  ShadowBuffer buffer(65536);
  buffer.setWord(40000, 3);
  buffer.setWord(256, 1);  // out of order
  buffer.setWord(0, 2);
  const auto writes = flush(buffer);
  ASSERT_EQ(writes.size(), 2u);
  EXPECT_EQ(writes[0].offset, 0u);
  EXPECT_EQ(writes[0].words.size(), 65u);
  EXPECT_EQ(writes[0].words[0], 2u);
  EXPECT_EQ(writes[0].words[64], 1u);
  EXPECT_EQ(writes[1].offset, 40000u);
}

TEST(ShadowBuffer, RoundsToWords) {
  ShadowBuffer buffer(64);
  buffer.data()[9] = 1;
  buffer.touch(9, 1);
  const auto writes = flush(buffer);
  ASSERT_EQ(writes.size(), 1u);
  EXPECT_EQ(writes[0].offset, 8u);
  EXPECT_EQ(writes[0].words.size(), 1u);
}

// The replay sets a pipeline only when it changes: here on a table of functions that record.
std::vector<std::string> g_calls;

TEST(CommandList, ReplaysInOrder) {
  g_calls.clear();
  const auto set_pipeline = wg::ComputePassEncoderSetPipeline;
  const auto set_group = wg::ComputePassEncoderSetBindGroup;
  const auto dispatch = wg::ComputePassEncoderDispatchWorkgroups;
  wg::ComputePassEncoderSetPipeline = [](WGPUComputePassEncoder, WGPUComputePipeline p) {
    g_calls.push_back("p" + std::to_string(reinterpret_cast<uintptr_t>(p)));
  };
  wg::ComputePassEncoderSetBindGroup = [](WGPUComputePassEncoder, uint32_t, WGPUBindGroup g, size_t, const uint32_t*) {
    g_calls.push_back("g" + std::to_string(reinterpret_cast<uintptr_t>(g)));
  };
  wg::ComputePassEncoderDispatchWorkgroups = [](WGPUComputePassEncoder, uint32_t x, uint32_t y, uint32_t z) {
    g_calls.push_back(std::to_string(x) + "," + std::to_string(y) + "," + std::to_string(z));
  };
  const auto pipeline = [](uintptr_t p) { return reinterpret_cast<WGPUComputePipeline>(p); };
  const auto group = [](uintptr_t g) { return reinterpret_cast<WGPUBindGroup>(g); };
  CommandList list;
  list.add({pipeline(1), group(10), 1, 2, 3});
  list.add({pipeline(1), group(11), 4, 5, 6});
  list.add({pipeline(2), group(10), 7, 8, 9});
  list.replay(nullptr, 0, list.size());
  EXPECT_EQ(g_calls, (std::vector<std::string>{"p1", "g10", "1,2,3", "g11", "4,5,6", "p2", "g10", "7,8,9"}));
  g_calls.clear();
  list.replay(nullptr, 1, 2);  // a pass of its own starts without a pipeline
  EXPECT_EQ(g_calls, (std::vector<std::string>{"p1", "g11", "4,5,6"}));
  wg::ComputePassEncoderSetPipeline = set_pipeline;
  wg::ComputePassEncoderSetBindGroup = set_group;
  wg::ComputePassEncoderDispatchWorkgroups = dispatch;
}

TEST(GpuStorage, IntegersAreChecked) {
  const std::vector<int64_t> good{0, -1, INT32_MAX, INT32_MIN};
  std::vector<int32_t> out(4);
  ASSERT_TRUE(toGpu(DType::i64, good.data(), Storage::i32, out.data(), 4).ok());
  EXPECT_EQ(out, (std::vector<int32_t>{0, -1, INT32_MAX, INT32_MIN}));
  std::vector<int64_t> back(4);
  toHost(Storage::i32, out.data(), DType::i64, back.data(), 4);
  EXPECT_EQ(back, good);
  const int64_t bad = int64_t(INT32_MAX) + 1;
  EXPECT_EQ(toGpu(DType::i64, &bad, Storage::i32, out.data(), 1).code(), Code::invalid_argument);
}

TEST(GpuStorage, BooleansAreWords) {
  const uint8_t flags[3] = {0, 1, 2};
  uint32_t words[3];
  ASSERT_TRUE(toGpu(DType::boolean, flags, Storage::u32, words, 3).ok());
  EXPECT_EQ(words[0], 0u);
  EXPECT_EQ(words[1], 1u);
  EXPECT_EQ(words[2], 1u);
}

TEST(GpuStorage, FloatsRoundTrip) {
  const float values[5] = {0.0f, -1.5f, 65504.0f, std::numeric_limits<float>::infinity(), std::nanf("")};
  for (const auto& [storage, dtype] : {std::pair{Storage::f16, DType::f32}, {Storage::f32, DType::bf16}}) {
    uint8_t gpu[20], host[20];
    float expected[5];
    if (storage == Storage::f16) {
      ASSERT_TRUE(toGpu(dtype, values, storage, gpu, 5).ok());
      toHost(storage, gpu, dtype, host, 5);
      std::memcpy(expected, host, 20);
      EXPECT_EQ(expected[2], 65504.0f);
    } else {
      std::memcpy(gpu, values, 20);
      toHost(storage, gpu, dtype, host, 5);
      ASSERT_TRUE(toGpu(dtype, host, storage, expected, 5).ok());
      EXPECT_EQ(expected[2], 65536.0f);  // eight bits of mantissa
    }
    EXPECT_EQ(expected[1], -1.5f);
    EXPECT_EQ(expected[3], values[3]);
    EXPECT_TRUE(std::isnan(expected[4]));
  }
}

}  // namespace
}  // namespace etwgpu
