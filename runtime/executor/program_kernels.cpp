#include "runtime/executor/program_kernels.h"

namespace etwgpu {
namespace {

/// Running sums along the middle of [outer, n, inner]. Sums of floats are kept in double.
template <class T, class Out, class Sum>
void runningSums(const T* in, Out* out, int64_t outer, int64_t n, int64_t inner) {
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      Sum sum = 0;
      for (int64_t k = 0; k < n; ++k) {
        const int64_t at = (o * n + k) * inner + i;
        sum = Sum(sum + Sum(in[at]));
        out[at] = Out(sum);
      }
    }
  }
}

/// cumsum(self, dim, dtype=None): out[…, k, …] = sum of self[…, j, …] over j ≤ k. f32; i64 of any integers.
Status cumsum(CpuCall& call) {
  const TensorView in = call.tensor(0);
  const int64_t rank = int64_t(in.rank()), dim = call.integer(1);
  const int64_t range = rank ? rank : 1;
  if (dim < -range || dim >= range) {
    return {Code::invalid_argument, format("dimension %lld of a tensor of rank %lld", (long long)dim, (long long)rank)};
  }
  ETWGPU_ASSIGN(const TensorView out, call.output(0, in.sizes));
  const int64_t d = dim < 0 ? dim + range : dim;
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < rank; ++i) (i < d ? outer : inner) *= i == d ? 1 : in.sizes[size_t(i)];
  const int64_t n = rank ? in.sizes[size_t(d)] : 1;
  if (in.dtype == DType::f32 && out.dtype == DType::f32) {
    runningSums<float, float, double>(in.as<float>(), out.as<float>(), outer, n, inner);
  } else if (in.dtype == DType::i64 && out.dtype == DType::i64) {
    runningSums<int64_t, int64_t, uint64_t>(in.as<int64_t>(), out.as<int64_t>(), outer, n, inner);
  } else if (in.dtype == DType::i32 && out.dtype == DType::i64) {
    runningSums<int32_t, int64_t, uint64_t>(in.as<int32_t>(), out.as<int64_t>(), outer, n, inner);
  } else if ((in.dtype == DType::boolean || in.dtype == DType::u8) && out.dtype == DType::i64) {
    runningSums<uint8_t, int64_t, uint64_t>(in.as<uint8_t>(), out.as<int64_t>(), outer, n, inner);
  } else {
    return {Code::unsupported_operator,
            std::string("from ") + std::string(dtypeName(in.dtype)) + " to " + std::string(dtypeName(out.dtype))};
  }
  return {};
}

constexpr ProgramKernel kKernels[] = {
    {{"aten::cumsum", "out", "aten.cumsum.default", "TiD?", "012", 1}, cumsum},
};

}  // namespace

const ProgramKernel* findProgramKernel(std::string_view name, std::string_view overload) {
  for (const ProgramKernel& k : kKernels) {
    if (k.name.name == name && k.name.overload == overload) return &k;
  }
  return nullptr;
}

}  // namespace etwgpu
