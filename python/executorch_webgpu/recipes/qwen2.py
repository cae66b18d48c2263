"""Qwen2 and Qwen2.5: the Llama layer with biases on query, key and value."""

from __future__ import annotations

from typing import Any

from executorch_webgpu.recipes.huggingface import Config, Family, rope_fields, rope_geometry, window_geometry


def geometry(config: Config) -> dict[str, Any]:
    config.only("hidden_act", "silu", default="silu")
    windows = window_geometry(config, config.of_type("use_sliding_window", bool, False))
    return rope_geometry(rope_fields(config)) | windows | {"biases": frozenset(("q_proj", "k_proj", "v_proj"))}


FAMILY = Family("qwen2", ("qwen2",), geometry)
