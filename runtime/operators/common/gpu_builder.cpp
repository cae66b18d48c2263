#include "runtime/operators/common/gpu_builder.h"

#include <algorithm>

namespace etwgpu {

ValueId NodeArgs::value(size_t i) const {
  if (i >= count()) return kNoValue;
  const auto* v = std::get_if<ValueId>(&node_.args[i]);
  return v ? *v : kNoValue;
}
ExprId NodeArgs::integer(size_t i) const {
  if (i >= count()) return {};
  const auto* v = std::get_if<IntArg>(&node_.args[i]);
  return v ? v->expr : ExprId{};
}
std::vector<ExprId> NodeArgs::integers(size_t i) const {
  std::vector<ExprId> out;
  if (i >= count()) return out;
  if (const auto* list = std::get_if<std::vector<IntArg>>(&node_.args[i]))
    for (IntArg a : *list) out.push_back(a.expr);
  return out;
}
bool NodeArgs::flag(size_t i, bool absent) const {
  if (i >= count()) return absent;
  const auto* v = std::get_if<bool>(&node_.args[i]);
  return v ? *v : absent;
}
double NodeArgs::number(size_t i, double absent) const {
  if (i >= count()) return absent;
  const auto* v = std::get_if<double>(&node_.args[i]);
  return v ? *v : absent;
}
double NodeArgs::number(size_t i, double absent, const Exprs& exprs) const {
  const ExprId e = integer(i);
  return e.valid() && exprs.isConstant(e) ? double(exprs.constantValue(e)) : number(i, absent);
}
std::string NodeArgs::text(size_t i, std::string_view absent) const {
  if (i >= count()) return std::string(absent);
  const auto* v = std::get_if<std::string>(&node_.args[i]);
  return v ? *v : std::string(absent);
}
Status NodeArgs::check(std::initializer_list<size_t> tensors, size_t outputs) const {
  for (size_t i : tensors)
    if (value(i) == kNoValue)
      return Status(Code::invalid_program,
                    format("%s (%s): argument %zu must be a tensor", node_.name.c_str(), node_.op.c_str(), i));
  if (node_.outputs.size() < outputs)
    return Status(Code::invalid_program, format("%s (%s): has %zu outputs, needs %zu", node_.name.c_str(),
                                                node_.op.c_str(), node_.outputs.size(), outputs));
  return {};
}

Status unsupported(const GpuPlanContext& context, std::string_view why) {
  const Node& n = context.node();
  return Status(Code::unsupported_operator,
                format("%s (%s): %.*s", n.name.c_str(), n.op.c_str(), int(why.size()), why.data()));
}

ExprId dimOf(const GpuPlanContext& context, ValueId value, int dim) {
  const auto& dims = context.graph.value(value).dims;
  return dims[size_t(dim < 0 ? dim + int(dims.size()) : dim)];
}
ExprId dimProduct(GpuPlanContext& context, ValueId value, int begin, int end) {
  const auto& dims = context.graph.value(value).dims;
  const int rank = int(dims.size());
  if (end < 0) end += rank;
  ExprId p = context.exprs.constant(1);
  for (int i = begin; i < std::min(end, rank); i++) p = context.exprs.mul(p, dims[size_t(i)]);
  return p;
}
ExprId elementCount(GpuPlanContext& context, ValueId value) {
  return dimProduct(context, value, 0, int(context.graph.value(value).dims.size()));
}
std::optional<int64_t> constantOf(const GpuPlanContext& context, ExprId e) {
  if (!e.valid() || !context.exprs.isConstant(e)) return std::nullopt;
  return context.exprs.constantValue(e);
}
bool isMultipleOf(const GpuPlanContext& context, ExprId e, int64_t n) {
  const auto& node = context.exprs.node(e);
  switch (node.op) {
    case ExprOp::constant:
      return node.value % n == 0;
    case ExprOp::mul:
      return isMultipleOf(context, {node.a}, n) || isMultipleOf(context, {node.b}, n);
    case ExprOp::add:
    case ExprOp::sub:
    case ExprOp::min:
    case ExprOp::max:
      return isMultipleOf(context, {node.a}, n) && isMultipleOf(context, {node.b}, n);
    default:
      return false;
  }
}

std::array<ExprId, 3> foldedGrid(GpuPlanContext& context, ExprId workgroups) {
  auto& x = context.exprs;
  const int64_t limit = context.caps.max_workgroups;
  if (x.bounds(workgroups).max <= limit) return {workgroups, x.constant(1), x.constant(1)};
  const ExprId width = x.binary(ExprOp::min, workgroups, x.constant(limit));
  return {width, x.ceildiv(workgroups, limit), x.constant(1)};
}

DispatchBuilder::DispatchBuilder(GpuPlanContext& context, std::string file, std::string name) : context_(context) {
  spec_.kernel.file = std::move(file);
  spec_.kernel.name = std::move(name);
  grid(one());
}
DispatchBuilder DispatchBuilder::generated(GpuPlanContext& context, std::string source, std::string name) {
  DispatchBuilder b(context, {}, std::move(name));
  b.spec_.kernel.source = std::move(source);
  return b;
}

std::string_view DispatchBuilder::storage(ValueId v) const {
  return gpuStorageType(context_.graph, v, context_.options.precision);
}
int DispatchBuilder::bind(std::string_view name, ValueId value, Access access, int width, Part part) {
  const std::string element(part == Part::data ? storage(value) : "u32");
  return bindTyped(name, value, access, width == 1 ? element : format("vec%d<%s>", width, element.c_str()), part);
}
int DispatchBuilder::bindTyped(std::string_view name, ValueId value, Access access, std::string_view type, Part part) {
  const int slot = int(spec_.bindings.size());
  // The plan separates outputs and scratch from inputs, not from each other, and a buffer is bound with one access.
  const auto& scratch = context_.scratch;
  if (std::find(scratch.begin(), scratch.end(), value) != scratch.end()) access = Access::read_write;
  spec_.bindings.push_back({value, access, part});
  if (type.find("f16") != std::string_view::npos) f16_ = true;
  declarations_.push_back(format("@group(0) @binding(%d) var<storage, %s> %.*s: array<%.*s>;\n", slot,
                                 access == Access::read ? "read" : "read_write", int(name.size()), name.data(),
                                 int(type.size()), type.data()));
  return slot;
}

void DispatchBuilder::param(std::string_view name, ExprId e) {
  spec_.params.push_back({e, 0, false});
  members_.push_back(std::string(name) + ": u32");
}
void DispatchBuilder::paramSigned(std::string_view name, ExprId e) {
  spec_.params.push_back({e, 0, false});
  members_.push_back(std::string(name) + ": i32");
}
void DispatchBuilder::param(std::string_view name, double number) {
  spec_.params.push_back({{}, float(number), true});
  members_.push_back(std::string(name) + ": f32");
}
void DispatchBuilder::adapterScale(std::string_view name, int32_t adapter) {
  param(name, 1.0);
  spec_.params.back().adapter = adapter;
}
void DispatchBuilder::subgroups(bool on) {
  subgroups_ = on;
  flag("SUBGROUPS", on);
}

void DispatchBuilder::subgroupMatrices() {
  f16_ = subgroups_ = matrices_ = true;
  define("MATRIX", context_.caps.matrix_size);
}

std::string DispatchBuilder::header() const {
  std::string h;
  if (f16_) h += "enable f16;\n";
  if (matrices_) h += "enable chromium_experimental_subgroup_matrix;\n";
  if (subgroups_) h += "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n";
  if (!members_.empty()) {
    h += "struct Params {\n";
    for (const auto& m : members_) h += "  " + m + ",\n";
    h += "}\n";
  }
  for (const auto& d : declarations_) h += d;
  if (!members_.empty()) h += format("@group(0) @binding(%zu) var<uniform> params: Params;\n", declarations_.size());
  return h;
}

Status DispatchBuilder::checkLimits() const {
  const auto& caps = context_.caps;
  const auto fail = [&](Code code, const std::string& why) {
    const Node& n = context_.node();
    return Status(
        code, format("%s (%s): kernel %s: %s", n.name.c_str(), n.op.c_str(), spec_.kernel.name.c_str(), why.c_str()));
  };
  if (spec_.bindings.size() > caps.max_storage_buffers)
    return fail(Code::limit_exceeded, format("needs %zu storage buffers, the device has %u", spec_.bindings.size(),
                                             caps.max_storage_buffers));
  if (spec_.params.size() > 64) return fail(Code::internal, "more than 64 parameters");
  for (size_t i = 0; i < spec_.bindings.size(); i++)
    for (size_t j = 0; j < i; j++) {
      const Binding &a = spec_.bindings[i], &b = spec_.bindings[j];
      if (context_.graph.storage(a.value) == context_.graph.storage(b.value) &&
          (a.access != Access::read || b.access != Access::read))
        return fail(Code::internal,
                    "a value is bound for reading and for writing: " + context_.graph.value(a.value).name);
    }
  for (ExprId g : spec_.workgroups) {
    const int64_t most =
        std::min<int64_t>(context_.exprs.bounds(g).max, spec_.when.expr == g ? spec_.when.max : INT64_MAX);
    if (most > int64_t(caps.max_workgroups))
      return fail(Code::limit_exceeded, format("needs up to %lld workgroups in a dimension, the device has %u",
                                               (long long)most, caps.max_workgroups));
  }
  return {};
}

Status DispatchBuilder::finish() {
  ETWGPU_TRY(checkLimits());
  spec_.kernel.defines = std::move(defines_);
  spec_.kernel.defines["HEADER"] = header();
  context_.dispatches.push_back(std::move(spec_));
  return {};
}

}  // namespace etwgpu
