"""What the recipes of decoders share: quantising the matrices, the exported method, metadata and tokenizer files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from executorch_webgpu.quantization import QuantizedWeight
from executorch_webgpu.recipes.base import BuiltModel, Card, ExportOptions, Method, RecipeError, read_json
from executorch_webgpu.recipes.decoder import Decoder, DecoderConfig

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def check_finite(name: str, weight: Tensor) -> None:
    """Raises RecipeError where the weight of that name holds NaN or infinity."""
    finite = torch.isfinite(weight)
    if not bool(finite.all()):
        raise RecipeError(f"{name} holds NaN or infinity ({int((~finite).sum())} of {weight.numel()} values)")


@dataclass(frozen=True)
class Scheme:
    """How matrices are stored. bits 4: by groups; 8: one scale a row, symmetric; 32: as they are."""

    bits: int = 4
    group: int = 32
    symmetric: bool = False
    embedding_bits: int = 8  # the embedding and the head lose most by 4 bits
    head_bits: int | None = None  # of the head (None: as the embedding), and of an embedding that is tied to it

    def __post_init__(self):
        for bits in (self.bits, self.embedding_bits, self.head_bits or self.embedding_bits):
            if bits not in (4, 8, 32):
                raise RecipeError(f"weights are stored with 4, 8 or 32 bits, not {bits}")
        if self.group not in (32, 64, 128):
            raise RecipeError(f"groups are of 32, 64 or 128 values, not {self.group}")

    @staticmethod
    def of(options: ExportOptions) -> Scheme:
        """The scheme of an export's options. Raises RecipeError."""
        given = {field.name: getattr(options, field.name) for field in fields(Scheme)}
        return Scheme(**{name: value for name, value in given.items() if value is not None})

    def for_model(self, tied: bool) -> Scheme:
        """The same, with one number of bits for an embedding and a head that are one weight."""
        if tied and self.head_bits is not None:
            return replace(self, embedding_bits=self.head_bits, head_bits=None)
        return self

    def layout(self, name: str, shape: tuple[int, ...]) -> tuple[int, int, bool]:
        """(bits, group, symmetric) of the weight of that name; 32 bits: a plain f32 tensor, as all vectors are. Raises
        RecipeError where the groups do not divide a row."""
        bits = self.bits
        if name.startswith("embed_tokens."):
            bits = self.embedding_bits
        elif name.startswith("lm_head."):
            bits = self.head_bits or self.embedding_bits
        if len(shape) != 2 or bits == 32:
            return 32, 0, False
        group = self.group if bits == 4 else 0  # 0: the whole row
        if shape[1] % max(group, 32):
            raise RecipeError(
                f"{name} has rows of {shape[1]} values, which groups of {max(group, 32)} do not divide: "
                "choose another --group, or --bits 32"
            )
        return bits, group, self.symmetric or bits == 8

    def quantize(self, name: str, weight: Tensor) -> Tensor | QuantizedWeight:
        """The weight of that name as the scheme stores it; vectors (norms, biases) stay f32. Raises RecipeError for
        values that it cannot store."""
        weight = weight.to(torch.float32)
        check_finite(name, weight)
        bits, group, symmetric = self.layout(name, tuple(weight.shape))
        if bits == 32:
            return weight
        try:
            return QuantizedWeight.from_float(weight, bits=bits, group=group, symmetric=symmetric)
        except OverflowError as error:
            raise RecipeError(f"{name} cannot be stored with {bits} bits: {error}") from error

    def describe(self) -> dict:
        """For the manifest."""
        weights = {"bits": self.bits, "embedding_bits": self.embedding_bits}
        if self.head_bits is not None:
            weights["head_bits"] = self.head_bits
        if 4 in weights.values():  # bits of something
            weights |= {"group": self.group, "symmetric": self.symmetric}
        return weights


@dataclass(frozen=True)
class Tokens:
    """Special tokens by id; bos None where a prompt starts without one."""

    bos: int | None
    eos: tuple[int, ...]
    pad: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)  # what the model's makers advise: temperature, top_p …

    def generation_config(self) -> bytes:
        config = {"bos_token_id": self.bos, "eos_token_id": list(self.eos), "pad_token_id": self.pad, **self.sampling}
        return encode_json({name: value for name, value in config.items() if value is not None})


def encode_json(value) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def example_method(decoder: Decoder) -> Method:
    """The one method of a decoder: prefill and decode, 1 … max_tokens tokens a call."""
    length = min(8, decoder.config.max_tokens)
    inputs = (torch.zeros(1, length, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    tokens = torch.export.Dim("tokens", min=1, max=decoder.config.max_tokens)
    return Method(decoder, inputs, {"ids": {1: tokens}, "start": None})


def metadata(config: DecoderConfig, tokens: Tokens) -> dict:
    """The constant methods that ExecuTorch's runners of language models ask for."""
    methods = {
        "get_max_seq_len": config.max_tokens,  # tokens in one call
        "get_max_context_len": config.max_len,  # positions in the cache
        "get_vocab_size": config.vocab_size,
        "get_eos_ids": list(tokens.eos),
        "get_n_layers": config.layers,
        "get_n_kv_heads": config.kv_heads,
        "get_head_dim": config.head_dim,
        "use_kv_cache": True,
        "enable_dynamic_shape": True,
        "logits_all": config.logits == "all",
    }
    if tokens.bos is not None:
        methods["get_bos_id"] = tokens.bos
    return methods


def tokenizer_files(folder: Path) -> dict[str, bytes]:
    """tokenizer.json and tokenizer_config.json of a folder, the chat template inside the latter. Raises RecipeError."""
    missing = [name for name in TOKENIZER_FILES if not (folder / name).is_file()]
    if missing:
        raise RecipeError(f"{folder} lacks {' and '.join(missing)}")
    if not isinstance(read_json(folder / "tokenizer.json").get("model"), dict):
        raise RecipeError(f"{folder / 'tokenizer.json'} holds no tokenizer: it lacks model")
    config = read_json(folder / "tokenizer_config.json")
    for name in ("is_local", "local_files_only", "name_or_path"):  # where it was read from is nobody's business
        config.pop(name, None)
    # Newer releases of transformers keep the template in a file of its own; a page reads one file less this way.
    template = folder / "chat_template.jinja"
    if "chat_template" not in config and template.is_file():
        config["chat_template"] = template.read_text()
    return {"tokenizer.json": (folder / "tokenizer.json").read_bytes(), "tokenizer_config.json": encode_json(config)}


def text_model(
    config: DecoderConfig,
    weights: Mapping[str, Tensor | QuantizedWeight],
    tokens: Tokens,
    scheme: Scheme | Mapping[str, Any],
    card: Card,
    tokenizer: Mapping[str, bytes],
    name: str = "",
    made_up: bool = False,
) -> BuiltModel:
    """The built model of a decoder. scheme: how its weights are stored, or what the manifest says about that."""
    return BuiltModel(
        methods={"forward": example_method(Decoder(config, weights))},
        constant_methods=metadata(config, tokens),
        card=card,
        weights=scheme.describe() if isinstance(scheme, Scheme) else scheme,
        precisions=("f32", "f16"),
        made_up=made_up,
        name=name,
        files={**tokenizer, "generation_config.json": tokens.generation_config()},
    )
