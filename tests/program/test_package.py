"""The wheel works without the source tree; the module is not loaded by a processor that it would crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from executorch_webgpu import native

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys
import numpy as np
from executorch_webgpu import errors, runtime
from executorch_webgpu.operators.registry import load_operators
from executorch_webgpu.recipes import efficientnet_lite0
assert runtime.__file__.startswith(sys.argv[1]), runtime.__file__
assert "aten.linear.default" in load_operators() and len(efficientnet_lite0.labels()) == 1000
print(runtime.load(sys.argv[2], "cpu").forward(np.ones((3, 48), np.float32))[0].shape)
"""


def test_wheel(tmp_path, fixture_of):
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run(["make", "python-package"], cwd=ROOT, check=True)
    (wheel,) = (ROOT / "build/dist").glob("*.whl")
    installed = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", installed, wheel], check=True)
    environment = os.environ | {"PYTHONPATH": str(installed)}

    def run(*command) -> str:
        return subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    assert run(sys.executable, "-c", PROGRAM, installed, fixture_of("mlp").path).startswith("(3, ")
    assert "smollm2-135m-instruct" in run(installed / "bin/executorch-webgpu", "recipes")


def test_processors():
    v3 = "flags\t\t: fpu sse avx avx2 bmi1 bmi2 f16c fma abm movbe aes pclmulqdq"
    assert native.missing_instructions("x86_64 x86-64-v3\n", f"processor : 0\n{v3}\n\n{v3}") == []
    assert native.missing_instructions("x86_64 x86-64-v3\n", "flags : fpu sse avx aes fma") == [
        "avx2",
        "bmi1",
        "bmi2",
        "f16c",
        "abm",
        "movbe",
        "pclmulqdq",
    ]
    assert native.missing_instructions("x86_64 x86-64\n", "flags : fpu") == []
    assert native.missing_instructions("aarch64 x86-64-v3\n", "Features : asimd") == []
