"""What the README and the other pages tell to do works: Python and shell are run, TypeScript is type-checked.

tests/consumers runs the samples in other languages, in a browser, out of the packed package.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from executorch_webgpu import cli

ROOT = Path(__file__).resolve().parents[2]
LISTED = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
PAGES = [ROOT / name for name in LISTED.split()]
SHIMS = ROOT / "tests/consumers/samples/shims.d.ts"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(page.read_text()) if name == language]


def commands() -> list[list[str]]:
    """Of all shell blocks, split into words, without comments."""
    lines = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the README was followed up to its Python and inspect: models exported under its names."""
    subprocess.run([ROOT / "tools/models.sh"], check=True, cwd=ROOT)
    cache = Path(os.environ.get("ETWGPU_CACHE", Path.home() / ".cache/executorch-webgpu"))
    folder = tmp_path_factory.mktemp("readme")
    for words in commands():
        if words[:2] == ["executorch-webgpu", "export"] and "--from" not in words:
            (folder / words[words.index("--out") + 1]).symlink_to(cache / "models" / words[2])
    return folder


def run(words: list, folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python_and_commands(folder):
    """The Python blocks in order, then the commands on what they left."""
    page = blocks(ROOT / "README.md", "python")
    assert len(page) == 3
    outputs = [run([sys.executable, "-c", block], folder) for block in page]
    assert (folder / "model.pte").stat().st_size > 1000
    assert "array(" in outputs[1] and outputs[2] == "The capital of France is Paris.\n"
    count = 0
    for program, *words in commands():
        if program == "executorch-webgpu" and words[0] in ("inspect", "run", "profile"):
            devices = [] if words[0] == "inspect" else ["--device", "cpu"]
            output = run([sys.executable, "-m", "executorch_webgpu.cli", *words, *devices], folder)
            assert {"inspect": "WebGPUBackend", "run": "Paris", "profile": "dispatches"}[words[0]] in output
            count += 1
    assert count == 4


def test_export_commands_are_accepted():
    exports = [words[1:] for words in commands() if words[:2] == ["executorch-webgpu", "export"]]
    assert exports
    for words in exports:
        assert cli.parser().parse_args(words).recipe in cli.RECIPES


def test_other_commands_exist():
    """make targets; files that are sourced; nothing else but what is known."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for program, *words in commands():
        if program == "make":
            assert words[0] in targets, words
        elif program == ".":
            assert (ROOT / words[0]).is_file()
        elif program == "npm":
            assert words == ["install", "executorch-webgpu"]  # by it tests/consumers installs the packed package
        else:
            assert program in ("executorch-webgpu", "pip"), program
    for page in PAGES:
        for target in re.findall(r"`make ([a-z-]+)`", page.read_text()):
            assert target in targets, (page, target)


def test_links_and_paths():
    for page in PAGES:
        text = page.read_text()
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (page.parent / link).exists(), (page.name, link)
        for path in re.findall(r"`((?:runtime|python|tests|tools|schema|web|docs)/[\w./-]+)`", text):
            assert (ROOT / path).exists(), (page.name, path)


def test_every_block_has_a_runner():
    """Python and shell here; tests/consumers/samples.mjs ends with an error for a block that it does not know."""
    assert [page.name for page in PAGES if blocks(page, "python")] == ["README.md"]
    done = subprocess.run(["node", ROOT / "tests/consumers/samples.mjs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.full
def test_install_command(tmp_path):
    """The package as the README installs it has its command and its native module."""
    (words,) = {tuple(words) for words in commands() if words[0] == "pip"}
    command = [sys.executable, "-m", *words, "--quiet", "--target", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    program = "import executorch_webgpu.runtime as r; print(r.__file__)"
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(tmp_path))
    shown = subprocess.run(
        [tmp_path / "bin/executorch-webgpu", "--help"], env=environment, capture_output=True, text=True
    )
    assert shown.returncode == 0 and "export" in shown.stdout, shown.stderr


@pytest.mark.full
def test_demo():
    """What `make demo` does once all is built: it asks on WebGPU and on the CPU."""
    done = subprocess.run([ROOT / "tools/demo.sh"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((ROOT / "build/demo/report.json").read_text())
    gpu, cpu = report["devices"]
    assert (gpu["device"], cpu["device"]) == ("webgpu", "wasm")
    for asked in (gpu, cpu):
        assert asked["prompt"] in done.stdout and asked["text"] in done.stdout
        assert asked["text"] == "The capital of France is Paris."
        assert asked["token_ids"] == [504, 3575, 282, 4649, 314, 7042, 30, 2]  # eager's, see models/test_smollm2.py
        assert asked["browser"].startswith("chromium") and asked["tier"]
        assert min(asked[rate] for rate in ("load_s", "prefill_tok_s", "decode_tok_s")) > 0
        assert set(asked["gpu_bytes"]) == {"weights", "state", "arena", "other"}
        assert asked["objects_created_per_token"] == 0
    assert gpu["adapter"] and not cpu["adapter"]
    assert 0 < gpu["dispatches_per_token"] <= 7 * 30 + 8 and gpu["submits_per_token"] == 1
    assert gpu["read_back_bytes_per_token"] == 4 and gpu["peak_wasm_heap_bytes"] <= 96e6
    sizes = gpu["gpu_bytes"]
    assert sizes["weights"] > 70e6 and sizes["other"] <= 0.05 * (sizes["weights"] + sizes["state"] + sizes["arena"])
    assert not any(cpu["gpu_bytes"].values()) and cpu["dispatches_per_token"] == cpu["submits_per_token"] == 0
    transfer = report["runtime_transfer"]
    assert len(transfer["builds"]) == 4 and 100_000 < transfer["gzip_bytes"] <= 450_000 < transfer["raw_bytes"]


MIGRATION = ROOT / "docs/web/migration.md"
# what the code in the table's right column takes for granted
AROUND = """
import { ExecuTorchRuntime, tensor } from 'executorch-webgpu';
import type { Generation, GenerateOptions, LoadOptions, ManifestFile, Session } from 'executorch-webgpu';
import { openai } from 'executorch-webgpu/openai';
import { ImageClassifier } from 'executorch-webgpu/tasks';
type Option = keyof LoadOptions | keyof GenerateOptions | keyof ManifestFile;
const { loadModel } = ExecuTorchRuntime;
declare const session: Session, generation: Generation, image: Blob, modelUrl: string, url: string, prompt: string;
declare const messages: { role: string; content: string }[], data: Float32Array, dims: number[];
declare const device: 'webgpu' | 'wasm', threads: number, maxTokens: number, temperature: number;
declare const topK: number, topP: number, seed: number;
"""


def migration_code() -> str:
    """The right column's inline code as statements; a single word is an option's name."""
    rows = [line.split("|")[2] for line in MIGRATION.read_text().splitlines() if line.startswith("|")]
    code = [piece for row in rows for piece in re.findall(r"`([^`]+)`", row)]
    assert len(code) >= 18, code
    named = [f"({json.dumps(piece)}) satisfies Option;" for piece in code if piece.isalnum()]
    return AROUND + "\n".join([*named, *(f"{piece};" for piece in code if not piece.isalnum())])


def test_typescript(tmp_path):
    """All blocks together, each a module; those for service workers, of other types, are left to tests/consumers."""
    if not (ROOT / "web/dist/index.d.ts").exists() or not (ROOT / "node_modules/.bin/tsc").exists():
        pytest.skip("web/dist is not built")
    code = [block for page in PAGES for block in blocks(page, "ts") if '"webworker"' not in block]
    assert len(code) > 10
    for i, block in enumerate(code):
        (tmp_path / f"block{i}.ts").write_text(f"{block}\nexport {{}};\n")
    (tmp_path / "migration.ts").write_text(migration_code())
    shutil.copy(SHIMS, tmp_path)
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    options = "--noEmit --strict --skipLibCheck --target es2022 --module esnext --moduleResolution bundler"
    libraries = ["--lib", "es2023,dom,dom.iterable,dom.asynciterable,esnext.disposable"]
    command = [ROOT / "node_modules/.bin/tsc", *options.split(), *libraries, *sorted(tmp_path.glob("*.ts"))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
