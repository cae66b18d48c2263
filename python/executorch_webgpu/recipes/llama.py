"""The Llama family: Llama 2 and 3.x, SmolLM2, TinyLlama and others of `model_type` llama."""

from __future__ import annotations

from typing import Any

from executorch_webgpu.recipes.huggingface import Config, Family, rope_fields, rope_geometry

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")


def geometry(config: Config) -> dict[str, Any]:
    config.only("hidden_act", "silu", default="silu")
    biases = (ATTENTION if config.of_type("attention_bias", bool, False) else ()) + (
        MLP if config.of_type("mlp_bias", bool, False) else ()
    )
    return rope_geometry(rope_fields(config)) | {"biases": frozenset(biases)}


FAMILY = Family("llama", ("llama",), geometry)
