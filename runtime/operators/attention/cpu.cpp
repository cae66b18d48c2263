// Scaled dot product attention, and the cached attention that the graph passes make of it.
#include <cmath>
#include <cstring>

#include "runtime/graph/fused_ops.h"
#include "runtime/operators/attention/cpu_attend.h"
#include "runtime/operators/common/cpu_common.h"
#include "runtime/operators/common/cpu_simd.h"
#include "runtime/operators/normalization/cpu.h"

namespace etwgpu {
namespace cpu {
namespace {

Status requireCache(const char* op, const TensorView& k, const TensorView& v) {
  if (k.dtype == v.dtype && (k.dtype == DType::f32 || k.dtype == DType::f16)) return {};
  return invalid(std::string(op) + ": both caches must be f32, or both f16");
}

/// The scalar of a start position, checked against the cache.
Status readStart(const char* op, const TensorView& start, int64_t S, int64_t L, int64_t& at) {
  if (!isIndexType(start.dtype) || start.count() != 1) return invalid(std::string(op) + ": start must be one integer");
  at = indexAt(start, 0);
  if (at < 0 || at + S > L)
    return invalid(format("%s: positions %lld to %lld don't fit into a cache of %lld", op, (long long)at,
                          (long long)(at + S - 1), (long long)L));
  return {};
}

/// out[i] = x[i] · cos[i] − x[i + h] · sin[i]; out[i + h] = x[i + h] · cos[i] + x[i] · sin[i]
ETWGPU_KERNEL void rotate(const float* x, const float* table, int64_t h, float* out) {
  const float* sin = table + h;
  for (int64_t i = 0; i < h; ++i) {
    const float a = x[i], b = x[i + h];
    out[i] = a * table[i] - b * sin[i];
    out[i + h] = b * table[i] + a * sin[i];
  }
}

/// n floats into a cache of floats or halves.
ETWGPU_KERNEL void store(const float* from, const TensorView& cache, int64_t at, int64_t n) {
  if (cache.dtype == DType::f32) {
    std::memcpy(cache.as<float>() + at, from, size_t(n) * sizeof(float));
    return;
  }
  uint16_t* to = cache.as<uint16_t>() + at;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) storeHalves(hn::LoadU(DF(), from + i), to + i);
  for (; i < n; ++i) to[i] = floatToHalf(from[i]);
}

/// Norms one head: out = x · rsqrt(mean(x²) + eps) · weight.
struct HeadNorm {
  const float* weight = nullptr;
  float eps = 0;
};

/// Norms and rotates one head; `normed` is room for it.
void writeHead(const float* x, const float* table, int64_t h, const HeadNorm& norm, float* normed, float* out) {
  if (norm.weight) {
    rmsNormRow(x, norm.weight, norm.eps, normed, 2 * h);
    x = normed;
  }
  rotate(x, table, h, out);
}

Status readHeadNorm(CpuCall& call, size_t weight, int64_t D, HeadNorm& norm) {
  if (call.argCount() <= weight || call.isNone(weight)) return {};
  const TensorView w = call.tensor(weight);
  ETWGPU_TRY(requireF32("etwgpu.rope_cache_write", w, "a norm's weight"));
  if (w.count() != D) return invalid("etwgpu.rope_cache_write: a norm's weight of another size");
  norm = {w.as<const float>(), float(call.number(kRopeHeadEps))};
  return {};
}

Status ropeCacheWrite(CpuCall& call) {
  const char* op = "etwgpu.rope_cache_write";
  const TensorView qkv = call.tensor(kRopeQkv), table = call.tensor(kRopeTable), start = call.tensor(kRopeStart),
                   k_cache = call.tensor(kRopeKCache), v_cache = call.tensor(kRopeVCache);
  const int64_t heads = call.integer(kRopeHeads), kv_heads = call.integer(kRopeKvHeads);
  for (const TensorView* t : {&qkv, &table}) ETWGPU_TRY(requireF32(op, *t, "every tensor but start"));
  ETWGPU_TRY(requireCache(op, k_cache, v_cache));
  if (qkv.rank() != 3 || k_cache.rank() != 4 || v_cache.sizes != k_cache.sizes || k_cache.sizes[1] != kv_heads ||
      heads < 1 || qkv.sizes[0] != 1 || k_cache.sizes[0] != 1)
    return invalid(std::string(op) + ": sizes don't fit");
  const int64_t S = qkv.sizes[1], L = k_cache.sizes[2], D = k_cache.sizes[3], h = D / 2;
  if (D % 2 != 0 || qkv.sizes[2] != (heads + 2 * kv_heads) * D || table.rank() != 3 || table.sizes[1] != 2 ||
      table.sizes[2] != h)
    return invalid(std::string(op) + ": sizes don't fit");
  int64_t at = 0;
  const int64_t positions = table.sizes[0];
  if (positions < L) return invalid(std::string(op) + ": a table shorter than the cache");
  ETWGPU_TRY(readStart(op, start, S, positions, at));
  HeadNorm q_norm, k_norm;
  ETWGPU_TRY(readHeadNorm(call, kRopeQNorm, D, q_norm));
  ETWGPU_TRY(readHeadNorm(call, kRopeKNorm, D, k_norm));
  ETWGPU_ASSIGN(const TensorView out, call.output(0, {1, S, heads, D}));
  call.pool().parallelFor(S, rowGrain(qkv.sizes[2]), [&](int64_t b, int64_t e) {
    std::vector<float> normed(size_t(q_norm.weight || k_norm.weight ? D : 0)), key(static_cast<size_t>(D));
    for (int64_t s = b; s < e; ++s) {
      const float *row = qkv.as<float>() + s * qkv.sizes[2], *angles = table.as<float>() + (at + s) * D;
      for (int64_t i = 0; i < heads; ++i)
        writeHead(row + i * D, angles, h, q_norm, normed.data(), out.as<float>() + (s * heads + i) * D);
      for (int64_t i = 0; i < kv_heads; ++i) {
        const int64_t row_at = (i * L + (at + s) % L) * D;
        writeHead(row + (heads + i) * D, angles, h, k_norm, normed.data(), key.data());
        store(key.data(), k_cache, row_at, D);
        store(row + (heads + kv_heads + i) * D, v_cache, row_at, D);
      }
    }
  });
  return {};
}

Status cachedAttention(CpuCall& call) {
  const char* op = "etwgpu.cached_attention";
  const TensorView q = call.tensor(kAttentionQ), k = call.tensor(kAttentionKCache), v = call.tensor(kAttentionVCache);
  ETWGPU_TRY(requireF32(op, q, "q"));
  ETWGPU_TRY(requireCache(op, k, v));
  if (q.rank() != 4 || k.rank() != 4 || v.sizes != k.sizes || q.sizes[0] != 1 || k.sizes[0] != 1 ||
      q.sizes[3] != k.sizes[3] || k.sizes[1] < 1 || q.sizes[2] % k.sizes[1] != 0)
    return invalid(std::string(op) + ": sizes don't fit");
  const int64_t S = q.sizes[1], H = q.sizes[2], D = q.sizes[3], kv_heads = k.sizes[1], L = k.sizes[2], G = H / kv_heads;
  const int64_t window = call.isNone(kAttentionWindow) ? 0 : call.integer(kAttentionWindow);
  const float scale = float(call.number(kAttentionScale));
  const int64_t all = call.isNone(kAttentionPositions) ? L : call.integer(kAttentionPositions);
  const int64_t ring = all > L ? L : 0;
  if (ring && (window < 1 || window + S - 1 > ring))
    return invalid(format("%s: %lld queries and a window of %lld don't fit into a ring of %lld", op, (long long)S,
                          (long long)window, (long long)ring));
  int64_t at = 0;
  ETWGPU_TRY(readStart(op, call.tensor(kAttentionStart), S, all, at));
  ETWGPU_ASSIGN(const TensorView out, call.output(0, {1, S, H * D}));
  // A tile: some positions × the query heads of one cache head. With few positions each query head may be a task of its
  // own.
  const int64_t positions = std::max<int64_t>(1, kAttentionTile / G), tiles = ceilDiv(S, positions);
  call.pool().parallelFor(kv_heads * tiles, 1, [&](int64_t b, int64_t e) {
    std::vector<AttentionRow> rows;
    for (int64_t t = b; t < e; ++t) {
      const int64_t kv = t / tiles, s0 = t % tiles * positions;
      rows.clear();
      for (int64_t s = s0; s < std::min(S, s0 + positions); ++s) {
        for (int64_t g = 0; g < G; ++g) {
          const int64_t offset = (s * H + kv * G + g) * D, p = at + s;
          rows.push_back({q.as<float>() + offset, out.as<float>() + offset,
                          window > 0 ? std::max<int64_t>(0, p - window + 1) : 0, p + 1, nullptr, nullptr, 1});
        }
      }
      const auto attend = [&]<class T>(const T* keys, const T* values) {
        attendTile<T>({keys + kv * L * D, values + kv * L * D, D, D, D, D, scale, ring}, rows);
      };
      if (k.dtype == DType::f16) {
        attend(k.as<const uint16_t>(), v.as<const uint16_t>());
      } else {
        attend(k.as<const float>(), v.as<const float>());
      }
    }
  });
  return {};
}

/// q [..., H, S, D], k [..., Hkv, T, D], v [..., Hkv, T, Dv]; mask broadcasts to [..., H, S, T], bool (true: visible)
/// or f32.
Status sdpa(CpuCall& call) {
  const char* op = "aten.scaled_dot_product_attention";
  const TensorView q = call.tensor(0), k = call.tensor(1), v = call.tensor(2);
  const TensorView mask = call.isNone(3) ? TensorView() : call.tensor(3);
  for (const TensorView* t : {&q, &k, &v}) ETWGPU_TRY(requireF32(op, *t, "q, k and v"));
  const size_t rank = q.rank();
  if (rank < 2 || k.rank() != rank || v.rank() != rank || q.sizes[rank - 1] != k.sizes[rank - 1] ||
      k.sizes[rank - 2] != v.sizes[rank - 2])
    return invalid(std::string(op) + ": " + sizesToString(q.sizes) + ", " + sizesToString(k.sizes) + " and " +
                   sizesToString(v.sizes) + " don't fit");
  const bool causal = !call.isNone(5) && call.flag(5);
  const int64_t S = q.sizes[rank - 2], D = q.sizes[rank - 1], T = k.sizes[rank - 2], Dv = v.sizes[rank - 1];
  const int64_t H = rank > 2 ? q.sizes[rank - 3] : 1, kv_heads = rank > 2 ? k.sizes[rank - 3] : 1;
  const Sizes batch_q(q.sizes.begin(), q.sizes.end() - int64_t(std::min<size_t>(rank, 3)));
  const Sizes batch_k(k.sizes.begin(), k.sizes.end() - int64_t(std::min<size_t>(rank, 3)));
  if (batch_q != batch_k || kv_heads < 1 || H % kv_heads != 0 || (rank > 2 && v.sizes[rank - 3] != kv_heads))
    return invalid(std::string(op) + ": batches or heads of q, k and v don't fit");
  const float scale = call.isNone(6) ? 1.f / std::sqrt(float(D)) : float(call.number(6));
  Sizes sizes = q.sizes, score_sizes = q.sizes;
  sizes[rank - 1] = Dv;
  score_sizes[rank - 1] = T;
  Sizes mask_strides(rank, 0);
  if (mask.data) {
    if (mask.dtype != DType::f32 && mask.dtype != DType::boolean)
      return invalid(std::string(op) + ": the mask must be f32 or bool");
    ETWGPU_ASSIGN(const Sizes fits, broadcastSizes(op, mask.sizes, score_sizes));
    if (fits != score_sizes) return invalid(std::string(op) + ": a mask of " + sizesToString(mask.sizes));
    mask_strides = broadcastStrides(mask.sizes, score_sizes);
  }
  ETWGPU_ASSIGN(const TensorView out, call.output(0, sizes));
  const int64_t heads = elementCount(batch_q) * H, tiles = ceilDiv(S, kAttentionTile);
  call.pool().parallelFor(heads * tiles, 1, [&](int64_t b, int64_t e) {
    std::vector<AttentionRow> rows;
    for (int64_t t = b; t < e; ++t) {
      const int64_t head = t / tiles, s0 = t % tiles * kAttentionTile,
                    kv = head / H * kv_heads + head % H / (H / kv_heads);
      int64_t mask_at = 0, rest = head;
      for (size_t d = rank - 2; d-- > 0; rest /= q.sizes[d]) mask_at += rest % q.sizes[d] * mask_strides[d];
      rows.clear();
      for (int64_t s = s0; s < std::min(S, s0 + kAttentionTile); ++s) {
        const int64_t m = mask_at + s * mask_strides[rank - 2];
        AttentionRow row{q.as<float>() + (head * S + s) * D,
                         out.as<float>() + (head * S + s) * Dv,
                         0,
                         causal ? std::min(T, s + 1) : T,
                         nullptr,
                         nullptr,
                         mask_strides[rank - 1]};
        if (mask.data && mask.dtype == DType::f32) row.bias = mask.as<float>() + m;
        if (mask.data && mask.dtype == DType::boolean) row.visible = mask.as<uint8_t>() + m;
        rows.push_back(row);
      }
      attendTile<float>({k.as<float>() + kv * T * D, v.as<float>() + kv * T * Dv, D, Dv, D, Dv, scale}, rows);
    }
  });
  return {};
}

}  // namespace
}  // namespace cpu

void registerAttentionCpu(CpuRegistry& r) {
  r.add("aten.scaled_dot_product_attention.default", cpu::sdpa);
  r.add(kRopeCacheWrite, cpu::ropeCacheWrite);
  r.add(kCachedAttention, cpu::cachedAttention);
}

}  // namespace etwgpu
