#include "runtime/operators/convolution/cpu_convolution.h"

#include <cstring>

#include "runtime/operators/common/cpu_common.h"

namespace etwgpu::cpu {
namespace {

/// The columns of one image and group: row k = (channel, kernel y, kernel x), column n = output pixel.
class ConvPanels final : public PanelSource {
 public:
  ConvPanels(const ConvShape& s, const float* image)
      : s_(s), image_(image), size_(s.channels / s.groups * s.inPlane()) {}

  void pack(int64_t n0, int64_t k0, int64_t depth, float* panel) const override {
    int64_t base[kPanelWidth];                      // of the pixel's window in a channel
    int64_t row[kPanelWidth], column[kPanelWidth];  // of its first tap
    const int64_t pixels = std::min<int64_t>(kPanelWidth, s_.outPlane() - n0);
    for (int64_t c = 0; c < kPanelWidth; ++c) {
      const int64_t n = n0 + std::min(c, pixels - 1);
      row[c] = n / s_.out_width * s_.stride_h - s_.pad_h;
      column[c] = n % s_.out_width * s_.stride_w - s_.pad_w;
      base[c] = row[c] * s_.width + column[c];
    }
    // With stride 1 and equal widths neighbouring pixels lie side by side in the input, also from one line to the next.
    bool adjacent = pixels == kPanelWidth;
    for (int64_t c = 1; c < kPanelWidth; ++c) adjacent = adjacent && base[c] == base[0] + c;

    const int64_t taps = s_.kernel_h * s_.kernel_w;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t dy = tap / s_.kernel_w * s_.dilation_h, dx = tap % s_.kernel_w * s_.dilation_w;
      const int64_t first = (k0 - tap + taps - 1) / taps;  // the first channel whose row for this tap is in the block
      if (first * taps + tap >= k0 + depth) continue;
      alignas(32) float mask[kPanelWidth];
      bool all = true;
      for (int64_t c = 0; c < kPanelWidth; ++c) {
        const bool inside =
            uint64_t(row[c] + dy) < uint64_t(s_.height) && uint64_t(column[c] + dx) < uint64_t(s_.width);
        mask[c] = inside ? 1.f : 0.f;
        all = all && inside;
      }
      packTap(adjacent, all, base, mask, dy * s_.width + dx, first, k0, depth, tap, panel);
    }
  }

 private:
  ETWGPU_KERNEL void packTap(bool adjacent, bool all, const int64_t* base, const float* mask, int64_t offset,
                             int64_t channel, int64_t k0, int64_t depth, int64_t tap, float* panel) const {
    const int64_t taps = s_.kernel_h * s_.kernel_w, plane = s_.inPlane();
    const auto keep0 = hn::Gt(hn::Load(DF(), mask), splat(0.f)),
               keep1 = hn::Gt(hn::Load(DF(), mask + kLanes), splat(0.f));
    for (int64_t k = channel * taps + tap - k0; k < depth; k += taps, ++channel) {
      float* o = panel + k * kPanelWidth;
      const int64_t at = channel * plane + base[0] + offset;
      if (adjacent && at >= 0 && at + kPanelWidth <= size_) {
        const VF a = hn::LoadU(DF(), image_ + at), b = hn::LoadU(DF(), image_ + at + kLanes);
        hn::Store(all ? a : hn::IfThenElseZero(keep0, a), DF(), o);
        hn::Store(all ? b : hn::IfThenElseZero(keep1, b), DF(), o + kLanes);
        continue;
      }
      const float* p = image_ + channel * plane + offset;
      for (int c = 0; c < kPanelWidth; ++c) o[c] = mask[c] != 0 ? p[base[c]] : 0.f;
    }
  }

  const ConvShape& s_;
  const float* image_;
  int64_t size_;
};

/// out = act(out + bias) + residual
ETWGPU_KERNEL void finishChannel(float* out, int64_t n, float bias, Act act, const float* residual) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const size_t left = size_t(std::min<int64_t>(kLanes, n - i));
    const bool whole = left == size_t(kLanes);
    VF v = whole ? hn::LoadU(DF(), out + i) : loadFirst(out + i, left);
    v = actV(act, hn::Add(v, splat(bias)));
    if (residual) v = hn::Add(v, whole ? hn::LoadU(DF(), residual + i) : loadFirst(residual + i, left));
    if (whole) {
      hn::StoreU(v, DF(), out + i);
    } else {
      hn::StoreN(v, DF(), out + i, left);
    }
  }
}

/// Output channels [c0, c1) of a group and pixels [p0, p1) of one image.
void convolveRange(const ConvShape& s, const ConvOperands& o, int64_t image, int64_t group, int64_t c0, int64_t c1,
                   int64_t p0, int64_t p1) {
  const int64_t per_group = s.out_channels / s.groups, K = s.depth(), plane = s.outPlane();
  const float* x = o.x + (image * s.channels + group * (s.channels / s.groups)) * s.inPlane();
  const int64_t first = group * per_group + c0;  // output channel
  float* out = o.out + (image * s.out_channels + first) * plane;
  const float* weight = o.weight + first * K;
  const bool pointwise =
      s.kernel_h * s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_h == 0 && s.pad_w == 0;
  if (pointwise) {
    gemmColumns(weight, K, StridedPanels(x, plane, 1, plane), out, plane, c1 - c0, K, p0, p1);
  } else {
    gemmColumns(weight, K, ConvPanels(s, x), out, plane, c1 - c0, K, p0, p1);
  }
  if (!o.bias && !o.residual && o.activation == Act::none) return;
  for (int64_t c = 0; c < c1 - c0; ++c) {
    const int64_t at = (image * s.out_channels + first + c) * plane + p0;
    finishChannel(o.out + at, p1 - p0, o.bias ? o.bias[first + c] : 0.f, o.activation,
                  o.residual ? o.residual + at : nullptr);
  }
}

// ---- depthwise ------------------------------------------------------------------------------------------------------

/// V vectors of output pixels; x is the first tap's input of the first of them, in kernel line kh0.
template <int V>
ETWGPU_INLINE void depthwiseVectors(const ConvShape& s, const float* x, const float* w, int64_t kh0, int64_t kh1,
                                    float* out) {
  VF sum[V];
  ETWGPU_UNROLL
  for (int i = 0; i < V; ++i) sum[i] = splat(0.f);
  for (int64_t kh = kh0; kh < kh1; ++kh, x += s.dilation_h * s.width) {
    for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
      const VF tap = splat(w[kh * s.kernel_w + kw]);
      const float* p = x + kw * s.dilation_w;
      ETWGPU_UNROLL
      for (int i = 0; i < V; ++i) {
        VF v, odd;
        if (s.stride_w == 1) {
          v = hn::LoadU(DF(), p + i * kLanes);
        } else {
          hn::LoadInterleaved2(DF(), p + 2 * i * kLanes, v, odd);
        }
        sum[i] = madd(v, tap, sum[i]);
      }
    }
  }
  ETWGPU_UNROLL
  for (int i = 0; i < V; ++i) hn::StoreU(sum[i], DF(), out + i * kLanes);
}

/// One output line of one channel: interior pixels by vectors with the sums in registers, the borders one by one.
ETWGPU_KERNEL void depthwiseLine(const ConvShape& s, const float* x, const float* w, int64_t oy, float* out) {
  const int64_t y0 = oy * s.stride_h - s.pad_h;
  int64_t kh0 = 0, kh1 = s.kernel_h;
  while (kh0 < kh1 && y0 + kh0 * s.dilation_h < 0) ++kh0;
  while (kh1 > kh0 && y0 + (kh1 - 1) * s.dilation_h >= s.height) --kh1;
  const int64_t reach = (s.kernel_w - 1) * s.dilation_w;
  const auto border = [&](int64_t from, int64_t to) {
    for (int64_t ox = from; ox < to; ++ox) {
      const int64_t x0 = ox * s.stride_w - s.pad_w;
      float sum = 0;
      for (int64_t kh = kh0; kh < kh1; ++kh)
        for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
          const int64_t ix = x0 + kw * s.dilation_w;
          if (ix >= 0 && ix < s.width) sum += w[kh * s.kernel_w + kw] * x[(y0 + kh * s.dilation_h) * s.width + ix];
        }
      out[ox] = sum;
    }
  };
  // Interior: every tap of every pixel is inside; with stride 2 a load of pairs must end inside the line, too.
  int64_t ox = std::min(ceilDiv(s.pad_w, s.stride_w), s.out_width);
  border(0, ox);
  const int64_t span = s.stride_w == 1 ? kLanes : s.stride_w == 2 ? 2 * kLanes : s.width + 1;
  const auto fits = [&](int64_t vectors) {
    return ox + vectors * kLanes <= s.out_width && ox * s.stride_w - s.pad_w + reach + vectors * span <= s.width;
  };
  const float* first = x + (y0 + kh0 * s.dilation_h) * s.width - s.pad_w;
  for (; fits(4); ox += 4 * kLanes) depthwiseVectors<4>(s, first + ox * s.stride_w, w, kh0, kh1, out + ox);
  for (; fits(1); ox += kLanes) depthwiseVectors<1>(s, first + ox * s.stride_w, w, kh0, kh1, out + ox);
  border(ox, s.out_width);
}

void depthwise(const ConvShape& s, const ConvOperands& o, ThreadPool& pool) {
  const int64_t taps = s.kernel_h * s.kernel_w, multiplier = s.out_channels / s.groups, plane = s.outPlane();
  pool.parallelFor(s.images * s.out_channels, rowGrain(plane * taps), [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      const int64_t image = i / s.out_channels, c = i % s.out_channels;
      const float* x = o.x + (image * s.channels + c / multiplier) * s.inPlane();
      float* out = o.out + i * plane;
      for (int64_t y = 0; y < s.out_height; ++y) depthwiseLine(s, x, o.weight + c * taps, y, out + y * s.out_width);
      if (o.bias || o.residual || o.activation != Act::none)
        finishChannel(out, plane, o.bias ? o.bias[c] : 0.f, o.activation,
                      o.residual ? o.residual + i * plane : nullptr);
    }
  });
}

}  // namespace

void convolve(const ConvShape& s, const ConvOperands& o, ThreadPool& pool) {
  if (s.groups == s.channels && s.out_channels % s.groups == 0 && s.groups > 1) return depthwise(s, o, pool);
  const int64_t plane = s.outPlane(), per_group = s.out_channels / s.groups,
                work = std::max<int64_t>(1, per_group * s.depth());
  const int64_t panels = ceilDiv(plane, kPanelWidth), units = s.images * s.groups;
  if (units * panels >= 3 * pool.threads() || pool.threads() == 1) {
    // Pixels of all images and groups; a task never crosses from one plane to the next.
    const int64_t step = std::max<int64_t>(1, std::min(panels, 400000 / (work * kPanelWidth))) * kPanelWidth;
    const int64_t pieces = ceilDiv(plane, step);
    pool.parallelFor(units * pieces, 1, [&](int64_t b, int64_t e) {
      for (int64_t i = b; i < e; ++i) {
        const int64_t unit = i / pieces, p0 = i % pieces * step;
        convolveRange(s, o, unit / s.groups, unit % s.groups, 0, per_group, p0, std::min(plane, p0 + step));
      }
    });
    return;
  }
  for (int64_t unit = 0; unit < units; ++unit)
    pool.parallelFor(per_group, 4, [&](int64_t b, int64_t e) {
      convolveRange(s, o, unit / s.groups, unit % s.groups, b, e, 0, plane);
    });
}

}  // namespace etwgpu::cpu
