#include "runtime/operators/elementwise/gpu_pointwise.h"

#include <algorithm>
#include <cmath>

#include "runtime/graph/pointwise_text.h"
#include "runtime/operators/common/gpu_builder.h"

namespace etwgpu::elementwise {
namespace {

constexpr int kInvocations = 256;

/// The classes of types that arithmetic is done in.
enum class Kind : uint8_t { real, integer, boolean };
Kind kindOf(DType t) { return isFloating(t) ? Kind::real : t == DType::boolean ? Kind::boolean : Kind::integer; }

/// One addressing of the index space: an input, the output, or the position along a dimension (iota).
struct Axis {
  std::vector<ExprId> strides;
  ExprId offset;
};

/// Drops dimensions of size 1 and merges neighbours that every axis walks contiguously, so that most programs become
/// one-dimensional.
void collapse(Exprs& x, std::vector<ExprId>& dims, std::vector<Axis>& axes) {
  for (size_t d = dims.size(); d-- > 0;) {
    if (!x.isConstant(dims[d], 1)) continue;
    dims.erase(dims.begin() + ptrdiff_t(d));
    for (Axis& a : axes) a.strides.erase(a.strides.begin() + ptrdiff_t(d));
  }
  for (size_t d = dims.size(); d-- > 1;) {
    const bool mergeable = std::all_of(axes.begin(), axes.end(),
                                       [&](const Axis& a) { return x.mul(a.strides[d], dims[d]) == a.strides[d - 1]; });
    if (!mergeable) continue;
    dims[d - 1] = x.mul(dims[d - 1], dims[d]);
    dims.erase(dims.begin() + ptrdiff_t(d));
    for (Axis& a : axes) {
      a.strides[d - 1] = a.strides[d];
      a.strides.erase(a.strides.begin() + ptrdiff_t(d));
    }
  }
}

class Generator {
 public:
  Generator(GpuPlanContext& context, const std::vector<ExprId>& dims, std::vector<Operand> operands,
            const std::vector<PointwiseInstruction>& code, const Target& target)
      : c_(context), x_(context.exprs), dims_(dims), operands_(std::move(operands)), code_(code), target_(target) {}

  Status run();

 private:
  void makeAxes();
  bool canVectorise() const;
  std::string index(size_t axis, DispatchBuilder& b) const;
  std::string literal(double v, Kind kind);
  std::string as(int32_t instruction, Kind kind) const;
  std::string expression(const PointwiseInstruction& in, DispatchBuilder& b);
  std::string unary(const PointwiseInstruction& in);
  std::string load(size_t slot, DispatchBuilder& b);
  std::string typeName(Kind kind) const {
    const char* scalar = kind == Kind::real ? "f32" : kind == Kind::integer ? "i32" : "bool";
    return vector_ ? format("vec4<%s>", scalar) : scalar;
  }
  std::string storeExpression();
  std::string helpers() const;
  std::string source(DispatchBuilder& b);
  std::string kernelName() const;

  GpuPlanContext& c_;
  Exprs& x_;
  std::vector<ExprId> dims_;
  std::vector<Operand> operands_;
  const std::vector<PointwiseInstruction>& code_;
  const Target& target_;
  std::vector<Axis> axes_;  // operands, then the target, then one per iota instruction in order
  std::vector<Kind> kinds_;
  std::vector<std::string> names_;  // WGSL variable of an operand's binding
  bool vector_ = false;
  int floats_ = 0;  // constants passed as parameters, since WGSL has no literal for them
  std::vector<double> float_params_;
  size_t iotas_ = 0;
};

void Generator::makeAxes() {
  const ExprId zero = x_.constant(0);
  for (const Operand& o : operands_)
    axes_.push_back({o.layout.strides, o.layout.offset.valid() ? o.layout.offset : zero});
  Axis out{target_.strides, target_.offset.valid() ? target_.offset : zero};
  if (out.strides.empty()) out.strides = contiguousStrides(x_, dims_);
  axes_.push_back(out);
  for (const auto& in : code_) {
    if (in.op != PointwiseOp::iota) continue;
    Axis a{std::vector<ExprId>(dims_.size(), zero), zero};
    a.strides[size_t(in.imm_index)] = x_.constant(1);
    axes_.push_back(a);
  }
  collapse(x_, dims_, axes_);
}

/// Four consecutive elements an invocation: every axis contiguous or constant over a one-dimensional index space.
bool Generator::canVectorise() const {
  if (dims_.size() != 1 || !isMultipleOf(c_, dims_[0], 4)) return false;
  const size_t tensors = operands_.size();
  for (size_t i = 0; i < axes_.size(); ++i) {
    const bool one = x_.isConstant(axes_[i].strides[0], 1), zero = x_.isConstant(axes_[i].strides[0], 0);
    if (i > tensors) return false;  // iota
    if (i == tensors ? !one : !one && !zero) return false;
    if (one && !x_.isConstant(axes_[i].offset, 0)) return false;
  }
  return std::all_of(operands_.begin(), operands_.end(),
                     [&](const Operand& o) {
                       const DType t = c_.graph.value(o.value).dtype;
                       return isFloating(t);
                     }) &&
         isFloating(c_.graph.value(target_.value).dtype);
}

/// The element's index along an axis, i32. d0 … are the coordinates.
std::string Generator::index(size_t axis, DispatchBuilder& b) const {
  const Axis& a = axes_[axis];
  std::string sum;
  const auto term = [&](const std::string& t) { sum += sum.empty() ? t : " + " + t; };
  for (size_t d = 0; d < dims_.size(); ++d) {
    if (x_.isConstant(a.strides[d], 0)) continue;
    const std::string coordinate = format("d%zu", d);
    if (x_.isConstant(a.strides[d], 1)) {
      term(coordinate);
      continue;
    }
    const std::string name = format("s%zu_%zu", axis, d);
    b.paramSigned(name, a.strides[d]);
    term(coordinate + " * params." + name);
  }
  if (!x_.isConstant(a.offset, 0)) {
    const std::string name = format("o%zu", axis);
    b.paramSigned(name, a.offset);
    term("params." + name);
  }
  return sum.empty() ? "0" : sum;
}

std::string Generator::literal(double v, Kind kind) {
  std::string s;
  if (kind == Kind::boolean) s = v != 0 ? "true" : "false";
  if (kind == Kind::integer) s = format("i32(%lld)", (long long)std::clamp(v, -2147483647.0, 2147483647.0));
  if (kind == Kind::real) {
    if (std::isfinite(v) && std::abs(v) <= 3.4028234e38) {
      s = format("f32(%.9g)", v);
    } else {
      float_params_.push_back(v);
      s = format("params.f%d", floats_++);
    }
  }
  return vector_ ? typeName(kind) + "(" + s + ")" : s;
}

/// An earlier result, converted as PyTorch promotes.
std::string Generator::as(int32_t i, Kind kind) const {
  const std::string v = format("v%d", i);
  const Kind from = kinds_[size_t(i)];
  if (from == kind) return v;
  if (kind == Kind::boolean) return format("(%s != %s(0))", v.c_str(), typeName(from).c_str());
  return format("%s(%s)", typeName(kind).c_str(), v.c_str());
}

std::string Generator::load(size_t slot, DispatchBuilder& b) {
  const DType t = c_.graph.value(operands_[slot].value).dtype;
  const bool constant = vector_ && x_.isConstant(axes_[slot].strides[0], 0);
  const std::string at = vector_ && !constant ? "i" : "u32(" + index(slot, b) + ")";
  std::string v = names_[slot] + "[" + at + "]";
  if (isFloating(t)) {
    // a broadcast scalar becomes f32 before it becomes a vector: WGSL makes no vec4<f32> of one f16
    const std::string real = vector_ && !constant ? v : "f32(" + v + ")";
    return vector_ ? "vec4<f32>(" + real + ")" : real;
  }
  return t == DType::boolean ? "(" + v + " != 0u)" : v;
}

std::string Generator::unary(const PointwiseInstruction& in) {
  const std::string v = as(in.a, Kind::real);
  const auto call = [&](const char* f) { return std::string(f) + "(" + v + ")"; };
  const std::string one = typeName(Kind::real) + "(1.0)";
  switch (in.op) {
    case PointwiseOp::exp:
      return call("exp");
    case PointwiseOp::log:
      return call("log");
    case PointwiseOp::sqrt:
      return call("sqrt");
    case PointwiseOp::rsqrt:
      return call("inverseSqrt");
    case PointwiseOp::reciprocal:
      return one + " / " + v;
    case PointwiseOp::sin:
      return call("sin");
    case PointwiseOp::cos:
      return call("cos");
    case PointwiseOp::floor:
      return call("floor");
    case PointwiseOp::tanh:
      return call("tanhf");
    case PointwiseOp::erf:
      return call("erff");
    case PointwiseOp::sigmoid:
      return call("sigmoidf");
    case PointwiseOp::silu:
      return v + " * sigmoidf(" + v + ")";
    case PointwiseOp::gelu:
      return "0.5 * " + v + " * (" + one + " + erff(" + v + " * 0.70710678118654752))";
    case PointwiseOp::gelu_tanh:
      return "0.5 * " + v + " * (" + one + " + tanhf(0.79788456080286536 * (" + v + " + 0.044715 * " + v + " * " + v +
             " * " + v + ")))";
    case PointwiseOp::hardsigmoid:
      return "hardsigmoidf(" + v + ")";
    case PointwiseOp::hardswish:
      return v + " * hardsigmoidf(" + v + ")";
    case PointwiseOp::leaky_relu: {
      const std::string slope = literal(in.imm, Kind::real);
      return "select(" + v + " * " + slope + ", " + v + ", " + v + " >= " + typeName(Kind::real) + "(0.0))";
    }
    case PointwiseOp::elu: {
      const std::string alpha = literal(in.imm, Kind::real);
      return "select(" + alpha + " * expm1f(" + v + "), " + v + ", " + v + " > " + typeName(Kind::real) + "(0.0))";
    }
    default:
      return {};
  }
}

std::string Generator::expression(const PointwiseInstruction& in, DispatchBuilder& b) {
  const Kind kind = kindOf(in.dtype);
  const auto infix = [&](const char* op) { return as(in.a, kind) + op + as(in.b, kind); };
  const auto compare = [&](const char* op) {
    const Kind a = kinds_[size_t(in.a)], c = kinds_[size_t(in.b)];
    Kind common = a == Kind::real || c == Kind::real ? Kind::real : Kind::integer;
    if (a == Kind::boolean && c == Kind::boolean) common = Kind::integer;
    return as(in.a, common) + op + as(in.b, common);
  };
  switch (in.op) {
    case PointwiseOp::load:
      return load(size_t(in.imm_index), b);
    case PointwiseOp::constant:
      return literal(in.imm, kind);
    case PointwiseOp::add:
      return infix(" + ");
    case PointwiseOp::sub:
      return infix(" - ");
    case PointwiseOp::mul:
      return infix(" * ");
    case PointwiseOp::div:
      return infix(" / ");
    case PointwiseOp::pow:
      return "powf(" + as(in.a, Kind::real) + ", " + as(in.b, Kind::real) + ")";
    case PointwiseOp::minimum:
      return "min(" + as(in.a, kind) + ", " + as(in.b, kind) + ")";
    case PointwiseOp::maximum:
      return "max(" + as(in.a, kind) + ", " + as(in.b, kind) + ")";
    case PointwiseOp::eq:
      return compare(" == ");
    case PointwiseOp::ne:
      return compare(" != ");
    case PointwiseOp::lt:
      return compare(" < ");
    case PointwiseOp::le:
      return compare(" <= ");
    case PointwiseOp::gt:
      return compare(" > ");
    case PointwiseOp::ge:
      return compare(" >= ");
    case PointwiseOp::logical_and:
      return as(in.a, Kind::boolean) + " & " + as(in.b, Kind::boolean);
    case PointwiseOp::logical_or:
      return as(in.a, Kind::boolean) + " | " + as(in.b, Kind::boolean);
    case PointwiseOp::logical_not:
      return "!" + as(in.a, Kind::boolean);
    case PointwiseOp::where:
      return "select(" + as(in.c, kind) + ", " + as(in.b, kind) + ", " + as(in.a, Kind::boolean) + ")";
    case PointwiseOp::neg:
      return "-" + as(in.a, kind);
    case PointwiseOp::abs:
      return "abs(" + as(in.a, kind) + ")";
    case PointwiseOp::relu:
      return "max(" + as(in.a, kind) + ", " + typeName(kind) + "(0))";
    case PointwiseOp::clamp: {
      // As PyTorch: the upper limit wins where they cross. Absent limits are infinities and do nothing.
      std::string v = as(in.a, kind);
      if (!(in.imm == -INFINITY)) v = "max(" + v + ", " + literal(in.imm, kind) + ")";
      if (!(in.imm2 == INFINITY)) v = "min(" + v + ", " + literal(in.imm2, kind) + ")";
      return v;
    }
    case PointwiseOp::cast:
      return as(in.a, kind);
    case PointwiseOp::iota:
      return "i32(" + index(operands_.size() + 1 + iotas_++, b) + ")";
    default:
      return unary(in);
  }
}

/// Functions of the real type R; only those in use are written.
std::string Generator::helpers() const {
  struct Helper {
    const char* name;
    std::initializer_list<PointwiseOp> users;
    const char* text;
  };
  static const Helper kHelpers[] = {
      {"sigmoidf",
       {PointwiseOp::sigmoid, PointwiseOp::silu},
       "fn sigmoidf(x: R) -> R { return R(1.0) / (R(1.0) + exp(-x)); }\n"},
      // tanh of a large argument is NaN on some drivers
      {"tanhf",
       {PointwiseOp::tanh, PointwiseOp::gelu_tanh},
       "fn tanhf(x: R) -> R { return tanh(clamp(x, R(-15.0), R(15.0))); }\n"},
      {"hardsigmoidf",
       {PointwiseOp::hardsigmoid, PointwiseOp::hardswish},
       "fn hardsigmoidf(x: R) -> R { return clamp(x / 6.0 + 0.5, R(0.0), R(1.0)); }\n"},
      // exp(x) - 1 without cancellation near 0: its series there
      {"expm1f",
       {PointwiseOp::elu},
       "fn expm1f(x: R) -> R { return select(exp(x) - 1.0, x * (1.0 + x * (0.5 + x * (0.16666667 + x * 0.041666668))), "
       "abs(x) < R(0.05)); }\n"},
      // Below 1: the Taylor series' first terms (error 1e-7 at 1); above: erfc by a Chebyshev fit (Numerical Recipes)
      {"erff",
       {PointwiseOp::erf, PointwiseOp::gelu},
       "fn erff(x: R) -> R { let z = abs(x); let t = R(1.0) / (R(1.0) + 0.5 * z); let y = x * x;\n"
       "let p = t * exp(-z * z + (-1.26551223 + t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 "
       "+ t * "
       "(0.27886807 + t * (-1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277))))))))));\n"
       "let s = 1.12837917 * x * (1.0 + y * (-0.33333333 + y * (0.1 + y * (-0.023809524 + y * 0.0046296296))));\n"
       "return select(sign(x) * (R(1.0) - p), s, z < R(0.3)); }\n"},
      // WGSL's pow is undefined for a negative base
      {"powf",
       {PointwiseOp::pow},
       "fn powf(x: R, y: R) -> R { let p = pow(abs(x), y); let odd = abs(y - 2.0 * floor(y * 0.5)) == R(1.0);\n"
       "let whole = y == floor(y); let n = select(p, -p, odd);\n"
       "return select(select(select(sqrt(x), n, whole), p, x >= R(0.0)), R(1.0), y == R(0.0)); }\n"},
  };
  std::string text;
  for (const Helper& h : kHelpers) {
    const bool used = std::any_of(code_.begin(), code_.end(), [&](const auto& in) {
      return std::find(h.users.begin(), h.users.end(), in.op) != h.users.end();
    });
    if (used) text += h.text;
  }
  return text.empty() ? text : "alias R = " + typeName(Kind::real) + ";\n" + text;
}

std::string Generator::storeExpression() {
  const DType t = c_.graph.value(target_.value).dtype;
  const std::string v = as(int32_t(code_.size() - 1), kindOf(t));
  if (t == DType::boolean) return "select(0u, 1u, " + v + ")";
  if (!isFloating(t)) return v;
  const std::string storage(gpuStorageType(c_.graph, target_.value, c_.options.precision));
  return (vector_ ? "vec4<" + storage + ">" : storage) + "(" + v + ")";
}

// Sections of the source: ${HEADER}, helpers, then main: index, coordinates, one `let` an instruction, the store.
std::string Generator::source(DispatchBuilder& b) {
  std::string body;
  const std::string first = vector_ ? "i * 4u" : "i";
  body +=
      format("  let i = (wid.x + wid.y * groups.x) * %du + li;\n  if (i >= params.count) { return; }\n", kInvocations);
  if (!dims_.empty()) body += "  var rest = i32(" + first + ");\n";
  for (size_t d = dims_.size(); d-- > 1;) {
    const std::string name = format("n%zu", d);
    b.paramSigned(name, dims_[d]);
    body += format("  let d%zu = rest %% params.%s; rest /= params.%s;\n", d, name.c_str(), name.c_str());
  }
  if (!dims_.empty()) body += "  let d0 = rest;\n";
  for (size_t k = 0; k < code_.size(); ++k) {
    body += format("  let v%zu: %s = ", k, typeName(kindOf(code_[k].dtype)).c_str()) + expression(code_[k], b) + ";\n";
    kinds_.push_back(kindOf(code_[k].dtype));
  }
  const std::string at = vector_ ? "i" : "u32(" + index(operands_.size(), b) + ")";
  body += "  y[" + at + "] = " + storeExpression() + ";\n";
  return "${HEADER}\n" + helpers() +
         format(
             "@compute @workgroup_size(%d)\n"
             "fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) groups: vec3u, "
             "@builtin(local_invocation_index) li: u32) {\n",
             kInvocations) +
         body + "}\n";
}

std::string Generator::kernelName() const {
  std::string name(gpuStorageType(c_.graph, target_.value, c_.options.precision));
  name += "_pointwise";
  size_t shown = 0;
  for (const auto& in : code_) {
    if (in.op == PointwiseOp::load || in.op == PointwiseOp::constant || shown++ >= 4) continue;
    name += "_" + std::string(pointwiseOpName(in.op));
  }
  if (shown == 0) name += "_copy";
  if (shown > 4) name += format("_and_%zu_more", shown - 4);
  return name + (vector_ ? "_vec4_baseline" : format("_%zud_baseline", dims_.size()));
}

Status Generator::run() {
  for (const Operand& o : operands_) {
    const DType t = c_.graph.value(o.value).dtype;
    if (t == DType::u8 || t == DType::i8 || t == DType::i16)
      return unsupported(c_, "a pointwise kernel reads no " + std::string(dtypeName(t)));
  }
  makeAxes();
  vector_ = canVectorise();
  DispatchBuilder b = DispatchBuilder::generated(c_, {}, kernelName());
  for (const Operand& o : operands_) {
    // Two inputs of one value share a binding, unless one is read as vectors and the other as a broadcast scalar.
    const size_t slot = names_.size();
    const bool constant = vector_ && x_.isConstant(axes_[slot].strides[0], 0);
    std::string name;
    for (size_t k = 0; k < slot && name.empty(); ++k) {
      const bool other = vector_ && x_.isConstant(axes_[k].strides[0], 0);
      if (operands_[k].value == o.value && other == constant) name = names_[k];
    }
    if (name.empty()) {
      name = format("x%zu", slot);
      b.read(name, o.value, vector_ && !constant ? 4 : 1);
    }
    names_.push_back(name);
  }
  b.bind("y", target_.value, target_.access, vector_ ? 4 : 1);
  ExprId count = x_.product(dims_);
  if (vector_) count = x_.floordiv(count, x_.constant(4));
  b.param("count", count);
  std::string text = source(b);
  for (size_t i = 0; i < float_params_.size(); ++i) b.param(format("f%zu", i), float_params_[i]);
  b.setSource(std::move(text));
  b.grid(foldedGrid(c_, x_.ceildiv(count, kInvocations)));
  return b.finish();
}

}  // namespace

Status describePointwise(GpuPlanContext& context, const std::vector<ExprId>& dims, std::vector<Operand> operands,
                         const std::vector<PointwiseInstruction>& code, const Target& target) {
  return Generator(context, dims, std::move(operands), code, target).run();
}

Status describeCopy(GpuPlanContext& context, const std::vector<ExprId>& dims, const Operand& operand,
                    const Target& target) {
  PointwiseInstruction load{PointwiseOp::load};
  load.dtype = context.graph.value(operand.value).dtype;
  return describePointwise(context, dims, {operand}, {load}, target);
}

PointwiseInput broadcastLayout(GpuPlanContext& context, ValueId value, const std::vector<ExprId>& dims) {
  Exprs& x = context.exprs;
  const std::vector<ExprId> own = context.graph.value(value).dims;
  const std::vector<ExprId> strides = contiguousStrides(x, own);
  PointwiseInput layout{std::vector<ExprId>(dims.size(), x.constant(0)), x.constant(0)};
  for (size_t k = 0; k < own.size() && k < dims.size(); ++k) {
    const size_t from = own.size() - 1 - k, to = dims.size() - 1 - k;
    const bool broadcast = x.isConstant(own[from], 1) && !x.isConstant(dims[to], 1);
    if (!broadcast) layout.strides[to] = strides[from];
  }
  return layout;
}

}  // namespace etwgpu::elementwise
