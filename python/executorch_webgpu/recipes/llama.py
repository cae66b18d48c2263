"""The Llama family from a Hugging Face folder: Llama 2 and 3.x, SmolLM2, TinyLlama and others of `model_type` llama."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from executorch_webgpu.recipes.base import BuiltModel, Card, ExportOptions, RecipeError
from executorch_webgpu.recipes.decoder import DecoderConfig, RopeScaling
from executorch_webgpu.recipes.text_generation import Scheme, Tokens, text_model, tokenizer_files


def read_config(folder: Path) -> dict:
    """config.json. Raises RecipeError where it is missing or of another family."""
    path = folder / "config.json"
    if not path.is_file():
        raise RecipeError(f"{folder} lacks config.json: --from takes the folder of a Hugging Face model")
    config = json.loads(path.read_text())
    if config.get("model_type") != "llama":
        raise RecipeError(f"{path} is of model_type {config.get('model_type')!r}; this recipe builds 'llama'")
    if config.get("hidden_act", "silu") != "silu":
        raise RecipeError(f"{path} asks for the activation {config['hidden_act']!r}; this family has 'silu'")
    return config


def rope_scaling(rope: dict) -> RopeScaling | None:
    """The scaling of config.json's rope parameters. Raises RecipeError for kinds other than llama3."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise RecipeError(f"rotary scaling {kind!r} is not supported; there are 'default' and 'llama3'")
    return RopeScaling(
        factor=rope["factor"],
        low_freq_factor=rope["low_freq_factor"],
        high_freq_factor=rope["high_freq_factor"],
        original_max_len=rope["original_max_position_embeddings"],
    )


def decoder_config(config: dict, max_len: int | None, logits: str | None) -> DecoderConfig:
    """Our geometry of a config.json. max_len None: 2048, or what the model was trained for if that is less."""
    # transformers 5 writes rope_parameters, earlier releases rope_theta and rope_scaling.
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    trained = config.get("max_position_embeddings", 2048)
    if max_len is not None and max_len > trained:
        raise RecipeError(f"--max-len {max_len} is beyond the {trained} positions that the model was trained for")
    heads = config["num_attention_heads"]
    return DecoderConfig(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        intermediate_size=config["intermediate_size"],
        norm_eps=config["rms_norm_eps"],
        rope_theta=rope.get("rope_theta") or config.get("rope_theta", 10000.0),
        rope_scaling=rope_scaling(rope),
        tied_embedding=config.get("tie_word_embeddings", False),
        max_len=max_len or min(2048, trained),
        logits=logits or "last",
    )


def checkpoint(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a folder's safetensors, one at a time, names without the leading "model."."""
    from safetensors import safe_open

    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise RecipeError(f"{folder} holds no *.safetensors")
    for path in paths:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                yield name.removeprefix("model."), file.get_tensor(name)


def expected_names(config: DecoderConfig) -> set[str]:
    """The weights that a decoder cannot do without (biases come on top)."""
    attention = [f"self_attn.{part}_proj" for part in "qkvo"]
    mlp = [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
    layer = [*attention, *mlp, "input_layernorm", "post_attention_layernorm"]
    names = {f"layers.{i}.{part}.weight" for i in range(config.layers) for part in layer}
    return names | {"embed_tokens.weight", "norm.weight"} | (set() if config.tied_embedding else {"lm_head.weight"})


def read_weights(folder: Path, config: DecoderConfig, scheme: Scheme) -> dict:
    """Every weight of the decoder, quantised by the scheme as it is read. Raises RecipeError."""
    expected = expected_names(config)
    optional = {name.removesuffix("weight") + "bias" for name in expected if "_proj." in name}
    weights, unknown = {}, []
    for name, tensor in checkpoint(folder):
        if name in expected or name in optional:
            weights[name] = scheme.quantize(name, tensor)
        elif name != "lm_head.weight" and not name.endswith("rotary_emb.inv_freq"):
            unknown.append(name)
    missing = sorted(expected - weights.keys())
    if missing or unknown:
        raise RecipeError(
            f"the checkpoint in {folder} is not of this family: "
            f"{len(missing)} weights are missing {missing[:3]}, {len(unknown)} are unknown {sorted(unknown)[:3]}"
        )
    return weights


def special_tokens(folder: Path, config: dict) -> Tokens:
    """From generation_config.json, or from config.json where there is none."""
    path = folder / "generation_config.json"
    ids = {**config, **(json.loads(path.read_text()) if path.is_file() else {})}
    eos = ids.get("eos_token_id")
    if eos is None:
        raise RecipeError(f"neither generation_config.json nor config.json in {folder} has eos_token_id")
    return Tokens(ids.get("bos_token_id"), tuple(eos) if isinstance(eos, list) else (eos,), ids.get("pad_token_id"))


def build(options: ExportOptions) -> BuiltModel:
    """The model of a Hugging Face folder with the chosen scheme (default: int4 affine by 32, embedding int8)."""
    folder = Path(options.source)
    raw = read_config(folder)
    config = decoder_config(raw, options.max_len, options.logits)
    given = {name: getattr(options, name) for name in ("bits", "group", "symmetric", "embedding_bits")}
    scheme = Scheme(**{name: value for name, value in given.items() if value is not None})
    return text_model(
        config,
        read_weights(folder, config, scheme),
        special_tokens(folder, raw),
        scheme,
        Card(
            title=f"{folder.resolve().name} for executorch-webgpu",
            licence="that of the model which it was made from",
            source=f"a Hugging Face folder named {folder.resolve().name}",
        ),
        tokenizer_files(folder),
        folder.resolve().name,
    )
