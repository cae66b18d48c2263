// A loaded program: what bindings use. Reads the files, makes the delegates, runs methods.
//
//   Task<Result<std::unique_ptr<Session>>> task = Session::load({std::move(source), {}, std::move(backend), options,
//   {}}); …drive the task… Result<std::vector<OutputValue>> outputs = co_await session->run("forward", {TensorView…});
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "runtime/core/task.h"
#include "runtime/executor/adapters.h"
#include "runtime/executor/delegate.h"
#include "runtime/executor/method_state.h"
#include "runtime/program/program.h"

namespace etwgpu {

/// What a method takes. The bytes behind a TensorView must stay valid until run() is done.
using Input = std::variant<TensorView, int64_t, double, bool>;
/// What a method returns; monostate is None.
using OutputValue = std::variant<std::monostate, HostTensor, int64_t, double, bool, std::string>;

/// An input or output of a method.
struct ValueSpec {
  enum class Kind : uint8_t { none, tensor, integer, number, flag, text };
  Kind kind = Kind::none;
  int scalar_type = 0;   // tensors
  Sizes sizes;           // upper bounds where dynamic
  bool dynamic = false;  // at least one dimension may be smaller than its bound
};
struct MethodSpec {
  std::string name;
  std::vector<ValueSpec> inputs, outputs;
  bool constant = false;            // no instructions, no inputs: metadata such as get_eos_ids
  std::vector<OutputValue> values;  // of a constant method
};

/// Bytes read so far of those known to be needed. Returning false cancels the load: Code::cancelled.
using LoadProgress = std::function<bool(uint64_t done, uint64_t total)>;

struct SessionConfig {
  std::unique_ptr<DataSource> source;                   // the .pte
  std::vector<std::unique_ptr<DataSource>> data_files;  // .ptd
  std::unique_ptr<Backend> backend;                     // null with `inspect_only`
  LoadOptions options;
  std::vector<AdapterFiles> adapters;  // LoRA: applied as the program runs, whose weights stay as they are
  LoadProgress progress;
  /// Reads and verifies without weights and without delegates: what is missing is told by inspectJson() instead of
  /// failing, and run() is refused.
  bool inspect_only = false;
};

class Session;

/// A conversation of its own on a loaded program: its states once more, and delegates over them. Weights, pipelines and
/// the memory of intermediate values are the session's.
class Sequence {
 public:
  /// As Session::soleDelegate, for the methods that the sequence was made with; else nullptr. Its calls and those of
  /// other sequences may alternate in any way.
  Delegate* soleDelegate(std::string_view method) const;
  /// As Session::verifier; invalid_argument where it was not made with that method.
  Task<Result<Delegate*>> verifier(std::string method, int64_t rows);
  uint64_t stateBytes() const { return states_->bytes(); }
  /// As Session::reset, of its own states.
  Task<Status> reset() { return states_->reset(); }

 private:
  friend class Session;
  Session* session_ = nullptr;
  std::shared_ptr<StateSet> states_;
  std::vector<std::pair<std::string, std::unique_ptr<Delegate>>> verifiers_;
  std::vector<std::pair<std::string, std::unique_ptr<Delegate>>> delegates_;
};

class Session {
 public:
  /// Errors: those of readProgram and readAdapter; invalid_argument for an adapter of another model;
  /// unsupported_operator with all operators that no kernel serves and how often each occurs; data_missing with the
  /// key; limit_exceeded where the program's declared bytes exceed options.memory_cap.
  static Task<Result<std::unique_ptr<Session>>> load(SessionConfig config);
  ~Session();

  const std::vector<MethodSpec>& methods() const { return specs_; }
  const MethodSpec* findMethod(std::string_view name) const;
  /// The value of a constant method with one output ("get_max_seq_len"), or nullopt.
  std::optional<int64_t> constantInteger(std::string_view method) const;
  /// All integers that a constant method returns ("get_eos_ids"); empty if there is no such method.
  std::vector<int64_t> constantIntegers(std::string_view method) const;

  /// One call at a time: a second one gets invalid_argument. invalid_argument too for inputs of other count, kind,
  /// dtype, rank or beyond the bounds.
  Task<Result<std::vector<OutputValue>>> run(std::string method, std::vector<Input> inputs);
  /// States back to their initial values, in delegates and outside; not those of other sequences.
  Task<Status> reset();

  const AdapterSet& adapters() const { return adapters_; }
  /// What an adapter counts from the next call on: 1 as trained, 0 off. States (keys and values in a cache) stay as
  /// they were computed. invalid_argument for an unknown name, or while a call is under way.
  Status setAdapterScale(std::string_view name, float scale);

  /// Of the backend, and in `other` what kernel calls outside of delegates use.
  MemoryReport memory() const;
  /// Methods, instructions, delegates (graph as text, operators with counts, weights by scheme), islands (kernel calls
  /// between delegates), memory at the bounds, missing kernels and data. See inspect.cpp for the keys.
  std::string inspectJson() const;
  /// Makes the delegates of a method again, with other kernels: weights stay where they are, states are reset, and what
  /// holds its delegates (a Generator) must be gone.
  Task<Status> rebuild(std::string method, Tuning tuning);
  /// The delegate of a method that is nothing but one delegate call on its inputs and outputs in order; else nullptr.
  Delegate* soleDelegate(std::string_view method);
  /// The sole delegate of a method once more, over the same states and weights, for calls of up to `rows` positions (of
  /// the first call) whose output has a row for each of them: keepAllRows, with its errors. Made when it is first asked
  /// for.
  Task<Result<Delegate*>> verifier(std::string method, int64_t rows);
  /// Bytes of the states of its own delegates, which count in memory() as those of the sequences do.
  uint64_t stateBytes() const { return config_.backend ? config_.backend->states().bytes() : 0; }
  /// Another sequence for these methods, each of which is one delegate call alone (else invalid_argument). It lives
  /// until freeSequence() or as long as the session; memory() counts its states. limit_exceeded, out_of_memory.
  Task<Result<Sequence*>> newSequence(std::vector<std::string> methods);
  /// Frees it now. Nothing of it may be under way, and generators on it are not used any more.
  void freeSequence(const Sequence* sequence);
  /// Counters of the last run(), summed over its delegate calls.
  const ExecuteStats& lastStats() const { return stats_; }
  /// Programs may loop; after this many instructions a call fails with limit_exceeded.
  void setInstructionLimit(uint64_t limit) { instruction_limit_ = limit; }

 private:
  friend class Inspector;
  friend class Sequence;
  struct LoadedDelegate {
    std::span<const uint8_t> payload;
    std::vector<uint8_t> payload_bytes;  // where the source is not addressable
    std::unique_ptr<Delegate> delegate;
  };
  struct LoadedMethod {
    std::unique_ptr<MethodState> state;
    std::vector<LoadedDelegate> delegates;
    std::unique_ptr<Delegate> verifier;
  };
  struct PendingRead {
    DataSource* source;
    ReadRequest request;
  };

  Session() = default;
  // load.cpp, in the order of loading
  Task<Status> readDataFiles();
  Task<Status> readAdapters();
  void applyScales();
  void forEachDelegate(const std::function<void(Delegate&)>& f);
  Status collectNamedData();
  Status checkDeclaredMemory() const;
  Status makeMethods();
  Status shareStates();
  Status findExternalData(std::vector<PendingRead>& reads);
  Status readConstants(std::vector<PendingRead>& reads);
  Status readPayloads(std::vector<PendingRead>& reads);
  Status readHost(DataSource& source, FileRange range, const std::string& what, std::vector<PendingRead>& reads,
                  const uint8_t*& bytes);
  Status collectMissing();
  bool hasOneDelegate() const;
  DelegateOptions delegateOptions(size_t method) const;
  Status makeDelegates(std::vector<PendingRead>& reads);
  Task<Status> readAll(std::vector<PendingRead> reads);
  Task<Status> loadInto();
  void makeSpecs();

  // run.cpp
  LoadedMethod* soleMethod(std::string_view method);
  Status setInput(LoadedMethod& m, size_t k, const Input& input);
  Status setTensorInput(LoadedMethod& m, size_t k, const TensorView& view);
  Task<Status> runInstructions(LoadedMethod& m);
  Task<Status> runDelegate(LoadedMethod& m, const Instruction& in);
  Result<std::vector<OutputValue>> outputs(LoadedMethod& m);

  SessionConfig config_;
  std::unique_ptr<Program> program_;
  std::vector<FlatTensor> data_files_;
  AdapterSet adapters_;
  NamedDataMap named_data_;
  ProgramData data_;
  std::vector<LoadedMethod> methods_;  // as program_->methods
  std::vector<MethodSpec> specs_;
  std::map<std::string, int> missing_operators_;  // name → calls
  std::vector<std::string> missing_data_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::unique_ptr<ThreadPool> pool_;
  uint64_t bytes_total_ = 0, bytes_done_ = 0;
  ExecuteStats stats_;
  uint64_t instruction_limit_ = 1'000'000;
  bool running_ = false;
};

}  // namespace etwgpu
