// A delegate runs one payload graph. Two backends implement it: webgpu/ and cpu/, both from the same payload.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "runtime/core/data_source.h"
#include "runtime/core/digest.h"
#include "runtime/core/sampling_options.h"
#include "runtime/core/task.h"
#include "runtime/core/tensor.h"
#include "runtime/core/tuning.h"
#include "runtime/graph/graph.h"

namespace etwgpu {

enum class DeviceKind : uint8_t { webgpu, cpu };
/// f16: intermediates and KV cache are stored as f16 on the GPU (needs shader-f16); sums stay f32.
enum class Precision : uint8_t { f32, f16 };
/// How the CPU multiplies quantised weights: with int16 activations per row (`automatic`), int8 per 32 (faster, less
/// exact), or `exact`: dequantised to f32.
enum class Activations : uint8_t { automatic, exact, int16, int8 };
/// How the CPU keeps key and value caches. automatic: f16, but f32 with Activations::exact. On the GPU: Precision.
enum class CacheType : uint8_t { automatic, f32, f16 };
/// Kernels above the tier are not chosen; for tests and for bug reports.
enum class Tier : uint8_t { baseline, f16, subgroups, subgroup_matrix };

struct LoadOptions {
  DeviceKind device = DeviceKind::cpu;
  Precision precision = Precision::f32;
  Activations activations = Activations::automatic;
  CacheType cache = CacheType::automatic;
  int threads = 1;
  Tier max_tier = Tier::subgroup_matrix;
  /// Kernels for large GPUs on narrow ones too (GpuCapabilities::narrow); for tests.
  bool wide_kernels = false;
  /// Refuse to allocate more than this for one program (weights + state + arenas + constants).
  uint64_t memory_cap = uint64_t(4) << 30;
  std::string disabled_passes;
  /// For debugging, slow: calls end with non_finite at the first operator that gives a NaN or an infinity
  /// (check_values.h). No steps are in flight then.
  bool check_values = false;
  /// Of the GPU's kernels; what it leaves open, the device's defaults decide.
  Tuning tuning;
};

/// The passes to leave out. alone: the delegate is its program's only one, nobody else reads its states.
inline std::string disabledPasses(const LoadOptions& options, bool alone) {
  return alone ? options.disabled_passes : options.disabled_passes + ",ring_cache";
}

/// Bytes by purpose, as in the demo's report.
struct MemoryReport {
  uint64_t weights = 0, state = 0, arena = 0, other = 0;
  uint64_t arena_without_reuse = 0;
};

/// Where a piece of named data lies.
struct NamedData {
  DataSource* source = nullptr;
  uint64_t offset = 0, size = 0;
  bool in_memory = false;  // made by the runtime: whoever wants it takes it from source->data()
};
class AdapterSet;
class NamedDataMap : public NamedDataSizes {
 public:
  std::map<std::string, NamedData, std::less<>> entries;
  AdapterSet* adapters = nullptr;  // null: none
  /// Of the files, or what was made of the adapters; nullptr if there is no such key.
  const NamedData* find(std::string_view key) const;
  std::optional<uint64_t> size(std::string_view key) const override {
    const auto it = entries.find(key);
    return it == entries.end() ? std::nullopt : std::optional(it->second.size);
  }
};

/// An argument of a delegate call: a tensor or an integer. Output tensors come with data of capacity for their upper
/// bounds; execute() sets their sizes.
struct DelegateArg {
  TensorView tensor;
  bool is_int = false;
  int64_t integer = 0;
};

struct DispatchTime {
  std::string kernel, node;
  double microseconds = 0;
  /// What it had to move and to compute (GPU, see webgpu/gpu_cost.h).
  double bytes = 0, flops = 0;
};
struct DevicePlaces;  // webgpu/device_call.h
struct ExecuteOptions {
  /// argmax over the last dimension of this output, computed where the output is; -1: none. With it, `ids` receives one
  /// index per row, and no output tensor is read back.
  int argmax_output = -1;
  std::vector<int32_t>* ids = nullptr;
  /// Not null: receives the time of every dispatch (GPU, where the device measures) or node (CPU), in order.
  std::vector<DispatchTime>* profile = nullptr;
  /// Not null: a place for each input and output, of a delegate on the GPU (runOnDevice).
  DevicePlaces* places = nullptr;
};

/// Counters of one execute(), for reports and tests.
struct ExecuteStats {
  int dispatches = 0, submits = 0;
  uint64_t read_back_bytes = 0, upload_bytes = 0;
};

/// One call in a row of calls of a method `ids i64 [1, S], start i64 [1] -> logits [1, V] or [1, S, V]`, whose results
/// are read later and in order, while the next ones run.
struct StepRequest {
  /// Tokens to run. Empty: one, the token that the step before has chosen, at the position after it; nothing is
  /// uploaded.
  std::span<const int32_t> ids;
  int64_t start = 0;   // position of the first of ids
  bool choose = true;  // false: nobody wants the token that follows, only the states
  /// With StepChoice::masked: a bit for each token of the vocabulary that may be chosen.
  std::span<const uint32_t> mask = {};
};
/// How the steps of a generation choose their tokens.
struct StepChoice {
  SamplingOptions sampling = {};
  bool log_probabilities = false;
  bool masked = false;  // every step that chooses brings a mask
};
struct StepResult {
  int32_t token = -1;
  /// Natural logarithm of the probability that the model gives it, where setSampling has asked for it.
  float log_probability = 0;
};

/// A state as it lies in a delegate's memory.
struct StateLayout {
  std::string name;
  DType dtype = DType::f32;  // of an element there: f16 where a GPU keeps f32 in half precision
  Sizes sizes;
  uint64_t bytes() const { return uint64_t(elementCount(sizes)) * dtypeSize(dtype); }
};
/// A part of the memory of states()[state]: bytes, in multiples of 4.
struct StateRange {
  size_t state = 0;
  uint64_t offset = 0, size = 0;
};

class RingMark;

/// The states of a program, each once: what a conversation has of its own. Whoever uses them holds on to them.
class StateSet {
 public:
  virtual ~StateSet() = default;
  /// All to their initial values (zeros without one). The contents of a KV cache beyond the position in use need none.
  virtual Task<Status> reset() = 0;
  virtual uint64_t bytes() const = 0;
};

/// How a backend makes a delegate.
struct DelegateOptions {
  /// It is the program's only one, so that its states are its own.
  bool alone = false;
  ImportOptions import = {};
};

class Delegate {
 public:
  virtual ~Delegate() = default;
  virtual const Graph& graph() const = 0;
  /// What must be read before finishLoading(): pairs of the data's source and a request.
  virtual std::vector<std::pair<DataSource*, ReadRequest>> takeReads() = 0;
  /// After the reads: waits for pipelines, initialises states.
  virtual Task<Status> finishLoading() = 0;
  /// inputs: the graph's inputs in order; outputs: the graph's outputs in order. One call at a time.
  virtual Task<Status> execute(std::span<const DelegateArg> inputs, std::span<DelegateArg> outputs,
                               ExecuteOptions options) = 0;
  /// Rows of a call that this device computes fastest, without keeping it busy for long: the size of a prompt's parts.
  virtual int64_t preferredChunk() const { return 64; }
  /// How many steps may be in flight; 0: this delegate has none, and submitStep fails.
  virtual int maxSteps() const { return 0; }
  /// How the steps from now on choose; not while some are in flight. history: the tokens that the repetition penalty
  /// applies to, the prompt to come included. unsupported_operator: greedy steps without log probabilities and masks
  /// only.
  virtual Status setSampling(const StepChoice&, std::span<const int32_t> /*history*/) {
    return {Code::unsupported_operator, "this delegate has no steps"};
  }
  /// Starts a step. invalid_argument: maxSteps() are in flight, or there is no step before to continue.
  virtual Status submitStep(const StepRequest&) { return {Code::unsupported_operator, "this delegate has no steps"}; }
  /// The result of the oldest step in flight. One call at a time.
  virtual Task<Result<StepResult>> readStep() {
    co_return Status(Code::unsupported_operator, "this delegate has no steps");
  }
  virtual int stepsInFlight() const { return 0; }
  /// Where the delegate's caches are rings, what they still hold (ring_mark.h); calls that need more are refused. Else
  /// nullptr.
  virtual RingMark* rings() { return nullptr; }
  /// The states of the graph that have memory, each once.
  virtual std::vector<StateLayout> states() const { return {}; }
  /// Copies parts of states out of the device's memory, one after another, or into it. Not while steps are in flight.
  virtual Task<Status> readStates(std::span<const StateRange>, std::span<uint8_t> /*to*/) {
    co_return Status(Code::unsupported_operator, "this delegate's states cannot be read");
  }
  virtual Task<Status> writeStates(std::span<const StateRange>, std::span<const uint8_t> /*from*/) {
    co_return Status(Code::unsupported_operator, "this delegate's states cannot be written");
  }
  /// What each adapter of the program counts (AdapterSet), from the next call on. Not while steps are in flight.
  void setAdapterScales(std::span<const float> scales) {
    Digest digest;
    for (const float scale : scales) digest.add({reinterpret_cast<const uint8_t*>(&scale), sizeof(scale)});
    scales_digest_ = scales.empty() ? 0 : digest.value();
    applyScales(scales);
  }
  /// Of the graph, its adapters and their scales: states of another one mean something else.
  uint64_t stateIdentity() const { return graph().identity ^ scales_digest_; }
  /// This delegate over other states (Backend::makeStates): weights, pipelines and the memory of intermediate values
  /// are shared. Needs finishLoading(), and is then on its own: calls and steps of both may alternate in any way.
  virtual Result<std::unique_ptr<Delegate>> withStates(std::shared_ptr<StateSet>) {
    return Status(Code::unsupported_operator, "this delegate's states are its only ones");
  }
  virtual const ExecuteStats& lastStats() const = 0;
  /// Takes the time of every dispatch in the next calls (a pass of its own each, so the sum is larger than unprofiled);
  /// no effect without timestamp queries.
  virtual void setProfiling(bool) {}
  virtual std::vector<DispatchTime> lastProfile() const { return {}; }
  /// The keys of tunedChoices() that its kernels depend on.
  virtual std::vector<std::string> tunedKeys() const { return {}; }

 private:
  virtual void applyScales(std::span<const float>) {}

  uint64_t scales_digest_ = 0;
};

/// Makes the delegates of one program. Weights and states are shared by name between the methods of a program.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Also of a payload that has a delegate already, with other options: what that holds is not read again.
  virtual Result<std::unique_ptr<Delegate>> createDelegate(std::span<const uint8_t> payload, const NamedDataMap& data,
                                                           const DelegateOptions& options = {}) = 0;
  /// The states that the delegates so far were made with.
  virtual StateSet& states() = 0;
  /// The same once more, at their initial values; they count in memory() while they live. limit_exceeded beyond the
  /// memory cap; out_of_memory.
  virtual Task<Result<std::shared_ptr<StateSet>>> makeStates() = 0;
  virtual MemoryReport memory() const = 0;
  /// Of the delegates that are made from now on.
  virtual void setTuning(const Tuning&) {}
};

std::unique_ptr<Backend> makeCpuBackend(const LoadOptions& options);

}  // namespace etwgpu
