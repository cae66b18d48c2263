// etwgpu.convolution, aten.convolution (1d and 2d, not transposed) and 2d pooling on NCHW tensors.
#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/gpu_builder.h"

namespace etwgpu {
namespace {

/// A pair of amounts from a list of one (both, or the width of a 1d convolution) or two.
struct Pair {
  ExprId h, w;
};
Pair pairOf(GpuPlanContext& c, const std::vector<ExprId>& list, int64_t absent, bool one_dimension = false) {
  const ExprId fallback = c.exprs.constant(absent);
  if (list.empty()) return {fallback, fallback};
  if (list.size() == 1) return {one_dimension ? fallback : list[0], list[0]};
  return {list[0], list[1]};
}

struct Convolution {
  ValueId x = kNoValue, weight = kNoValue, bias = kNoValue, residual = kNoValue, y = kNoValue;
  Pair stride, padding, dilation, kernel, in, out;
  int64_t groups = 1, in_channels = 0, out_channels = 0;
  ExprId images;
  std::string activation = "none";
};

Status readConvolution(GpuPlanContext& c, Convolution& v) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({kConvX, kConvWeight}));
  v.x = args.value(kConvX), v.weight = args.value(kConvWeight), v.bias = args.value(kConvBias), v.y = args.output();
  if (args.flag(kConvTransposed)) return unsupported(c, "transposed convolution");
  const size_t rank = c.graph.value(v.x).dims.size();
  if ((rank != 3 && rank != 4) || c.graph.value(v.weight).dims.size() != rank)
    return unsupported(c, "convolution of other than 3 or 4 dimensions");
  const bool one = rank == 3;
  const ExprId unit = c.exprs.constant(1);
  v.stride = pairOf(c, args.integers(kConvStride), 1, one);
  v.padding = pairOf(c, args.integers(kConvPadding), 0, one);
  v.dilation = pairOf(c, args.integers(kConvDilation), 1, one);
  v.kernel = {one ? unit : dimOf(c, v.weight, 2), dimOf(c, v.weight, -1)};
  v.in = {one ? unit : dimOf(c, v.x, 2), dimOf(c, v.x, -1)};
  v.out = {one ? unit : dimOf(c, v.y, 2), dimOf(c, v.y, -1)};
  v.images = dimOf(c, v.x, 0);
  v.groups = args.integer(kConvGroups).valid() ? constantOf(c, args.integer(kConvGroups)).value_or(1) : 1;
  const auto in_channels = constantOf(c, dimOf(c, v.x, 1)), out_channels = constantOf(c, dimOf(c, v.weight, 0));
  if (!in_channels || !out_channels || v.groups < 1 || *in_channels % v.groups || *out_channels % v.groups)
    return unsupported(c, "channels must be constant and divisible by the groups");
  v.in_channels = *in_channels, v.out_channels = *out_channels;
  if (args.count() > kConvActivation) {
    v.activation = args.text(kConvActivation, "none");
    v.residual = args.value(kConvResidual);
  }
  return {};
}

void bindConvolution(DispatchBuilder& b, const Convolution& v) {
  b.read("x", v.x);
  b.read("weight", v.weight);
  if (v.bias != kNoValue) b.read("bias", v.bias);
  if (v.residual != kNoValue) b.read("residual", v.residual);
  b.write("y", v.y);
  b.flag("BIAS", v.bias != kNoValue);
  b.flag("RESIDUAL", v.residual != kNoValue);
  b.define("ACTIVATION", v.activation);
  b.define("STORE", std::string(b.storage(v.y)));
}

void windowParams(DispatchBuilder& b, const Pair& kernel, const Pair& stride, const Pair& padding, const Pair& dilation,
                  const Pair& in) {
  b.param("kernel_h", kernel.h), b.param("kernel_w", kernel.w);
  b.param("stride_h", stride.h), b.param("stride_w", stride.w);
  b.param("pad_h", padding.h), b.param("pad_w", padding.w);
  b.param("dilation_h", dilation.h), b.param("dilation_w", dilation.w);
  b.param("in_h", in.h), b.param("in_w", in.w);
}

std::string kernelName(const DispatchBuilder& b, const Convolution& v, const char* kind) {
  std::string name = std::string(b.storage(v.y)) + "_convolution_" + kind;
  if (v.activation != "none") name += "_" + v.activation;
  if (v.residual != kNoValue) name += "_residual";
  return name + "_baseline";
}

Status describeDepthwise(GpuPlanContext& c, const Convolution& v) {
  Exprs& e = c.exprs;
  DispatchBuilder b(c, "convolution/depthwise.wgsl", {});
  bindConvolution(b, v);
  b.rename(kernelName(b, v, "depthwise"));
  const ExprId positions = e.mul(v.out.h, v.out.w);
  const ExprId count = e.mul(e.mul(v.images, e.constant(v.out_channels)), positions);
  b.param("count", count);
  b.param("positions", positions);
  b.param("out_w", v.out.w);
  b.param("out_channels", e.constant(v.out_channels));
  b.param("in_channels", e.constant(v.in_channels));
  b.param("multiplier", e.constant(v.out_channels / v.in_channels));
  windowParams(b, v.kernel, v.stride, v.padding, v.dilation, v.in);
  b.grid(foldedGrid(c, e.ceildiv(count, 256)));
  return b.finish();
}

Status describeGemm(GpuPlanContext& c, const Convolution& v) {
  Exprs& e = c.exprs;
  const auto is = [&](const Pair& p, int64_t n) { return e.isConstant(p.h, n) && e.isConstant(p.w, n); };
  const bool pointwise = is(v.kernel, 1) && is(v.stride, 1) && is(v.padding, 0);
  DispatchBuilder b(c, "convolution/implicit_gemm.wgsl", {});
  bindConvolution(b, v);
  b.rename(kernelName(b, v, pointwise ? "1x1_gemm_64x64" : "gemm_64x64"));
  b.flag("POINTWISE", pointwise);
  const ExprId positions = e.mul(v.out.h, v.out.w);
  const ExprId channels = e.constant(v.in_channels / v.groups);
  b.param("positions", positions);
  b.param("out_channels", e.constant(v.out_channels / v.groups));
  b.param("groups", e.constant(v.groups));
  b.param("k", e.mul(channels, e.mul(v.kernel.h, v.kernel.w)));
  b.param("in_size", e.mul(channels, e.mul(v.in.h, v.in.w)));
  if (!pointwise) {
    b.param("out_w", v.out.w);
    windowParams(b, v.kernel, v.stride, v.padding, v.dilation, v.in);
  }
  b.grid(e.ceildiv(positions, 64), e.constant((v.out_channels / v.groups + 63) / 64),
         e.mul(v.images, e.constant(v.groups)));
  return b.finish();
}

Status planConvolution(GpuPlanContext& c) {
  Convolution v;
  ETWGPU_TRY(readConvolution(c, v));
  const bool depthwise = v.groups > 1 && v.groups == v.in_channels;
  return depthwise ? describeDepthwise(c, v) : describeGemm(c, v);
}

struct Pool {
  const char* kind;
  Pair kernel, stride, padding, dilation;
  bool include_pad = false;
  int64_t divisor = 0;
};

Status describePool(GpuPlanContext& c, const Pool& pool) {
  const NodeArgs args(c.node());
  const ValueId x = args.value(0), y = args.output();
  const size_t rank = c.graph.value(x).dims.size();
  if (rank != 3 && rank != 4) return unsupported(c, "pooling of other than 3 or 4 dimensions");
  Exprs& e = c.exprs;
  const std::string store(gpuStorageType(c.graph, y, c.options.precision)), kind = pool.kind;
  DispatchBuilder b(c, "convolution/pool.wgsl", store + "_pool_" + kind + "_baseline");
  b.read("x", x);
  b.write("y", y);
  b.define("KIND", kind);
  b.define("STORE", store);
  const ExprId count = elementCount(c, y);
  b.param("count", count);
  b.param("out_h", dimOf(c, y, -2)), b.param("out_w", dimOf(c, y, -1));
  const Pair in{dimOf(c, x, -2), dimOf(c, x, -1)};
  if (kind == "adaptive") {
    b.param("in_h", in.h), b.param("in_w", in.w);
  } else {
    windowParams(b, pool.kernel, pool.stride, pool.padding, pool.dilation, in);
    b.param("include_pad", e.constant(pool.include_pad));
    b.param("divisor", e.constant(pool.divisor));
  }
  b.grid(foldedGrid(c, e.ceildiv(count, 256)));
  return b.finish();
}

/// An absent or empty stride is the kernel's size.
Pair strideOf(GpuPlanContext& c, const std::vector<ExprId>& list, const Pair& kernel) {
  return list.empty() ? kernel : pairOf(c, list, 1);
}

Status planAveragePool(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0}));
  Pool pool{"average",
            pairOf(c, args.integers(1), 1),
            {},
            pairOf(c, args.integers(3), 0),
            pairOf(c, {}, 1),
            args.flag(5, true),
            0};
  pool.stride = strideOf(c, args.integers(2), pool.kernel);
  if (args.integer(6).valid()) pool.divisor = constantOf(c, args.integer(6)).value_or(0);
  return describePool(c, pool);
}

Status planMaxPool(GpuPlanContext& c) {
  const NodeArgs args(c.node());
  ETWGPU_TRY(args.check({0}));
  Pool pool{"maximum",
            pairOf(c, args.integers(1), 1),
            {},
            pairOf(c, args.integers(3), 0),
            pairOf(c, args.integers(4), 1),
            false,
            0};
  pool.stride = strideOf(c, args.integers(2), pool.kernel);
  return describePool(c, pool);
}

Status planAdaptivePool(GpuPlanContext& c) {
  ETWGPU_TRY(NodeArgs(c.node()).check({0}));
  return describePool(c, {"adaptive", {}, {}, {}, {}, false, 0});
}

}  // namespace

void registerConvolutionGpu(GpuRegistry& registry) {
  registry.add(kFusedConvolution, planConvolution);
  registry.add("aten.convolution.default", planConvolution);
  registry.add("aten.avg_pool2d.default", planAveragePool);
  registry.add("aten.max_pool2d.default", planMaxPool);
  registry.add("aten.adaptive_avg_pool2d.default", planAdaptivePool);
  registry.add("aten._adaptive_avg_pool2d.default", planAdaptivePool);
}

}  // namespace etwgpu
