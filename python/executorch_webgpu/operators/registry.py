"""Loads schema/operators.yaml, THE list of operators that a delegate may contain."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

# What the CPU runs outside of delegates alone (runtime/executor/program_kernels.cpp).
_PROGRAM_KERNELS = frozenset({"aten.cumsum.default"})
# Families whose CPU kernels move elements, whatever they are; the others compute in f32 and integers.
_MOVING = frozenset({"layout", "indexing"})
_NOT_COMPUTED = frozenset({"f16", "bf16", "f64"})


@dataclass(frozen=True)
class Operator:
    """One line of operators.yaml: where its kernels live and which tensors they take."""

    name: str  # "aten.linear.default"
    family: str  # folder below runtime/operators
    dtypes: frozenset[str]  # of every tensor argument and result
    max_rank: int
    arg_dtypes: dict[str, frozenset[str]] = field(default_factory=dict)  # narrower, by the schema's argument name


def find_schema(name: str) -> Path:
    """The path of a file of schema/: beside the package when installed, in the repository when run from source."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "schema", package.parent.parent / "schema"):
        if (folder / name).exists():
            return folder / name
    raise FileNotFoundError(f"schema/{name} is neither in {package} nor in the repository above it")


@functools.cache
def load_operators() -> dict[str, Operator]:
    """All operators by qualified name. A name that is listed twice is an error."""
    document = yaml.safe_load(find_schema("operators.yaml").read_text())
    defaults = document.pop("defaults", {})
    operators: dict[str, Operator] = {}
    for family, lines in document.items():
        for line in lines:
            for name in line["ops"]:
                if name in operators:
                    raise ValueError(f"operators.yaml lists {name} twice: {operators[name].family}, {family}")
                operators[name] = Operator(
                    name=name,
                    family=family,
                    dtypes=frozenset(line["dtypes"]),
                    max_rank=line.get("max_rank", defaults.get("max_rank", 6)),
                    arg_dtypes={arg: frozenset(dtypes) for arg, dtypes in line.get("args", {}).items()},
                )
    return operators


def why_not_on_cpu(name: str, dtypes: Iterable[str], rank: int) -> str | None:
    """Why a call outside of delegates cannot run in this runtime (ExecuTorch's own kernels may know it), or None.

    name: "aten.mul.Tensor"; dtypes, rank: of its tensors, the largest rank."""
    listed = load_operators().get(name)
    if listed is None:
        return None if name in _PROGRAM_KERNELS else "no CPU kernel"
    unknown = sorted(_NOT_COMPUTED.intersection(dtypes))
    if unknown and listed.family not in _MOVING:
        return f"no CPU kernel for {', '.join(unknown)}"
    if name == "aten.convolution.default" and rank > 4:
        return f"no CPU kernel for {rank - 2} spatial dimensions"
    return None
