// Linear layers and matrix products.
#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/cpu_common.h"
#include "runtime/operators/matmul/cpu_gemm.h"
#include "runtime/operators/matmul/cpu_linear.h"

namespace etwgpu {
namespace cpu {
namespace {

Status linear(CpuCall& call) {
  LinearArgs args;
  args.x = call.tensor(0);
  args.weight = call.tensor(1);
  if (!call.isNone(2)) args.bias = call.tensor(2);
  return runLinear(call, args);
}

Status fusedLinear(CpuCall& call) {
  LinearArgs args;
  args.x = call.tensor(kLinearX);
  if (!call.isNone(kLinearRow)) {
    const int64_t row = call.integer(kLinearRow);
    if (args.x.rank() != 3 || args.x.sizes[0] != 1 || row < 0 || row >= args.x.sizes[1])
      return invalid(format("etwgpu.linear: no row %lld", (long long)row));
    args.x.data = args.x.as<float>() + row * args.x.sizes[2];
    args.x.sizes = {1, args.x.sizes[2]};
  }
  args.weight = call.tensor(kLinearWeight);
  if (!call.isNone(kLinearBias)) args.bias = call.tensor(kLinearBias);
  if (!call.isNone(kLinearResidual)) args.residual = call.tensor(kLinearResidual);
  if (!call.isNone(kLinearNormWeight)) args.norm_weight = call.tensor(kLinearNormWeight);
  args.has_norm = !call.isNone(kLinearHasNorm) && call.flag(kLinearHasNorm);
  args.norm_eps = float(call.number(kLinearNormEps));
  args.glu = !call.isNone(kLinearGlu) && call.flag(kLinearGlu);
  if (!call.isNone(kLinearActivation) && !parseAct(call.text(kLinearActivation), args.activation))
    return invalid("etwgpu.linear: unknown activation '" + call.text(kLinearActivation) + "'");
  return runLinear(call, args);
}

void multiply(CpuCall& call, const float* a, const float* b, float* c, int64_t M, int64_t N, int64_t K) {
  gemm(a, K, StridedPanels(b, N, 1, N), c, N, M, N, K, call.pool());
}

Status checkMatrices(const char* op, const TensorView& a, const TensorView& b, size_t rank) {
  ETWGPU_TRY(requireF32(op, a, "first matrix"));
  ETWGPU_TRY(requireF32(op, b, "second matrix"));
  if (a.rank() != rank || b.rank() != rank || a.sizes[rank - 1] != b.sizes[rank - 2] ||
      (rank == 3 && a.sizes[0] != b.sizes[0]))
    return invalid(std::string(op) + ": " + sizesToString(a.sizes) + " and " + sizesToString(b.sizes) +
                   " don't multiply");
  return {};
}

Status mm(CpuCall& call) {
  const TensorView a = call.tensor(0), b = call.tensor(1);
  ETWGPU_TRY(checkMatrices("aten.mm", a, b, 2));
  ETWGPU_ASSIGN(const TensorView out, call.output(0, {a.sizes[0], b.sizes[1]}));
  multiply(call, a.as<float>(), b.as<float>(), out.as<float>(), a.sizes[0], b.sizes[1], a.sizes[1]);
  return {};
}

/// beta · self + alpha · (mat1 @ mat2)
Status addmm(CpuCall& call) {
  const TensorView self = call.tensor(0), a = call.tensor(1), b = call.tensor(2);
  ETWGPU_TRY(checkMatrices("aten.addmm", a, b, 2));
  ETWGPU_TRY(requireF32("aten.addmm", self, "self"));
  const float beta = call.isNone(3) ? 1.f : float(call.number(3)), alpha = call.isNone(4) ? 1.f : float(call.number(4));
  const Sizes sizes{a.sizes[0], b.sizes[1]};
  ETWGPU_ASSIGN(const Sizes fits, broadcastSizes("aten.addmm", self.sizes, sizes));
  if (fits != sizes) return invalid("aten.addmm: self doesn't broadcast to the product");
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  multiply(call, a.as<float>(), b.as<float>(), out.as<float>(), sizes[0], sizes[1], a.sizes[1]);
  const Sizes strides = broadcastStrides(self.sizes, sizes);
  for (int64_t m = 0; m < sizes[0]; ++m) {
    float* row = out.as<float>() + m * sizes[1];
    const float* s = self.as<float>() + m * strides[0];
    for (int64_t n = 0; n < sizes[1]; ++n) row[n] = alpha * row[n] + (beta == 0 ? 0.f : beta * s[n * strides[1]]);
  }
  return {};
}

/// Products of batches: whole products per thread where there are enough, else threads inside a product.
void multiplyBatches(CpuCall& call, int64_t batches, int64_t M, int64_t N, int64_t K,
                     const std::function<const float*(int64_t)>& a, const std::function<const float*(int64_t)>& b,
                     float* out) {
  if (batches < 2 * call.pool().threads()) {
    for (int64_t i = 0; i < batches; ++i) multiply(call, a(i), b(i), out + i * M * N, M, N, K);
    return;
  }
  call.pool().parallelFor(batches, std::max<int64_t>(1, 100000 / std::max<int64_t>(1, M * N * K)),
                          [&](int64_t first, int64_t end) {
                            for (int64_t i = first; i < end; ++i)
                              gemmColumns(a(i), K, StridedPanels(b(i), N, 1, N), out + i * M * N, N, M, K, 0, N);
                          });
}

Status bmm(CpuCall& call) {
  const TensorView a = call.tensor(0), b = call.tensor(1);
  ETWGPU_TRY(checkMatrices("aten.bmm", a, b, 3));
  const int64_t M = a.sizes[1], K = a.sizes[2], N = b.sizes[2];
  ETWGPU_ASSIGN(const TensorView out, call.output(0, {a.sizes[0], M, N}));
  const float *pa = a.as<float>(), *pb = b.as<float>();
  multiplyBatches(
      call, a.sizes[0], M, N, K, [=](int64_t i) { return pa + i * M * K; }, [=](int64_t i) { return pb + i * K * N; },
      out.as<float>());
  return {};
}

/// NumPy's rule: vectors become matrices, batch dimensions broadcast.
Status matmul(CpuCall& call) {
  TensorView a = call.tensor(0), b = call.tensor(1);
  ETWGPU_TRY(requireF32("aten.matmul", a, "first matrix"));
  ETWGPU_TRY(requireF32("aten.matmul", b, "second matrix"));
  if (a.rank() == 0 || b.rank() == 0) return invalid("aten.matmul: of a scalar");
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) a.sizes.insert(a.sizes.begin(), 1);
  if (column) b.sizes.push_back(1);
  const int64_t M = a.sizes[a.rank() - 2], K = a.sizes.back(), N = b.sizes.back();
  if (b.sizes[b.rank() - 2] != K)
    return invalid("aten.matmul: " + sizesToString(a.sizes) + " and " + sizesToString(b.sizes) + " don't multiply");
  const Sizes batch_a(a.sizes.begin(), a.sizes.end() - 2), batch_b(b.sizes.begin(), b.sizes.end() - 2);
  ETWGPU_ASSIGN(const Sizes batch, broadcastSizes("aten.matmul", batch_a, batch_b));
  Sizes sizes = batch;
  if (!row) sizes.push_back(M);
  if (!column) sizes.push_back(N);
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  if (batch_b.empty()) {  // one right-hand matrix: all rows at once
    multiply(call, a.as<float>(), b.as<float>(), out.as<float>(), elementCount(batch) * M, N, K);
    return {};
  }
  const Sizes sa = broadcastStrides(batch_a, batch), sb = broadcastStrides(batch_b, batch);
  const auto at = [&batch](const float* p, const Sizes& strides, int64_t matrix, int64_t i) {
    for (size_t d = batch.size(); d-- > 0; i /= batch[d]) p += i % batch[d] * strides[d] * matrix;
    return p;
  };
  const float *pa = a.as<float>(), *pb = b.as<float>();
  multiplyBatches(
      call, elementCount(batch), M, N, K, [&](int64_t i) { return at(pa, sa, M * K, i); },
      [&](int64_t i) { return at(pb, sb, K * N, i); }, out.as<float>());
  return {};
}

}  // namespace
}  // namespace cpu

void registerMatmulCpu(CpuRegistry& r) {
  r.add("aten.linear.default", cpu::linear);
  r.add("aten.mm.default", cpu::mm);
  r.add("aten.addmm.default", cpu::addmm);
  r.add("aten.bmm.default", cpu::bmm);
  r.add("aten.matmul.default", cpu::matmul);
  r.add(kFusedLinear, cpu::fusedLinear);
}

}  // namespace etwgpu
