"""Qwen3 (dense): norms over each head of query and key, and heads of a width of their own."""

from __future__ import annotations

from typing import Any

from executorch_webgpu.recipes.huggingface import Config, Family, rope_fields, rope_geometry, window_geometry


def geometry(config: Config) -> dict[str, Any]:
    config.only("hidden_act", "silu", default="silu")
    biases = ("q_proj", "k_proj", "v_proj", "o_proj") if config.of_type("attention_bias", bool, False) else ()
    windows = window_geometry(config, config.of_type("use_sliding_window", bool, False))
    own = {"biases": frozenset(biases), "qk_norm": True, "head_dim": config.count("head_dim", 128)}
    return rope_geometry(rope_fields(config)) | windows | own


FAMILY = Family("qwen3", ("qwen3",), geometry)
