// The CPU kernels whose shapes are awkward, against naive float64: convolution, attention, softmax, normalisation,
// threads.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "runtime/graph/fused_ops.h"
#include "tests/cpp/cpu_call.h"

namespace etwgpu::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(CpuThreads, EveryIndexOnce) {
  for (int threads : {1, 2, 3, 5}) {
    const auto pool = makeThreadPool(threads);
    for (int64_t count : {0, 1, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 16, 2000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        pool->beginRun();
        pool->parallelFor(count, grain, [&](int64_t b, int64_t e) {
          EXPECT_EQ(b % grain, 0);
          for (int64_t i = b; i < e; ++i) seen[size_t(i)]++;
          pool->parallelFor(2, 1, [](int64_t, int64_t) {});  // inside a region: serial, no deadlock
        });
        pool->endRun();
        for (auto& s : seen) ASSERT_EQ(s, 1);
      }
    }
  }
}
TEST(CpuThreads, ManyRegionsAndSleep) {
  const auto pool = makeThreadPool(4);
  std::atomic<int64_t> sum{0};
  for (int round = 0; round < 3; ++round) {
    pool->beginRun();
    for (int i = 0; i < 200; ++i) pool->parallelFor(64, 1, [&](int64_t b, int64_t e) { sum += e - b; });
    pool->endRun();
    std::vector<int> idle(100000);  // a little time for the workers to fall asleep
    ASSERT_EQ(idle[0], 0);
  }
  EXPECT_EQ(sum, 3 * 200 * 64);
}

struct ConvCase {
  int64_t n, c, h, w, oc, kh, kw, sh, sw, ph, pw, dh, dw, groups;
};

TEST(CpuConvolution, AgainstNaive) {
  const ConvCase cases[] = {
      {1, 3, 17, 19, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1},  {2, 8, 9, 40, 6, 3, 3, 1, 1, 1, 1, 1, 1, 1},
      {1, 4, 33, 33, 16, 3, 3, 2, 2, 1, 1, 1, 1, 1}, {1, 16, 7, 7, 33, 1, 1, 1, 1, 0, 0, 1, 1, 1},
      {1, 16, 8, 8, 12, 1, 1, 2, 2, 0, 0, 1, 1, 1},  {1, 6, 20, 21, 6, 3, 3, 1, 1, 1, 1, 1, 1, 6},
      {2, 6, 21, 39, 6, 5, 5, 2, 2, 2, 2, 1, 1, 6},  {1, 5, 11, 30, 10, 3, 3, 1, 1, 0, 0, 2, 2, 5},
      {1, 8, 12, 13, 8, 3, 3, 1, 1, 2, 2, 2, 2, 4},  {1, 3, 224, 5, 7, 7, 3, 2, 1, 3, 0, 1, 1, 1},
      {1, 3, 5, 6, 4, 5, 6, 1, 1, 0, 0, 1, 1, 1},    {1, 2, 4, 4, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1},
      {1, 60, 6, 6, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1},  {1, 4, 9, 9, 4, 3, 3, 3, 3, 1, 1, 1, 1, 4},
      {1, 1, 40, 40, 3, 4, 4, 4, 4, 0, 0, 1, 1, 1},  {3, 4, 1, 50, 9, 1, 3, 1, 1, 0, 1, 1, 1, 1},
  };
  const auto pool = makeThreadPool(3);
  for (const ConvCase& t : cases) {
    for (const char* act : {"none", "relu6"}) {
      HostTensor x = randomTensor({t.n, t.c, t.h, t.w}, 1), w = randomTensor({t.oc, t.c / t.groups, t.kh, t.kw}, 2),
                 bias = randomTensor({t.oc}, 3);
      const int64_t oh = (t.h + 2 * t.ph - t.dh * (t.kh - 1) - 1) / t.sh + 1,
                    ow = (t.w + 2 * t.pw - t.dw * (t.kw - 1) - 1) / t.sw + 1;
      HostTensor residual = randomTensor({t.n, t.oc, oh, ow}, 4);
      TestCall call;
      call.threads = t.oc % 2 ? pool.get() : nullptr;
      call.args = {&x,    &w,          &bias,    Sizes{t.sh, t.sw}, Sizes{t.ph, t.pw}, Sizes{t.dh, t.dw},
                   false, Sizes{0, 0}, t.groups, std::string(act),  &residual};
      const Status status = call.run(kFusedConvolution);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(call.outputs[0].sizes, (Sizes{t.n, t.oc, oh, ow}));
      for (int64_t i = 0; i < t.n * t.oc * oh * ow; ++i) {
        const int64_t px = i % ow, py = i / ow % oh, oc = i / (ow * oh) % t.oc, n = i / (ow * oh * t.oc);
        const int64_t cg = t.c / t.groups, group = oc / (t.oc / t.groups);
        double s = double(at(bias)[oc]);
        for (int64_t c = 0; c < cg; ++c)
          for (int64_t ky = 0; ky < t.kh; ++ky)
            for (int64_t kx = 0; kx < t.kw; ++kx) {
              const int64_t y = py * t.sh - t.ph + ky * t.dh, xx = px * t.sw - t.pw + kx * t.dw;
              if (y < 0 || y >= t.h || xx < 0 || xx >= t.w) continue;
              s += double(at(x)[((n * t.c + group * cg + c) * t.h + y) * t.w + xx]) *
                   double(at(w)[((oc * cg + c) * t.kh + ky) * t.kw + kx]);
            }
        if (act[0] == 'r') s = std::min(std::max(s, 0.0), 6.0);
        s += double(at(residual)[i]);
        ASSERT_NEAR(call.result()[i], s, 1e-4) << "case " << (&t - cases) << " element " << i;
      }
    }
  }
}

TEST(CpuConvolution, RefusesKernelLargerThanInput) {
  HostTensor x = randomTensor({1, 1, 2, 2}, 1), w = randomTensor({1, 1, 3, 3}, 2);
  TestCall call;
  call.args = {&x, &w, std::monostate(), Sizes{1, 1}, Sizes{0, 0}, Sizes{1, 1}, false, Sizes{0, 0}, int64_t(1)};
  EXPECT_EQ(call.run("aten.convolution.default").code(), Code::invalid_argument);
  call.args[6] = true;
  EXPECT_EQ(call.run("aten.convolution.default").code(), Code::unsupported_operator);
}

/// Attention of one row in double.
std::vector<double> attend(const float* q, const std::vector<const float*>& k, const std::vector<const float*>& v,
                           int64_t D, double scale, const std::vector<double>& bias) {
  std::vector<double> out(static_cast<size_t>(D), 0.0), s;
  double top = -1e300, sum = 0;
  for (size_t j = 0; j < k.size(); ++j) {
    double d = 0;
    for (int64_t i = 0; i < D; ++i) d += double(q[i]) * double(k[j][i]);
    s.push_back(d * scale + (bias.empty() ? 0 : bias[j]));
    top = std::max(top, s.back());
  }
  for (double& x : s) sum += x = std::isinf(x) ? 0 : std::exp(x - top);
  for (size_t j = 0; j < k.size(); ++j)
    for (int64_t i = 0; i < D; ++i) out[size_t(i)] += s[j] * double(v[j][i]) / (sum > 0 ? sum : 1);
  return out;
}

/// The values in half precision; `t` gets what they are.
HostTensor rounded(HostTensor& t) {
  HostTensor half{DType::f16, t.sizes, {}};
  auto* values = reinterpret_cast<float*>(t.bytes.data());
  for (int64_t i = 0; i < elementCount(t.sizes); ++i) {
    const uint16_t bits = floatToHalf(values[i]);
    values[i] = halfToFloat(bits);
    half.bytes.insert(half.bytes.end(), {uint8_t(bits), uint8_t(bits >> 8)});
  }
  return half;
}

void checkCachedAttention(bool half) {
  const auto pool = makeThreadPool(2);
  for (int64_t S : {1, 2, 5, 20, 70})
    for (int64_t start : {0, 1, 63, 64, 150})
      for (int64_t window : {0, 10})
        for (int64_t D : {64, 20}) {
          const int64_t H = 6, kv = 2, L = 256;
          HostTensor q = randomTensor({1, S, H, D}, 1), k = randomTensor({1, kv, L, D}, 2),
                     v = randomTensor({1, kv, L, D}, 3);
          HostTensor at_start = integers({1}, {start});
          // beyond the used part there may be anything
          for (int64_t h = 0; h < kv; ++h)
            for (int64_t j = start + S; j < L; ++j)
              for (int64_t i = 0; i < D; ++i) reinterpret_cast<float*>(v.bytes.data())[(h * L + j) * D + i] = NAN;
          HostTensor half_k, half_v;
          if (half) half_k = rounded(k), half_v = rounded(v);
          TestCall call;
          call.threads = pool.get();
          call.args = {&q, half ? &half_k : &k, half ? &half_v : &v, &at_start, 0.25, window};
          const Status status = call.run(kCachedAttention);
          ASSERT_TRUE(status.ok()) << status.message();
          for (int64_t s = 0; s < S; ++s)
            for (int64_t h = 0; h < H; ++h) {
              std::vector<const float*> ks, vs;
              const int64_t first = window ? std::max<int64_t>(0, start + s - window + 1) : 0;
              for (int64_t j = first; j <= start + s; ++j) {
                ks.push_back(at(k) + (h / 3 * L + j) * D);
                vs.push_back(at(v) + (h / 3 * L + j) * D);
              }
              const auto want = attend(at(q) + (s * H + h) * D, ks, vs, D, 0.25, {});
              for (int64_t i = 0; i < D; ++i)
                ASSERT_NEAR(call.result()[(s * H + h) * D + i], want[size_t(i)], 2e-5)
                    << S << " " << start << " " << window << " " << D;
            }
        }
}

TEST(CpuAttention, CachedCausalWithWindowAndGroups) {
  checkCachedAttention(false);
  HostTensor q = randomTensor({1, 4, 2, 8}, 1), k = randomTensor({1, 2, 16, 8}, 2), past = integers({1}, {13});
  TestCall call;
  call.args = {&q, &k, &k, &past, 1.0, int64_t(0)};
  EXPECT_EQ(call.run(kCachedAttention).code(), Code::invalid_argument);
}

TEST(CpuAttention, CachesInHalfPrecision) {
  checkCachedAttention(true);
  HostTensor q = randomTensor({1, 4, 2, 8}, 1), k = randomTensor({1, 2, 16, 8}, 2), start = integers({1}, {0});
  HostTensor half = rounded(k);
  TestCall call;
  call.args = {&q, &k, &half, &start, 1.0, int64_t(0)};
  EXPECT_EQ(call.run(kCachedAttention).code(), Code::invalid_argument) << "one of two";
}

TEST(CpuAttention, KeysAndValuesAreRoundedToHalf) {
  for (int64_t D : {64, 20}) {
    const int64_t S = 3, L = 8;
    HostTensor qkv = randomTensor({1, S, 4 * D}, 1), table = randomTensor({L, 2, D / 2}, 2), start = integers({1}, {2});
    HostTensor caches[2][2];
    for (const DType type : {DType::f32, DType::f16})
      for (HostTensor& t : caches[type == DType::f16])
        t = {type, {1, 1, L, D}, std::vector<uint8_t>(size_t(L * D) * dtypeSize(type))};
    for (auto& [k, v] : caches) {
      TestCall call;
      call.args = {&qkv, &table, &start, &k, &v, int64_t(2), int64_t(1), std::monostate(), std::monostate(), 0.0};
      const Status status = call.run(kRopeCacheWrite);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    for (int i : {0, 1}) EXPECT_EQ(rounded(caches[0][i]).bytes, caches[1][i].bytes) << D << " " << i;
  }
}

TEST(CpuAttention, MasksAndRowsWithoutKeys) {
  for (int64_t S : {1, 3, 50}) {
    const int64_t T = 70, D = 24, H = 2;
    HostTensor q = randomTensor({1, H, S, D}, 1), k = randomTensor({1, H, T, D}, 2), v = randomTensor({1, H, T, D}, 3);
    HostTensor visible{DType::boolean, {1, 1, S, T}, std::vector<uint8_t>(size_t(S * T))},
        bias = randomTensor({S, T}, 5, 4);
    std::mt19937 rng(9);
    for (auto& b : visible.bytes) b = rng() % 2;
    std::fill(visible.bytes.begin(), visible.bytes.begin() + T, uint8_t(0));  // row 0 sees nothing
    for (HostTensor* mask : {&visible, &bias}) {
      TestCall call;
      call.args = {&q, &k, &v, mask, 0.0, false, std::monostate(), false};
      ASSERT_TRUE(call.run("aten.scaled_dot_product_attention.default").ok());
      for (int64_t r = 0; r < H * S; ++r) {
        std::vector<const float*> ks, vs;
        std::vector<double> add;
        for (int64_t j = 0; j < T; ++j) {
          if (mask == &visible && !visible.bytes[size_t(r % S * T + j)]) continue;
          ks.push_back(at(k) + (r / S * T + j) * D);
          vs.push_back(at(v) + (r / S * T + j) * D);
          if (mask == &bias) add.push_back(double(at(bias)[r % S * T + j]));
        }
        const auto want = attend(at(q) + r * D, ks, vs, D, 1 / std::sqrt(double(D)), add);
        for (int64_t i = 0; i < D; ++i)
          ASSERT_NEAR(call.result()[r * D + i], want[size_t(i)], 2e-5) << S << " row " << r;
      }
    }
  }
}

TEST(CpuSoftmax, Extremes) {
  for (int64_t n : {1, 3, 8, 17, 100}) {
    for (float shift : {0.f, 1e4f, -1e4f, 3e38f}) {
      HostTensor x = randomTensor({2, n, 3}, uint32_t(n), 5);
      auto* p = reinterpret_cast<float*>(x.bytes.data());
      for (int64_t i = 0; i < 2 * n * 3; ++i) p[i] += shift;
      if (n > 1) p[0] = -kInf;
      for (int64_t dim : {1, -1, 0}) {
        for (bool log : {false, true}) {
          TestCall call;
          call.args = {&x, dim, false};
          ASSERT_TRUE(call.run(log ? "aten._log_softmax.default" : "aten._softmax.default").ok());
          const int64_t size = dim == 1 ? n : dim == 0 ? 2 : 3, inner = dim == 1 ? 3 : dim == 0 ? n * 3 : 1;
          for (int64_t i = 0; i < 2 * n * 3; ++i) {
            const int64_t first = i / (size * inner) * size * inner + i % inner;
            double top = -1e300, sum = 0;
            for (int64_t j = 0; j < size; ++j) top = std::max(top, double(p[first + j * inner]));
            for (int64_t j = 0; j < size; ++j) sum += std::exp(double(p[first + j * inner]) - top);
            const double want = log ? double(p[i]) - top - std::log(sum) : std::exp(double(p[i]) - top) / sum;
            if (std::isinf(want)) {
              ASSERT_EQ(call.result()[i], want);
            } else {
              ASSERT_NEAR(call.result()[i], want, 2e-6 * std::max(1.0, std::abs(want)))
                  << n << " " << shift << " " << dim;
            }
          }
        }
      }
    }
  }
}

TEST(CpuNorm, LargeMeanAndSmallVariance) {
  for (int64_t n : {1, 7, 64, 769}) {
    for (float mean : {0.f, 1000.f}) {
      HostTensor x = randomTensor({3, n}, uint32_t(n)), w = randomTensor({n}, 8), b = randomTensor({n}, 9);
      auto* p = reinterpret_cast<float*>(x.bytes.data());
      for (int64_t i = 0; i < 3 * n; ++i) p[i] += mean;
      TestCall layer, rms;
      layer.args = {&x, Sizes{n}, &w, &b, 1e-5};
      rms.args = {&x, Sizes{n}, &w, 1e-6};
      ASSERT_TRUE(layer.run("aten.native_layer_norm.default").ok());
      ASSERT_TRUE(rms.run("aten.rms_norm.default").ok());
      for (int64_t r = 0; r < 3; ++r) {
        double m = 0, var = 0, square = 0;
        for (int64_t i = 0; i < n; ++i) m += double(p[r * n + i]) / double(n);
        for (int64_t i = 0; i < n; ++i)
          var += std::pow(double(p[r * n + i]) - m, 2) / double(n),
              square += std::pow(double(p[r * n + i]), 2) / double(n);
        for (int64_t i = 0; i < n; ++i) {
          const double v = double(p[r * n + i]), wi = double(at(w)[i]);
          ASSERT_NEAR(layer.result()[r * n + i], (v - m) / std::sqrt(var + 1e-5) * wi + double(at(b)[i]),
                      mean ? 2e-3 : 1e-5);
          ASSERT_NEAR(rms.result()[r * n + i], v / std::sqrt(square + 1e-6) * wi, 1e-5);
        }
      }
    }
  }
}

TEST(CpuIndexing, OutOfRangeIsAnErrorThatNamesTheOperator) {
  HostTensor x = randomTensor({4, 3}, 1), ok = integers({2}, {-1, 3}), bad = integers({1}, {4});
  TestCall call;
  call.args = {&x, std::vector<HostTensor*>{&ok}};
  ASSERT_TRUE(call.run("aten.index.Tensor").ok());
  EXPECT_EQ(call.result()[0], at(x)[9]);
  call.args[1] = std::vector<HostTensor*>{&bad};
  const Status status = call.run("aten.index.Tensor");
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("aten.index"), std::string::npos);
}

TEST(CpuElementwise, SpecialValues) {
  const std::vector<float> values{0.f,    -0.f, 1.f,    -1.f, kInf,  -kInf, NAN,  1e-40f, 3e38f,
                                  -3e38f, 88.f, -104.f, 0.3f, -0.3f, 0.49f, 20.f, -20.f};
  HostTensor x = floats({int64_t(values.size())}, values);
  const std::pair<const char*, double (*)(double)> ops[] = {
      {"aten.exp.default", [](double v) { return std::exp(v); }},
      {"aten.tanh.default", [](double v) { return std::tanh(v); }},
      {"aten.erf.default", [](double v) { return std::erf(v); }},
      {"aten.sigmoid.default", [](double v) { return 1 / (1 + std::exp(-v)); }},
      {"aten.relu.default", [](double v) { return v != v ? v : std::max(v, 0.0); }},
      {"aten.rsqrt.default", [](double v) { return 1 / std::sqrt(v); }},
      {"aten.hardsigmoid.default", [](double v) { return v != v ? v : std::min(std::max(v + 3, 0.0), 6.0) / 6; }},
      {"aten.floor.default", [](double v) { return std::floor(v); }},
  };
  for (const auto& [op, f] : ops) {
    TestCall call;
    call.args = {&x};
    ASSERT_TRUE(call.run(op).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      const float want = float(f(double(values[i]))), got = call.result()[i];
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << op << " of " << values[i];
      } else if (std::isinf(want)) {
        EXPECT_EQ(got, want) << op << " of " << values[i];
      } else {
        EXPECT_NEAR(got, want, 3e-6 * std::max(0.1f, std::abs(want))) << op << " of " << values[i];
      }
    }
  }
}

// Operators that exported programs reach in another form only (see UNREACHED in tests/operators/test_registry.py).
TEST(CpuKernels, OperatorsThatTheExporterRewrites) {
  HostTensor a = randomTensor({2, 1, 5, 7}, 1), b = randomTensor({3, 7, 4}, 2);
  TestCall product;
  product.args = {&a, &b};
  ASSERT_TRUE(product.run("aten.matmul.default").ok());
  ASSERT_EQ(product.outputs[0].sizes, (Sizes{2, 3, 5, 4}));
  for (int64_t i = 0; i < 2 * 3 * 5 * 4; ++i) {
    double s = 0;
    for (int64_t k = 0; k < 7; ++k)
      s += double(at(a)[(i / 60 * 5 + i / 4 % 5) * 7 + k]) * double(at(b)[(i / 20 % 3 * 7 + k) * 4 + i % 4]);
    ASSERT_NEAR(product.result()[i], s, 1e-5);
  }
  for (const char* op : {"aten.alias_copy.default", "aten.clone.default", "dim_order_ops._clone_dim_order.default"}) {
    TestCall copy;
    copy.args = {&b};
    ASSERT_TRUE(copy.run(op).ok()) << op;
    EXPECT_EQ(copy.outputs[0].bytes, b.bytes) << op;
  }
  HostTensor row = randomTensor({4}, 3);
  TestCall copy, scalar, cast, pool;
  copy.args = {&b, &row};
  ASSERT_TRUE(copy.run("aten.copy.default").ok());
  for (int64_t i = 0; i < 84; ++i) ASSERT_EQ(copy.result()[i], at(row)[i % 4]);
  scalar.args = {2.5};
  ASSERT_TRUE(scalar.run("aten.scalar_tensor.default").ok());
  EXPECT_EQ(scalar.outputs[0].sizes, Sizes());
  EXPECT_EQ(scalar.result()[0], 2.5f);
  HostTensor values = floats({4}, {-1.7f, 0.f, 2.9f, 3e20f});
  cast.args = {&values};
  cast.output_types = {DType::i64};
  ASSERT_TRUE(cast.run("aten._to_copy.default").ok());
  const auto* whole = reinterpret_cast<const int64_t*>(cast.outputs[0].bytes.data());
  EXPECT_EQ(whole[0], -1);
  EXPECT_EQ(whole[2], 2);
  HostTensor image = floats({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6});
  pool.args = {&image, Sizes{1, 2}};
  ASSERT_TRUE(pool.run("aten._adaptive_avg_pool2d.default").ok());
  EXPECT_FLOAT_EQ(pool.result()[0], 3.f);
  EXPECT_FLOAT_EQ(pool.result()[1], 4.f);
}

}  // namespace
}  // namespace etwgpu::testing
