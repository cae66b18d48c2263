"""Every model with a name of its own at its true widths: two or three layers of random weights in 4 bits, on the CPU
and on the GPU, against transformers on the dequantised weights; with a window, beyond it.

Full matrix only: the widest has 200 million weights, and is computed three times.
"""

from __future__ import annotations

import pytest
import torch
from executorch_webgpu import evaluation, model_folder, runtime
from executorch_webgpu.recipes.catalog import PRESETS
from models.test_families import GEMMA3_ROPE, VOCABULARY, Case, recipe_of

pytestmark = pytest.mark.full
KINDS = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma3": "Gemma3"}
COPIED = (
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "query_pre_attn_scalar",
    "sliding_window",
    "rms_norm_eps",
)


def geometry(config) -> dict:
    """What makes up a layer; few layers and tokens."""
    copied = {name: config[name] for name in COPIED if name in config}
    if "sliding_window" in config:
        kinds = ["sliding_attention", "full_attention", "sliding_attention"]
        rest = {"num_hidden_layers": 3, "layer_types": kinds, "rope_parameters": GEMMA3_ROPE}
    else:
        rope = {"rope_type": "default", "rope_theta": config["rope_theta"]} | config.get("rope_scaling", {})
        rest = {"rope_parameters": rope}
    # so that what the layers add is neither nothing nor all there is
    return copied | rest | {"initializer_range": config["hidden_size"] ** -0.5, "max_position_embeddings": 1024}


@pytest.mark.parametrize("name", PRESETS)
def test_equals_transformers(name, tmp_path):
    preset = PRESETS[name]
    length = preset.config.get("sliding_window", 0) + 48
    ids = torch.randint(3, VOCABULARY, (length,), generator=torch.Generator().manual_seed(5)).tolist()
    case = Case((preset.family, KINDS[preset.family], geometry(preset.config)), tmp_path / "hf", ids)
    program = model_folder.write(recipe_of(case, "int4"), case.options("int4"), tmp_path, lambda text, seconds: None)
    expected = case.expected("int4")
    del case.model
    chunks = [length - 16, 1, 1, 14]  # the last ones by the kernels of one row and of several
    for device, options in {"cpu": {"activations": "exact"}, "webgpu": {}}.items():
        with runtime.load(program, device, **options) as session:
            actual = evaluation.all_logits(lambda *inputs, s=session: s.forward(*inputs)[0], ids, chunks)
        difference = (actual - expected).abs().max()
        assert difference < 2e-3, f"{device}: logits differ by {difference:.2g}"
