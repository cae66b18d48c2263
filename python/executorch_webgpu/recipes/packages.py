"""Files that installed Python packages carry."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from executorch_webgpu.recipes.base import RecipeError


def package_file(module: str, pattern: str, install: str) -> Path:
    """The one file in `module`'s folder that matches `pattern`. The module is not imported, nor what it depends on.

    Raises RecipeError, naming the command `install`.
    """
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise RecipeError(f"the package {module} is missing: {install}")
    found = [path for folder in spec.submodule_search_locations or () for path in sorted(Path(folder).glob(pattern))]
    if len(found) != 1:
        raise RecipeError(f"the package {module} holds {len(found)} files {pattern}, not one: {install}")
    return found[0]


def require(module: str, install: str) -> None:
    """Raises RecipeError, naming the command `install`, where `module` is missing."""
    if importlib.util.find_spec(module) is None:
        raise RecipeError(f"the package {module} is missing: {install}")
