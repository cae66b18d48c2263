"""Model folders with several variants of one model: other bits, other limits, other sizes.

The web package takes the first variant of manifest.json that suits the device, so the best one comes first.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from executorch_webgpu.errors import (
    FileError,
    InvalidArgumentError,
    InvalidProgramError,
    NotAProgramError,
    UnsupportedVersionError,
)
from executorch_webgpu.json_files import read_object, read_text

MANIFEST_FORMAT = 1
# Files that tell about one variant; every other one beside the programs must be the same in all.
OWN_FILES = frozenset({"README.md", "recipe.json"})
# What a variant names in the manifest, with the suffix of its file.
LARGE = {"program": ".pte", "data": ".ptd"}


def manifest_of(folder: Path) -> dict:
    """The manifest of a model folder, with at least one variant and with the names of files inside the folder.

    Raises InvalidArgumentError where there is none, NotAProgramError for a file that is none, UnsupportedVersionError
    for a format that is newer than this package, InvalidProgramError for a damaged one.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        raise InvalidArgumentError(f"{folder} is no model folder: it has no manifest.json")
    manifest = read_object(path)
    files, variants, written = (manifest.get(key) for key in ("files", "variants", "format"))
    if not isinstance(files, list) or not isinstance(variants, list) or type(written) is not int:
        raise NotAProgramError(f"{path} is not the manifest of a model folder")
    if written > MANIFEST_FORMAT:
        raise UnsupportedVersionError(f"{path} has format {written}, this package reads up to {MANIFEST_FORMAT}")
    if not variants:
        raise InvalidProgramError(f"{path} names no program")
    _check_entries(path, "files", files, ("path",), ("sha256",))
    _check_entries(path, "variants", variants, ("program",), ("name",))
    _check_entries(path, "variants", [v for v in variants if "data" in v], ("data",), ())
    return manifest


def _check_entries(path: Path, name: str, entries: list[Any], places: Sequence[str], texts: Sequence[str]) -> None:
    """Raises InvalidProgramError unless all entries have these strings; places are of files below the folder."""
    for i, entry in enumerate(entries):
        for key in (*places, *texts):
            value = entry.get(key) if isinstance(entry, dict) else None
            if not isinstance(value, str) or not value:
                raise InvalidProgramError(f"{path} is damaged: {name}[{i}] has no {key}")
            place = PurePosixPath(value)
            if key in places and (place.is_absolute() or ".." in place.parts):
                raise InvalidProgramError(f"{path} is damaged: {name}[{i}] has a {key} outside of the folder: {value}")


def variant_files(folder: Path, variant: str | None = None) -> tuple[Path, list[Path]]:
    """Program and .ptd files of a variant by name, or of the first one. A folder without a manifest has a model.pte.

    Raises InvalidArgumentError for a name that is not there, FileError for a file that is not there, and what
    manifest_of does.
    """
    if variant is None and not (folder / "manifest.json").is_file():
        return _present(folder, "model.pte"), []
    variants = manifest_of(folder)["variants"]
    for entry in variants:
        if variant in (None, entry["name"]):
            return _present(folder, entry["program"]), [_present(folder, entry["data"])] if "data" in entry else []
    names = ", ".join(entry["name"] for entry in variants)
    raise InvalidArgumentError(f"{folder} has no variant {variant}, only {names}")


def _present(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise FileError(f"{folder} has no {name}")
    return folder / name


def merge(folders: Sequence[Path], out: Path) -> None:
    """Writes one folder with the variants of all, in their order: the best first.

    Raises InvalidArgumentError where two variants have one name, or the folders differ in more than their programs;
    what manifest_of does.
    """
    from executorch_webgpu.model_folder import describe_file  # imports torch

    manifests = [manifest_of(folder) for folder in folders]
    first = manifests[0]
    for folder, manifest in zip(folders, manifests, strict=True):
        for key in ("format", "task", "chunk_bytes"):
            if manifest.get(key) != first.get(key):
                raise InvalidArgumentError(f"{folder} has {key} {manifest.get(key)}, {folders[0]} {first.get(key)}")
    names = [variant["name"] for manifest in manifests for variant in manifest["variants"]]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidArgumentError(f"more than one variant is called {', '.join(twice)}")
    shared = [_shared_files(manifest) for manifest in manifests]
    for folder, files in zip(folders, shared, strict=True):
        for name in sorted(files.keys() | shared[0].keys()):
            if files.get(name) != shared[0].get(name):
                raise InvalidArgumentError(f"{name} differs between {folders[0]} and {folder}")

    out.mkdir(parents=True, exist_ok=True)
    (out / "manifest.json").unlink(missing_ok=True)  # it comes last: a folder without one is not complete
    variants, written = [], sorted(shared[0])
    for name in written:
        shutil.copyfile(folders[0] / name, out / name)
    for folder, manifest in zip(folders, manifests, strict=True):
        for variant in manifest["variants"]:
            renamed = {key: variant["name"] + suffix for key, suffix in LARGE.items() if key in variant}
            for key, name in renamed.items():
                shutil.copyfile(folder / variant[key], out / name)
            variants.append({**variant, **renamed})
            written += renamed.values()
    _write_texts(folders, manifests, out)
    files = [describe_file(out / name, out) for name in sorted({*written, *OWN_FILES})]
    (out / "manifest.json").write_text(json.dumps({**first, "files": files, "variants": variants}, indent=1) + "\n")


def _shared_files(manifest: dict) -> dict[str, str]:
    """SHA-256 by name."""
    large = {variant[key] for variant in manifest["variants"] for key in LARGE if key in variant}
    return {file["path"]: file["sha256"] for file in manifest["files"] if file["path"] not in large | OWN_FILES}


def _write_texts(folders: Sequence[Path], manifests: Sequence[dict], out: Path) -> None:
    cards, recipes = [], []
    for folder, manifest in zip(folders, manifests, strict=True):
        names = ", ".join(variant["name"] for variant in manifest["variants"])
        cards.append(f"<!-- {names} -->\n" + read_text(folder / "README.md"))
        recipes.append(read_object(folder / "recipe.json"))
    (out / "README.md").write_text("\n".join(cards))
    (out / "recipe.json").write_text(json.dumps({"merged": recipes}, indent=2) + "\n")
