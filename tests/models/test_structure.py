"""Models without weights: what `--structure-only` lists is a .ptd that executorch reads and the runtime runs with."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from executorch_webgpu import model_folder, runtime, structure
from executorch_webgpu.recipes import ExportOptions, RecipeError, find
from models.conftest import small_llama


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


@pytest.mark.parametrize("scheme", [{"symmetric": True, "group": 64, "head_bits": 4}, {"bits": 32}])
def test_structure_only(config_folder, tmp_path, scheme):
    program = export(config_folder, tmp_path, structure_only=True, **scheme)
    path = structure.fill(tmp_path)
    listed = json.loads((tmp_path / structure.STRUCTURE).read_text())

    from executorch.exir._serialize._cord import Cord
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    data = FlatTensorSerializer().deserialize(Cord(path.read_bytes()))
    assert {w["name"]: w["bytes"] for w in listed["weights"]} == {
        name: len(data.buffers[entry.buffer_index]) for name, entry in data.named_data.items()
    }
    assert len(listed["weights"]) == 2 * 9 + 2
    assert program.stat().st_size < 50_000 < path.stat().st_size

    with runtime.load(program, "cpu", data=[path]) as session:
        ids, start = np.array([[5, 7, 9]], np.int64), np.zeros(1, np.int64)
        logits = session.run("forward", ids, start)[0]
    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 10, "weights of the wrong magnitude"


def test_random_weights(config_folder, tmp_path):
    """The program holds its weights and computes what eager computes with them."""
    options = {"random_weights": True, "symmetric": True}
    program = export(config_folder, tmp_path, **options)
    ids, start = torch.tensor([[5, 7, 9]]), torch.zeros(1, dtype=torch.int64)
    built = find("llama").build(ExportOptions(source=config_folder, **options))
    with torch.no_grad():
        expected = built.methods["forward"].module(ids, start)
    with runtime.load(program, "cpu", activations="exact") as session:
        actual = session.run("forward", ids.numpy(), start.numpy())[0]
    torch.testing.assert_close(torch.from_numpy(actual), expected, atol=1e-4, rtol=1e-4)


def test_a_known_model_needs_no_folder():
    built = find("gemma-3-270m-it").build(ExportOptions(random_weights=True, max_len=64))
    assert built.constant_methods["get_vocab_size"] == 262144
    assert built.made_up
    with pytest.raises(RecipeError, match=r"needs --from DIR with a config\.json"):
        find("llama").build(ExportOptions(random_weights=True))
