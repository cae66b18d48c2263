"""One plain decoder-only language model, configured per family.

A single method serves prefill and decode: `forward(ids, start)` writes the keys and values of `ids` into static caches
at positions start, start + 1, … and attends to everything up to there. Nothing here knows about the runtime: attention
is `scaled_dot_product_attention` with a boolean mask, the cache is `index_copy_` into a buffer, and a graph pass of the
runtime makes one fused cached attention of the two.

Modules carry the names that Hugging Face checkpoints use (`layers.0.self_attn.q_proj`, …), so a family recipe only
strips a prefix. What a family adds to a layer is found here in one place each: `weight_shapes` says which weights there
are, `rotary_frequencies` how positions turn, `Decoder.masks` which keys are visible, `DecoderLayer` where norms stand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from executorch_webgpu.quantization import QuantizedEmbedding, QuantizedLinear, QuantizedWeight

# Checkpoint name → tensor, or a quantised weight for the matrices.
Weights = Mapping[str, "Tensor | QuantizedWeight"]

ACTIVATIONS = {"silu": F.silu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}


@dataclass(frozen=True)
class RopeScaling:
    """The `llama3` scaling of rotary frequencies (Llama 3.1 and later)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_len: int


@dataclass(frozen=True)
class DecoderConfig:
    """Geometry and arithmetic of a decoder. The defaults are those of the Llama family."""

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
    rope_factor: float = 1.0  # positions are divided by it ("linear" scaling)
    rope_theta_local: float | None = None  # of layers with a window; None: as the others, scaling included
    windows: tuple[int, ...] = ()  # by layer: how many positions it sees, itself included; 0: all. (): all see all
    biases: frozenset[str] = frozenset()  # of q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj
    qk_norm: bool = False  # an RMS norm over each head of query and key before the rotation
    post_norms: bool = False  # norms of what attention and MLP give, before it is added
    activation: str = "silu"  # of the gate; "gelu_tanh"
    embedding_scale: float = 1.0
    attention_scale: float | None = None  # None: 1 / sqrt(head_dim)
    tied_embedding: bool = True
    max_len: int = 2048  # positions in the cache
    max_call: int | None = None  # the most positions that a call may bring (None: max_len - 1): bounds its memory
    logits: str = "last"  # "last": [1, vocab] of the last position; "all": [1, S, vocab]

    def __post_init__(self):
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} key/value heads evenly")
        if self.head_dim % 2:
            raise ValueError(f"rotary positions need an even head_dim, not {self.head_dim}")
        if self.logits not in ("last", "all"):
            raise ValueError(f"logits must be 'last' or 'all', not {self.logits!r}")
        if self.max_len < 4:
            raise ValueError(f"max_len must be at least 4, not {self.max_len}")
        if self.max_call is not None and self.max_call < 2:
            raise ValueError(f"a call must be able to bring 2 positions or more, not {self.max_call}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, not {self.activation!r}")
        if self.windows and (len(self.windows) != self.layers or min(self.windows) < 0):
            raise ValueError(f"windows must be {self.layers} numbers from 0, one a layer, not {self.windows}")

    def window(self, layer: int) -> int:
        """Positions that a layer sees; 0: all, also where the window is not smaller than the cache."""
        window = self.windows[layer] if self.windows else 0
        return window if window < self.max_len else 0

    def is_local(self, layer: int) -> bool:
        """Whether a layer takes the rotary table of layers with a window."""
        return self.rope_theta_local is not None and bool(self.windows and self.windows[layer])

    @property
    def max_tokens(self) -> int:
        """The most positions that a call may bring."""
        return min(self.max_call or self.max_len, self.max_len - 1)


def weight_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Name → shape of every weight that a decoder has (a tied head is none)."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    matrices = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if config.post_norms:
        norms |= {"pre_feedforward_layernorm": hidden, "post_feedforward_layernorm": hidden}
    if config.qk_norm:
        norms |= {"self_attn.q_norm": config.head_dim, "self_attn.k_norm": config.head_dim}
    layer = {f"{name}.weight": shape for name, shape in matrices.items()}
    layer |= {f"{name}.bias": shape[:1] for name, shape in matrices.items() if name.split(".")[1] in config.biases}
    layer |= {f"{name}.weight": (size,) for name, size in norms.items()}
    shapes = {"embed_tokens.weight": (config.vocab_size, hidden), "norm.weight": (hidden,)}
    if not config.tied_embedding:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    return shapes | {f"layers.{i}.{name}": shape for i in range(config.layers) for name, shape in layer.items()}


def rotary_frequencies(config: DecoderConfig, local: bool = False) -> Tensor:
    """Radians per position, [head_dim / 2]. Su et al., RoFormer; the scaling is that of Llama 3.1's reference code."""
    steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    if local:
        return 1.0 / config.rope_theta_local**steps
    frequency = 1.0 / config.rope_theta**steps / config.rope_factor
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


def rotary_table(config: DecoderConfig, local: bool = False) -> Tensor:
    """Cosine and sine of every position's angles, [max_len, 2, head_dim / 2]."""
    positions = torch.arange(config.max_len, dtype=torch.float32)
    angles = positions[:, None] * rotary_frequencies(config, local)
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

    @staticmethod
    def of_sum(weight: Tensor, eps: float, factor: float) -> RmsNorm:
        """The norm of what is computed `factor` times as large: the same numbers, eps being added to a mean square."""
        return RmsNorm(weight, eps * factor**2)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


F16_RANGE = 32768.0  # half of what f16 holds: roundings and an unlucky sum must not reach the other half


def largest(weight: Tensor | QuantizedWeight) -> float:
    """A bound for the magnitude of a matrix's values."""
    if not isinstance(weight, QuantizedWeight):
        return float(weight.abs().max())
    low, high = (-127, 127) if weight.bits == 8 else (-8, 7) if weight.symmetric else (0, 15)
    minimum = 0.0 if weight.minimum is None else float(weight.minimum.abs().max())
    return float(weight.scale.abs().max()) * max(-low, high) + minimum


def residual_factor(config: DecoderConfig, weights: Weights) -> float:
    """The power of two by which the sums between the layers are computed smaller, so that f16 can hold them.

    Post-norms alone decide what is added to them: an RMS norm gives at most sqrt(hidden) · |weight| in a channel
    (all of the row's energy in one place). The sum of these bounds and the embedding's is what no input exceeds. Gemma
    3 270M comes to 104,000, f16 ends at 65,504. Without post-norms nothing bounds the sums, and they stay.
    """
    if not config.post_norms:
        return 1.0
    names = ("post_attention_layernorm", "post_feedforward_layernorm")
    added = sum(weights[f"layers.{i}.{name}.weight"].abs().float() for i in range(config.layers) for name in names)
    bound = config.embedding_scale * largest(weights["embed_tokens.weight"])
    bound += math.sqrt(config.hidden_size) * float(added.max())
    return 2.0 ** -max(0, math.ceil(math.log2(bound / F16_RANGE)))


@dataclass(frozen=True)
class Step:
    """What the layers of a call share."""

    positions: Tensor  # int64 [S]
    rotary: Mapping[bool, tuple[Tensor, Tensor]]  # of local layers or not → cosine and sine, [S, head_dim / 2] each
    masks: Mapping[int, Tensor]  # by window: which keys a position sees, bool [S, max_len]


class Attention(nn.Module):
    """Grouped-query attention over a static cache of max_len positions."""

    def __init__(self, config: DecoderConfig, weights: Weights, layer: int):
        super().__init__()
        name = f"layers.{layer}.self_attn"
        self.head_dim = config.head_dim
        self.scale = config.head_dim**-0.5 if config.attention_scale is None else config.attention_scale
        self.grouped = config.heads != config.kv_heads
        self.window, self.local = config.window(layer), config.is_local(layer)
        self.q_proj = linear(weights, f"{name}.q_proj")
        self.k_proj = linear(weights, f"{name}.k_proj")
        self.v_proj = linear(weights, f"{name}.v_proj")
        self.o_proj = linear(weights, f"{name}.o_proj")
        if config.qk_norm:
            self.q_norm = RmsNorm(weights[f"{name}.q_norm.weight"], config.norm_eps)
            self.k_norm = RmsNorm(weights[f"{name}.k_norm.weight"], config.norm_eps)
        else:
            self.q_norm = self.k_norm = nn.Identity()
        cache = torch.zeros(1, config.kv_heads, config.max_len, config.head_dim)
        self.register_buffer("k_cache", cache, persistent=False)
        self.register_buffer("v_cache", cache.clone(), persistent=False)

    def heads(self, x: Tensor) -> Tensor:
        """[1, S, H * D] → [1, S, H, D]"""
        return x.view(1, x.shape[1], -1, self.head_dim)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        rotary = step.rotary[self.local]
        q = rotate(self.q_norm(self.heads(self.q_proj(x))).transpose(1, 2), *rotary)
        k = rotate(self.k_norm(self.heads(self.k_proj(x))).transpose(1, 2), *rotary)
        v = self.heads(self.v_proj(x)).transpose(1, 2)
        self.k_cache.index_copy_(2, step.positions, k)
        self.v_cache.index_copy_(2, step.positions, v)
        y = F.scaled_dot_product_attention(
            q, self.k_cache, self.v_cache, step.masks[self.window], scale=self.scale, enable_gqa=self.grouped
        )
        return self.o_proj(y.transpose(1, 2).reshape(1, x.shape[1], -1))


class Mlp(nn.Module):
    """Gated feed-forward: down(act(gate(x)) * up(x))."""

    def __init__(self, config: DecoderConfig, weights: Weights, name: str):
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.gate_proj = linear(weights, f"{name}.gate_proj")
        self.up_proj = linear(weights, f"{name}.up_proj")
        self.down_proj = linear(weights, f"{name}.down_proj")

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); with post_norms, what is added has a norm of its own."""

    def __init__(self, config: DecoderConfig, weights: Weights, layer: int, factor: float):
        super().__init__()

        def norm(name: str) -> RmsNorm:
            return RmsNorm.of_sum(weights[f"layers.{layer}.{name}.weight"], config.norm_eps, factor)

        def post_norm(name: str) -> RmsNorm:
            return RmsNorm(weights[f"layers.{layer}.{name}.weight"] * factor, config.norm_eps)

        self.post_norms = config.post_norms
        self.input_layernorm = norm("input_layernorm")
        self.self_attn = Attention(config, weights, layer)
        # Hugging Face's names: with post_norms, the one "post attention" is after attention, otherwise before the MLP.
        self.post_attention_layernorm = (post_norm if config.post_norms else norm)("post_attention_layernorm")
        if config.post_norms:
            self.pre_feedforward_layernorm = norm("pre_feedforward_layernorm")
            self.post_feedforward_layernorm = post_norm("post_feedforward_layernorm")
        self.mlp = Mlp(config, weights, f"layers.{layer}.mlp")

    def forward(self, x: Tensor, step: Step) -> Tensor:
        attended = self.self_attn(self.input_layernorm(x), step)
        if not self.post_norms:
            x = x + attended
            return x + self.mlp(self.post_attention_layernorm(x))
        x = x + self.post_attention_layernorm(attended)
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class Decoder(nn.Module):
    """`forward(ids int64 [1, S], start int64 [1]) → f32 logits`, [1, vocab] or [1, S, vocab] by `config.logits`.

    `start` is the position of ids[0, 0]; the caches hold what earlier calls brought. start + S may be up to max_len.
    """

    def __init__(self, config: DecoderConfig, weights: Weights):
        super().__init__()
        self.config = config
        self.embed_tokens = embedding(weights, "embed_tokens")
        factor = residual_factor(config, weights)
        self.embedding_scale = config.embedding_scale * factor
        self.layers = nn.ModuleList(DecoderLayer(config, weights, i, factor) for i in range(config.layers))
        self.norm = RmsNorm.of_sum(weights["norm.weight"], config.norm_eps, factor)
        if config.tied_embedding:
            # The same object, hence one weight in the file.
            self.lm_head = linear({"lm_head.weight": weights["embed_tokens.weight"]}, "lm_head")
        else:
            self.lm_head = linear(weights, "lm_head")
        kinds = {config.is_local(i) for i in range(config.layers)}
        if False in kinds:
            self.register_buffer("rotary", rotary_table(config), persistent=False)
        if True in kinds:
            self.register_buffer("rotary_local", rotary_table(config, local=True), persistent=False)
        self.requires_grad_(False)
        self.eval()

    def masks(self, positions: Tensor) -> dict[int, Tensor]:
        """By window: which keys a position sees, bool [S, max_len]: itself and all before, but not beyond a window."""
        keys = torch.arange(self.config.max_len)
        causal = keys <= positions[:, None]
        windows = {self.config.window(i) for i in range(self.config.layers)}
        return {w: causal & (keys > positions[:, None] - w) if w else causal for w in sorted(windows)}

    def rotations(self, positions: Tensor) -> dict[bool, tuple[Tensor, Tensor]]:
        """Cosines and sines of the positions by kind of layer (True: local)."""
        tables = {False: getattr(self, "rotary", None), True: getattr(self, "rotary_local", None)}
        angles = {local: table[positions] for local, table in tables.items() if table is not None}
        return {local: (rows[:, 0], rows[:, 1]) for local, rows in angles.items()}

    def embed(self, ids: Tensor) -> Tensor:
        """[1, S] → [1, S, hidden]"""
        x = self.embed_tokens(ids)
        return x if self.embedding_scale == 1 else x * self.embedding_scale

    def decode(self, x: Tensor, start: Tensor) -> Tensor:
        """The layers and the head, from embeddings [1, S, hidden]."""
        positions = torch.arange(x.shape[1]) + start
        step = Step(positions, self.rotations(positions), self.masks(positions))
        for layer in self.layers:
            x = layer(x, step)
        if self.config.logits == "last":
            x = x[:, -1]
        return self.lm_head(self.norm(x))

    def forward(self, ids: Tensor, start: Tensor) -> Tensor:
        return self.decode(self.embed(ids), start)

    def reset(self) -> None:
        """Empties the caches (eager only; at run time a session owns its state)."""
        for layer in self.layers:
            layer.self_attn.k_cache.zero_()
            layer.self_attn.v_cache.zero_()
