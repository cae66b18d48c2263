// The cache of a generator as bytes: for another visit, another conversation in between, another process.
//
// Little-endian: the header (SavedHeader), a u32 for each state (stateFormat), where the model has caches that are
// rings (graph/ring.h) another for RingMark::written, the tokens (i32), the parts of the states that the tokens fill,
// by the states' names, and a Digest of all that (u64).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/core/data_source.h"
#include "runtime/core/digest.h"
#include "runtime/executor/delegate.h"

namespace etwgpu {

/// Gets the bytes in order; they are valid during the call.
using StateSink = std::function<Status(std::span<const uint8_t>)>;

struct SavedHeader {
  uint32_t magic = 0;  // kStateMagic
  uint32_t version = 0;
  uint64_t identity = 0;  // Delegate::stateIdentity
  uint64_t bytes = 0;     // of all of it
  uint32_t tokens = 0, states = 0;
};
inline constexpr uint32_t kStateMagic = 0x53475745;  // "EWGS"
/// Of models without rings, and with them.
inline constexpr uint32_t kStateVersion = 1, kRingStateVersion = 2;

/// The parts of states that hold the first `rows` of the cache's `capacity` positions: of a state [1, H, capacity, D]
/// the first rows of each of the H blocks, as of a ring into which fewer positions than it has rows have been written;
/// all of any other one. In order of names, each of at most kStatePiece bytes.
inline constexpr uint64_t kStatePiece = uint64_t(4) << 20;
struct UsedRows {
  int64_t capacity = 0, rows = 0;
  std::set<std::string> rings = {};  // names of states
  int64_t written = 0;               // RingMark::written
};
std::vector<StateRange> usedRanges(const std::vector<StateLayout>& states, const UsedRows& used);

Task<Status> saveState(Delegate& delegate, int64_t capacity, std::span<const int32_t> tokens, StateSink sink);

/// Reads, checks and applies a saved state.
class StateReader {
 public:
  StateReader(Delegate& delegate, DataSource& source, int64_t capacity)
      : delegate_(delegate), source_(source), capacity_(capacity) {}
  /// Everything but writing: saved_state says what is wrong. Then tokens() are those of the saved cache.
  Task<Status> check();
  /// Writes the states.
  Task<Status> apply();
  const std::vector<int32_t>& tokens() const { return tokens_; }
  /// RingMark::written of the saved cache.
  int64_t written() const { return written_; }

 private:
  Status checkHeader(const SavedHeader& header) const;
  Task<Status> read(void* to, uint64_t size);

  Delegate& delegate_;
  DataSource& source_;
  int64_t capacity_;
  std::vector<int32_t> tokens_;
  std::vector<StateRange> ranges_;
  Digest digest_;
  uint64_t at_ = 0, data_at_ = 0;
  uint32_t written_ = 0;
};

}  // namespace etwgpu
