"""Builds a decoder of any family: from a Hugging Face folder, a GGUF file, or its geometry with made-up weights."""

from __future__ import annotations

from pathlib import Path

from executorch_webgpu.recipes import gemma3, gguf_file, llama, qwen2, qwen3, synthetic
from executorch_webgpu.recipes.base import BuiltModel, Card, ExportOptions, RecipeError
from executorch_webgpu.recipes.catalog import PRESETS, Preset
from executorch_webgpu.recipes.huggingface import (
    Config,
    ConfigError,
    Family,
    build_folder,
    decoder_config,
    read_config,
    special_tokens,
)
from executorch_webgpu.recipes.text_generation import Scheme, text_model

FAMILIES = {module.FAMILY.name: module.FAMILY for module in (llama, qwen2, qwen3, gemma3)}

# By these a folder is known to hold another size of the family than the one that was asked for.
IDENTITY = ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")


def check_preset(config: Config, name: str, preset: Preset) -> None:
    """Raises ConfigError where a folder holds another model than the one named."""
    for field in IDENTITY:
        if config.get(field) != preset.config[field]:
            raise ConfigError(
                field,
                f"{config.origin} has {field} {config.get(field)}; {name} has {preset.config[field]}. For a model of "
                f"another size use the recipe {preset.family!r}",
            )


def build_synthetic(family: Family, preset: Preset | None, options: ExportOptions) -> BuiltModel:
    """The model with made-up weights, of a folder's config.json or of a known model's."""
    folder = options.source and Path(options.source)
    raw = read_config(folder, family) if folder else Config(preset.config, preset.title)
    config = decoder_config(family, raw, options.max_len, options.logits, options.max_call)
    scheme = Scheme.of(options).for_model(config.tied_embedding)
    if options.structure_only and 32 in (scheme.bits, scheme.embedding_bits, scheme.head_bits):
        raise RecipeError("--structure-only lists quantised weights alone: leave out --bits, --head … none")
    title = folder.resolve().name if folder else preset.title
    card = Card(
        title=f"{title} for executorch-webgpu, weights made up",
        licence="none is needed: the weights are random",
        source="a generator of random numbers; for measurements only",
    )
    tokens = special_tokens(folder, raw)
    return text_model(config, synthetic.weights(config, scheme), tokens, scheme, card, {}, made_up=True)


def build(options: ExportOptions, family: str, preset: str = "") -> BuiltModel:
    """The model of a folder or file, or, with random_weights or structure_only, of its geometry. Raises RecipeError."""
    known = PRESETS.get(preset)
    if options.without_weights():
        if known is None and options.source is None:
            raise RecipeError(f"recipe {family} needs --from DIR with a config.json, weights or not")
        return build_synthetic(FAMILIES[family], known, options)
    source = Path(options.source)
    is_gguf = source.suffix == ".gguf"
    if known:
        raw = gguf_file.read_config(gguf_file.open_gguf(source), FAMILIES[family], source.name) if is_gguf else None
        check_preset(raw or read_config(source, FAMILIES[family]), preset, known)
    build_source = gguf_file.build_gguf if is_gguf else build_folder
    return build_source(FAMILIES[family], options, known.licence if known else "")
