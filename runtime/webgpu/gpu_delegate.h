// One payload graph on the GPU.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/executor/delegate.h"
#include "runtime/executor/index_guard.h"
#include "runtime/webgpu/commands.h"
#include "runtime/webgpu/device_call.h"
#include "runtime/webgpu/gpu_plan.h"
#include "runtime/webgpu/gpu_store.h"
#include "runtime/webgpu/pipelines.h"
#include "runtime/webgpu/step_ring.h"

namespace etwgpu {

class GpuDelegate final : public Delegate {
 public:
  GpuDelegate(std::shared_ptr<GpuStore> store, GpuPlan plan)
      : GpuDelegate(store, std::make_shared<Shared>(store, std::move(plan)), store->states()) {}
  /// Makes every buffer and bind group and starts the pipelines; finishLoading() waits for what was started. On
  /// software adapters what draws tokens is made by the first setSampling() that wants it.
  Status prepare(const NamedDataMap& data);

  const Graph& graph() const override { return plan_.graph; }
  std::vector<std::pair<DataSource*, ReadRequest>> takeReads() override { return std::move(reads_.requests); }
  Task<Status> finishLoading() override;
  Task<Status> execute(std::span<const DelegateArg> inputs, std::span<DelegateArg> outputs,
                       ExecuteOptions options) override;
  int64_t preferredChunk() const override;
  int maxSteps() const override;
  Status setSampling(const StepChoice& choice, std::span<const int32_t> history) override;
  Status submitStep(const StepRequest& request) override;
  Task<Result<StepResult>> readStep() override;
  int stepsInFlight() const override { return ring_.inFlight(); }
  RingMark* rings() override { return states_->rings.present() ? &states_->rings : nullptr; }
  std::vector<StateLayout> states() const override;
  Task<Status> readStates(std::span<const StateRange> ranges, std::span<uint8_t> to) override;
  Task<Status> writeStates(std::span<const StateRange> ranges, std::span<const uint8_t> from) override;
  void applyScales(std::span<const float> scales) override;
  Result<std::unique_ptr<Delegate>> withStates(std::shared_ptr<StateSet> states) override;
  const ExecuteStats& lastStats() const override { return stats_; }
  void setProfiling(bool on) override { profiling_ = on && store_->device().hasTimestamps(); }
  std::vector<DispatchTime> lastProfile() const override { return profile_; }
  std::vector<std::string> tunedKeys() const override { return {plan_.tuned_keys.begin(), plan_.tuned_keys.end()}; }

 private:
  /// What a call runs besides the graph: -1 nothing, the argmax of this output, or kSampleMode with its filters.
  static constexpr int kSampleMode = 1 << 16;
  /// What delegates over different states share. The arenas hold nothing from one submit to the next.
  struct Shared {
    Shared(std::shared_ptr<GpuStore> in, GpuPlan made) : store(std::move(in)), plan(std::move(made)) {
      store->noteArenaWithoutReuse(plan.memory.sum_of_values);
    }
    ~Shared() { store->forgetArenaWithoutReuse(plan.memory.sum_of_values); }
    std::shared_ptr<GpuStore> store;
    GpuPlan plan;
    std::vector<GpuBuffer> arenas;
  };
  struct Dispatch {
    std::shared_ptr<Pipeline> pipeline;
    BindGroupHandle bind_group;
  };
  struct ParamSlot {
    uint32_t offset;
    ExprId expr;
  };
  static constexpr uint64_t kParamSlice = 256;
  /// A parameter that is the scale of an adapter.
  struct ScaleSlot {
    uint32_t offset;
    int32_t adapter;
  };
  /// What is copied behind the dispatches: a part of the staging buffer that holds an output.
  struct ReadBack {
    int32_t output;  // -1: the ids of the argmax
    GpuSlice from;
    Storage storage;
    uint64_t offset, bytes;
    int64_t count;
    WGPUBuffer to = nullptr;  // not null: a buffer of the caller's, and nothing is read
  };
  /// A part of a buffer of the caller's, which takes the place of a value's memory.
  struct Lent {
    ValueId value;
    DeviceBuffer place;
    friend bool operator==(const Lent&, const Lent&) = default;
  };
  /// The bind groups of calls with the same buffers. It holds on to them, so that no other one is taken for them.
  struct LentSet {
    std::vector<Lent> lent;
    std::vector<BufferHandle> buffers;
    std::vector<BindGroupHandle> groups;  // by dispatch; null: as without
  };

  GpuDelegate(std::shared_ptr<GpuStore> store, std::shared_ptr<Shared> shared, std::shared_ptr<GpuStates> states)
      : store_(std::move(store)),
        shared_(std::move(shared)),
        plan_(shared_->plan),
        states_(std::move(states)),
        guard_(plan_.graph),
        indices_(plan_.graph) {}
  Result<GpuSlice> sliceOf(ValueId value) const;
  uint64_t uploadBytes() const;
  Status makeSharedBuffers(const NamedDataMap& data);
  Status makeOwnBuffers();
  Status makeOwn();
  Status findSlices();
  Status makeDispatches(bool sampling, bool at_once);
  Result<Dispatch> makeDispatch(const PlannedDispatch& planned, uint64_t params_at, bool at_once);
  void setParams(const DispatchSpec& spec, uint64_t params_at);
  Result<BindGroupHandle> makeBindGroup(const DispatchSpec& spec, uint64_t params_at, const Pipeline& pipeline) const;
  Status start(std::span<const DelegateArg> inputs, std::span<DelegateArg> outputs, const ExecuteOptions& options);
  const DeviceBuffer* inputPlace(size_t input) const;

  // gpu_lent.cpp
  const Lent* lentFor(ValueId storage) const;
  Status lendBuffers();
  Status checkPlaces() const;
  Status makeGroups(LentSet& set);
  Status checkRoom(const DeviceBuffer& place, const TensorView& tensor, const char* role, size_t index,
                   ValueId id) const;
  Status placeOutput(TensorView& tensor, DeviceBuffer& place, size_t index, ValueId id, const GpuSlice& own);
  void useOwnMemory();
  void forgetLent();
  Storage storageOf(ValueId value) const;
  Sizes sizesOf(ValueId value) const;

  Status bindInputs(std::span<const DelegateArg> inputs, std::vector<int64_t>& symbols) const;
  Status checkInputs(std::span<const DelegateArg> inputs) const;
  Status prepareCall(std::span<const DelegateArg> inputs, int mode);
  Status uploadInputs(std::span<const DelegateArg> inputs);
  Status uploadMask(const StepRequest& request);
  Status prepareStep(const StepRequest& request);
  Status enterRings(const StepRequest& request);
  int stepDepth() const;
  Status rebuildCommands(int mode);
  void flushUploads();
  Status describeOutputs(std::span<DelegateArg> outputs, const ExecuteOptions& options);
  Status growStaging(uint64_t bytes);
  Result<WGPUBuffer> stateBuffer(const StateRange& range) const;
  void submit(size_t begin, size_t end, bool last);
  Task<Status> submitChecked();
  bool copyOut(ValueId id, uint64_t offset, uint64_t bytes);
  void record(WGPUCommandEncoder encoder, size_t begin, size_t end, bool last);
  void recordDispatches(WGPUCommandEncoder encoder, size_t begin, size_t end);
  Status prepareProfiling();
  Task<Status> readOutputs(std::span<DelegateArg> outputs, const ExecuteOptions& options);
  Task<Status> readProfile();

  std::shared_ptr<GpuStore> store_;
  std::shared_ptr<Shared> shared_;
  const GpuPlan& plan_;
  std::shared_ptr<GpuStates> states_;
  const RingMark guard_;  // how this graph's calls are checked
  const IndexGuard indices_;
  bool has_new_states_ = false;  // made for this delegate: finishLoading() gives them their values
  GpuBuffer upload_, step_, staging_, query_buffer_, query_staging_;
  ShadowBuffer shadow_;  // of upload_: the small inputs, then 256 bytes of parameters a dispatch
  std::vector<ParamSlot> params_;
  std::vector<ScaleSlot> scales_;
  std::vector<Dispatch> dispatches_;
  std::vector<GpuSlice> argmax_slices_;
  struct Copy {
    GpuSlice to;
    uint64_t bytes;
    size_t position;  // in commands_, of the last call
  };
  std::vector<Copy> copies_;
  PendingReads reads_;
  std::shared_ptr<Pending> pending_ = std::make_shared<Pending>();

  // of the last call; while the symbols stay the same, so do all sizes, parameters and commands
  std::vector<int64_t> symbols_, values_;
  int last_mode_ = -2;
  CommandList commands_;
  std::vector<int32_t> command_dispatch_;  // which dispatch a command is
  std::vector<ReadBack> read_backs_;
  uint64_t read_back_bytes_ = 0;
  std::vector<uint8_t> scratch_;      // conversions
  std::array<LentSet, 8> lent_sets_;  // the last that were made: a few buffers in turn, each with one of a few others
  size_t next_lent_ = 0;
  LentSet* lent_ = nullptr;         // of the last call; nullptr: nothing was lent
  DevicePlaces* places_ = nullptr;  // while execute() starts a call
  ExecuteStats stats_;

  // steps: calls in flight, see gpu_steps.cpp
  StepRing ring_;
  int64_t last_step_tokens_ = 0;  // of the last step; 0: none to continue
  std::vector<int64_t> step_ids_;
  int step_mode_ = 0;
  uint64_t mask_bytes_ = 0;  // that a step which chooses brings; 0: none

  bool profiling_ = false;
  QuerySetHandle queries_;
  std::vector<DispatchTime> profile_;
  int64_t profile_position_ = 0;  // of the last call's first token, in a model with caches
};

}  // namespace etwgpu
