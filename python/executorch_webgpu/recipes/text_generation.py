"""What the recipes of decoders share: quantising the matrices, the exported method, metadata and tokenizer files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from executorch_webgpu.quantization import QuantizedWeight
from executorch_webgpu.recipes.base import BuiltModel, Card, Method, RecipeError
from executorch_webgpu.recipes.decoder import Decoder, DecoderConfig

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Scheme:
    """How matrices are stored. bits 4: by groups; 8: one scale a row, symmetric; 32: as they are."""

    bits: int = 4
    group: int = 32
    symmetric: bool = False
    embedding_bits: int = 8  # the embedding and the head lose most by 4 bits

    def __post_init__(self):
        if self.bits not in (4, 8, 32) or self.embedding_bits not in (4, 8, 32):
            raise RecipeError(f"weights are stored with 4, 8 or 32 bits, not {self.bits} and {self.embedding_bits}")
        if self.group not in (32, 64, 128):
            raise RecipeError(f"groups are of 32, 64 or 128 values, not {self.group}")

    def quantize(self, name: str, weight: Tensor) -> Tensor | QuantizedWeight:
        """The weight of that name as the scheme stores it; vectors (norms, biases) stay f32."""
        weight = weight.to(torch.float32)
        head = name.startswith(("embed_tokens.", "lm_head."))
        bits = self.embedding_bits if head else self.bits
        if weight.dim() != 2 or bits == 32:
            return weight
        group = self.group if bits == 4 else 0  # 0: the whole row
        if weight.shape[1] % max(group, 32):
            raise RecipeError(
                f"{name} has rows of {weight.shape[1]} values, which groups of {max(group, 32)} do not divide: "
                "choose another --group, or --bits 32"
            )
        return QuantizedWeight.from_float(weight, bits=bits, group=group, symmetric=self.symmetric or bits == 8)

    def describe(self) -> dict:
        """For the manifest."""
        weights = {"bits": self.bits, "embedding_bits": self.embedding_bits}
        if 4 in (self.bits, self.embedding_bits):
            weights |= {"group": self.group, "symmetric": self.symmetric}
        return weights


@dataclass(frozen=True)
class Tokens:
    """Special tokens by id; bos None where a prompt starts without one."""

    bos: int | None
    eos: tuple[int, ...]
    pad: int | None = None

    def generation_config(self) -> bytes:
        config = {"bos_token_id": self.bos, "eos_token_id": list(self.eos), "pad_token_id": self.pad}
        return encode_json({name: value for name, value in config.items() if value is not None})


def encode_json(value) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def example_method(decoder: Decoder) -> Method:
    """The one method of a decoder: prefill and decode, 1 … max_len - 1 tokens a call."""
    length = min(8, decoder.config.max_len - 1)
    inputs = (torch.zeros(1, length, dtype=torch.int64), torch.zeros(1, dtype=torch.int64))
    tokens = torch.export.Dim("tokens", min=1, max=decoder.config.max_len - 1)
    return Method(decoder, inputs, {"ids": {1: tokens}, "start": None})


def metadata(config: DecoderConfig, tokens: Tokens) -> dict:
    """The constant methods that ExecuTorch's runners of language models ask for."""
    methods = {
        "get_max_seq_len": config.max_len - 1,  # tokens in one call
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
    config = json.loads((folder / "tokenizer_config.json").read_text())
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
    scheme: Scheme,
    card: Card,
    tokenizer: Mapping[str, bytes],
    name: str = "",
) -> BuiltModel:
    """The built model of a decoder."""
    return BuiltModel(
        methods={"forward": example_method(Decoder(config, weights))},
        constant_methods=metadata(config, tokens),
        card=card,
        weights=scheme.describe(),
        name=name,
        files={**tokenizer, "generation_config.json": tokens.generation_config()},
    )
