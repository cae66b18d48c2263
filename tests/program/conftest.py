"""Programs that the tests here share: the exporter's fixtures, made when they are not up to date."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "build" / "fixtures"
TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} w9 {% endfor %}"
    "{% if add_generation_prompt %}w8{% endif %}"
)


@dataclass
class Fixture:
    """A program and calls with PyTorch eager's outputs."""

    path: Path
    calls: list[tuple[list[np.ndarray], list[np.ndarray]]]
    reset: list[int]  # calls before which the state is set back


@pytest.fixture(scope="session")
def fixture_of():
    """name → Fixture"""
    subprocess.run([ROOT / "tools/fixtures.sh"], cwd=ROOT, check=True)

    def get(name: str) -> Fixture:
        description = json.loads((FIXTURES / f"{name}.json").read_text())
        arrays = np.load(FIXTURES / f"{name}.npz")
        calls = [
            ([arrays[i["name"]] for i in call["inputs"]], [arrays[o["name"]] for o in call["outputs"]])
            for call in description["calls"]
        ]
        return Fixture(FIXTURES / f"{name}.pte", calls, description["reset"])

    return get


def save_tokenizer(folder, template=TEMPLATE):
    words = {f"w{i}": i for i in range(92)} | {"user": 92, "assistant": 93, "system": 94, "rest": 95}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="rest"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template} if template else {}))


@pytest.fixture(scope="session")
def folder_of(fixture_of, tmp_path_factory):
    """Name of a decoder → it as a model folder, made anew at each call."""

    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        shutil.copy(fixture_of(name).path, folder / "model.pte")
        save_tokenizer(folder)
        return folder

    return make


@pytest.fixture(scope="module")
def folder(folder_of):
    """The small decoder as a model folder."""
    return folder_of("decoder2")
