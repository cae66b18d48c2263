"""Programs that the tests here share: the exporter's fixtures, made when they are not up to date."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "build" / "fixtures"


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
