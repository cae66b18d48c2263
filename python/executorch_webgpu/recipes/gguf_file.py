"""A model in a GGUF file: geometry, weights and tokenizer of the families that the decoder knows.

Blocks that are ours are taken over to the bit, or with their constants rounded to f16:
  Q4_0   w = (q − 8) · d             int4 symmetric, groups of 32: exact
  Q4_1   w = q · d + m               int4 affine, groups of 32: exact
  Q4_K   w = q · d s − dmin m        int4 affine, groups of 32: the constants d s and dmin m are rounded to f16
Everything else is dequantised and quantised again, by the options of the export, or else to int8 with a scale per row;
the relative error of that is on the model card.
"""

from __future__ import annotations

import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from executorch_webgpu.json_files import foreign_kind
from executorch_webgpu.quantization import QuantizedWeight
from executorch_webgpu.quantization.modules import to_f16
from executorch_webgpu.recipes import llama
from executorch_webgpu.recipes.base import BuiltModel, Card, ExportOptions, RecipeError
from executorch_webgpu.recipes.decoder import DecoderConfig, rotary_frequencies, weight_shapes
from executorch_webgpu.recipes.huggingface import Config, ConfigError, Family, decoder_config
from executorch_webgpu.recipes.packages import require
from executorch_webgpu.recipes.text_generation import Scheme, Tokens, check_finite, text_model, tokenizer_files

# GGUF's architecture → config.json's model_type
MODEL_TYPES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
# config.json's field → GGUF's, behind the architecture's name
FIELDS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "intermediate_size": "feed_forward_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "query_pre_attn_scalar": "attention.key_length",
    "sliding_window_pattern": "attention.sliding_window_pattern",
}
TOP_NAMES = {
    "token_embd.weight": "embed_tokens.weight",
    "output_norm.weight": "norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
ROTARY_FACTORS = "rope_freqs.weight"
BLOCK = 32


# What the package gguf and numpy raise about damaged bytes; the package has no error of its own.
_DAMAGED = (
    *(ArithmeticError, AttributeError, LookupError, MemoryError, NotImplementedError, OSError, RecursionError),
    *(TypeError, ValueError, struct.error),
)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Errors inside become a RecipeError that says what was being read."""
    try:
        yield
    except _DAMAGED as error:
        raise RecipeError(f"{what} cannot be read, the file may be damaged: {error!r}") from error


def open_gguf(path: Path):
    """gguf.GGUFReader of the file (memory mapped). Raises RecipeError where the package gguf is missing, and for a file
    that is no GGUF file or a damaged one."""
    require("gguf", "pip install gguf")
    from gguf import GGUFReader

    try:
        return GGUFReader(path)
    except _DAMAGED as error:
        try:
            with path.open("rb") as file:
                start = file.read(64).decode("latin-1")
        except OSError as unreadable:
            raise RecipeError(f"cannot read {path}: {unreadable.strerror}") from error
        kind = "a damaged GGUF file" if start.startswith("GGUF") else "not a GGUF file"
        raise RecipeError(f"{path} is {foreign_kind(start) or f'{kind}: {error!r}'}") from error


def metadata(reader, name: str, default: Any = None):
    """A metadata field's value. Raises ConfigError where it is missing and there is no default."""
    if name in reader.fields:
        with reading(f"{name} of the GGUF file"):
            return reader.fields[name].contents()
    if default is None:
        raise ConfigError(name, f"the GGUF file lacks {name}")
    return default


def read_config(reader, family: Family, origin: str = "the GGUF file") -> Config:
    """What a config.json of the same model would say."""
    kind = metadata(reader, "general.architecture")
    if MODEL_TYPES.get(str(kind)) not in family.model_types:
        raise ConfigError("general.architecture", f"{origin} is of architecture {kind!r}; this recipe is {family.name}")
    scaling = metadata(reader, f"{kind}.rope.scaling.type", "none")
    if scaling != "none":
        raise ConfigError(f"{kind}.rope.scaling.type", f"{origin}: rotary scaling {scaling!r} is not supported")
    fields = {
        ours: metadata(reader, f"{kind}.{theirs}")
        for ours, theirs in FIELDS.items()
        if f"{kind}.{theirs}" in reader.fields
    }
    names = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" not in names or len(names["token_embd.weight"].shape) != 2:
        raise RecipeError(f"{origin} has no matrix token_embd.weight")
    layers = fields.get("num_hidden_layers")
    if isinstance(layers, int) and layers > len(names):  # before lists are made by a damaged number
        raise ConfigError("num_hidden_layers", f"{origin} has {len(names)} tensors for {layers} layers")
    if isinstance(fields.get("rms_norm_eps"), float):
        fields["rms_norm_eps"] = float(f"{fields['rms_norm_eps']:.6g}")  # 1e-5, and not the f32 next to it
    fields["vocab_size"] = int(names["token_embd.weight"].shape[1])
    fields["tie_word_embeddings"] = "output.weight" not in names
    fields["attention_bias"] = "blk.0.attn_output.bias" in names
    fields["model_type"] = MODEL_TYPES[kind]
    if ROTARY_FACTORS in names:
        fields["rope_scaling"] = llama3_scaling(np.array(names[ROTARY_FACTORS].data), fields, origin)
    return Config(fields, origin)


def llama3_scaling(factors: np.ndarray, fields: dict[str, Any], origin: str) -> dict[str, Any]:
    """The `llama3` parameters by which a file's factors of the rotary frequencies were made. Raises ConfigError."""
    theta = Config(fields, origin).number("rope_theta")
    for factor in (8.0, 32.0):
        scaling = {
            **{"rope_type": "llama3", "rope_theta": theta, "factor": factor},
            **{"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        }
        plain, scaled = (
            decoder_config(llama.FAMILY, Config({**fields, "rope_scaling": rope}, origin), None, None)
            for rope in (None, scaling)
        )
        expected = (rotary_frequencies(plain) / rotary_frequencies(scaled)).numpy()
        if factors.shape == expected.shape and np.allclose(factors, expected, rtol=1e-3):
            return scaling
    raise ConfigError(
        ROTARY_FACTORS, f"{origin}: {ROTARY_FACTORS} holds factors that are not those of Llama 3.1 or 3.2"
    )


def checkpoint_name(name: str, family: str = "llama") -> str | None:
    """GGUF's name of a weight → the decoder's; None for what is no weight of a decoder."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    parts = name.split(".")
    if len(parts) != 4 or parts[0] != "blk":
        return None
    _, layer, part, kind = parts
    if part == "ffn_norm":  # what stands before the MLP
        return f"layers.{layer}.{'pre_feedforward' if family == 'gemma3' else 'post_attention'}_layernorm.{kind}"
    return f"layers.{layer}.{LAYER_NAMES[part]}.{kind}" if part in LAYER_NAMES else None


def halves_order(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a q or k projection from GGUF's order for llama (rotated pairs adjacent) to ours (half a head apart).

    Whole rows move, so that quantised values and their constants keep belonging together.
    """
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def nibbles(data: np.ndarray) -> np.ndarray:
    """Bytes […, 16], value i low and value i + 16 high → u8 […, 32]."""
    return np.concatenate([data & 15, data >> 4], axis=-1)


def split_q4_0(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, None]:
    """Raw rows [N, K / 32 · 18] → q uint8 [N, K], scale f16 [N, K / 32]: f16 scale, 16 bytes of nibbles a block."""
    blocks = data.reshape(data.shape[0], -1, 18)
    scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]
    return nibbles(blocks[..., 2:]).reshape(data.shape[0], -1), scale, None


def split_q4_1(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Raw rows [N, K / 32 · 20] → q uint8 [N, K], scale and minimum f16 [N, K / 32]: both, 16 bytes of nibbles a
    block."""
    blocks = data.reshape(data.shape[0], -1, 20)
    constants = np.ascontiguousarray(blocks[..., :4]).view(np.float16)
    return nibbles(blocks[..., 4:]).reshape(data.shape[0], -1), constants[..., 0], constants[..., 1]


def split_q4_k(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Raw rows [N, K / 256 · 144] → q uint8 [N, K], scale and minimum f32 [N, K / 32].

    A block of 256 values: f16 d and dmin, 6-bit scales and minima of its 8 groups, 128 bytes of nibbles (a group's
    low, the next one's high)."""
    from gguf.quants import Q4_K

    rows, blocks = data.shape[0], data.reshape(-1, 144)
    constants = np.ascontiguousarray(blocks[:, :4]).view(np.float16).astype(np.float32)
    scales, minima = Q4_K.get_scale_min(np.ascontiguousarray(blocks[:, 4:16]))
    halves = blocks[:, 16:].reshape(-1, 4, 1, BLOCK)
    q = np.concatenate([halves & 15, halves >> 4], axis=2)
    scale, minimum = constants[:, :1] * scales, -constants[:, 1:] * minima
    return q.reshape(rows, -1), scale.reshape(rows, -1), minimum.reshape(rows, -1)


SPLITS = {"Q4_0": split_q4_0, "Q4_1": split_q4_1, "Q4_K": split_q4_k}


@dataclass
class Taken:
    """What became of the matrices: counts by "type → ours", and the largest relative error of each."""

    counts: Counter = field(default_factory=Counter)
    errors: dict[str, float] = field(default_factory=dict)

    def add(self, kind: str, stored: Tensor | QuantizedWeight, original: Tensor) -> None:
        value = stored.dequantize() if isinstance(stored, QuantizedWeight) else stored
        name = "f32"
        if isinstance(stored, QuantizedWeight):
            name = (
                "int8" if stored.bits == 8 else f"int4 {'symmetric' if stored.symmetric else 'affine'} g{stored.group}"
            )
        key = f"{kind} → {name}"
        self.counts[key] += 1
        error = float((value - original).norm() / original.norm().clamp_min(1e-30))
        self.errors[key] = max(self.errors.get(key, 0.0), error)

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{count} matrices {key}: "
            + (f"relative error up to {self.errors[key]:.2g}" if self.errors[key] else "exact")
            for key, count in sorted(self.counts.items())
        )


def take(name: str, tensor, heads: int, scheme: Scheme | None) -> tuple[Tensor | QuantizedWeight, Tensor]:
    """A weight as we store it, and its values in the file. heads: of q and k rows to be reordered, else 0. scheme:
    None keeps 4-bit blocks as they are and takes everything else to int8."""
    from gguf import dequantize

    kind, data = tensor.tensor_type.name, np.asarray(tensor.data)
    values = np.asarray(dequantize(data, tensor.tensor_type), np.float32).reshape(tuple(reversed(tensor.shape)))
    values = torch.from_numpy(np.array(halves_order(values, heads) if heads else values))
    check_finite(name, values)
    if values.dim() == 1:
        return values, values
    if scheme is None and kind in SPLITS:
        parts = [None if part is None else halves_order(part, heads) if heads else part for part in SPLITS[kind](data)]
        q, *constants = (None if part is None else torch.from_numpy(np.array(part)) for part in parts)
        # What rounding the constants costs is on the card with all other errors.
        return QuantizedWeight(q, *(None if c is None else to_f16(c, "a constant")[0] for c in constants)), values
    return (scheme or Scheme(bits=8)).quantize(name, values), values


def read_weights(
    reader, family: Family, config: DecoderConfig, scheme: Scheme | None, taken: Taken
) -> dict[str, Tensor | QuantizedWeight]:
    """Every weight of the decoder. Norms are stored as they multiply. Raises RecipeError where the file has others."""
    expected, weights, unknown = weight_shapes(config), {}, []
    for tensor in reader.tensors:
        name = checkpoint_name(tensor.name, family.name)
        if name not in expected:
            if tensor.name != ROTARY_FACTORS:
                unknown.append(tensor.name)
            continue
        reordered = {"q_proj": config.heads, "k_proj": config.kv_heads} if family.name == "llama" else {}
        shape = tuple(int(size) for size in reversed(tensor.shape))
        if shape != expected[name]:
            raise RecipeError(f"{tensor.name} of the GGUF file is {shape}, by its metadata {expected[name]}")
        with reading(f"{tensor.name} of the GGUF file"):
            weights[name], values = take(name, tensor, reordered.get(name.split(".")[-2], 0), scheme)
        if values.dim() == 2:
            taken.add(tensor.tensor_type.name, weights[name], values)
    missing = sorted(expected.keys() - weights.keys())
    if missing or unknown:
        raise RecipeError(
            f"the GGUF file is not of this family: {len(missing)} weights are missing {missing[:3]}, "
            f"{len(unknown)} are unknown {sorted(unknown)[:3]}"
        )
    return weights


def special_tokens(reader) -> Tokens:
    """The begin, the ends (of text and of a turn) and the padding."""
    ids = {
        name: metadata(reader, key)
        for name in ("bos", "eos", "eot", "padding")
        if (key := f"tokenizer.ggml.{name}_token_id") in reader.fields
    }
    if "eos" not in ids:
        raise ConfigError("tokenizer.ggml.eos_token_id", "the GGUF file lacks tokenizer.ggml.eos_token_id")
    for name, value in ids.items():
        if not isinstance(value, int):
            raise ConfigError(name, f"the GGUF file has tokenizer.ggml.{name}_token_id {value!r}, which is no number")
    ends = (ids["eos"],) + ((ids["eot"],) if ids.get("eot", ids["eos"]) != ids["eos"] else ())
    return Tokens(ids.get("bos"), ends, ids.get("padding"))


def read_tokenizer(path: Path) -> dict[str, bytes]:
    """tokenizer.json and tokenizer_config.json (with the chat template) from beside the file, or else out of it."""
    if (path.parent / "tokenizer.json").is_file():
        return tokenizer_files(path.parent)
    require("transformers", "pip install 'executorch-webgpu[recipes]'")
    from transformers import AutoTokenizer

    with reading(f"the tokenizer in {path}"):
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return tokenizer_files(Path(folder))


def stored_scheme(weights: dict[str, Tensor | QuantizedWeight], tied: bool) -> dict[str, Any]:
    """For the manifest: the bits of most matrices of the layers, and those of embedding and head."""
    layers = [w for name, w in weights.items() if name.startswith("layers.") and isinstance(w, QuantizedWeight)]
    bits = Counter(w.bits for w in layers).most_common(1)[0][0] if layers else 32

    def of(name: str) -> int:
        return weights[name].bits if isinstance(weights[name], QuantizedWeight) else 32

    described: dict[str, Any] = {"bits": bits, "embedding_bits": of("embed_tokens.weight")}
    if not tied:
        described["head_bits"] = of("lm_head.weight")
    four = [w for w in weights.values() if isinstance(w, QuantizedWeight) and w.bits == 4]
    if four:
        described |= {"group": four[0].group, "symmetric": all(w.symmetric for w in four)}
    return described


def build_gguf(family: Family, options: ExportOptions, licence: str = "") -> BuiltModel:
    """The model of a GGUF file. Without options of quantisation, 4-bit blocks are taken over."""
    path = Path(options.source)
    reader = open_gguf(path)
    with reading(f"the metadata of {path}"):
        raw = read_config(reader, family, path.name)
    config = decoder_config(family, raw, options.max_len, options.logits, options.max_call)
    asked = any(
        getattr(options, name) is not None for name in ("bits", "group", "symmetric", "embedding_bits", "head_bits")
    )
    scheme = Scheme.of(options).for_model(config.tied_embedding) if asked else None
    taken = Taken()
    weights = read_weights(reader, family, config, scheme, taken)
    card = Card(
        title=f"{path.stem} for executorch-webgpu",
        licence=licence or str(metadata(reader, "general.license", "that of the model which it was made from")),
        source=f"a GGUF file named {path.name}",
        notes=taken.notes(),
    )
    stored = stored_scheme(weights, config.tied_embedding)
    return text_model(config, weights, special_tokens(reader), stored, card, read_tokenizer(path), path.stem)
