#!/usr/bin/env python3
"""The models of `make bench-llm`, and llama.cpp: python benchmarks/llm/make_models.py OUT [--quick]

Structures of ours (exported without weights, minutes each), their synthetic weights, and the peers' synthetic models.
--quick: models with two narrow layers. What is there is kept.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
LLAMA_CPP = "xllamacpp==2026.10.11549"
CONTEXT = "8448"  # 8,192 and what is decoded after them
STRUCTURES = {
    "llama-1b-q4": ["llama-3.2-1b-instruct", "--head", "int4", "--context", CONTEXT],
    "llama-1b-q4-head8": ["llama-3.2-1b-instruct", "--head", "int8", "--context", CONTEXT],
    "qwen3-0.6b-q4": ["qwen3-0.6b", "--head", "int4", "--context", CONTEXT],
    "llama-3b-q4": ["llama-3.2-3b-instruct", "--head", "int4", "--context", "2304"],
}


# config.json of a Hugging Face folder: what make_onnx.py and make_gguf.py call small
SMALL = {
    "model_type": "llama",
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def run(*command: object) -> None:
    print("bench-llm:", *(Path(str(part)).name for part in command[1:]), flush=True)
    subprocess.run([str(part) for part in command], check=True)


def install_llama_cpp(folder: Path) -> None:
    if not (folder / "xllamacpp").is_dir():
        run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, LLAMA_CPP)


def onnx_python(out: Path) -> Path:
    """A Python with the package onnx: this one, or that of the peers' model builder."""
    if importlib.util.find_spec("onnx"):
        return Path(sys.executable)
    sys.path.insert(0, str(HERE.parent / "peers"))
    from make_models import builder_python

    return builder_python(out.parent / "builder")


def make_ours(out: Path, structures: dict[str, list]) -> None:
    for name, options in structures.items():
        structure = out / "structures" / name
        if not (structure / "manifest.json").exists():
            export = [sys.executable, "-m", "executorch_webgpu.cli", "export", *options]
            run(*export, "--structure-only", "--group", "64", "--symmetric", "--out", structure)
        if not (out / name / "manifest.json").exists():
            run(sys.executable, HERE / "synthetic.py", structure, out / name)


def make_peers(out: Path, small: list[str]) -> None:
    for precision in ["f32"] if small else ["f16", "f32"]:
        folder = out / f"onnx-{precision}"
        if not (folder / "generation_config.json").exists():
            run(onnx_python(out), HERE / "make_onnx.py", folder, "--precision", precision, *small)
    if not (out / "gguf" / "model.gguf").exists():
        run(sys.executable, HERE / "make_gguf.py", out / "gguf", *small)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    if arguments.quick:
        config = out / "config"
        config.mkdir(parents=True, exist_ok=True)
        (config / "config.json").write_text(json.dumps(SMALL))
        make_ours(out, {"small": ["llama", "--from", config, "--head", "int4"]})
    else:
        make_ours(out, STRUCTURES)
    make_peers(out, ["--small"] if arguments.quick else [])
    install_llama_cpp(out.parent / "llama-cpp")


if __name__ == "__main__":
    main()
