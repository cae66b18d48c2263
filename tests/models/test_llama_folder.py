"""The Llama recipe on folders as transformers writes them, and its refusals."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from executorch_webgpu import evaluation
from executorch_webgpu.quantization import QuantizedLinear, quantize_model
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


@pytest.mark.parametrize(
    ("content", "message"),
    [("version https://git-lfs.github.com/spec/v1\n", "a Git-LFS pointer"), ("{", "no JSON"), ("{}", "lacks model")],
)
def test_a_broken_tokenizer_is_named(llama_folder, tmp_path, content, message):
    with pytest.raises(RecipeError, match=rf"tokenizer\.json.*{message}"):
        build(broken(llama_folder, tmp_path, lambda folder: (folder / "tokenizer.json").write_text(content)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("scheme", [{}, {"symmetric": True}, {"bits": 8}])
def test_weights_that_cannot_be_stored_are_named(llama_folder, tmp_path, value, scheme):
    from safetensors.torch import load_file, save_file

    name = "layers.1.mlp.up_proj.weight"

    def change(folder):
        weights = load_file(folder / "model.safetensors")
        weights[f"model.{name}"][3, 5] = value
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    folder = broken(llama_folder, tmp_path, change)
    if value == 1e30 and "bits" in scheme:  # whose scale is f32
        build(folder, **scheme)
        return
    words = "cannot be stored with 4 bits" if value == 1e30 else r"holds NaN or infinity \(1 of"
    with pytest.raises(RecipeError, match=f"{name} {words}"):
        build(folder, **scheme)


@pytest.mark.parametrize(("value", "words"), [(float("nan"), "holds NaN"), (1e30, "cannot be stored with 4 bits")])
def test_a_modules_weight_is_named(value, words):
    model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(64, 64)))
    model[0][0].weight.data[3, 5] = value
    with pytest.raises((ValueError, OverflowError), match=rf"0\.0\.weight {words}"):
        quantize_model(model)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rms_norm_eps", "a"),
        ("rms_norm_eps", [1]),
        ("rope_parameters", 5),
        ("rope_parameters", [1]),
        ("tie_word_embeddings", "no"),
        ("attention_bias", 3),
        ("eos_token_id", "a"),
        ("num_attention_heads", {}),
        ("max_position_embeddings", "2048"),
        ("hidden_act", ["silu"]),
        ("model_type", ["llama"]),
    ],
)
def test_fields_of_another_type_are_named(llama_folder, tmp_path, field, value):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, field: value}))
        (folder / "generation_config.json").unlink(missing_ok=True)

    with pytest.raises(RecipeError, match=field) as caught:
        build(broken(llama_folder, tmp_path, change))
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["rope_theta", "factor", "original_max_position_embeddings"])
def test_rotary_parameters_of_another_type_are_named(llama_folder, tmp_path, name):
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}

    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        rope["original_max_position_embeddings"] = 8192
        config["rope_parameters"] = {**rope, name: "a"}
        (folder / "config.json").write_text(json.dumps(config))

    with pytest.raises(RecipeError, match=f"rope_scaling has {name} 'a'"):
        build(broken(llama_folder, tmp_path, change))
