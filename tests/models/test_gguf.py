"""GGUF files of the families, written here by the package gguf: geometry, names, row order and blocks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from executorch_webgpu import evaluation
from executorch_webgpu.quantization import QuantizedWeight
from executorch_webgpu.recipes import ExportOptions, RecipeError, gguf_file, huggingface
from executorch_webgpu.recipes.decoder import Decoder, rotary_frequencies
from executorch_webgpu.recipes.families import FAMILIES, build
from models.conftest import save_tokenizer
from models.test_families import IDS, LLAMA3_ROPE, MODELS, VOCABULARY, random_model

gguf = pytest.importorskip("gguf")
Q4_0, Q4_1, Q8_0, Q5_0, F32 = (gguf.GGMLQuantizationType[n] for n in ("Q4_0", "Q4_1", "Q8_0", "Q5_0", "F32"))
ROPE = {**LLAMA3_ROPE, "original_max_position_embeddings": 8192}


def file_names(family: str) -> dict[str, str]:
    """Ours → GGUF's, by the mapping under test read backwards: a wrong pair shows in the logits."""
    layer = {ours: theirs for theirs, ours in gguf_file.LAYER_NAMES.items()}
    if family == "gemma3":
        return layer | {"pre_feedforward_layernorm": "ffn_norm"}
    return layer | {"post_attention_layernorm": "ffn_norm"}


def adjacent_pairs(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """The row order that converters give q and k of llama."""
    return rows.view(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def write(path, name, kind):
    """A random model of transformers as a GGUF file with matrices of one kind.

    Returns family, config and the weights that the file holds, by our names."""
    family, architecture, geometry = MODELS[name]
    geometry = {**geometry, **({"rope_parameters": ROPE} if name == "llama3.2" else {})}
    model = random_model(architecture, geometry)
    config = huggingface.decoder_config(FAMILIES[family], huggingface.Config(model.config.to_dict()), 64, "all")
    writer = gguf.GGUFWriter(path, next(k for k, v in gguf_file.MODEL_TYPES.items() if v.startswith(family)))
    fields = {
        **{"embedding_length": config.hidden_size, "block_count": config.layers, "context_length": 128},
        **{"attention.head_count": config.heads, "attention.head_count_kv": config.kv_heads},
        **{"attention.key_length": config.head_dim, "feed_forward_length": config.intermediate_size},
    }
    for field, value in fields.items():
        writer.add_uint32(f"{writer.arch}.{field}", value)
    if family == "gemma3":
        writer.add_uint32("gemma3.attention.sliding_window", geometry["sliding_window"])
        writer.add_uint32("gemma3.attention.sliding_window_pattern", 3)
    writer.add_float32(f"{writer.arch}.attention.layer_norm_rms_epsilon", config.norm_eps)
    writer.add_float32(f"{writer.arch}.rope.freq_base", config.rope_theta)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 2)
    names, held = file_names(family), {}
    top = {ours: theirs for theirs, ours in gguf_file.TOP_NAMES.items()}
    for key, value in model.state_dict().items():
        key = key.removeprefix("model.")
        if key == "lm_head.weight":
            continue
        value = value + FAMILIES[family].norm_offset if key.endswith("norm.weight") else value
        heads = (
            {"q_proj": config.heads, "k_proj": config.kv_heads}.get(key.split(".")[-2]) if family == "llama" else None
        )
        stored = (adjacent_pairs(value, heads) if heads else value).contiguous().numpy()
        of = kind if value.dim() == 2 else F32
        data = gguf.quantize(stored, of)
        if key in top:
            target = top[key]
        else:
            _, layer, *part, end = key.split(".")
            target = f"blk.{layer}.{names['.'.join(part)]}.{end}"
        writer.add_tensor(target, data, raw_dtype=of)
        values = torch.from_numpy(np.array(gguf.dequantize(data, of), np.float32)).reshape(value.shape)
        held[key] = torch.from_numpy(gguf_file.halves_order(values.numpy(), heads)) if heads else values
    if config.rope_scaling:
        plain = rotary_frequencies(dataclasses.replace(config, rope_scaling=None))
        writer.add_tensor(gguf_file.ROTARY_FACTORS, (plain / rotary_frequencies(config)).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_tokenizer(path.parent, VOCABULARY)
    return family, config, held


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [Q4_0, Q4_1, Q5_0], ids=str)
def test_blocks(tmp_path, name, kind):
    """The decoder of the file computes what one of the file's own weights does: to the bit with Q4_0 and Q4_1."""
    family, config, held = write(tmp_path / "model.gguf", name, kind)
    built = build(ExportOptions(source=tmp_path / "model.gguf", max_len=64, logits="all"), family)
    decoder = built.methods["forward"].module
    assert decoder.config == config
    weight = decoder.layers[0].mlp.gate_proj.weight
    assert isinstance(weight, QuantizedWeight)
    assert (weight.bits, weight.symmetric) == {Q4_0: (4, True), Q4_1: (4, False), Q5_0: (8, True)}[kind]
    expected = evaluation.all_logits(Decoder(config, held), IDS)
    actual = evaluation.all_logits(evaluation.dequantize(decoder), IDS)
    if kind == Q5_0:
        assert (actual - expected).norm() / expected.norm() < 0.05
        assert "relative error up to" in built.card.notes[0]
    else:
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
        assert "exact" in built.card.notes[0]


def test_refusals(tmp_path):
    path = tmp_path / "model.gguf"
    family, _, _ = write(path, "qwen3", Q8_0)
    with pytest.raises(huggingface.ConfigError, match="architecture 'qwen3'; this recipe is llama"):
        build(ExportOptions(source=path), "llama")
    with pytest.raises(huggingface.ConfigError, match=r"hidden_size 256; qwen3-0\.6b has 1024"):
        build(ExportOptions(source=path), family, "qwen3-0.6b")
    (tmp_path / "none.gguf").write_bytes(b"GGUX" + bytes(64))
    with pytest.raises(RecipeError, match="is not a GGUF file"):
        build(ExportOptions(source=tmp_path / "none.gguf"), family)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"GGUF", "damaged GGUF file"),
        (b"", "not a GGUF file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "Git-LFS pointer"),
        (b"<!doctype html><html>" + bytes(64), "HTML page"),
    ],
)
def test_files_that_are_none(tmp_path, content, words):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=rf"model\.gguf is .*{words}"):
        build(ExportOptions(source=path), "qwen3")


def test_damaged_files_are_refused(tmp_path):
    """Cut anywhere, or with bytes of the header overwritten, a file gives a model or a RecipeError."""
    path = tmp_path / "model.gguf"
    family, _, _ = write(path, "qwen3", Q4_0)
    content, random = path.read_bytes(), np.random.default_rng(1)
    for cut in (9, 30, 200, 700, len(content) // 2, len(content) - 100):
        path.write_bytes(content[:cut])
        with pytest.raises(RecipeError):
            build(ExportOptions(source=path), family)
    refused = 0
    for _ in range(40):
        damaged = np.frombuffer(content, np.uint8).copy()
        damaged[random.integers(4, 900, 2)] = random.integers(0, 256, 2)
        path.write_bytes(damaged.tobytes())
        try:
            build(ExportOptions(source=path), family)
        except RecipeError:
            refused += 1
    assert refused > 10


def test_weights_that_are_no_numbers(tmp_path):
    """An infinite scale of one block: the weight is named."""
    path = tmp_path / "model.gguf"
    family, _, _ = write(path, "qwen3", Q4_0)
    weight = next(t for t in gguf_file.open_gguf(path).tensors if t.name == "blk.0.attn_q.weight")
    content = bytearray(path.read_bytes())
    content[weight.data_offset : weight.data_offset + 2] = b"\x00\x7c"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match=r"layers\.0\.self_attn\.q_proj\.weight holds NaN or infinity \(\d+ of"):
        build(ExportOptions(source=path), family)
