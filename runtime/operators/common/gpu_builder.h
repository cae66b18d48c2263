// What the plan functions of all GPU families share: reading a node's arguments, and building a DispatchSpec whose WGSL
// declarations (extensions, parameters, bindings) are generated from the same calls that bind, so that host and kernel
// cannot disagree on their order.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/executor/gpu_kernel.h"

namespace etwgpu {

/// Arguments of a node by position, with the defaults of an absent (None or missing) one. A wrong kind reads as absent:
/// payloads are verified at import, and required arguments are checked by `check`.
class NodeArgs {
 public:
  explicit NodeArgs(const Node& node) : node_(node) {}
  size_t count() const { return node_.args.size(); }
  bool isNone(size_t i) const { return i >= count() || std::holds_alternative<std::monostate>(node_.args[i]); }
  /// kNoValue where absent.
  ValueId value(size_t i) const;
  ValueId output(size_t i = 0) const { return i < node_.outputs.size() ? node_.outputs[i] : kNoValue; }
  /// Invalid where absent.
  ExprId integer(size_t i) const;
  std::vector<ExprId> integers(size_t i) const;
  bool flag(size_t i, bool absent = false) const;
  double number(size_t i, double absent) const;  // constants of integer arguments are read too, given `exprs`
  double number(size_t i, double absent, const Exprs& exprs) const;
  std::string text(size_t i, std::string_view absent = "") const;
  /// Fails unless each of these arguments is a tensor, and the node has `outputs` outputs.
  Status check(std::initializer_list<size_t> tensors, size_t outputs = 1) const;

 private:
  const Node& node_;
};

/// unsupported_operator, naming the node.
Status unsupported(const GpuPlanContext& context, std::string_view why);

/// Shapes as expressions.
ExprId dimOf(const GpuPlanContext& context, ValueId value, int dim);  // negative: from the end
/// Product of dims [begin, end) (end negative: from the end); 1 if empty.
ExprId dimProduct(GpuPlanContext& context, ValueId value, int begin, int end);
ExprId elementCount(GpuPlanContext& context, ValueId value);
/// The constant value of an expression, or nullopt.
std::optional<int64_t> constantOf(const GpuPlanContext& context, ExprId e);
/// True if the expression is always a multiple of n (conservative).
bool isMultipleOf(const GpuPlanContext& context, ExprId e, int64_t n);

/// A grid for a one-dimensional count of workgroups that may exceed the limit of a dimension: the kernel's index is
/// `wid.x + wid.y * grid.x` with grid = num_workgroups, and must be checked against the true count.
std::array<ExprId, 3> foldedGrid(GpuPlanContext& context, ExprId workgroups);

/// Builds one DispatchSpec. The kernel's first line is `${HEADER}`: it becomes
///   1. enable directives (f16 if a buffer or define() asked for it, subgroups), 2. `struct Params`, 3. the bindings
/// `@group(0) @binding(i) var<storage, …> name: array<type>;` in the order of bind() and `var<uniform> params: Params`.
class DispatchBuilder {
 public:
  /// file: relative to runtime/operators. name: readable kernel name.
  DispatchBuilder(GpuPlanContext& context, std::string file, std::string name);
  /// Generated source instead of a file; it contains `${HEADER}` too.
  static DispatchBuilder generated(GpuPlanContext& context, std::string source, std::string name);

  /// Binds a value as `name`; returns its slot. width: elements of a vector (1, 2, 4), element type = storage type of
  /// the value (u32 for quantised parts). The same value may be bound twice for reading under two names (WebGPU allows
  /// it); bound for reading and for writing it is an error at finish(), except as the same binding. Scratch of the node
  /// is always bound read_write.
  int bind(std::string_view name, ValueId value, Access access, int width = 1, Part part = Part::data);
  int read(std::string_view name, ValueId v, int width = 1) { return bind(name, v, Access::read, width); }
  int write(std::string_view name, ValueId v, int width = 1) { return bind(name, v, Access::read_write, width); }
  /// As bind, with the WGSL type of the array's elements given.
  int bindTyped(std::string_view name, ValueId value, Access access, std::string_view type, Part part = Part::data);

  /// Members of `params`, in order.
  void param(std::string_view name, ExprId e);        // u32
  void paramSigned(std::string_view name, ExprId e);  // i32
  void param(std::string_view name, double number);   // f32
  void adapterScale(std::string_view name, int32_t adapter);
  void define(std::string_view name, std::string value) { defines_[std::string(name)] = std::move(value); }
  void define(std::string_view name, int64_t value) { define(name, std::to_string(value)); }
  void flag(std::string_view name, bool on) { define(name, on ? "1" : "0"); }
  /// `enable subgroups;`, and SUBGROUPS = 1 for the conditions of the file; SUBGROUPS = 0 where off.
  void subgroups(bool on);
  /// The extensions of subgroup matrices (f16 and subgroups with them), and MATRIX = their size.
  void subgroupMatrices();
  void rename(std::string name) { spec_.kernel.name = std::move(name); }
  /// For generated kernels whose text is made while binding.
  void setSource(std::string source) { spec_.kernel.source = std::move(source); }
  void when(ExprId e, int64_t min, int64_t max) { spec_.when = {e, min, max}; }
  void grid(ExprId x) { spec_.workgroups = {x, one(), one()}; }
  void grid(ExprId x, ExprId y) { spec_.workgroups = {x, y, one()}; }
  void grid(ExprId x, ExprId y, ExprId z) { spec_.workgroups = {x, y, z}; }
  void grid(std::array<ExprId, 3> g) { spec_.workgroups = g; }

  /// "f16" or "f32" … of a value's buffer.
  std::string_view storage(ValueId v) const;
  /// Appends the dispatch to the context. Fails on conflicting bindings or exceeded limits (bindings, workgroup counts
  /// at the upper bounds, binding sizes).
  Status finish();

 private:
  ExprId one() { return context_.exprs.constant(1); }
  std::string header() const;
  Status checkLimits() const;
  GpuPlanContext& context_;
  DispatchSpec spec_;
  std::map<std::string, std::string> defines_;
  std::vector<std::string> declarations_, members_;
  bool f16_ = false, subgroups_ = false, matrices_ = false;
};

}  // namespace etwgpu
