// Liveness and the arena plan of a graph's intermediates.
#pragma once

#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace etwgpu {

struct PlanOptions {
  uint64_t alignment = 256;               // of every offset
  uint64_t max_arena_bytes = UINT64_MAX;  // no arena grows beyond this (a device's binding or buffer limit)
  /// On the GPU a buffer may not be both read and written by one dispatch: a node's outputs (and scratch) must lie in
  /// another arena than each of its inputs. On the CPU one arena serves.
  bool separate_outputs = false;
  /// Bytes of a value at its upper bounds as the executor stores it.
  uint64_t (*bytes)(const Graph&, ValueId) = nullptr;
  /// By value: has memory of its own and needs none of the arenas. Empty: none.
  std::vector<bool> elsewhere = {};
};

struct Placement {
  int32_t arena = -1;  // -1: not in an arena (constant, state, dead)
  uint64_t offset = 0, size = 0;
};
/// Values that live only during one node (split sums, partial results).
struct ScratchUse {
  ValueId value;
  int32_t node;
};

struct MemoryPlan {
  std::vector<Placement> placements;  // per value; aliases have their storage's
  std::vector<uint64_t> arena_bytes;
  uint64_t sum_of_values = 0;  // what it would take without reuse
};

/// The placed value with the most bytes and who makes it, for messages; empty where nothing is placed.
std::string describeLargest(const Graph& graph, const MemoryPlan& plan);

/// Inputs of the graph are placed too (they are uploaded there) and are alive from the start to their last use; outputs
/// to the end. Fails with limit_exceeded, naming the value, where a single value is larger than max_arena_bytes.
Result<MemoryPlan> planMemory(const Graph& graph, std::span<const ScratchUse> scratch, const PlanOptions& options);

}  // namespace etwgpu
