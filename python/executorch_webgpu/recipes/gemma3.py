"""Gemma 3 (text): norms of (1 + w) around attention and MLP, norms on query and key, layers with a window and rotary
angles of their own between layers that see everything, embeddings times sqrt(hidden)."""

from __future__ import annotations

from typing import Any

from executorch_webgpu.recipes.huggingface import Config, ConfigError, Family, rope_geometry, windows_of_kinds


def rotary(config: Config) -> dict[str, Any]:
    """Two bases: of layers with a window (never scaled) and of the others."""
    parameters = config.of_type("rope_parameters", dict, None)
    if parameters is None:  # before transformers 5
        scaling = config.of_type("rope_scaling", dict, {})
        base = rope_geometry({"rope_theta": config.number("rope_theta", 1e6), **scaling})
        return base | {"rope_theta_local": float(config.number("rope_local_base_freq", 1e4))}
    missing = {"full_attention", "sliding_attention"} - parameters.keys()
    if missing:
        raise ConfigError("rope_parameters", f"{config.origin}: rope_parameters lacks {' and '.join(sorted(missing))}")
    rotations = Config(parameters, f"rope_parameters of {config.origin}")
    local = rope_geometry(rotations.of_type("sliding_attention", dict), "rope_parameters")
    if len(local) > 1:
        raise ConfigError("rope_parameters", f"{config.origin}: rope_parameters scales the layers with a window")
    return rope_geometry(rotations.of_type("full_attention", dict), "rope_parameters") | {
        "rope_theta_local": local["rope_theta"]
    }


def geometry(config: Config) -> dict[str, Any]:
    config.only("attention_bias", None, False)
    config.only("hidden_activation", "gelu_pytorch_tanh", default="gelu_pytorch_tanh")
    kinds = config.of_type("layer_types", list, None)
    if kinds is None:  # before transformers had them: every so many layers, one sees everything
        pattern = config.count("sliding_window_pattern", config.count("_sliding_window_pattern", 6))
        layers = config.count("num_hidden_layers")
        kinds = ["sliding_attention" if (i + 1) % pattern else "full_attention" for i in range(layers)]
    return rotary(config) | {
        "windows": tuple(windows_of_kinds(kinds, config.count("sliding_window"))),
        "qk_norm": True,
        "post_norms": True,
        "activation": "gelu_tanh",
        "embedding_scale": config.count("hidden_size") ** 0.5,
        "attention_scale": config.count("query_pre_attn_scalar", 256) ** -0.5,
        "head_dim": config.count("head_dim", 256),
    }


FAMILY = Family("gemma3", ("gemma3_text",), geometry, norm_offset=1.0, tied=True)
