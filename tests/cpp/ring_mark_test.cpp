// What rings still hold after calls, against a simulation of every row.
#include "runtime/executor/ring_mark.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/cpp/graph_builder.h"

namespace etwgpu::testing {
namespace {

/// The position that each row holds.
class Rows {
 public:
  Rows(int64_t rows, int64_t window) : held_(size_t(rows), -1), window_(window) {}
  /// May a call with n queries begin here?
  bool holds(int64_t start) const {
    for (int64_t j = std::max<int64_t>(0, start - window_ + 1); j < start; ++j)
      if (held_[size_t(j) % held_.size()] != j) return false;
    return true;
  }
  void write(int64_t start, int64_t n) {
    for (int64_t j = start; j < start + n; ++j) held_[size_t(j) % held_.size()] = j;
  }

 private:
  std::vector<int64_t> held_;
  int64_t window_;
};

Graph ringGraph() {
  GraphBuilder b = decoder(1, 60, 4, 2, false, 512, 68);
  EXPECT_TRUE(runPasses(b.graph).ok());
  return std::move(b.graph);
}

TEST(RingMark, RefusesWhatWouldSeeOverwrittenRows) {
  RingMark mark(ringGraph());
  ASSERT_TRUE(mark.present());
  Rows rows(128, 60);
  std::mt19937 rng(5);
  int64_t end = 0;
  int refused = 0, accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    const int64_t n = 1 + rng() % 68;
    // mostly on, sometimes back by some tokens or many, or to the beginning
    int64_t start = end;
    if (rng() % 4 == 0) start = std::max<int64_t>(0, end - int64_t(rng() % 16));
    if (rng() % 8 == 0) start = int64_t(rng() % size_t(end + 1));
    if (start + n > 512) start = 0;
    const Status status = mark.enter(start, n);
    if (status.ok()) {
      ASSERT_TRUE(rows.holds(start)) << start;
      rows.write(start, n);
      end = start + n;
      ++accepted;
    } else {
      EXPECT_EQ(status.code(), Code::invalid_argument);
      ++refused;
    }
    EXPECT_TRUE(mark.oldestStart() <= end) << "what was just written can be continued";
    EXPECT_TRUE(end < 16 || mark.oldestStart() <= std::max<int64_t>(mark.written() - 8, 0))
        << "steps in flight cost nothing";
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(accepted, 2000);
}

TEST(RingMark, SaysFromWhereOn) {
  RingMark mark(ringGraph());
  EXPECT_TRUE(mark.enter(0, 68).ok());
  EXPECT_TRUE(mark.enter(68, 60).ok());
  EXPECT_EQ(mark.oldestStart(), 0) << "128 rows, 128 positions";
  EXPECT_TRUE(mark.enter(128, 1).ok());
  EXPECT_EQ(mark.oldestStart(), 60) << "position 0 is gone, which the query at 59 sees";
  const Status status = mark.enter(59, 1);
  EXPECT_NE(status.message().find("it may begin at 60, or again at 0"), std::string::npos) << status.message();
  EXPECT_EQ(mark.written(), 129);
  EXPECT_TRUE(mark.enter(60, 1).ok());
  EXPECT_TRUE(mark.enter(0, 3).ok());
  EXPECT_EQ(mark.oldestStart(), 0);
}

TEST(RingMark, WithoutRingsEverythingMayBegin) {
  GraphBuilder b = decoder(1);
  ASSERT_TRUE(runPasses(b.graph).ok());
  RingMark mark(b.graph);
  EXPECT_FALSE(mark.present());
  EXPECT_TRUE(mark.enter(7, 1).ok());
  EXPECT_EQ(mark.oldestStart(), 0);
}

}  // namespace
}  // namespace etwgpu::testing
