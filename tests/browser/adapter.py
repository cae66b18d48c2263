"""adapter.py MODEL FOLDER: writes a random LoRA adapter for SmolLM2 into FOLDER, as peft would, and prints what the
native runtime on the CPU answers to "Once upon" with and without it: {"adapted": ids, "plain": ids}."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from executorch_webgpu.generation import TextGenerator
from safetensors.numpy import save_file

LAYERS, RANK, ALPHA = 30, 4, 8
# rows and columns of the linears
SHAPES = {"self_attn.q_proj": (576, 576), "self_attn.v_proj": (192, 576), "mlp.down_proj": (576, 1536)}


def main(model: Path, folder: Path) -> None:
    rng = np.random.default_rng(1)
    tensors = {}
    for layer in range(LAYERS):
        for name, (n, k) in SHAPES.items():
            path = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{path}.lora_A.weight"] = (rng.standard_normal((RANK, k)) / np.sqrt(k)).astype(np.float32)
            tensors[f"{path}.lora_B.weight"] = (0.05 * rng.standard_normal((n, RANK))).astype(np.float16)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", "target_modules": list(SHAPES)}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    with TextGenerator(model, "cpu", activations="exact", adapters=[folder]) as generator:
        adapted = generator.generate("Once upon", max_tokens=4).ids
        generator.set_adapter_scale(folder.name, 0)
        plain = generator.generate("Once upon", max_tokens=4).ids
    print(json.dumps({"adapted": adapted, "plain": plain}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
