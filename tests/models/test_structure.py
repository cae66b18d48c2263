"""Models without weights: what `--structure-only` lists and benchmarks/llm/synthetic.py makes up of it is a .ptd that
executorch reads and the runtime runs with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch_webgpu import model_folder, runtime
from executorch_webgpu.recipes import ExportOptions, RecipeError, find
from models.conftest import small_llama

SYNTHETIC = Path(__file__).parents[2] / "benchmarks/llm/synthetic.py"


def export(folder, out, **options):
    return model_folder.write(
        find("llama"), ExportOptions(source=folder, **options), out, progress=lambda text, seconds: None
    )


@pytest.fixture(scope="module")
def config_folder(tmp_path_factory):
    """A folder with config.json alone; rows of 128 values so that groups of 64 fit."""
    folder = tmp_path_factory.mktemp("config")
    small_llama(hidden_size=128, intermediate_size=192).config.save_pretrained(folder)
    return folder


def test_structure_only(config_folder, tmp_path):
    structure, folder = tmp_path / "structure", tmp_path / "folder"
    export(config_folder, structure, structure_only=True, symmetric=True, group=64, head_bits=4)
    listed = json.loads((structure / "weights.json").read_text())
    subprocess.run([sys.executable, SYNTHETIC, structure, folder], check=True)

    from executorch.exir._serialize._cord import Cord
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    data = FlatTensorSerializer().deserialize(Cord((folder / "weights.ptd").read_bytes()))
    assert {entry["key"]: entry["size"] for entry in listed["entries"]} == {
        name: len(data.buffers[entry.buffer_index]) for name, entry in data.named_data.items()
    }
    assert len(listed["entries"]) == 2 * 7 + 1
    assert listed["vocabulary"] == 96

    with runtime.load(folder / "model.pte", "cpu", data=[folder / "weights.ptd"]) as session:
        logits = session.run("forward", np.array([[5, 7, 9]], np.int64), np.zeros(1, np.int64))[0]
    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 10, "weights of the wrong magnitude"


@pytest.mark.parametrize("symmetric", [True, False])
def test_random_weights(config_folder, tmp_path, symmetric):
    """The program holds its weights and computes what eager computes with them."""
    options = {"random_weights": True, "symmetric": symmetric}
    program = export(config_folder, tmp_path, **options)
    ids, start = torch.tensor([[5, 7, 9]]), torch.zeros(1, dtype=torch.int64)
    built = find("llama").build(ExportOptions(source=config_folder, **options))
    with torch.no_grad():
        expected = built.methods["forward"].module(ids, start)
    assert 0.1 < expected.std() < 10
    with runtime.load(program, "cpu", activations="exact") as session:
        actual = session.run("forward", ids.numpy(), start.numpy())[0]
    torch.testing.assert_close(torch.from_numpy(actual), expected, atol=1e-4, rtol=1e-4)


def test_refusals(config_folder):
    with pytest.raises(RecipeError, match=r"needs --from DIR with a config\.json"):
        find("llama").build(ExportOptions(random_weights=True))
    with pytest.raises(RecipeError, match="lists quantised weights alone"):
        find("llama").build(ExportOptions(source=config_folder, structure_only=True, embedding_bits=32))


def test_a_known_model_needs_no_folder():
    built = find("gemma-3-270m-it").build(ExportOptions(random_weights=True, max_len=64))
    assert built.constant_methods["get_vocab_size"] == 262144
    assert built.made_up
