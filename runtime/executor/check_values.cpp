#include "runtime/executor/check_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/graph/passes/rewrite.h"

namespace etwgpu {
namespace {

constexpr double kMaskNumber = 1e30;

uint64_t firstBad(const ScannedValue& v, bool infinities = true) {
  return infinities ? std::min(v.nan, v.infinity) : v.nan;
}

/// "x f32 [2, 4] finite", or "… NaN at [0, 3]".
std::string describe(const ScannedValue& v, uint64_t bad) {
  std::string place;
  const char* what = "finite";
  if (bad != ScannedValue::kNone) {
    what = bad == v.nan ? "NaN at " : v.negative ? "-inf at " : "inf at ";
    auto at = v.sizes;
    for (size_t d = v.rank; d-- > 0; bad /= uint64_t(v.sizes[d])) at[d] = int64_t(bad % uint64_t(v.sizes[d]));
    place = sizesToString({at.data(), v.rank});
  }
  return format("%s %s %s %s%s", v.name, dtypeName(v.dtype).data(), sizesToString({v.sizes.data(), v.rank}).c_str(),
                what, place.c_str());
}

size_t valuesOf(const Node& n) {
  size_t count = n.outputs.size();
  forEachTensorArg(n, [&](ValueId) { ++count; });
  return count;
}

}  // namespace

void ScannedValue::setSizes(const Sizes& s) {
  rank = std::min(s.size(), sizes.size());
  std::copy_n(s.begin(), rank, sizes.begin());
}

void ScannedValue::scan(const void* data, uint64_t first, uint64_t count) {
  const double limit = constant ? kMaskNumber : std::numeric_limits<double>::infinity();
  for (uint64_t i = 0; i < count; ++i) {
    const float f =
        dtype == DType::f16 ? halfToFloat(static_cast<const uint16_t*>(data)[i]) : static_cast<const float*>(data)[i];
    if (std::isnan(f)) nan = std::min(nan, first + i);
    if (std::isinf(f) && infinity == kNone) {
      infinity = first + i;
      negative = f < 0;
    }
    masks |= std::fabs(f) >= limit;
  }
}

void ScannedValue::look(const TensorView& tensor) {
  dtype = tensor.dtype;
  setSizes(tensor.sizes);
  if (tensor.data && (dtype == DType::f32 || dtype == DType::f16)) scan(tensor.data, 0, uint64_t(tensor.count()));
}

OperatorCheck::OperatorCheck(const char* m, const char* o, const char* n, size_t most)
    : method(m), op(o), node(n), values(new ScannedValue[most]) {}

OperatorCheck::~OperatorCheck() = default;

OperatorCheck::OperatorCheck(const Graph& graph, const Node& n)
    : OperatorCheck(graph.method, n.op.c_str(), n.name.c_str(), valuesOf(n)) {
  const auto add = [&](ValueId id) {
    if (id == kNoValue) return;
    const Value& value = graph.value(graph.storage(id));
    if (!isFloating(value.dtype) || value.quantization.bits) return;
    ScannedValue& v = values[count++];
    v.id = id;
    v.name = graph.value(id).name.c_str();
    v.constant = value.kind == ValueKind::constant;
  };
  for (const ValueId id : n.outputs) add(id);
  outputs = count;
  forEachTensorArg(n, add);
  for (const Arg& arg : n.args) {
    if (const auto* number = std::get_if<double>(&arg)) given(*number);
  }
  if (!n.pointwise) return;
  for (const PointwiseInstruction& in : n.pointwise->code) {
    if (in.op == PointwiseOp::constant) given(in.imm);
  }
}

void OperatorCheck::given(double number) { fills |= std::fabs(number) >= kMaskNumber; }

bool OperatorCheck::suspicious() const {
  for (size_t i = 0; i < outputs; ++i)
    if (firstBad(values[i]) != ScannedValue::kNone) return true;
  return false;
}

bool OperatorCheck::wants(size_t i) const { return i < (suspicious() ? count : outputs); }

Status OperatorCheck::verdict() const {
  if (!suspicious()) return {};
  bool excused = false, finite = true;
  std::string inputs;
  for (size_t i = outputs; i < count; ++i) {
    const uint64_t bad = firstBad(values[i]);
    excused |= values[i].masks;
    finite &= bad == ScannedValue::kNone;
    inputs += format("%s%s", i > outputs ? ", " : "; inputs: ", describe(values[i], bad).c_str());
  }
  const std::string_view name(op);
  for (const char* sums : {"linear", "mm", "matmul", "conv", "attention", "norm"})
    excused &= name.find(sums) == std::string_view::npos;
  for (size_t i = 0; i < outputs; ++i) {
    const ScannedValue& v = values[i];
    const uint64_t bad = firstBad(v, !excused && !fills);
    if (bad == ScannedValue::kNone) continue;
    return {Code::non_finite,
            format("method %s: %s (%s) is the first to give what is not finite: %s%s%s%s", method, op, node,
                   describe(v, bad).c_str(), inputs.c_str(),
                   finite && v.dtype == DType::f16 ? "; f16 ends at 65504: try precision f32" : "",
                   name.starts_with("etwgpu.") ? "; without graph passes single operators are named" : "")};
  }
  return {};
}

}  // namespace etwgpu
