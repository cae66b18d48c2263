"""The Llama recipe on folders as transformers writes them, and its refusals."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from executorch_webgpu import evaluation
from executorch_webgpu.quantization import QuantizedLinear
from executorch_webgpu.recipes import ExportOptions, RecipeError, find
from models.conftest import save_llama

IDS = [1, 17, 5, 80, 33, 2, 9, 64]


def build(folder, **options):
    return find("llama").build(ExportOptions(source=folder, **options))


def test_equals_transformers_without_quantisation(tmp_path):
    model = save_llama(tmp_path)
    built = build(tmp_path, bits=32, embedding_bits=32, logits="all")
    actual = evaluation.all_logits(built.methods["forward"].module, IDS)
    with torch.no_grad():
        expected = model(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_sharded_untied_checkpoint_of_half_precision(tmp_path):
    model = save_llama(tmp_path, tie_word_embeddings=False).bfloat16()
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    actual = evaluation.all_logits(
        build(tmp_path, bits=32, embedding_bits=32, logits="all").methods["forward"].module, IDS
    )
    with torch.no_grad():
        expected = type(model).from_pretrained(tmp_path, dtype=torch.float32)(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "scheme", [{}, {"symmetric": True}, {"bits": 8}, {"embedding_bits": 4}, {"bits": 8, "embedding_bits": 32}]
)
def test_schemes(llama_folder, scheme):
    """Each scheme stores what it says, close to the float model, and the dequantised decoder computes the same."""
    built = build(llama_folder, logits="all", **scheme)
    decoder = built.methods["forward"].module
    projection = decoder.layers[0].self_attn.q_proj
    assert isinstance(projection, QuantizedLinear)
    assert projection.weight.bits == scheme.get("bits", 4) == built.weights["bits"]
    assert projection.weight.symmetric == (scheme.get("symmetric", False) or "bits" in scheme)
    quantised = evaluation.all_logits(decoder, IDS)
    plain = evaluation.all_logits(evaluation.dequantize(decoder), IDS)
    torch.testing.assert_close(quantised, plain, atol=1e-5, rtol=1e-5)
    exact = build(llama_folder, bits=32, embedding_bits=32, logits="all").methods["forward"].module
    reference = evaluation.all_logits(exact, IDS)
    # random weights have no slack: 4 bits cost much, but nothing like the 1.4 of unrelated logits
    error = (plain - reference).norm() / reference.norm()
    assert 0 < error < (0.05 if scheme.get("bits") == 8 else 0.6)


def test_tied_head_is_the_embedding(llama_folder):
    decoder = build(llama_folder).methods["forward"].module
    assert decoder.lm_head.weight is decoder.embed_tokens.weight


def test_files_and_metadata(llama_folder):
    built = build(llama_folder, max_len=32)
    assert set(built.files) == {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    assert "messages" in json.loads(built.files["tokenizer_config.json"])["chat_template"]
    assert built.constant_methods["get_max_context_len"] == 32
    assert built.constant_methods["get_vocab_size"] == 96
    assert (built.constant_methods["get_bos_id"], built.constant_methods["get_eos_ids"]) == (1, [2])


def test_refusals(llama_folder, tmp_path):
    with pytest.raises(RecipeError, match="needs --from DIR"):
        find("llama").build(ExportOptions())
    with pytest.raises(RecipeError, match=r"lacks config\.json"):
        build(tmp_path)
    with pytest.raises(RecipeError, match="rows of 160 values, which groups of 128 do not divide"):
        build(llama_folder, group=128)
    with pytest.raises(RecipeError, match=r"there is no recipe 'lama'; there are .*llama"):
        find("lama")


def broken(llama_folder, tmp_path, change):
    folder = tmp_path / "broken"
    shutil.copytree(llama_folder, folder)
    change(folder)
    return folder


def test_another_family_is_named(llama_folder, tmp_path):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "model_type": "gemma3"}))

    with pytest.raises(RecipeError, match="model_type 'gemma3'"):
        build(broken(llama_folder, tmp_path, change))


def test_missing_weights_are_named(llama_folder, tmp_path):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))

    with pytest.raises(RecipeError, match=r"9 weights are missing \['layers.2"):
        build(broken(llama_folder, tmp_path, change))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "a Git-LFS pointer"),
        (b"<!doctype html><html>", "an HTML page"),
        (None, "no whole safetensors file"),
    ],
)
def test_weights_that_are_none(llama_folder, tmp_path, content, message):
    def change(folder):
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100] if content is None else content)

    with pytest.raises(RecipeError, match=f"model.safetensors is {message}"):
        build(broken(llama_folder, tmp_path, change))


def test_missing_tokenizer_is_named(llama_folder, tmp_path):
    with pytest.raises(RecipeError, match=r"lacks tokenizer\.json"):
        build(broken(llama_folder, tmp_path, lambda folder: (folder / "tokenizer.json").unlink()))
