// Products with quantised and plain weights against float64, over the shapes that break kernels: rows of activations
// around the tile sizes, N that is no multiple of 8, activations far from 1.
#include <gtest/gtest.h>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/matmul/cpu_quantised.h"
#include "tests/cpp/cpu_call.h"

namespace etwgpu::testing {
namespace {

/// Error relative to the root mean square of the exact result.
double worst(const float* got, const std::vector<double>& want) {
  double square = 0, top = 0;
  for (double v : want) square += v * v;
  const double rms = std::sqrt(square / double(want.size()));
  for (size_t i = 0; i < want.size(); ++i) {
    if (!(std::abs(double(got[i]) - want[i]) <= 1e300)) return 1e300;
    top = std::max(top, std::abs(double(got[i]) - want[i]));
  }
  return top / rms;
}

std::vector<double> product(const float* x, const std::vector<double>& w, int64_t M, int64_t N, int64_t K) {
  std::vector<double> y(size_t(M * N));
  for (int64_t m = 0; m < M; ++m)
    for (int64_t n = 0; n < N; ++n) {
      double s = 0;
      for (int64_t k = 0; k < K; ++k) s += double(x[m * K + k]) * w[size_t(n * K + k)];
      y[size_t(m * N + n)] = s;
    }
  return y;
}

struct Scheme {
  int bits, group;
  bool symmetric;
};
constexpr Scheme kSchemes[] = {{4, 32, false}, {4, 32, true},   {4, 64, true}, {4, 64, false},
                               {4, 128, true}, {4, 128, false}, {8, 0, true}};

void checkMode(Activations mode, double bound) {
  const auto pool = makeThreadPool(3);
  for (const Scheme& s : kSchemes)
    for (int64_t N : {8, 12, 100, 7})
      for (int64_t K : {128, 384, 640})
        for (int64_t M : {1, 2, 3, 7, 8, 9, 33})
          for (float scale : {1.f, 1e5f, 1e-5f}) {
            if (scale != 1.f && (M == 7 || M == 2 || K == 640)) continue;  // keeps the test short
            QuantisedWeight w = quantisedWeight(N, K, s.bits, s.group, s.symmetric, uint32_t(N * K + M));
            HostTensor x = randomTensor({M, K}, uint32_t(M + K), scale);
            TestCall call;
            call.mode = mode;
            call.threads = M % 2 ? pool.get() : nullptr;
            call.args = {&x, w.view, std::monostate()};
            const Status status = call.run("aten.linear.default");
            ASSERT_TRUE(status.ok()) << status.message();
            const double error = worst(call.result(), product(at(x), w.values, M, N, K));
            ASSERT_LT(error, bound) << "bits " << s.bits << " group " << s.group << " symmetric " << s.symmetric
                                    << " N " << N << " K " << K << " M " << M << " scale " << scale;
          }
}

// The bounds are of the worst output of all against the rms: the figures of cpu-kernels (rms 0.5 to 1.8 % for int8),
// with room.
TEST(CpuLinear, ExactWeights) { checkMode(Activations::exact, 1e-5); }
TEST(CpuLinear, Int16Activations) { checkMode(Activations::int16, 6e-4); }
TEST(CpuLinear, Int8Activations) { checkMode(Activations::int8, 6e-2); }
TEST(CpuLinear, AutomaticActivations) { checkMode(Activations::automatic, 6e-2); }

// The orders of int16 values that machines choose between: the same sums, whichever this one would choose.
TEST(CpuLinear, Int16ValuesInPlanesAndPermuted) {
  constexpr int64_t N = 24, K = 384;
  for (const Scheme& s : kSchemes) {
    if (s.bits != 4) continue;
    QuantisedWeight w = quantisedWeight(N, K, s.bits, s.group, s.symmetric, 21);
    const cpu::R4Weight r4{w.view.as<uint8_t>(), w.view.quant_constants, N, K, s.bits, s.group, s.symmetric};
    for (int64_t M : {1, 3, 4, 5, 6, 681}) {  // 680 are a piece
      HostTensor x = randomTensor({M, K}, uint32_t(M));
      auto* values = reinterpret_cast<float*>(x.bytes.data());
      values[0] = 9, values[K - 1] = -9;  // the first row has both ends of the range
      std::vector<std::vector<float>> results;
      for (cpu::Int16Order order : {cpu::Int16Order::planes, cpu::Int16Order::for_int4}) {
        std::vector<uint8_t> memory(cpu::quantisedBytes(Activations::int16, M, K));
        cpu::QuantisedRows rows = cpu::placeQuantised(Activations::int16, s.bits, memory.data(), M, K);
        rows.order = order;
        for (int64_t m = 0; m < M; ++m) cpu::quantiseRow(values + m * K, K, m, rows);
        std::vector<float>& y = results.emplace_back(size_t(M * N));
        cpu::multiplyQuantised(r4, rows, M, y.data(), N, 0, N / 4);
        ASSERT_LT(worst(y.data(), product(values, w.values, M, N, K)), 6e-4) << "group " << s.group << " M " << M;
      }
      EXPECT_EQ(results[0], results[1]) << "group " << s.group << " M " << M;
    }
  }
}

TEST(CpuLinear, SmallestK) {  // K = 32: one group
  for (Activations mode : {Activations::exact, Activations::int16, Activations::int8}) {
    QuantisedWeight w = quantisedWeight(12, 32, 4, 32, false, 5);
    HostTensor x = randomTensor({5, 32}, 6);
    TestCall call;
    call.mode = mode;
    call.args = {&x, w.view, std::monostate()};
    ASSERT_TRUE(call.run("aten.linear.default").ok());
    EXPECT_LT(worst(call.result(), product(at(x), w.values, 5, 12, 32)), 8e-2);
  }
}

TEST(CpuLinear, ZeroActivationsGiveZeroAndNanStaysNan) {
  for (Activations mode : {Activations::exact, Activations::int16, Activations::int8})
    for (int64_t M : {1, 5}) {
      QuantisedWeight w = quantisedWeight(8, 64, 4, 32, false, 7);
      HostTensor x = floats({M, 64}, std::vector<float>(size_t(M) * 64, 0.f));
      TestCall call;
      call.mode = mode;
      call.args = {&x, w.view, std::monostate()};
      ASSERT_TRUE(call.run("aten.linear.default").ok());
      for (int64_t i = 0; i < M * 8; ++i) EXPECT_EQ(call.result()[i], 0.f);
      reinterpret_cast<float*>(x.bytes.data())[3] = NAN;
      ASSERT_TRUE(call.run("aten.linear.default").ok());
      for (int i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(call.result()[i])) << int(mode) << " M " << M;
      if (M > 1) {
        EXPECT_EQ(call.result()[8], 0.f);
      }
    }
}

TEST(CpuLinear, PlainWeights) {
  const auto pool = makeThreadPool(2);
  for (int64_t N : {1, 8, 13, 100})
    for (int64_t K : {1, 7, 33, 500})
      for (int64_t M : {1, 2, 3, 4, 5, 9, 70}) {
        HostTensor w = randomTensor({N, K}, uint32_t(N + K)), x = randomTensor({M, K}, uint32_t(M * K)),
                   bias = randomTensor({N}, 3);
        TestCall call;
        call.threads = pool.get();
        call.args = {&x, &w, &bias};
        ASSERT_TRUE(call.run("aten.linear.default").ok());
        auto want = product(at(x), std::vector<double>(at(w), at(w) + N * K), M, N, K);
        for (int64_t i = 0; i < M * N; ++i) want[size_t(i)] += double(at(bias)[i % N]);
        ASSERT_LT(worst(call.result(), want), 3e-6 * std::sqrt(double(K)) + 1e-6) << N << " " << K << " " << M;
      }
}

double activation(const std::string& name, double v) {
  if (name == "silu") return v / (1 + std::exp(-v));
  if (name == "gelu") return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
  if (name == "gelu_tanh") return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  if (name == "relu") return std::max(v, 0.0);
  return v;
}

// norm, bias, activation, gate and residual together, for plain and quantised weights and both parities of F.
TEST(CpuLinear, FusedParts) {
  const auto pool = makeThreadPool(2);
  for (const char* act : {"none", "silu", "gelu", "gelu_tanh", "relu"})
    for (bool glu : {false, true})
      for (int64_t F : {8, 20, 6})
        for (int64_t M : {1, 5})
          for (int bits : {0, 4, 8}) {
            const int64_t K = 64, N = glu ? 2 * F : F;
            QuantisedWeight w = quantisedWeight(N, K, bits ? bits : 4, 32, false, uint32_t(F));
            std::vector<float> plain(w.values.begin(), w.values.end());
            HostTensor weight = floats({N, K}, plain), x = randomTensor({1, M, K}, 11, 3), bias = randomTensor({N}, 12),
                       residual = randomTensor({1, M, F}, 13), norm = randomTensor({K}, 14);
            TestCall call;
            call.mode = Activations::exact;
            call.threads = pool.get();
            call.args.resize(kLinearArgCount);
            call.args[kLinearX] = &x;
            if (bits) {
              call.args[kLinearWeight] = w.view;
            } else {
              call.args[kLinearWeight] = &weight;
            }
            call.args[kLinearBias] = &bias;
            call.args[kLinearResidual] = &residual;
            call.args[kLinearHasNorm] = true;
            call.args[kLinearNormWeight] = &norm;
            call.args[kLinearNormEps] = 1e-5;
            call.args[kLinearActivation] = std::string(act);
            call.args[kLinearGlu] = glu;
            const Status status = call.run(kFusedLinear);
            ASSERT_TRUE(status.ok()) << status.message();
            std::vector<double> want;
            for (int64_t m = 0; m < M; ++m) {
              double square = 0;
              for (int64_t k = 0; k < K; ++k) square += std::pow(double(at(x)[m * K + k]), 2);
              std::vector<double> z(static_cast<size_t>(N));
              for (int64_t n = 0; n < N; ++n) {
                z[size_t(n)] = double(at(bias)[n]);
                for (int64_t k = 0; k < K; ++k)
                  z[size_t(n)] += double(at(x)[m * K + k]) / std::sqrt(square / double(K) + 1e-5) *
                                  double(at(norm)[k]) * w.values[size_t(n * K + k)];
              }
              for (int64_t f = 0; f < F; ++f)
                want.push_back(activation(act, z[size_t(f)]) * (glu ? z[size_t(F + f)] : 1) +
                               double(at(residual)[m * F + f]));
            }
            ASSERT_LT(worst(call.result(), want), 2e-5)
                << act << " glu " << glu << " F " << F << " M " << M << " bits " << bits;
          }
}

TEST(CpuLinear, RefusesWhatDoesNotFit) {
  HostTensor x = randomTensor({2, 32}, 1), w = randomTensor({4, 31}, 2);
  TestCall call;
  call.args = {&x, &w, std::monostate()};
  EXPECT_EQ(call.run("aten.linear.default").code(), Code::invalid_argument);
}

TEST(CpuEmbedding, QuantisedRows) {
  for (const Scheme& s : kSchemes) {
    QuantisedWeight w = quantisedWeight(13, 128, s.bits, s.group, s.symmetric, 3);
    HostTensor ids = integers({3}, {0, 12, 5});
    TestCall call;
    call.args = {w.view, &ids};
    ASSERT_TRUE(call.run("aten.embedding.default").ok());
    const int64_t rows[] = {0, 12, 5};
    for (int i = 0; i < 3; ++i)
      for (int k = 0; k < 128; ++k) ASSERT_NEAR(call.result()[i * 128 + k], w.values[size_t(rows[i] * 128 + k)], 1e-5);
    HostTensor bad = integers({1}, {13});
    call.args[1] = &bad;
    const Status status = call.run("aten.embedding.default");
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find("aten.embedding"), std::string::npos);
  }
}

}  // namespace
}  // namespace etwgpu::testing
