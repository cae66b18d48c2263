// From a graph to dispatches and placements: everything that is decided before the first buffer is made. Needs no
// device.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "runtime/executor/gpu_kernel.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/plan.h"

namespace etwgpu {

/// Offsets of bindings and of everything that is bound.
inline constexpr uint64_t kGpuAlignment = 256;

struct PlannedDispatch {
  DispatchSpec spec;
  std::string node;          // for messages and profiles
  int32_t only_argmax = -1;  // runs only in calls that ask for the argmax of this output
  int8_t only_sample = -1;   // runs only in steps that draw their token with this filter (SampleFilter)
  size_t node_index = 0;     // beyond the graph's nodes: one that chooses a token
};

/// The optional argmax over the last dimension of an output.
struct PlannedArgmax {
  int32_t output;
  ValueId ids;  // int32, the output's dimensions without the last
};

/// A graph `ids i64 [1, S], start i64 [1] -> logits [1, V] or [1, S, V]` whose argmax is also the next call's input:
/// the last dispatch writes it over ids[0] (with [1, S, V]: over ids, row by row), and start + S over start.
struct PlannedFeedback {
  ValueId ids = kNoValue, start = kNoValue;
  bool last_row_only = false;  // logits [1, V]: after a call with any S, a call with S = 1 needs no upload
  bool present() const { return ids != kNoValue; }
};

/// Drawing the next token where the logits are, in graphs with feedback: values of etwgpu.sample.
struct PlannedSampling {
  ValueId options = kNoValue, seen = kNoValue, result = kNoValue;
  bool present() const { return result != kNoValue; }
};

/// A state gets a new value: a copy between the dispatches, which needs no kernel.
struct PlannedCopy {
  ValueId state, value;
  size_t before;  // the dispatch that it comes before, or the number of dispatches
};

struct GpuPlan {
  Graph graph;
  std::vector<PlannedDispatch> dispatches;
  std::vector<PlannedArgmax> argmax;
  MemoryPlan memory;
  /// Inputs of a few KiB lie beside each other in the upload buffer, not in an arena: their offsets from the first one,
  /// per value; -1: not one of them.
  std::vector<int64_t> input_offsets;
  uint64_t input_bytes = 0;
  PlannedFeedback feedback;
  PlannedSampling sampling;
  /// What the GPU itself keeps between calls (inputs that it feeds back): offsets in the step buffer, per value; -1:
  /// not one of them. Empty without feedback.
  std::vector<int64_t> step_offsets;
  uint64_t step_bytes = 0;
  int64_t stepOffset(ValueId id) const { return size_t(id) < step_offsets.size() ? step_offsets[size_t(id)] : -1; }
  /// Storage values that dispatches, outputs or copies use, each once.
  std::vector<ValueId> constants, states;
  /// Copies of values into states, in order.
  std::vector<PlannedCopy> copies;
  /// Keys of Tuning that the dispatches depend on.
  std::set<std::string> tuned_keys;
};

/// Which bytes of its value a binding covers.
struct BindingRange {
  uint64_t offset, size;
};
BindingRange bindingRange(const Graph& graph, const Binding& binding, Precision precision);

/// Plans a graph after its passes. unsupported_operator: lists every operator without a kernel, with counts, or says
/// why a kernel refused. limit_exceeded: names the value and the limit.
Result<GpuPlan> planGraph(Graph graph, const GpuCapabilities& capabilities, const LoadOptions& options);

}  // namespace etwgpu
