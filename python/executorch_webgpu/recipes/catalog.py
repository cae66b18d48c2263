"""Models known by name: the config.json of each, as published, as far as it says what is computed.

With it a model can be exported without its weights (random ones, or none), and a folder given by mistake is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    family: str
    title: str
    source: str  # the repository on the hub
    licence: str
    config: Mapping[str, Any]


def _llama32(hidden: int, inner: int, layers: int, heads: int, head_dim: int) -> dict[str, Any]:
    return {
        **_decoder("llama", 128256, hidden, inner, layers, heads, 8, 131072, 1e-5),
        "head_dim": head_dim,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "bos_token_id": 128000,
        "eos_token_id": [128001, 128008, 128009],
    }


def _smollm2(hidden: int, inner: int, layers: int, heads: int, kv_heads: int, theta: float) -> dict[str, Any]:
    return {
        **_decoder("llama", 49152, hidden, inner, layers, heads, kv_heads, 8192, 1e-5),
        "rope_theta": theta,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }


def _qwen25(hidden: int, inner: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        **_decoder("qwen2", 151936, hidden, inner, layers, heads, 2, 32768, 1e-6),
        "rope_theta": 1000000.0,
        "bos_token_id": 151643,
        "eos_token_id": [151645, 151643],
        "pad_token_id": 151643,
    }


def _qwen3(hidden: int, inner: int) -> dict[str, Any]:
    return {
        **_decoder("qwen3", 151936, hidden, inner, 28, 16, 8, 40960, 1e-6),
        "head_dim": 128,
        "rope_theta": 1000000.0,
        "bos_token_id": 151643,
        "eos_token_id": [151645, 151643],
        "pad_token_id": 151643,
    }


def _gemma3(hidden: int, inner: int, layers: int) -> dict[str, Any]:
    return {
        **_decoder("gemma3_text", 262144, hidden, inner, layers, 4, 1, 32768, 1e-6),
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 512,
        "sliding_window_pattern": 6,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
        "pad_token_id": 0,
    }


def _decoder(
    kind: str, vocab: int, hidden: int, inner: int, layers: int, heads: int, kv_heads: int, trained: int, eps: float
) -> dict[str, Any]:
    return {
        "model_type": kind,
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": trained,
        "rms_norm_eps": eps,
        "tie_word_embeddings": True,
    }


LLAMA, GEMMA, APACHE = "Llama 3.2 Community License", "Gemma Terms of Use", "Apache-2.0"

PRESETS: Mapping[str, Preset] = {
    "llama-3.2-1b-instruct": Preset(
        "llama", "Llama 3.2 1B Instruct", "meta-llama/Llama-3.2-1B-Instruct", LLAMA, _llama32(2048, 8192, 16, 32, 64)
    ),
    "llama-3.2-3b-instruct": Preset(
        "llama", "Llama 3.2 3B Instruct", "meta-llama/Llama-3.2-3B-Instruct", LLAMA, _llama32(3072, 8192, 28, 24, 128)
    ),
    "qwen2.5-0.5b-instruct": Preset(
        "qwen2", "Qwen2.5 0.5B Instruct", "Qwen/Qwen2.5-0.5B-Instruct", APACHE, _qwen25(896, 4864, 24, 14)
    ),
    "qwen2.5-1.5b-instruct": Preset(
        "qwen2", "Qwen2.5 1.5B Instruct", "Qwen/Qwen2.5-1.5B-Instruct", APACHE, _qwen25(1536, 8960, 28, 12)
    ),
    "qwen3-0.6b": Preset("qwen3", "Qwen3 0.6B", "Qwen/Qwen3-0.6B", APACHE, _qwen3(1024, 3072)),
    "qwen3-1.7b": Preset("qwen3", "Qwen3 1.7B", "Qwen/Qwen3-1.7B", APACHE, _qwen3(2048, 6144)),
    "gemma-3-270m-it": Preset("gemma3", "Gemma 3 270M IT", "google/gemma-3-270m-it", GEMMA, _gemma3(640, 2048, 18)),
    "gemma-3-1b-it": Preset("gemma3", "Gemma 3 1B IT", "google/gemma-3-1b-it", GEMMA, _gemma3(1152, 6912, 26)),
    "smollm2-135m-instruct": Preset(
        "llama",
        "SmolLM2 135M Instruct",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        APACHE,
        _smollm2(576, 1536, 30, 9, 3, 100000.0),
    ),
    "smollm2-360m-instruct": Preset(
        "llama",
        "SmolLM2 360M Instruct",
        "HuggingFaceTB/SmolLM2-360M-Instruct",
        APACHE,
        _smollm2(960, 2560, 32, 15, 5, 100000.0),
    ),
    "smollm2-1.7b-instruct": Preset(
        "llama",
        "SmolLM2 1.7B Instruct",
        "HuggingFaceTB/SmolLM2-1.7B-Instruct",
        APACHE,
        _smollm2(2048, 8192, 24, 32, 32, 130000.0),
    ),
}
