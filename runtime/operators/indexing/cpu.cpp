// Reads and writes at indices that are data: embedding, index, index_put, index_select, slices of states.
#include "runtime/operators/indexing/cpu.h"

#include <cstring>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/common/cpu_common.h"

namespace etwgpu {
namespace cpu {

void dequantiseRow(const void* words, const void* constants, int bits, int group, bool symmetric, int64_t K, int64_t n,
                   float* out) {
  const auto* q = static_cast<const uint8_t*>(words);
  const int64_t block = n / 4, r = n % 4;
  if (bits == 8) {
    const float scale = static_cast<const float*>(constants)[n];
    const auto* p = reinterpret_cast<const int8_t*>(q) + block * K * 4 + r * 4;
    for (int64_t k = 0; k < K; ++k) out[k] = float(p[k / 4 * 16 + k % 4]) * scale;
    return;
  }
  const auto* c = static_cast<const uint16_t*>(constants);
  const int per_group = symmetric ? 4 : 8;
  const uint8_t* p = q + block * K * 2 + r * 4;
  for (int64_t g = 0; g < K / group; ++g) {
    const uint16_t* pc = c + (block * (K / group) + g) * per_group;
    const float scale = halfToFloat(pc[r]), minimum = symmetric ? -8 * scale : halfToFloat(pc[4 + r]);
    for (int64_t k = g * group; k < (g + 1) * group; k += 8) {
      const uint8_t* word = p + k / 8 * 16;
      for (int i = 0; i < 4; ++i) {
        out[k + i] = float(word[i] & 15) * scale + minimum;
        out[k + 4 + i] = float(word[i] >> 4) * scale + minimum;
      }
    }
  }
}

namespace {

Status outOfRange(const char* op, int64_t index, int64_t size) {
  return invalid(
      format("%s: index %lld is out of range for a dimension of %lld", op, (long long)index, (long long)size));
}

Status embedding(CpuCall& call) {
  const char* op = "aten.embedding";
  const TensorView w = call.tensor(0), indices = call.tensor(1);
  if (w.rank() != 2) return invalid("aten.embedding: the weight must have two dimensions");
  if (!isIndexType(indices.dtype)) return invalid("aten.embedding: indices must be i64 or i32");
  Sizes sizes = indices.sizes;
  sizes.push_back(w.sizes[1]);
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  const int64_t K = w.sizes[1], count = indices.count();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = indexAt(indices, i);
    if (at < 0 || at >= w.sizes[0]) return outOfRange(op, at, w.sizes[0]);
  }
  const size_t row = size_t(K) * dtypeSize(w.dtype);
  if (out.dtype != w.dtype) return invalid("aten.embedding: the result has another type");
  call.pool().parallelFor(count, rowGrain(K), [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      const int64_t at = indexAt(indices, i);
      if (w.quantization.bits) {
        dequantiseRow(w.data, w.quant_constants, w.quantization.bits, w.quantization.group, w.quantization.symmetric, K,
                      at, out.as<float>() + i * K);
      } else {
        std::memcpy(out.as<uint8_t>() + size_t(i) * row, w.as<uint8_t>() + size_t(at) * row, row);
      }
    }
  });
  return {};
}

/// Advanced indexing: where the broadcast index tensors and the dimensions that stay come to lie in the result.
struct Indexed {
  Sizes result;                  // sizes of self[indices]
  Sizes index_sizes;             // of the broadcast index tensors
  size_t index_at = 0;           // their first dimension in the result
  Sizes kept_sizes;              // dimensions of self that stay, in order
  Sizes kept_self;               // their strides
  std::vector<int64_t> offsets;  // into self, per index
};

Status resolve(const char* op, const TensorView& self, const std::vector<TensorView>& indices, Indexed& out) {
  if (indices.size() > self.rank()) return invalid(std::string(op) + ": more indices than dimensions");
  size_t first = self.rank(), last = 0, used = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].data && indices[d].rank() == 0) continue;
    if (!isIndexType(indices[d].dtype)) return invalid(std::string(op) + ": index tensors must be i64 or i32");
    ETWGPU_ASSIGN(out.index_sizes, broadcastSizes(op, out.index_sizes, indices[d].sizes));
    first = std::min(first, d);
    last = d;
    ++used;
  }
  if (used == 0) return invalid(std::string(op) + ": no index tensor");
  out.index_at = last - first + 1 == used ? first : 0;  // apart from each other: in front
  const Sizes strides = contiguousStrides(self.sizes);
  out.offsets.assign(size_t(elementCount(out.index_sizes)), 0);
  for (size_t d = 0; d < self.rank(); ++d) {
    if (d >= indices.size() || (!indices[d].data && indices[d].rank() == 0)) {
      out.kept_sizes.push_back(self.sizes[d]);
      out.kept_self.push_back(strides[d]);
      continue;
    }
    const Sizes read = broadcastStrides(indices[d].sizes, out.index_sizes);
    for (size_t i = 0; i < out.offsets.size(); ++i) {
      int64_t rest = int64_t(i), from = 0;
      for (size_t k = out.index_sizes.size(); k-- > 0; rest /= out.index_sizes[k])
        from += rest % out.index_sizes[k] * read[k];
      const int64_t given = indexAt(indices[d], from), at = given < 0 ? given + self.sizes[d] : given;
      if (at < 0 || at >= self.sizes[d]) return outOfRange(op, given, self.sizes[d]);
      out.offsets[i] += at * strides[d];
    }
  }
  out.result = out.kept_sizes;
  out.result.insert(out.result.begin() + int64_t(out.index_at), out.index_sizes.begin(), out.index_sizes.end());
  return {};
}

/// For every index the kept dimensions between self (at its offset) and the result (at the index's position).
/// `to_self`: writes into self, else reads from it. result_strides: of all dimensions of the result.
void transfer(const Indexed& ix, uint8_t* self, uint8_t* result, const Sizes& result_strides, size_t element,
              bool to_self, ThreadPool& pool) {
  Sizes kept_result, index_strides;
  for (size_t d = 0; d < ix.result.size(); ++d)
    (d >= ix.index_at && d < ix.index_at + ix.index_sizes.size() ? index_strides : kept_result)
        .push_back(result_strides[d]);
  const int64_t kept = elementCount(ix.kept_sizes);
  const bool rows = kept_result == ix.kept_self && ix.kept_self == contiguousStrides(ix.kept_sizes);
  const auto one = [&](int64_t i) {
    int64_t rest = i, at = 0;
    for (size_t k = ix.index_sizes.size(); k-- > 0; rest /= ix.index_sizes[k])
      at += rest % ix.index_sizes[k] * index_strides[k];
    uint8_t *s = self + ix.offsets[size_t(i)] * int64_t(element), *r = result + at * int64_t(element);
    if (rows && kept == 1 && element == 4) {
      std::memcpy(to_self ? s : r, to_self ? r : s, 4);
    } else if (rows) {
      std::memcpy(to_self ? s : r, to_self ? r : s, size_t(kept) * element);
    } else if (to_self) {
      copyStrided(s, ix.kept_self, r, kept_result, ix.kept_sizes, element, pool);
    } else {
      copyStrided(r, kept_result, s, ix.kept_self, ix.kept_sizes, element, pool);
    }
  };
  const int64_t count = int64_t(ix.offsets.size());
  if (to_self || !rows) {  // in order: of equal indices the last one wins
    for (int64_t i = 0; i < count; ++i) one(i);
    return;
  }
  pool.parallelFor(count, rowGrain(kept), [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) one(i);
  });
}

Status index(CpuCall& call) {
  const TensorView self = call.tensor(0);
  Indexed ix;
  ETWGPU_TRY(resolve("aten.index", self, call.tensors(1), ix));
  ETWGPU_ASSIGN(const TensorView out, call.output(0, ix.result));
  if (out.dtype != self.dtype) return invalid("aten.index: the result has another type");
  transfer(ix, self.as<uint8_t>(), out.as<uint8_t>(), contiguousStrides(ix.result), dtypeSize(self.dtype), false,
           call.pool());
  return {};
}

Status indexPut(CpuCall& call) {
  const TensorView self = call.tensor(0), values = call.tensor(2);
  if (!call.isNone(3) && call.flag(3)) return Status(Code::unsupported_operator, "aten.index_put: accumulate");
  Indexed ix;
  ETWGPU_TRY(resolve("aten.index_put", self, call.tensors(1), ix));
  ETWGPU_ASSIGN(const Sizes sizes, broadcastSizes("aten.index_put", values.sizes, ix.result));
  if (sizes != ix.result || values.dtype != self.dtype) return invalid("aten.index_put: the values don't fit");
  ETWGPU_ASSIGN(const TensorView out, call.output(0, self.sizes));
  if (out.dtype != self.dtype) return invalid("aten.index_put: the result has another type");
  if (self.bytes()) std::memcpy(out.data, self.data, self.bytes());
  transfer(ix, out.as<uint8_t>(), values.as<uint8_t>(), broadcastStrides(values.sizes, ix.result),
           dtypeSize(self.dtype), true, call.pool());
  return {};
}

Status indexSelect(CpuCall& call) {
  const TensorView x = call.tensor(0), indices = call.tensor(2);
  const int64_t dim = wrapDim(call.integer(1), x.rank());
  if (dim < 0 || x.rank() == 0) return invalid("aten.index_select: no such dimension");
  if (!isIndexType(indices.dtype) || indices.rank() > 1)
    return invalid("aten.index_select: the index must be a list of integers");
  Sizes sizes = x.sizes;
  sizes[size_t(dim)] = indices.count();
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  if (out.dtype != x.dtype) return invalid("aten.index_select: the result has another type");
  const Around a = around(x.sizes, dim);
  const size_t row = size_t(a.inner) * dtypeSize(x.dtype);
  for (int64_t i = 0; i < indices.count(); ++i) {
    const int64_t at = indexAt(indices, i);
    if (at < 0 || at >= a.n) return outOfRange("aten.index_select", at, a.n);
    for (int64_t o = 0; o < a.outer; ++o)
      std::memcpy(out.as<uint8_t>() + size_t(o * indices.count() + i) * row,
                  x.as<uint8_t>() + size_t(o * a.n + at) * row, row);
  }
  return {};
}

Status sliceScatter(CpuCall& call) {
  const TensorView self = call.tensor(0), src = call.tensor(1);
  const int64_t dim = wrapDim(call.isNone(2) ? 0 : call.integer(2), self.rank());
  const int64_t step = call.isNone(5) ? 1 : call.integer(5);
  if (dim < 0 || self.rank() == 0) return invalid("aten.slice_scatter: no such dimension");
  if (step < 1) return invalid("aten.slice_scatter: the step must be positive");
  const int64_t size = self.sizes[size_t(dim)];
  const auto bound = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t start = call.isNone(3) ? 0 : bound(call.integer(3));
  const int64_t end = call.isNone(4) ? size : std::max(start, bound(call.integer(4)));
  Sizes part = self.sizes;
  part[size_t(dim)] = (end - start + step - 1) / step;
  if (part != src.sizes || src.dtype != self.dtype)
    return invalid("aten.slice_scatter: the source has sizes " + sizesToString(src.sizes) + ", the slice " +
                   sizesToString(part));
  ETWGPU_ASSIGN(const TensorView out, call.output(0, self.sizes));
  if (out.dtype != self.dtype) return invalid("aten.slice_scatter: the result has another type");
  if (self.bytes()) std::memcpy(out.data, self.data, self.bytes());
  Sizes strides = contiguousStrides(self.sizes);
  const int64_t offset = start * strides[size_t(dim)];
  strides[size_t(dim)] *= step;
  copyStrided(out.as<uint8_t>() + offset * int64_t(dtypeSize(self.dtype)), strides, src.data,
              contiguousStrides(src.sizes), part, dtypeSize(self.dtype), call.pool());
  return {};
}

/// The source, broadcast to self's sizes.
Status copy(CpuCall& call) {
  const TensorView self = call.tensor(0), src = call.tensor(1);
  ETWGPU_ASSIGN(const Sizes sizes, broadcastSizes("aten.copy", src.sizes, self.sizes));
  if (sizes != self.sizes || src.dtype != self.dtype) return invalid("aten.copy: the source doesn't fit");
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  if (out.dtype != src.dtype) return invalid("aten.copy: the result has another type");
  copyStrided(out.data, contiguousStrides(sizes), src.data, broadcastStrides(src.sizes, sizes), sizes,
              dtypeSize(src.dtype), call.pool());
  return {};
}

Status stateCopy(CpuCall& call) {
  const TensorView state = call.tensor(0), value = call.tensor(1);
  if (state.bytes() != value.bytes()) return invalid("etwgpu.state_copy: the value has other sizes than the state");
  if (state.bytes()) std::memmove(state.data, value.data, state.bytes());
  return {};
}

Status stateIndexPut(CpuCall& call) {
  const TensorView state = call.tensor(kStateIndexPutState), indices = call.tensor(kStateIndexPutIndex),
                   value = call.tensor(kStateIndexPutValue);
  const int64_t dim = wrapDim(call.integer(kStateIndexPutDim), state.rank());
  if (dim < 0 || state.rank() == 0 || !isIndexType(indices.dtype))
    return invalid("etwgpu.state_index_put: wrong arguments");
  Sizes expected = state.sizes;
  expected[size_t(dim)] = indices.count();
  if (value.sizes != expected || value.dtype != state.dtype)
    return invalid("etwgpu.state_index_put: the value doesn't fit");
  const Around a = around(state.sizes, dim);
  const size_t row = size_t(a.inner) * dtypeSize(state.dtype);
  const int64_t n = indices.count();
  for (int64_t o = 0; o < a.outer; ++o) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = indexAt(indices, i);
      if (at < 0 || at >= a.n) continue;  // as on the GPU
      std::memcpy(state.as<uint8_t>() + size_t(o * a.n + at) * row, value.as<uint8_t>() + size_t(o * n + i) * row, row);
    }
  }
  return {};
}

}  // namespace
}  // namespace cpu

void registerIndexingCpu(CpuRegistry& r) {
  r.add("aten.embedding.default", cpu::embedding);
  r.add("aten.index.Tensor", cpu::index);
  r.add("aten.index_put.default", cpu::indexPut);
  r.add("aten.index_select.default", cpu::indexSelect);
  r.add("aten.slice_scatter.default", cpu::sliceScatter);
  r.add("aten.copy.default", cpu::copy);
  r.add(kStateCopy, cpu::stateCopy);
  r.add(kStateIndexPut, cpu::stateIndexPut);
}

}  // namespace etwgpu
