// Every aten elementwise operator as a program of one or two instructions for the interpreter of cpu_pointwise.h.
#include <cmath>
#include <limits>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/elementwise/cpu_pointwise.h"

namespace etwgpu {
namespace cpu {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

class Builder {
 public:
  explicit Builder(CpuCall& call, const char* op) : call_(call), op_(op), out_dtype_(call.outputDType(0)) {}

  int32_t load(size_t arg) {
    tensors_.push_back(call_.tensor(arg));
    PointwiseInstruction in{PointwiseOp::load};
    in.imm_index = int32_t(tensors_.size() - 1);
    in.dtype = tensors_.back().dtype;
    return emit(in);
  }
  /// A number argument: of the other operand's type where it is whole, else f32.
  int32_t scalar(double v, DType like) {
    PointwiseInstruction in{PointwiseOp::constant};
    in.imm = v;
    in.dtype = like == DType::f32 || std::floor(v) != v ? DType::f32 : like == DType::boolean ? DType::i64 : like;
    return emit(in);
  }
  int32_t op(PointwiseOp o, DType dtype, int32_t a, int32_t b = -1, int32_t c = -1, double imm = 0, double imm2 = 0) {
    PointwiseInstruction in{o};
    in.dtype = dtype;
    in.a = a, in.b = b, in.c = c;
    in.imm = imm, in.imm2 = imm2;
    return emit(in);
  }
  DType dtype(int32_t i) const { return code_[size_t(i)].dtype; }
  DType outDType() const { return out_dtype_; }

  Status run() {
    Sizes sizes;
    for (const TensorView& t : tensors_) {
      ETWGPU_ASSIGN(sizes, broadcastSizes(op_, sizes, t.sizes));
    }
    std::vector<StridedInput> inputs;
    for (const TensorView& t : tensors_) inputs.push_back({&t, broadcastStrides(t.sizes, sizes), 0});
    ETWGPU_ASSIGN(const TensorView out, call_.output(0, sizes));
    return runPointwise(op_, out, inputs, code_, call_.pool());
  }

 private:
  int32_t emit(const PointwiseInstruction& in) {
    code_.push_back(in);
    return int32_t(code_.size() - 1);
  }
  CpuCall& call_;
  const char* op_;
  DType out_dtype_;
  std::vector<TensorView> tensors_;
  std::vector<PointwiseInstruction> code_;
};

/// self op [alpha ·] other; other is a tensor or a number.
template <PointwiseOp kOp, bool kTensor, bool kAlpha>
Status binary(CpuCall& call) {
  Builder b(call, "elementwise");
  const int32_t x = b.load(0);
  int32_t y = kTensor ? b.load(1) : b.scalar(call.number(1), b.dtype(x));
  if (kAlpha && !call.isNone(2) && call.number(2) != 1)
    y = b.op(PointwiseOp::mul, b.outDType(), y, b.scalar(call.number(2), b.outDType()));
  b.op(kOp, b.outDType(), x, y);
  return b.run();
}
template <PointwiseOp kOp, bool kTensor>
Status comparison(CpuCall& call) {
  Builder b(call, "comparison");
  const int32_t x = b.load(0), y = kTensor ? b.load(1) : b.scalar(call.number(1), b.dtype(x));
  b.op(kOp, DType::boolean, x, y);
  return b.run();
}
template <PointwiseOp kOp>
Status unary(CpuCall& call) {
  Builder b(call, "elementwise");
  b.op(kOp, b.outDType(), b.load(0));
  return b.run();
}
template <PointwiseOp kOp, bool kTwo>
Status logical(CpuCall& call) {
  Builder b(call, "logical");
  const int32_t x = b.load(0);
  b.op(kOp, DType::boolean, x, kTwo ? b.load(1) : -1);
  return b.run();
}
Status powScalar(CpuCall& call) {
  Builder b(call, "aten.pow");
  const int32_t x = b.load(0);
  const double e = call.number(1);
  if (e == 2) {
    b.op(PointwiseOp::mul, b.outDType(), x, x);
  } else if (e == 3) {
    b.op(PointwiseOp::mul, b.outDType(), b.op(PointwiseOp::mul, b.outDType(), x, x), x);
  } else if (e == 0.5) {
    b.op(PointwiseOp::sqrt, b.outDType(), x);
  } else {
    b.op(PointwiseOp::pow, b.outDType(), x, b.scalar(e, b.outDType()));
  }
  return b.run();
}
Status clamp(CpuCall& call) {
  Builder b(call, "aten.clamp");
  b.op(PointwiseOp::clamp, b.outDType(), b.load(0), -1, -1, call.isNone(1) ? -kInf : call.number(1),
       call.isNone(2) ? kInf : call.number(2));
  return b.run();
}
Status hardtanh(CpuCall& call) {
  Builder b(call, "aten.hardtanh");
  b.op(PointwiseOp::clamp, b.outDType(), b.load(0), -1, -1, call.isNone(1) ? -1 : call.number(1),
       call.isNone(2) ? 1 : call.number(2));
  return b.run();
}
Status gelu(CpuCall& call) {
  Builder b(call, "aten.gelu");
  b.op(call.text(1) == "tanh" ? PointwiseOp::gelu_tanh : PointwiseOp::gelu, b.outDType(), b.load(0));
  return b.run();
}
Status leakyRelu(CpuCall& call) {
  Builder b(call, "aten.leaky_relu");
  b.op(PointwiseOp::leaky_relu, b.outDType(), b.load(0), -1, -1, call.isNone(1) ? 0.01 : call.number(1));
  return b.run();
}
/// elu(x) = scale · (x > 0 ? x : alpha · (exp(input_scale · x) − 1))
Status elu(CpuCall& call) {
  Builder b(call, "aten.elu");
  const double alpha = call.isNone(1) ? 1 : call.number(1), scale = call.isNone(2) ? 1 : call.number(2),
               input_scale = call.isNone(3) ? 1 : call.number(3);
  const DType t = b.outDType();
  const int32_t x = b.load(0);
  if (input_scale == 1) {
    const int32_t y = b.op(PointwiseOp::elu, t, x, -1, -1, alpha);
    if (scale != 1) b.op(PointwiseOp::mul, t, y, b.scalar(scale, t));
    return b.run();
  }
  const int32_t negative =
      b.op(PointwiseOp::elu, t, b.op(PointwiseOp::mul, t, x, b.scalar(input_scale, t)), -1, -1, alpha);
  const int32_t positive = b.op(PointwiseOp::gt, DType::boolean, x, b.scalar(0, t));
  const int32_t y = b.op(PointwiseOp::where, t, positive, x, negative);
  b.op(PointwiseOp::mul, t, y, b.scalar(scale, t));
  return b.run();
}
Status where(CpuCall& call) {
  Builder b(call, "aten.where");
  const int32_t c = b.load(0), x = b.load(1), y = b.load(2);
  b.op(PointwiseOp::where, b.outDType(), c, x, y);
  return b.run();
}
Status toCopy(CpuCall& call) {
  Builder b(call, "aten._to_copy");
  b.op(PointwiseOp::cast, b.outDType(), b.load(0));
  return b.run();
}

Status pointwise(CpuCall& call) {
  const PointwiseProgram* program = call.pointwise();
  if (!program) return invalid("etwgpu.pointwise: no program");
  std::vector<TensorView> tensors(program->inputs.size());
  std::vector<StridedInput> inputs(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i] = call.tensor(i);
    inputs[i] = {&tensors[i], {}, call.evaluate(program->inputs[i].offset)};
    for (ExprId e : program->inputs[i].strides) inputs[i].strides.push_back(call.evaluate(e));
  }
  ETWGPU_ASSIGN(const TensorView out, call.output(0, call.outputSizes(0)));
  for (const StridedInput& in : inputs)
    if (in.strides.size() != out.rank()) return invalid("etwgpu.pointwise: strides of another rank");
  return runPointwise("etwgpu.pointwise", out, inputs, program->code, call.pool());
}

}  // namespace
}  // namespace cpu

void registerElementwiseCpu(CpuRegistry& r) {
  using enum PointwiseOp;
  using namespace cpu;
  r.add("aten.add.Tensor", binary<add, true, true>);
  r.add("aten.add.Scalar", binary<add, false, true>);
  r.add("aten.sub.Tensor", binary<sub, true, true>);
  r.add("aten.sub.Scalar", binary<sub, false, true>);
  r.add("aten.mul.Tensor", binary<mul, true, false>);
  r.add("aten.mul.Scalar", binary<mul, false, false>);
  r.add("aten.div.Tensor", binary<div, true, false>);
  r.add("aten.div.Scalar", binary<div, false, false>);
  r.add("aten.minimum.default", binary<minimum, true, false>);
  r.add("aten.maximum.default", binary<maximum, true, false>);
  r.add("aten.pow.Tensor_Tensor", binary<PointwiseOp::pow, true, false>);
  r.add("aten.pow.Tensor_Scalar", powScalar);
  r.add("aten.eq.Tensor", comparison<eq, true>);
  r.add("aten.ne.Tensor", comparison<ne, true>);
  r.add("aten.lt.Tensor", comparison<lt, true>);
  r.add("aten.le.Tensor", comparison<le, true>);
  r.add("aten.gt.Tensor", comparison<gt, true>);
  r.add("aten.ge.Tensor", comparison<ge, true>);
  r.add("aten.eq.Scalar", comparison<eq, false>);
  r.add("aten.ne.Scalar", comparison<ne, false>);
  r.add("aten.lt.Scalar", comparison<lt, false>);
  r.add("aten.le.Scalar", comparison<le, false>);
  r.add("aten.gt.Scalar", comparison<gt, false>);
  r.add("aten.ge.Scalar", comparison<ge, false>);
  r.add("aten.logical_and.default", logical<logical_and, true>);
  r.add("aten.logical_or.default", logical<logical_or, true>);
  r.add("aten.logical_not.default", logical<logical_not, false>);
  r.add("aten.bitwise_and.Tensor", logical<logical_and, true>);
  r.add("aten.bitwise_or.Tensor", logical<logical_or, true>);
  r.add("aten.bitwise_not.default", logical<logical_not, false>);
  r.add("aten.neg.default", unary<neg>);
  r.add("aten.abs.default", unary<PointwiseOp::abs>);
  r.add("aten.exp.default", unary<PointwiseOp::exp>);
  r.add("aten.log.default", unary<PointwiseOp::log>);
  r.add("aten.sqrt.default", unary<PointwiseOp::sqrt>);
  r.add("aten.rsqrt.default", unary<rsqrt>);
  r.add("aten.reciprocal.default", unary<reciprocal>);
  r.add("aten.sin.default", unary<PointwiseOp::sin>);
  r.add("aten.cos.default", unary<PointwiseOp::cos>);
  r.add("aten.tanh.default", unary<PointwiseOp::tanh>);
  r.add("aten.erf.default", unary<PointwiseOp::erf>);
  r.add("aten.sigmoid.default", unary<sigmoid>);
  r.add("aten.silu.default", unary<silu>);
  r.add("aten.relu.default", unary<relu>);
  r.add("aten.hardswish.default", unary<hardswish>);
  r.add("aten.hardsigmoid.default", unary<hardsigmoid>);
  r.add("aten.floor.default", unary<PointwiseOp::floor>);
  r.add("aten.gelu.default", cpu::gelu);
  r.add("aten.hardtanh.default", hardtanh);
  r.add("aten.leaky_relu.default", leakyRelu);
  r.add("aten.elu.default", cpu::elu);
  r.add("aten.clamp.default", cpu::clamp);
  r.add("aten.where.self", cpu::where);
  r.add("aten._to_copy.default", toCopy);
  r.add("dim_order_ops._to_dim_order_copy.default", toCopy);
  r.add(kPointwise, pointwise);
}

}  // namespace etwgpu
