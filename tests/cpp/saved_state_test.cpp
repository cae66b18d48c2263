// Saved states beyond one piece, over sources that fail; and the digest that guards them.
#include "runtime/llm/saved_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "runtime/llm/generator.h"
#include "runtime/program/sources.h"
#include "tests/cpp/graph_builder.h"

namespace etwgpu::testing {
namespace {

template <class T>
T finish(Task<T> task) {
  task.start();
  EXPECT_TRUE(task.done());
  return task.take();
}

constexpr int64_t kCapacity = 2600, kHeads = 3, kWidth = 512;  // 2 KiB a row: 1,000 rows do not fit into a piece twice

/// States in memory, and nothing else.
class MemoryDelegate final : public Delegate {
 public:
  MemoryDelegate() {
    b_.input("ids", DType::i64, {1, b_.symbol("s", 1, 8, 0, 1)});
    b_.input("start", DType::i64, {1});
    b_.state("cache", {1, kHeads, kCapacity, kWidth});
    b_.state("a.scalar", {3}, DType::i32);
    b_.output(b_.node("test.decoder", {}, "logits", {1, 31}));
    memory_ = {std::vector<uint8_t>(size_t(kHeads * kCapacity * kWidth * 4)), std::vector<uint8_t>(12)};
  }
  const Graph& graph() const override { return b_.graph; }
  std::vector<std::pair<DataSource*, ReadRequest>> takeReads() override { return {}; }
  Task<Status> finishLoading() override { co_return Status(); }
  Task<Status> execute(std::span<const DelegateArg> inputs, std::span<DelegateArg>, ExecuteOptions options) override {
    const int64_t n = inputs[0].tensor.sizes[1], start = *inputs[1].tensor.as<const int64_t>();
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const uint32_t value = uint32_t(inputs[0].tensor.as<const int64_t>()[i] * 7 + start + i + h);
        for (int64_t d = 0; d < kWidth; ++d)
          std::memcpy(&memory_[0][size_t(((h * kCapacity + start + i) * kWidth + d) * 4)], &value, 4);
      }
    }
    memory_[1][0] += uint8_t(n);
    options.ids->assign(1, 5);
    co_return Status();
  }
  const ExecuteStats& lastStats() const override { return stats_; }
  std::vector<StateLayout> states() const override {
    return {{"cache", DType::f32, {1, kHeads, kCapacity, kWidth}}, {"a.scalar", DType::i32, {3}}};
  }
  Task<Status> readStates(std::span<const StateRange> ranges, std::span<uint8_t> to) override {
    for (const StateRange& r : ranges) {
      std::memcpy(to.data(), memory_[r.state].data() + r.offset, r.size);
      to = to.subspan(r.size);
    }
    co_return Status();
  }
  Task<Status> writeStates(std::span<const StateRange> ranges, std::span<const uint8_t> from) override {
    for (const StateRange& r : ranges) {
      std::memcpy(memory_[r.state].data() + r.offset, from.data(), r.size);
      from = from.subspan(r.size);
    }
    co_return Status();
  }
  std::vector<std::vector<uint8_t>> memory_;

 private:
  GraphBuilder b_;
  ExecuteStats stats_;
};

/// Fails from the `failing`th read on.
class FailingSource final : public DataSource {
 public:
  FailingSource(std::span<const uint8_t> bytes, int failing) : inner_(makeMemoryView("this", bytes)), left_(failing) {}
  std::string name() const override { return "this"; }
  uint64_t size() const override { return inner_->size(); }
  Task<Status> read(std::vector<ReadRequest> requests) override {
    if (left_-- <= 0) co_return Status(Code::io_error, "gone");
    co_return co_await inner_->read(std::move(requests));
  }

 private:
  std::unique_ptr<DataSource> inner_;
  int left_;
};

std::unique_ptr<Generator> make(Delegate& d) { return std::move(Generator::create(d)).value(); }

void fill(Generator& g, int64_t tokens) {
  std::vector<int32_t> ids(size_t(tokens), 0);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int32_t(i % 29);
  ASSERT_TRUE(g.begin(ids, {.max_tokens = 1}).ok());
  ASSERT_TRUE(finish(g.next()).ok());
  ASSERT_TRUE(finish(g.end()).ok());
}

std::vector<uint8_t> save(Generator& g, uint64_t* largest = nullptr) {
  std::vector<uint8_t> bytes;
  EXPECT_TRUE(finish(g.save([&](std::span<const uint8_t> piece) {
                if (largest) *largest = std::max<uint64_t>(*largest, piece.size());
                bytes.insert(bytes.end(), piece.begin(), piece.end());
                return Status();
              })).ok());
  return bytes;
}

TEST(SavedState, SeveralPiecesAndNothingButRowsInUse) {
  for (const int64_t rows : {1, 2500, 2599}) {
    MemoryDelegate from, to;
    const auto g = make(from), h = make(to);
    fill(*g, rows);
    uint64_t largest = 0;
    const auto bytes = save(*g, &largest);
    EXPECT_LE(largest, kStatePiece);
    EXPECT_EQ(bytes.size(), sizeof(SavedHeader) + 2 * 4 + size_t(rows) * (4 + kHeads * kWidth * 4) + 12 + 8);
    std::fill(to.memory_[0].begin(), to.memory_[0].end(), uint8_t(0xee));
    const auto before = to.memory_[0];
    const auto source = makeMemoryView("this", bytes);
    const Status status = finish(h->restore(*source));
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(h->tokens(), g->tokens());
    EXPECT_EQ(to.memory_[1], from.memory_[1]);
    for (int64_t row = 0; row < kHeads * kCapacity; ++row) {
      const auto& expected = row % kCapacity < rows ? from.memory_[0] : before;
      ASSERT_EQ(std::memcmp(&to.memory_[0][size_t(row) * kWidth * 4], &expected[size_t(row) * kWidth * 4], kWidth * 4),
                0)
          << row;
    }
  }
}

TEST(SavedState, ASourceThatFails) {
  MemoryDelegate from, to;
  const auto g = make(from), h = make(to);
  fill(*g, 2500);
  fill(*h, 9);
  const auto bytes = save(*g), kept = save(*h);
  const int checking = 2 + 1 + int((bytes.size() + kStatePiece - 1) / kStatePiece);
  for (const int reads : {0, 1, 2, 3, checking}) {
    FailingSource source(bytes, reads);
    EXPECT_EQ(finish(h->restore(source)).code(), Code::io_error);
    EXPECT_EQ(save(*h), kept) << reads;  // nothing was written yet
  }
  FailingSource source(bytes, checking + 2);
  EXPECT_EQ(finish(h->restore(source)).code(), Code::io_error);
  EXPECT_EQ(h->position(), 0);  // what is half written is forgotten
}

TEST(SavedState, ASinkThatFailsEndsIt) {
  MemoryDelegate from;
  const auto g = make(from);
  fill(*g, 2500);
  int calls = 0;
  const Status status = finish(
      g->save([&](std::span<const uint8_t>) { return ++calls == 5 ? Status(Code::io_error, "full") : Status(); }));
  EXPECT_EQ(status.code(), Code::io_error);
  EXPECT_EQ(calls, 5);
}

TEST(Digest, DependsOnEveryByteAndOnNoPiece) {
  std::vector<uint8_t> bytes(61);
  std::iota(bytes.begin(), bytes.end(), uint8_t(1));
  const uint64_t whole = digestOf(bytes);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    Digest d;
    d.add(std::span(bytes).first(cut));
    EXPECT_EQ(digestOf(std::span(bytes).first(cut)) == whole, cut == bytes.size());
    d.add(std::span(bytes).subspan(cut));
    EXPECT_EQ(d.value(), whole) << cut;
  }
  for (uint8_t& byte : bytes) {
    byte ^= 1;
    EXPECT_NE(digestOf(bytes), whole);
    byte ^= 1;
  }
  bytes.push_back(0);
  EXPECT_NE(digestOf(bytes), whole);
}

}  // namespace
}  // namespace etwgpu::testing
