// The operators that passes create. Executors implement them beside the ATen operators; arguments are positional, and
// the enums below name the positions.
#pragma once

#include <string_view>

namespace etwgpu {

/// y = act(norm(x) · Wᵀ + bias) [· gate] + residual
///   x [..., K] f32; weight [N, K] (plain f32 or quantised); bias [N] or None
///   norm(x) = x · rsqrt(mean(x²) + eps) · norm_weight, or x where norm_weight is None and has_norm false
///   glu false: y[n] = act(z[n]) + residual[n];   N outputs
///   glu true:  weight holds 2F rows, gate first then up; y[f] = act(z[f]) · z[F + f] + residual[f];   F outputs
///   activation: "none", "silu", "gelu", "gelu_tanh", "relu"
inline constexpr std::string_view kFusedLinear = "etwgpu.linear";
enum FusedLinearArg {
  kLinearX,
  kLinearWeight,
  kLinearBias,
  kLinearResidual,
  kLinearHasNorm,
  kLinearNormWeight,
  kLinearNormEps,
  kLinearActivation,
  kLinearGlu,
  kLinearArgCount,
  /// After the others, where a linear needs one row only: x [1, S, K], row an index expression; y [1, N].
  kLinearRow = kLinearArgCount
};

/// Rotary embedding of the query and key parts of qkv, and the write of key and value into the cache.
///   qkv [1, S, (Hq + 2 Hkv) · D]; table [L, 2, D/2] f32 (cos, then sin); start: int tensor [1]; row s of qkv is
///   position start + s. Rotation pairs element i with i + D/2 ("half" convention). k_cache, v_cache: states [1, Hkv,
///   C, D], positions start … start + S − 1 are overwritten, position p in row p mod C: C is L, or less (a ring, see
///   etwgpu.cached_attention). output: q [1, S, Hq, D], rotated. q_norm, k_norm [D] or both None: an RMS norm of each
///   query and key head before the rotation, with head_eps.
inline constexpr std::string_view kRopeCacheWrite = "etwgpu.rope_cache_write";
enum RopeCacheWriteArg {
  kRopeQkv,
  kRopeTable,
  kRopeStart,
  kRopeKCache,
  kRopeVCache,
  kRopeHeads,
  kRopeKvHeads,
  kRopeQNorm,
  kRopeKNorm,
  kRopeHeadEps,
  kRopeArgCount
};

/// Attention of S queries at positions start … start + S − 1 over the cache, causal, reading only the used part.
///   q [1, S, Hq, D]; output [1, S, Hq · D]. Key position j is visible to the query at position p if
///   j <= p and (window == 0 or j > p − window). scale multiplies the scores. The caches [1, Hkv, C, D] have a row for
///   each position, or there are more positions than rows: then position p lies in row p mod C, C is a multiple of
///   kRingAlignment, and window + S − 1 <= C. positions: how many there are; None: C.
inline constexpr std::string_view kCachedAttention = "etwgpu.cached_attention";
enum CachedAttentionArg {
  kAttentionQ,
  kAttentionKCache,
  kAttentionVCache,
  kAttentionStart,
  kAttentionScale,
  kAttentionWindow,
  kAttentionPositions,
  kAttentionArgCount
};
/// Keys that begin at a multiple of it, at most so many, lie one after another in a ring.
inline constexpr int64_t kRingAlignment = 64;

/// etwgpu.rope_cache_write behind its etwgpu.linear (no activation, glu or residual), as one operator: with one row,
/// one kernel. x [1, S, K]; the other arguments and the output q [1, S, Hq, D] as in the two.
inline constexpr std::string_view kQkvCacheWrite = "etwgpu.qkv_cache_write";
enum QkvCacheWriteArg {
  kQkvX,
  kQkvWeight,
  kQkvBias,
  kQkvHasNorm,
  kQkvNormWeight,
  kQkvNormEps,
  kQkvTable,
  kQkvStart,
  kQkvKCache,
  kQkvVCache,
  kQkvHeads,
  kQkvKvHeads,
  kQkvQNorm,
  kQkvKNorm,
  kQkvHeadEps,
  kQkvArgCount
};

/// y = cached_attention(q, …) · Wᵀ + bias + residual: with one row, the parts of the attention meet in the product.
///   the first arguments are those of etwgpu.cached_attention; weight [N, Hq · D]; bias [N] or None; residual, y
///   [1, S, N] or None
inline constexpr std::string_view kAttentionLinear = "etwgpu.attention_linear";
enum AttentionLinearArg {
  kAttentionLinearWeight = kAttentionArgCount,
  kAttentionLinearBias,
  kAttentionLinearResidual,
  kAttentionLinearArgCount
};

/// y = rms_norm(x) + residual: what a norm behind attention or MLP gives, added to the stream. The arguments of
/// aten.rms_norm.default (input, normalized_shape, weight, eps), then the residual, of the sizes of x.
inline constexpr std::string_view kNormResidual = "etwgpu.norm_residual";
enum NormResidualArg { kNormX, kNormShape, kNormWeight, kNormEps, kNormResidualAdded, kNormResidualArgCount };

/// A group of pointwise operators and strided reads as one kernel: args are the tensors of Node::pointwise->inputs in
/// order.
inline constexpr std::string_view kPointwise = "etwgpu.pointwise";

/// Convolution with folded activation: arguments of aten.convolution.default, then activation ("none", "relu", "relu6",
/// "silu", "hardswish"), then residual (added after the activation) or None.
inline constexpr std::string_view kFusedConvolution = "etwgpu.convolution";
enum FusedConvolutionArg {
  kConvX,
  kConvWeight,
  kConvBias,
  kConvStride,
  kConvPadding,
  kConvDilation,
  kConvTransposed,
  kConvOutputPadding,
  kConvGroups,
  kConvActivation,
  kConvResidual,
  kConvArgCount
};

// ---- states
// ---------------------------------------------------------------------------------------------------------- After
// runPasses a graph has no `mutations` left: every change of a state is a node, which takes the state as an argument
// and writes it. Readers of the state that stand before the node see the old content, those after it the new one.

/// Overwrites slices of a state in place: state.index_copy_(dim, index, value). No output.
///   state [..., L, ...]; dim: int, >= 0; index: i64 or i32 [n], a negative entry counts from the end, one outside [-L,
///   L) is skipped; value: dims of the state with n instead of L at `dim`, same dtype, never the state's own bytes.
inline constexpr std::string_view kStateIndexPut = "etwgpu.state_index_put";
enum StateIndexPutArg {
  kStateIndexPutState,
  kStateIndexPutDim,
  kStateIndexPutIndex,
  kStateIndexPutValue,
  kStateIndexPutArgCount
};

/// Copies a value into a state (a mutation that no in-place operator serves): args state, value (same dims and dtype,
/// other bytes); no output.
inline constexpr std::string_view kStateCopy = "etwgpu.state_copy";

}  // namespace etwgpu
