"""Exported programs of tests, kept between runs: torch.export takes most of a small comparison's time.

An entry is found again only if nothing that its export read has changed: the exporter's sources and schemas, the
sources in the test's own folder, the packages' versions, the test and the number of the export in it, the weights and
the example.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import pickle
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ["ETWGPU_CACHE"]) / "test-programs" if "ETWGPU_CACHE" in os.environ else ROOT / "build/programs"
PACKAGES = ("torch", "executorch", "torchao", "transformers")
DAYS = 14  # an entry that was not used for so long is removed
_numbers: Counter[str] = Counter()  # exports of each test so far


@cache
def _digest_of_sources(folder: Path) -> bytes:
    """Of the exporter, of tests/export and of a test's folder."""
    exporter = subprocess.run(ROOT / "tools/exporter_sources.sh", capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in exporter.split()]
    paths += [p for of in (ROOT / "tests/export", folder) for p in sorted(of.rglob("*.py"))]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    for package in PACKAGES:
        digest.update(importlib.metadata.version(package).encode() + b"\0")
    return digest.digest()


def _update(digest, value) -> None:
    """Adds a tensor's dtype, shape and bytes; anything else by its text."""
    if isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)} {value.stride()}".encode())
        digest.update(value.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    else:
        digest.update(repr(value).encode() + b"\0")


def _remove_old() -> None:
    for path in FOLDER.glob("*.pickle"):
        if path.stat().st_mtime < time.time() - DAYS * 86400:
            path.unlink(missing_ok=True)


def cached(model: torch.nn.Module, example: Iterable, make: Callable[[], object]):
    """make()'s result, from an earlier run of the same test if there is one. What make() reads beside `model` and
    `example` must follow from the sources."""
    test = os.environ["PYTEST_CURRENT_TEST"].rsplit(" ", 1)[0]
    if not _numbers:
        FOLDER.mkdir(parents=True, exist_ok=True)
        _remove_old()
    _numbers[test] += 1
    digest = hashlib.sha256(_digest_of_sources((ROOT / test.split("::")[0]).parent))
    digest.update(f"{test} {_numbers[test]} {model}".encode())
    for name, value in [*model.named_parameters(), *model.named_buffers(), *enumerate(example)]:
        digest.update(f"{name}=".encode())
        _update(digest, value)
    path = FOLDER / f"{digest.hexdigest()}.pickle"
    try:
        result = pickle.loads(path.read_bytes())
        os.utime(path)
        return result
    except (OSError, EOFError, pickle.UnpicklingError):
        result = make()
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(pickle.dumps(result))
    unfinished.replace(path)
    return result
