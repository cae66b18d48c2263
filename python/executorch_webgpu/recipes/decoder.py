"""One plain decoder-only language model, configured per family.

A single method serves prefill and decode: `forward(ids, start)` writes the keys and values of `ids` into static caches
at positions start, start + 1, … and attends to everything up to there. Nothing here knows about the runtime: attention
is `scaled_dot_product_attention` with a boolean mask, the cache is `index_copy_` into a buffer, and a graph pass of the
runtime makes one fused cached attention of the two.

Modules carry the names that Hugging Face checkpoints use (`layers.0.self_attn.q_proj`, …), so a family recipe only
strips a prefix. What a family adds to a layer is found here in one place each: biases come with the weights,
positions in `rotary_frequencies`, the visible keys in `Decoder.mask`, norms in `DecoderLayer`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from executorch_webgpu.quantization import QuantizedEmbedding, QuantizedLinear, QuantizedWeight

# Checkpoint name → tensor, or a quantised weight for the matrices.
Weights = Mapping[str, "Tensor | QuantizedWeight"]


@dataclass(frozen=True)
class RopeScaling:
    """The `llama3` scaling of rotary frequencies (Llama 3.1 and later)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_len: int


@dataclass(frozen=True)
class DecoderConfig:
    """Geometry and arithmetic of a decoder. Later families add fields, with defaults that change nothing."""

    vocab_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    tied_embedding: bool = True
    max_len: int = 2048  # positions in the cache; a call may bring 1 … max_len - 1 of them
    logits: str = "last"  # "last": [1, vocab] of the last position; "all": [1, S, vocab]
    attention_scale: float | None = field(default=None)  # None: 1 / sqrt(head_dim)

    def __post_init__(self):
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} key/value heads evenly")
        if self.head_dim % 2:
            raise ValueError(f"rotary positions need an even head_dim, not {self.head_dim}")
        if self.logits not in ("last", "all"):
            raise ValueError(f"logits must be 'last' or 'all', not {self.logits!r}")
        if self.max_len < 4:
            raise ValueError(f"max_len must be at least 4, not {self.max_len}")


def rotary_frequencies(config: DecoderConfig) -> Tensor:
    """Radians per position, [head_dim / 2]. Su et al., RoFormer; the scaling is that of Llama 3.1's reference code."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    frequency = 1.0 / config.rope_theta**steps
    scaling = config.rope_scaling
    if scaling is None:
        return frequency
    # Long waves are slowed down by `factor`, short ones stay, those between are blended.
    wavelength = 2 * math.pi / frequency
    longest = scaling.original_max_len / scaling.low_freq_factor
    shortest = scaling.original_max_len / scaling.high_freq_factor
    share = (scaling.original_max_len / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    slow = frequency / scaling.factor
    blended = (1 - share) * slow + share * frequency
    return torch.where(wavelength > longest, slow, torch.where(wavelength < shortest, frequency, blended))


def rotary_table(config: DecoderConfig) -> Tensor:
    """Cosine and sine of every position's angles, [max_len, 2, head_dim / 2]."""
    positions = torch.arange(config.max_len, dtype=torch.float32)
    angles = positions[:, None] * rotary_frequencies(config)
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, halves convention. x: [1, H, S, D]; cos, sin: [S, D / 2]."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def linear(weights: Weights, name: str) -> nn.Module:
    """A linear layer of `name`.weight, quantised or not, with `name`.bias if the checkpoint has one."""
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    if isinstance(weight, QuantizedWeight):
        return QuantizedLinear(weight, bias)
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return layer


def embedding(weights: Weights, name: str) -> nn.Module:
    """An embedding of `name`.weight, quantised or not."""
    weight = weights[f"{name}.weight"]
    if isinstance(weight, QuantizedWeight):
        return QuantizedEmbedding(weight)
    return nn.Embedding.from_pretrained(weight, freeze=True)


class RmsNorm(nn.Module):
    def __init__(self, weight: Tensor, eps: float):
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention over a static cache of max_len positions."""

    def __init__(self, config: DecoderConfig, weights: Weights, name: str):
        super().__init__()
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5 if config.attention_scale is None else config.attention_scale
        self.grouped = config.heads != config.kv_heads
        self.q_proj = linear(weights, f"{name}.q_proj")
        self.k_proj = linear(weights, f"{name}.k_proj")
        self.v_proj = linear(weights, f"{name}.v_proj")
        self.o_proj = linear(weights, f"{name}.o_proj")
        cache = torch.zeros(1, config.kv_heads, config.max_len, config.head_dim)
        self.register_buffer("k_cache", cache, persistent=False)
        self.register_buffer("v_cache", cache.clone(), persistent=False)

    def heads(self, x: Tensor) -> Tensor:
        """[1, S, H * D] → [1, H, S, D]"""
        return x.view(1, x.shape[1], -1, self.head_dim).transpose(1, 2)

    def forward(self, x: Tensor, positions: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        q = rotate(self.heads(self.q_proj(x)), *rotary)
        k = rotate(self.heads(self.k_proj(x)), *rotary)
        v = self.heads(self.v_proj(x))
        self.k_cache.index_copy_(2, positions, k)
        self.v_cache.index_copy_(2, positions, v)
        y = F.scaled_dot_product_attention(
            q, self.k_cache, self.v_cache, mask, scale=self.scale, enable_gqa=self.grouped
        )
        return self.o_proj(y.transpose(1, 2).reshape(1, x.shape[1], -1))


class Mlp(nn.Module):
    """Gated feed-forward: down(silu(gate(x)) * up(x))."""

    def __init__(self, weights: Weights, name: str):
        super().__init__()
        self.gate_proj = linear(weights, f"{name}.gate_proj")
        self.up_proj = linear(weights, f"{name}.up_proj")
        self.down_proj = linear(weights, f"{name}.down_proj")

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, config: DecoderConfig, weights: Weights, name: str):
        super().__init__()
        self.input_layernorm = RmsNorm(weights[f"{name}.input_layernorm.weight"], config.norm_eps)
        self.self_attn = Attention(config, weights, f"{name}.self_attn")
        self.post_attention_layernorm = RmsNorm(weights[f"{name}.post_attention_layernorm.weight"], config.norm_eps)
        self.mlp = Mlp(weights, f"{name}.mlp")

    def forward(self, x: Tensor, positions: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), positions, rotary, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """`forward(ids int64 [1, S], start int64 [1]) → f32 logits`, [1, vocab] or [1, S, vocab] by `config.logits`.

    `start` is the position of ids[0, 0]; the caches hold what earlier calls brought. start + S may be up to max_len.
    """

    def __init__(self, config: DecoderConfig, weights: Weights):
        super().__init__()
        self.config = config
        self.embed_tokens = embedding(weights, "embed_tokens")
        self.layers = nn.ModuleList(DecoderLayer(config, weights, f"layers.{i}") for i in range(config.layers))
        self.norm = RmsNorm(weights["norm.weight"], config.norm_eps)
        if config.tied_embedding:
            # The same object, hence one weight in the file.
            self.lm_head = linear({"lm_head.weight": weights["embed_tokens.weight"]}, "lm_head")
        else:
            self.lm_head = linear(weights, "lm_head")
        self.register_buffer("rotary", rotary_table(config), persistent=False)
        self.requires_grad_(False)
        self.eval()

    def mask(self, positions: Tensor) -> Tensor:
        """Which keys a position sees, bool [S, max_len]: itself and all before."""
        keys = torch.arange(self.config.max_len)
        return keys <= positions[:, None]

    def decode(self, x: Tensor, start: Tensor) -> Tensor:
        """The layers and the head, from embeddings [1, S, hidden]."""
        positions = torch.arange(x.shape[1]) + start
        angles = self.rotary[positions]
        rotary = (angles[:, 0], angles[:, 1])
        mask = self.mask(positions)
        for layer in self.layers:
            x = layer(x, positions, rotary, mask)
        if self.config.logits == "last":
            x = x[:, -1]
        return self.lm_head(self.norm(x))

    def forward(self, ids: Tensor, start: Tensor) -> Tensor:
        return self.decode(self.embed_tokens(ids), start)

    def reset(self) -> None:
        """Empties the caches (eager only; at run time a session owns its state)."""
        for layer in self.layers:
            layer.self_attn.k_cache.zero_()
            layer.self_attn.v_cache.zero_()
