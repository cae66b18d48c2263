// Convolutions and poolings of [N, C, H, W], [C, H, W] and, convolutions only, [N, C, L] and [C, L].
#include <cmath>
#include <limits>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/cpu_common.h"
#include "runtime/operators/convolution/cpu_convolution.h"

namespace etwgpu {
namespace cpu {
namespace {

/// (height, width) of a list of one or two numbers; for one-dimensional layers the height gets `neutral`.
void pair(const Sizes& list, bool flat, int64_t neutral, int64_t& h, int64_t& w) {
  w = list.empty() ? neutral : list.back();
  h = flat || list.empty() ? neutral : list.front();
}

Status convolution(CpuCall& call, Act act, const TensorView& residual) {
  const char* op = "aten.convolution";
  const TensorView x = call.tensor(kConvX), weight = call.tensor(kConvWeight);
  const TensorView bias = call.isNone(kConvBias) ? TensorView() : call.tensor(kConvBias);
  ETWGPU_TRY(requireF32(op, x, "input"));
  ETWGPU_TRY(requireF32(op, weight, "weight"));
  if (call.flag(kConvTransposed)) return Status(Code::unsupported_operator, "aten.convolution: transposed");
  if (weight.rank() != 3 && weight.rank() != 4) return invalid(std::string(op) + ": only one and two dimensions");
  const bool flat = weight.rank() == 3, batched = x.rank() == weight.rank();
  if (!batched && x.rank() + 1 != weight.rank())
    return invalid(std::string(op) + ": the input's rank doesn't fit the weight's");
  ConvShape s;
  const size_t c = batched ? 1 : 0;
  s.images = batched ? x.sizes[0] : 1;
  s.channels = x.sizes[c];
  s.height = flat ? 1 : x.sizes[c + 1];
  s.width = x.sizes.back();
  s.groups = call.integer(kConvGroups);
  s.out_channels = weight.sizes[0];
  s.kernel_h = flat ? 1 : weight.sizes[2];
  s.kernel_w = weight.sizes.back();
  pair(call.integers(kConvStride), flat, 1, s.stride_h, s.stride_w);
  pair(call.integers(kConvPadding), flat, 0, s.pad_h, s.pad_w);
  pair(call.integers(kConvDilation), flat, 1, s.dilation_h, s.dilation_w);
  if (s.groups < 1 || s.channels % s.groups != 0 || s.out_channels % s.groups != 0 ||
      weight.sizes[1] != s.channels / s.groups)
    return invalid(std::string(op) + ": channels of input " + sizesToString(x.sizes) + " and weight " +
                   sizesToString(weight.sizes) + " don't fit");
  if (std::min({s.stride_h, s.stride_w, s.dilation_h, s.dilation_w, s.kernel_h, s.kernel_w}) < 1 ||
      std::min(s.pad_h, s.pad_w) < 0)
    return invalid(std::string(op) + ": stride, dilation or padding out of range");
  if (bias.data && (bias.count() != s.out_channels || bias.dtype != DType::f32))
    return invalid(std::string(op) + ": bias of another size");
  const auto length = [](int64_t in, int64_t pad, int64_t dilation, int64_t kernel, int64_t stride) {
    const int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
    return room < 0 ? -1 : room / stride + 1;
  };
  s.out_height = length(s.height, s.pad_h, s.dilation_h, s.kernel_h, s.stride_h);
  s.out_width = length(s.width, s.pad_w, s.dilation_w, s.kernel_w, s.stride_w);
  if (s.out_height < 0 || s.out_width < 0)
    return invalid(std::string(op) + ": the kernel is larger than the padded input");
  Sizes sizes;
  if (batched) sizes.push_back(s.images);
  sizes.push_back(s.out_channels);
  if (!flat) sizes.push_back(s.out_height);
  sizes.push_back(s.out_width);
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  if (residual.data && (residual.count() != out.count() || residual.dtype != DType::f32))
    return invalid(std::string(op) + ": residual of another size");
  if (out.count() == 0) return {};
  convolve(s, {x.as<float>(), weight.as<float>(), bias.as<float>(), residual.as<float>(), out.as<float>(), act},
           call.pool());
  return {};
}

Status plainConvolution(CpuCall& call) { return convolution(call, Act::none, {}); }
Status fusedConvolution(CpuCall& call) {
  Act act = Act::none;
  if (!call.isNone(kConvActivation) && !parseAct(call.text(kConvActivation), act))
    return invalid("etwgpu.convolution: unknown activation '" + call.text(kConvActivation) + "'");
  return convolution(call, act, call.isNone(kConvResidual) ? TensorView() : call.tensor(kConvResidual));
}

// ---- pooling -----------------------------------------------------------------------------------------------------

struct Pool {
  int64_t planes = 1, height = 0, width = 0, out_height = 0, out_width = 0;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  Sizes sizes;
};

Status planesOf(const char* op, const TensorView& x, Pool& p) {
  ETWGPU_TRY(requireF32(op, x, "input"));
  if (x.rank() != 3 && x.rank() != 4) return invalid(std::string(op) + ": the input must have 3 or 4 dimensions");
  p.height = x.sizes[x.rank() - 2];
  p.width = x.sizes[x.rank() - 1];
  p.planes = elementCount(std::span(x.sizes).first(x.rank() - 2));
  p.sizes = x.sizes;
  return {};
}

/// PyTorch's rule: with ceil_mode the last window must begin inside the input or the padding before it.
int64_t pooledLength(int64_t in, int64_t pad, int64_t dilation, int64_t kernel, int64_t stride, bool ceil_mode) {
  const int64_t room = in + 2 * pad - dilation * (kernel - 1) - 1;
  if (room < 0 && !ceil_mode) return -1;
  int64_t n = (ceil_mode ? ceilDiv(std::max<int64_t>(room, 0), stride) : room / stride) + 1;
  if (ceil_mode && (n - 1) * stride >= in + pad) --n;
  return n;
}

Status planPool(CpuCall& call, const char* op, size_t dilation_arg, size_t ceil_arg, Pool& p) {
  ETWGPU_TRY(planesOf(op, call.tensor(0), p));
  pair(call.integers(1), false, 1, p.kernel_h, p.kernel_w);
  Sizes stride = call.isNone(2) ? Sizes() : call.integers(2);
  if (stride.empty()) stride = {p.kernel_h, p.kernel_w};
  pair(stride, false, 1, p.stride_h, p.stride_w);
  pair(call.isNone(3) ? Sizes() : call.integers(3), false, 0, p.pad_h, p.pad_w);
  if (dilation_arg)
    pair(call.isNone(dilation_arg) ? Sizes() : call.integers(dilation_arg), false, 1, p.dilation_h, p.dilation_w);
  const bool ceil_mode = !call.isNone(ceil_arg) && call.flag(ceil_arg);
  if (std::min({p.kernel_h, p.kernel_w, p.stride_h, p.stride_w, p.dilation_h, p.dilation_w}) < 1 || p.pad_h < 0 ||
      p.pad_w < 0 || p.pad_h * 2 > p.kernel_h || p.pad_w * 2 > p.kernel_w)
    return invalid(std::string(op) + ": kernel, stride or padding out of range");
  p.out_height = pooledLength(p.height, p.pad_h, p.dilation_h, p.kernel_h, p.stride_h, ceil_mode);
  p.out_width = pooledLength(p.width, p.pad_w, p.dilation_w, p.kernel_w, p.stride_w, ceil_mode);
  if (p.out_height < 1 || p.out_width < 1) return invalid(std::string(op) + ": the window is larger than the input");
  p.sizes[p.sizes.size() - 2] = p.out_height;
  p.sizes[p.sizes.size() - 1] = p.out_width;
  return {};
}

/// window(plane, oy, ox) for every output.
template <class Window>
Status runPool(CpuCall& call, const Pool& p, Window window) {
  ETWGPU_ASSIGN(const TensorView out, call.output(0, p.sizes));
  const float* x = call.tensor(0).as<float>();
  const int64_t plane = p.out_height * p.out_width;
  call.pool().parallelFor(p.planes, rowGrain(plane * p.kernel_h * p.kernel_w), [&](int64_t b, int64_t e) {
    for (int64_t c = b; c < e; ++c)
      for (int64_t oy = 0; oy < p.out_height; ++oy)
        for (int64_t ox = 0; ox < p.out_width; ++ox)
          out.as<float>()[c * plane + oy * p.out_width + ox] = window(x + c * p.height * p.width, oy, ox);
  });
  return {};
}

Status maxPool(CpuCall& call) {
  Pool p;
  ETWGPU_TRY(planPool(call, "aten.max_pool2d", 4, 5, p));
  return runPool(call, p, [&p](const float* x, int64_t oy, int64_t ox) {
    float best = -std::numeric_limits<float>::infinity();
    for (int64_t kh = 0; kh < p.kernel_h; ++kh) {
      const int64_t y = oy * p.stride_h - p.pad_h + kh * p.dilation_h;
      if (y < 0 || y >= p.height) continue;
      for (int64_t kw = 0; kw < p.kernel_w; ++kw) {
        const int64_t at = ox * p.stride_w - p.pad_w + kw * p.dilation_w;
        if (at < 0 || at >= p.width) continue;
        const float v = x[y * p.width + at];
        best = v > best || v != v ? v : best;
        if (v != v) return v;
      }
    }
    return best;
  });
}

float sumWindow(const float* x, int64_t width, int64_t y0, int64_t y1, int64_t x0, int64_t x1) {
  float sum = 0;
  for (int64_t y = y0; y < y1; ++y)
    for (int64_t i = x0; i < x1; ++i) sum += x[y * width + i];
  return sum;
}

Status avgPool(CpuCall& call) {
  Pool p;
  ETWGPU_TRY(planPool(call, "aten.avg_pool2d", 0, 4, p));
  const bool include_pad = call.isNone(5) || call.flag(5);
  const int64_t divisor = call.isNone(6) ? 0 : call.integer(6);
  return runPool(call, p, [&p, include_pad, divisor](const float* x, int64_t oy, int64_t ox) {
    int64_t y0 = oy * p.stride_h - p.pad_h, x0 = ox * p.stride_w - p.pad_w;
    int64_t y1 = std::min(y0 + p.kernel_h, p.height + p.pad_h), x1 = std::min(x0 + p.kernel_w, p.width + p.pad_w);
    int64_t count = (y1 - y0) * (x1 - x0);
    y0 = std::max<int64_t>(y0, 0), x0 = std::max<int64_t>(x0, 0);
    y1 = std::min(y1, p.height), x1 = std::min(x1, p.width);
    if (y0 >= y1 || x0 >= x1) return 0.f;
    if (!include_pad) count = (y1 - y0) * (x1 - x0);
    return sumWindow(x, p.width, y0, y1, x0, x1) / float(divisor ? divisor : count);
  });
}

Status adaptiveAvgPool(CpuCall& call) {
  Pool p;
  ETWGPU_TRY(planesOf("aten.adaptive_avg_pool2d", call.tensor(0), p));
  pair(call.integers(1), false, 1, p.out_height, p.out_width);
  if (p.out_height < 1 || p.out_width < 1 || p.height < 1 || p.width < 1)
    return invalid("aten.adaptive_avg_pool2d: sizes out of range");
  p.sizes[p.sizes.size() - 2] = p.out_height;
  p.sizes[p.sizes.size() - 1] = p.out_width;
  p.kernel_h = ceilDiv(p.height, p.out_height);
  p.kernel_w = ceilDiv(p.width, p.out_width);
  return runPool(call, p, [&p](const float* x, int64_t oy, int64_t ox) {
    const int64_t y0 = oy * p.height / p.out_height, y1 = ceilDiv((oy + 1) * p.height, p.out_height);
    const int64_t x0 = ox * p.width / p.out_width, x1 = ceilDiv((ox + 1) * p.width, p.out_width);
    return sumWindow(x, p.width, y0, y1, x0, x1) / float((y1 - y0) * (x1 - x0));
  });
}

}  // namespace
}  // namespace cpu

void registerConvolutionCpu(CpuRegistry& r) {
  r.add("aten.convolution.default", cpu::plainConvolution);
  r.add(kFusedConvolution, cpu::fusedConvolution);
  r.add("aten.max_pool2d.default", cpu::maxPool);
  r.add("aten.avg_pool2d.default", cpu::avgPool);
  r.add("aten._adaptive_avg_pool2d.default", cpu::adaptiveAvgPool);
  r.add("aten.adaptive_avg_pool2d.default", cpu::adaptiveAvgPool);
}

}  // namespace etwgpu
