"""What a recipe is: a name, the options that it takes, and a function that builds a model ready to be exported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from executorch_webgpu.errors import NotAProgramError
from executorch_webgpu.json_files import read_object


class RecipeError(Exception):
    """A recipe cannot be built from what was given; the message says what to do about it."""


def read_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file of the model. Raises RecipeError where it holds something else."""
    try:
        return read_object(path)
    except NotAProgramError as error:
        raise RecipeError(str(error)) from error


@dataclass(frozen=True)
class ExportOptions:
    """Options of `executorch-webgpu export`. None means: the recipe's default."""

    source: Path | None = None  # a Hugging Face folder or a GGUF file on this machine (--from)
    bits: int | None = None  # 4, 8, or 32: as they are
    group: int | None = None  # values that share a scale (4 bits)
    symmetric: bool | None = None  # no minimum per group (4 bits)
    embedding_bits: int | None = None  # 4, 8 or 32, for the embedding and the head
    head_bits: int | None = None  # 4, 8 or 32, for the head and an embedding that is tied to it
    max_len: int | None = None  # positions in the cache
    max_call: int | None = None  # the most positions that a call may bring
    logits: str | None = None  # "last" or "all"
    random_weights: bool | None = None  # made up, for measurements
    structure_only: bool | None = None  # none at all: a list of what is to be made up where the model runs

    def without_weights(self) -> bool:
        """Whether the model is made of its geometry alone."""
        return bool(self.random_weights or self.structure_only)

    def given(self) -> dict[str, Any]:
        """The options that were set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Method:
    """One entry point: a module, example inputs (dynamic dimensions ≥ 2) and `torch.export`'s dynamic shapes."""

    module: Any
    inputs: tuple
    dynamic_shapes: Any = None


@dataclass(frozen=True)
class Card:
    """What the model card says beyond sizes and versions."""

    title: str
    licence: str
    source: str  # where the weights come from
    notes: tuple[str, ...] = ()
    accuracy: tuple[str, ...] = ()  # measured, with how; empty: nothing was measured


@dataclass(frozen=True)
class BuiltModel:
    """A model with its weights, and everything that its folder holds beside model.pte."""

    methods: Mapping[str, Method]
    constant_methods: Mapping[str, Any]
    card: Card
    weights: Mapping[str, Any]  # how the weights are stored: bits, group, symmetric, embedding_bits …
    precisions: tuple[str, ...] = ("f32",)  # of the GPU's intermediates, in which the results are good
    made_up: bool = False  # the weights are random, of the right shapes
    files: Mapping[str, bytes] = field(default_factory=dict)
    name: str = ""  # of the model, where it is not the recipe's


@dataclass(frozen=True)
class Recipe:
    name: str
    task: str  # "text-generation" or "image-classification"
    summary: str
    module: str  # imported when needed: listing recipes must not import torch
    accepts: frozenset[str] = frozenset()  # names of the ExportOptions that mean something here
    needs_source: bool = False
    arguments: Mapping[str, str] = field(default_factory=dict)  # of the module's `build`, beside the options

    def build(self, options: ExportOptions) -> BuiltModel:
        """Loads the weights and builds the model. Raises RecipeError."""
        refused = sorted(set(options.given()) - self.accepts)
        if refused:
            raise RecipeError(f"recipe {self.name} takes no option {', '.join(refused)}")
        if self.needs_source and options.source is None and not options.without_weights():
            raise RecipeError(f"recipe {self.name} needs --from DIR, a folder of a Hugging Face model, or a GGUF file")
        return importlib.import_module(self.module).build(options, **self.arguments)
