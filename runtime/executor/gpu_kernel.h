// The interface of GPU kernels. An operator describes its dispatches as data over symbolic sizes; one executor
// (runtime/webgpu/) makes pipelines and bind groups of them once, and per call evaluates expressions, writes changed
// parameters and records. Nothing here names webgpu.h, so choice and sizing are tested without a device.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runtime/executor/delegate.h"
#include "runtime/graph/graph.h"

namespace etwgpu {

/// What the device offers, as far as the choice of kernels may depend on it.
struct GpuCapabilities {
  bool f16 = false;  // shader-f16
  bool subgroups = false;
  uint32_t subgroup_min = 0, subgroup_max = 0;
  /// Matrices of subgroups of 32: f16 x f16 summed in f32, matrix_size (8 or 16) in all three dimensions.
  bool subgroup_matrix = false;
  uint32_t matrix_size = 0;
  uint32_t max_invocations = 256;
  uint32_t max_workgroup_bytes = 16384;
  uint32_t max_storage_buffers = 8;
  uint32_t max_workgroups = 65535;  // per dimension
  uint64_t max_binding_bytes = 128 << 20;
  uint64_t max_buffer_bytes = 256 << 20;
  std::string vendor, architecture, description;
  bool software = false;  // the adapter is the CPU
  bool narrow() const { return software || (subgroups && subgroup_max <= 8); }
};
/// What is known of a vendor's devices without measuring.
Tuning defaultTuning(const GpuCapabilities& capabilities);

/// A WGSL file and what its `${NAME}` / `#if NAME` are replaced by: the key of a pipeline is this struct and nothing
/// else. Names used in the file but not defined here are errors; so are names defined but unused.
struct WgslVariant {
  std::string file;  // relative to runtime/operators, "matmul/gemv_int4.wgsl"; empty: `source` is generated text
  std::string source;
  std::map<std::string, std::string> defines;
  std::string name;  // readable: dtype, operator, tile, tier: "f32_linear_q4_gemv_r4_subgroups"
  friend bool operator==(const WgslVariant&, const WgslVariant&) = default;
  friend bool operator<(const WgslVariant& a, const WgslVariant& b) {
    return std::tie(a.file, a.source, a.defines) < std::tie(b.file, b.source, b.defines);
  }
};
/// Expands includes (`#include "common/reduce.wgsl"`), conditions (`#if A`, `#if !A`, `#if A == B`, `#else`, `#endif`)
/// and `${NAME}`. `#enable`-like directives (`enable f16;`) are plain WGSL under a condition.
Result<std::string> expandWgsl(const WgslVariant& variant);

enum class Access : uint8_t { read, read_write };
enum class Part : uint8_t { data, quant_words, quant_constants };

/// Binding i of group 0 is the i-th entry; the parameters, if any, are `var<uniform>` at the binding after the last.
/// Inputs and constants are bound `read`, outputs, scratch and states `read_write` (a state may be `read` where the
/// kernel doesn't write it). A value may be bound twice for reading, but not for reading and for writing: the arenas
/// are chosen so that a node's outputs share no buffer with its inputs (graph/plan.h).
struct Binding {
  ValueId value = kNoValue;
  Access access = Access::read;
  Part part = Part::data;
};

/// One 4-byte word of the uniform parameter block: a symbolic integer (as u32 / i32) or a float.
struct Param {
  ExprId expr;
  float number = 0;
  bool is_float = false;
  int32_t adapter = -1;  // not −1: the number is the scale of this adapter, which changes between calls
};

/// Runs only in calls where min <= value(expr) <= max; invalid expr: always. How decode (1 row) and prefill (many rows)
/// take different kernels.
struct DispatchCondition {
  ExprId expr;
  int64_t min = INT64_MIN, max = INT64_MAX;
};

struct DispatchSpec {
  WgslVariant kernel;
  std::vector<Binding> bindings;
  std::vector<Param> params;         // at most 64 words (256 bytes)
  std::array<ExprId, 3> workgroups;  // a zero in any of them: skipped
  DispatchCondition when;
};

/// What an operator's `plan` function sees and fills. i64 values are stored as i32 on the GPU, bool as u32, f32 as f32
/// (f16 under Precision::f16, see storageType), i8/u8 packed in u32.
class GpuPlanContext {
 public:
  /// Of a large GPU; what fills these fills smaller ones.
  static constexpr int kProcessors = 128;
  GpuPlanContext(Graph& graph, const GpuCapabilities& caps, const LoadOptions& options, int node)
      : graph(graph), exprs(graph.exprs), caps(caps), options(options), node_index(node) {}
  Graph& graph;
  Exprs& exprs;
  const GpuCapabilities& caps;
  const LoadOptions& options;
  const int node_index;
  const Node& node() const { return graph.nodes[size_t(node_index)]; }

  std::vector<DispatchSpec> dispatches;
  std::vector<ValueId> scratch;
  /// Every key that tuned() was asked for.
  std::set<std::string> tuned_keys;
  const Tuning::Values* tuned(const std::string& key) {
    tuned_keys.insert(key);
    return options.tuning.find(key);
  }
  /// Workgroups that keep the device busy. Kernels of narrow devices have one size.
  int processors() {
    if (narrow()) return kProcessors;
    const Tuning::Values* values = tuned("processors");
    return values ? values->front() : kProcessors;
  }
  /// An intermediate that lives during this node only.
  ValueId newScratch(DType dtype, std::vector<ExprId> dims) {
    Value v;
    v.name = node().name + ".scratch";
    v.dtype = dtype;
    v.dims = std::move(dims);
    scratch.push_back(graph.newValue(std::move(v)));
    return scratch.back();
  }
  bool tierAllowed(Tier t) const { return t <= options.max_tier; }
  /// See GpuCapabilities::narrow; tests ask for the other kernels there too.
  bool narrow() const { return caps.narrow() && !options.wide_kernels; }
  bool useF16() const { return caps.f16 && tierAllowed(Tier::f16); }
  bool useSubgroupMatrix() const { return caps.subgroup_matrix && tierAllowed(Tier::subgroup_matrix); }
  bool useSubgroups() const { return caps.subgroups && tierAllowed(Tier::subgroups); }
};
/// Describes the node's dispatches. Pure: same graph, capabilities and options, same result. Fails with
/// unsupported_operator where no kernel fits (the partitioner should have prevented it), naming why.
using GpuPlanFunction = Status (*)(GpuPlanContext&);

GpuPlanFunction findGpuKernel(std::string_view op);
std::vector<std::string_view> gpuKernelNames();
class GpuRegistry {
 public:
  virtual ~GpuRegistry() = default;
  virtual void add(std::string_view op, GpuPlanFunction plan) = 0;
};

/// Bytes of a value in GPU memory: i64 and bool take 4 bytes an element, 8-bit types are padded to words, f32
/// intermediates and states take 2 under Precision::f16.
uint64_t gpuBytes(const Graph& graph, ValueId value, Precision precision);
/// "f32", "f16", "i32", "u32": the WGSL element type of a value's buffer.
std::string_view gpuStorageType(const Graph& graph, ValueId value, Precision precision);

}  // namespace etwgpu
