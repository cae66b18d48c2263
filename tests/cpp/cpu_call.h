// Calls of single CPU kernels, with arguments given by position.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <variant>

#include "runtime/executor/cpu_kernel.h"

namespace etwgpu::testing {

using TestArg = std::variant<std::monostate, HostTensor*, std::vector<HostTensor*>, int64_t, Sizes, double, bool,
                             std::string, TensorView, DType>;

class TestCall final : public CpuCall {
 public:
  std::vector<TestArg> args;
  std::vector<DType> output_types{DType::f32};
  std::vector<HostTensor> outputs;
  Activations mode = Activations::automatic;
  ThreadPool* threads = nullptr;

  size_t argCount() const override { return args.size(); }
  bool isNone(size_t a) const override { return a >= args.size() || std::holds_alternative<std::monostate>(args[a]); }
  TensorView tensor(size_t a) const override {
    if (a >= args.size()) return {};
    if (const auto* v = std::get_if<TensorView>(&args[a])) return *v;
    const auto* t = std::get_if<HostTensor*>(&args[a]);
    return t ? (*t)->view() : TensorView();
  }
  std::vector<TensorView> tensors(size_t a) const override {
    std::vector<TensorView> views;
    if (const auto* list = std::get_if<std::vector<HostTensor*>>(&args[a]))
      for (HostTensor* t : *list) views.push_back(t ? t->view() : TensorView());
    return views;
  }
  int64_t integer(size_t a) const override { return int64_t(number(a)); }
  Sizes integers(size_t a) const override {
    const auto* s = a < args.size() ? std::get_if<Sizes>(&args[a]) : nullptr;
    return s ? *s : Sizes();
  }
  double number(size_t a) const override {
    if (a >= args.size()) return 0;
    if (const auto* d = std::get_if<double>(&args[a])) return *d;
    if (const auto* i = std::get_if<int64_t>(&args[a])) return double(*i);
    if (const auto* b = std::get_if<bool>(&args[a])) return *b;
    return 0;
  }
  bool flag(size_t a) const override { return number(a) != 0; }
  std::string text(size_t a) const override {
    const auto* s = a < args.size() ? std::get_if<std::string>(&args[a]) : nullptr;
    return s ? *s : std::string();
  }
  std::optional<DType> dtype(size_t a) const override {
    const auto* t = a < args.size() ? std::get_if<DType>(&args[a]) : nullptr;
    return t ? std::optional(*t) : std::nullopt;
  }
  Result<TensorView> output(size_t k, const Sizes& sizes) override {
    if (outputs.size() <= k) outputs.resize(k + 1);
    HostTensor& t = outputs[k];
    t.dtype = outputDType(k);
    t.sizes = sizes;
    t.bytes.assign(size_t(elementCount(sizes)) * dtypeSize(t.dtype), 0xcd);
    return t.view();
  }
  DType outputDType(size_t k) const override { return k < output_types.size() ? output_types[k] : DType::f32; }
  void* scratch(size_t bytes) override {
    scratch_.emplace_back(bytes + 128, uint8_t(0xcd));
    auto p = reinterpret_cast<uintptr_t>(scratch_.back().data());
    return reinterpret_cast<void*>((p + 63) / 64 * 64);
  }
  ThreadPool& pool() const override {
    static const std::unique_ptr<ThreadPool> one = makeThreadPool(1);
    return threads ? *threads : *one;
  }
  Activations activations() const override { return mode; }

  Status run(std::string_view op) {
    const CpuKernel kernel = findCpuKernel(op);
    return kernel ? kernel(*this) : Status(Code::unsupported_operator, std::string(op));
  }
  const float* result(size_t k = 0) const { return reinterpret_cast<const float*>(outputs[k].bytes.data()); }

 private:
  std::vector<std::vector<uint8_t>> scratch_;
};

inline HostTensor floats(Sizes sizes, std::vector<float> values) {
  HostTensor t{DType::f32, std::move(sizes), {}};
  t.bytes.resize(values.size() * 4);
  if (!values.empty()) std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}
inline HostTensor integers(Sizes sizes, std::vector<int64_t> values) {
  HostTensor t{DType::i64, std::move(sizes), {}};
  t.bytes.resize(values.size() * 8);
  if (!values.empty()) std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
  return t;
}
inline std::vector<float> gaussian(int64_t n, uint32_t seed, float scale = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> d;
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = d(rng) * scale;
  return v;
}
inline HostTensor randomTensor(Sizes sizes, uint32_t seed, float scale = 1) {
  const int64_t n = elementCount(sizes);
  return floats(std::move(sizes), gaussian(n, seed, scale));
}
inline const float* at(const HostTensor& t) { return reinterpret_cast<const float*>(t.bytes.data()); }

/// A random weight in packing R4 and the same values in double.
struct QuantisedWeight {
  std::vector<uint8_t> words;
  std::vector<uint8_t> constants;
  std::vector<double> values;  // [N][K]
  TensorView view;
};
inline QuantisedWeight quantisedWeight(int64_t N, int64_t K, int bits, int group, bool symmetric, uint32_t seed) {
  QuantisedWeight w;
  std::mt19937 rng(seed);
  const int64_t padded = (N + 7) / 8 * 8;
  w.values.resize(size_t(N * K));
  std::uniform_real_distribution<float> scale_of(0.01f, 0.1f);
  if (bits == 8) {
    w.words.assign(size_t(padded * K), 0);
    w.constants.assign(size_t(padded * 4), 0);
    for (int64_t n = 0; n < N; ++n) {
      const float scale = scale_of(rng);
      std::memcpy(w.constants.data() + n * 4, &scale, 4);
      for (int64_t k = 0; k < K; ++k) {
        const int q = int(rng() % 255) - 127;
        w.words[size_t(((n / 4 * (K / 4) + k / 4) * 4 + n % 4) * 4 + k % 4)] = uint8_t(q);
        w.values[size_t(n * K + k)] = double(q) * scale;
      }
    }
  } else {
    const int per = symmetric ? 4 : 8;
    w.words.assign(size_t(padded * K / 2), 0);
    w.constants.assign(size_t(padded / 4 * (K / group) * per * 2), 0);
    auto* c = reinterpret_cast<uint16_t*>(w.constants.data());
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k) {
        uint16_t* pc = c + (n / 4 * (K / group) + k / group) * per;
        if (k % group == 0) {
          pc[n % 4] = floatToHalf(scale_of(rng));
          if (!symmetric) pc[4 + n % 4] = floatToHalf(-scale_of(rng) * 7);
        }
        const int q = int(rng() % 16);
        const double s = halfToFloat(pc[n % 4]);
        w.values[size_t(n * K + k)] = symmetric ? (q - 8) * s : q * s + double(halfToFloat(pc[4 + n % 4]));
        const int within = int(k % 8);
        w.words[size_t(((n / 4 * (K / 8) + k / 8) * 4 + n % 4) * 4 + within % 4)] |= uint8_t(within < 4 ? q : q << 4);
      }
  }
  w.view = {DType::f32, {N, K}, w.words.data(), {bits, group, symmetric, 0}, w.constants.data()};
  return w;
}

}  // namespace etwgpu::testing
