"""The small files beside a program, read so that a damaged one is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from executorch_webgpu.errors import FileError, NotAProgramError


def read_text(path: Path) -> str:
    """A text file in UTF-8. Raises NotAProgramError where it holds something else, FileError where it can't be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise NotAProgramError(f"{path} is no text") from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error


def foreign_kind(start: str) -> str | None:
    """What a file with this start is where a model's file should be, if it is one of the usual mistakes."""
    if start.lstrip().startswith("<"):
        return "an HTML page"
    if start.startswith("version https://git-lfs"):
        return "a Git-LFS pointer: the file itself has not been fetched"
    return None


def read_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds. Raises NotAProgramError, which says what the file is instead, FileError."""
    text = read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotAProgramError(f"{path} is {foreign_kind(text) or f'no JSON: {error}'}") from None
    if not isinstance(value, dict):
        raise NotAProgramError(f"{path} holds no JSON object")
    return value
