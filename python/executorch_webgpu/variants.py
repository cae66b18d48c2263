"""Model folders with several variants of one model: other bits, other limits, other sizes.

The web package takes the first variant of manifest.json that suits the device, so the best one comes first.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from executorch_webgpu.errors import InvalidArgumentError

# Files that tell about one variant; every other one beside the programs must be the same in all.
OWN_FILES = frozenset({"README.md", "recipe.json"})
# What a variant names in the manifest, with the suffix of its file.
LARGE = {"program": ".pte", "data": ".ptd"}


def manifest_of(folder: Path) -> dict:
    """The manifest of a model folder. Raises InvalidArgumentError where there is none."""
    path = folder / "manifest.json"
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise InvalidArgumentError(f"{folder} is no model folder: it has no manifest.json") from None
    except ValueError as error:
        raise InvalidArgumentError(f"{path} is no JSON: {error}") from None


def variant_files(folder: Path, variant: str | None = None) -> tuple[Path, list[Path]]:
    """Program and .ptd files of a variant by name, or of the first one. A folder without a manifest has a model.pte.

    Raises InvalidArgumentError for a name that is not there.
    """
    if variant is None and not (folder / "manifest.json").is_file():
        return folder / "model.pte", []
    variants = manifest_of(folder)["variants"]
    for entry in variants:
        if variant in (None, entry["name"]):
            return folder / entry["program"], [folder / entry["data"]] if "data" in entry else []
    names = ", ".join(entry["name"] for entry in variants)
    raise InvalidArgumentError(f"{folder} has no variant {variant}, only {names}")


def merge(folders: Sequence[Path], out: Path) -> None:
    """Writes one folder with the variants of all, in their order: the best first.

    Raises InvalidArgumentError where two variants have one name, or the folders differ in more than their programs.
    """
    from executorch_webgpu.model_folder import describe_file  # imports torch

    manifests = [manifest_of(folder) for folder in folders]
    first = manifests[0]
    for folder, manifest in zip(folders, manifests, strict=True):
        for key in ("format", "task", "chunk_bytes"):
            if manifest[key] != first[key]:
                raise InvalidArgumentError(f"{folder} has {key} {manifest[key]}, {folders[0]} {first[key]}")
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
        cards.append(f"<!-- {names} -->\n" + (folder / "README.md").read_text())
        recipes.append(json.loads((folder / "recipe.json").read_text()))
    (out / "README.md").write_text("\n".join(cards))
    (out / "recipe.json").write_text(json.dumps({"merged": recipes}, indent=2) + "\n")
