// What the delegates of one program share on the CPU: weights and states by name, one arena, one scratch buffer,
// threads.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/executor/cpu_kernel.h"
#include "runtime/executor/delegate.h"
#include "runtime/executor/ring_mark.h"

namespace etwgpu {

/// 64-byte aligned memory that counts itself in a report and refuses to exceed a cap. Readable 64 bytes beyond its end.
class CpuBuffer {
 public:
  CpuBuffer() = default;
  CpuBuffer(const CpuBuffer&) = delete;
  CpuBuffer& operator=(const CpuBuffer&) = delete;
  ~CpuBuffer();
  /// `counted` += bytes; fails with limit_exceeded beyond `budget`, out_of_memory where the allocator refuses.
  Status allocate(uint64_t bytes, uint64_t budget, uint64_t& counted, const std::string& what);
  void free();
  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
  uint64_t* counted_ = nullptr;
};

/// A constant: in place in the file where that is addressable, else read into owned memory.
struct CpuWeight {
  const uint8_t* data = nullptr;       // words of a quantised weight, or all
  const uint8_t* constants = nullptr;  // of a quantised weight
  CpuBuffer owned;
  std::vector<std::pair<DataSource*, ReadRequest>> reads;  // not yet taken
};

struct CpuState {
  CpuBuffer buffer;
  uint64_t bytes = 0;                  // as the graphs have it
  bool half = false;                   // f32 in the graphs, f16 here
  std::shared_ptr<CpuWeight> initial;  // null: zeros
  bool initialised = false;
  void reset();
  /// Back to f32, contents included.
  Status widen(uint64_t budget, uint64_t& counted);
};

class CpuShared;

class CpuStates final : public StateSet {
 public:
  /// `owner`: what counts the memory; null for the states that are its own.
  explicit CpuStates(std::shared_ptr<CpuShared> owner) : owner_(std::move(owner)) {}
  Task<Status> reset() override;
  uint64_t bytes() const override;
  RingMark rings;

 private:
  std::shared_ptr<CpuShared> owner_;  // first: outlives what is counted in its report

 public:
  std::map<std::string, std::shared_ptr<CpuState>, std::less<>> entries;
};

class CpuShared {
 public:
  explicit CpuShared(const LoadOptions& options);

  /// The weight of these pieces, made at first sight. bytes and constant_bytes: what kernels will read.
  Result<std::shared_ptr<CpuWeight>> weight(const Value& value, uint64_t bytes, uint64_t constant_bytes,
                                            const NamedDataMap& data);
  /// Keeps a state in f32 from now on.
  Status widen(CpuState& state) { return state.widen(budget(), memory.state); }
  /// The state of that name, made at first sight. may_be_half: this graph can do with f16 (cachesInHalf); one that
  /// cannot makes f32 of it for all.
  Result<std::shared_ptr<CpuState>> state(const Value& value, uint64_t bytes, bool may_be_half,
                                          const NamedDataMap& data);
  /// One arena serves all delegates, since a call runs to its end before another begins.
  Status growArena(uint64_t bytes);
  uint8_t* arena() const { return arena_.data(); }
  /// Valid until scratchReset(); nullptr where the cap or the allocator refuses.
  void* scratch(size_t bytes);
  void scratchReset();
  /// Those of state() once more, at their initial values. `self`: what this belongs to.
  Result<std::shared_ptr<CpuStates>> makeStates(std::shared_ptr<CpuShared> self);

  LoadOptions options;
  std::unique_ptr<ThreadPool> pool;
  MemoryReport memory;
  CpuStates states{nullptr};

 private:
  uint64_t budget() const;

  uint64_t in_place_ = 0;  // part of memory.weights that is not allocated here
  std::map<std::string, std::shared_ptr<CpuWeight>> weights_;
  CpuBuffer arena_;
  std::vector<std::unique_ptr<CpuBuffer>> scratch_;  // more than one only until the next reset
  uint64_t scratch_used_ = 0;                        // of the last one
};

Result<std::unique_ptr<Delegate>> makeCpuDelegate(std::shared_ptr<CpuShared> shared, std::span<const uint8_t> payload,
                                                  const NamedDataMap& data, const DelegateOptions& options);

}  // namespace etwgpu
