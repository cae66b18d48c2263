"""A model in a Hugging Face folder: config.json, safetensors (sharded or not), tokenizer and generation settings.

A family says which model types it builds and how it reads a config.json; everything else is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from executorch_webgpu.json_files import foreign_kind
from executorch_webgpu.recipes.base import BuiltModel, Card, ExportOptions, RecipeError, read_json
from executorch_webgpu.recipes.decoder import DecoderConfig, RopeScaling, weight_shapes
from executorch_webgpu.recipes.text_generation import Scheme, Tokens, text_model, tokenizer_files

_REQUIRED = object()

# Fields that change what a model computes, with the only values for which our decoder computes the same. A config that
# lacks one has that value.
PLAIN_FIELDS: Mapping[str, tuple] = {
    "quantization_config": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "use_bidirectional_attention": (None, False),
    "partial_rotary_factor": (None, 1, 1.0),
    "num_local_experts": (None,),
    "num_experts": (None,),
    "altup_num_inputs": (None,),
    "logit_scale": (None, 1, 1.0),
    "residual_multiplier": (None, 1, 1.0),
    "no_rope_layers": (None,),
}


class ConfigError(RecipeError):
    """A field of config.json is missing or asks for something that is not supported; `field` names it."""

    def __init__(self, field: str, message: str):
        super().__init__(message)
        self.field = field


class Config:
    """The fields of a config.json. Every problem is a ConfigError that names the field."""

    def __init__(self, fields: Mapping[str, Any], origin: str = "config.json"):
        self.fields = fields
        self.origin = origin

    def get(self, field: str, default: Any = _REQUIRED) -> Any:
        """A field's value; `default` also stands in for null. Without one the field is required."""
        value = self.fields.get(field)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise ConfigError(field, f"{self.origin} lacks {field}")
        return default

    def only(self, field: str, *allowed: Any, default: Any = None) -> Any:
        """A field that may have these values alone."""
        value = self.fields.get(field, default)
        if value not in allowed:
            known = " or ".join(map(repr, allowed))
            raise ConfigError(field, f"{self.origin} has {field} {value!r}; supported is {known}")
        return value

    def number(self, field: str, default: Any = _REQUIRED) -> float:
        """A finite number."""
        value = self.get(field, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < 1e300:
            raise ConfigError(field, f"{self.origin} has {field} {value!r}, which is not a number")
        return value

    def of_type(self, field: str, kind: type, default: Any = _REQUIRED) -> Any:
        """A bool, a dict or a list."""
        value = self.get(field, default)
        if not isinstance(value, kind) and value is not default:
            known = {bool: "true or false", dict: "an object", list: "a list"}[kind]
            raise ConfigError(field, f"{self.origin} has {field} {value!r}, which is not {known}")
        return value

    def count(self, field: str, default: Any = _REQUIRED) -> int:
        """A whole number from 1."""
        value = self.get(field, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(field, f"{self.origin} has {field} {value!r}, which is not a whole number from 1")
        return value


@dataclass(frozen=True)
class Family:
    """What makes a family of decoders: `geometry` gives the fields of DecoderConfig that are its own."""

    name: str
    model_types: tuple[str, ...]
    geometry: Callable[[Config], dict[str, Any]]
    norm_offset: float = 0.0  # added to the weights of norms: 1 where checkpoints hold w of (1 + w) · x
    tied: bool = False  # whether head and embedding are one weight where config.json doesn't say


def read_config(folder: Path, family: Family) -> Config:
    """config.json. Raises RecipeError where it is missing, ConfigError where it is of another family."""
    path = folder / "config.json"
    if not path.is_file():
        raise RecipeError(f"{folder} lacks config.json: --from takes the folder of a Hugging Face model")
    fields = read_json(path)
    kind = fields.get("model_type")
    if kind not in family.model_types:
        built = " or ".join(map(repr, family.model_types))
        raise ConfigError("model_type", f"{path} is of model_type {kind!r}; this recipe builds {built}")
    return Config(fields, str(path))


def rope_fields(config: Config) -> dict[str, Any]:
    """The rotary parameters, wherever this release of transformers writes them."""
    # transformers 5 writes rope_parameters, earlier releases rope_theta and rope_scaling.
    given = config.of_type("rope_parameters", dict, None) or config.of_type("rope_scaling", dict, {})
    return {"rope_theta": config.number("rope_theta", 10000.0), **given}


def rope_geometry(rope: Mapping[str, Any], field: str = "rope_scaling") -> dict[str, Any]:
    """DecoderConfig's fields of rotary parameters. Raises ConfigError for kinds of scaling that are not supported."""
    parameters = Config(rope, field)  # whose errors name the parameter and the field that it stands in
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("partial_rotary_factor", 1) != 1:
        raise ConfigError(field, f"{field} turns a part of each head (partial_rotary_factor), which is not supported")
    geometry: dict[str, Any] = {"rope_theta": float(parameters.number("rope_theta"))}
    if kind == "linear":
        return geometry | {"rope_factor": float(parameters.number("factor"))}
    if kind == "llama3":
        scaling = RopeScaling(
            factor=parameters.number("factor"),
            low_freq_factor=parameters.number("low_freq_factor"),
            high_freq_factor=parameters.number("high_freq_factor"),
            original_max_len=parameters.count("original_max_position_embeddings"),
        )
        return geometry | {"rope_scaling": scaling}
    if kind != "default":
        raise ConfigError(field, f"{field}: {kind!r} is not supported; there are 'default', 'linear' and 'llama3'")
    return geometry


def window_geometry(config: Config, uses_windows: bool) -> dict[str, Any]:
    """The windows of a config with `layer_types`, or, before transformers had them, `max_window_layers`."""
    if not uses_windows:
        return {}
    layers, window = config.count("num_hidden_layers"), config.count("sliding_window")
    kinds = config.of_type("layer_types", list, None)
    if kinds is None:
        first = config.number("max_window_layers", layers)
        return {"windows": tuple(window if i >= first else 0 for i in range(layers))}
    return {"windows": tuple(windows_of_kinds(kinds, window))}


def windows_of_kinds(kinds: list[str], window: int) -> Iterator[int]:
    """A window for each of `layer_types`."""
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise ConfigError("layer_types", f"layer_types holds {kind!r}, which is not supported")
        yield window if kind == "sliding_attention" else 0


def call_bound(windows: Sequence[int], max_len: int) -> int | None:
    """How many tokens a call may bring where nobody has said it: layers with a window then need caches of the window
    and one call only (the runtime's pass ring_cache). None where that would spare nothing."""
    sliding = [window for window in windows if window]
    if not sliding:
        return None
    bound = max(512, *sliding)
    return bound if min(sliding) + bound < max_len else None


def decoder_config(
    family: Family, config: Config, max_len: int | None, logits: str | None, max_call: int | None = None
) -> DecoderConfig:
    """Our geometry of a config.json. max_len None: 2048, or what the model was trained for if that is less; max_call
    None: as call_bound says."""
    for field, allowed in PLAIN_FIELDS.items():
        config.only(field, *allowed)
    trained = config.count("max_position_embeddings", 2048)
    if max_len is not None and max_len > trained:
        raise RecipeError(f"--context {max_len} is beyond the {trained} positions that the model was trained for")
    heads, hidden = config.count("num_attention_heads"), config.count("hidden_size")
    common = {
        "vocab_size": config.count("vocab_size"),
        "hidden_size": hidden,
        "layers": config.count("num_hidden_layers"),
        "heads": heads,
        "kv_heads": config.count("num_key_value_heads", heads),
        "head_dim": config.count("head_dim", hidden // heads),
        "intermediate_size": config.count("intermediate_size"),
        "norm_eps": config.number("rms_norm_eps"),
        "tied_embedding": config.of_type("tie_word_embeddings", bool, family.tied),
        "max_len": min(2048, trained) if max_len is None else max_len,
        "max_call": max_call,
        "logits": logits or "last",
    }
    geometry = {**common, **family.geometry(config)}
    if max_call is None:
        geometry["max_call"] = call_bound(geometry.get("windows", ()), geometry["max_len"])
    try:
        return DecoderConfig(**geometry)
    except ValueError as error:
        raise RecipeError(f"{config.origin}: {error}") from error


def checkpoint(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a folder's safetensors, one at a time, names without the leading "model.".

    With an index, the files that it names and no others: folders hold other formats' copies, too.
    """
    from safetensors import SafetensorError, safe_open

    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise RecipeError(f"{index} has no weight_map of names to files")
        paths = sorted({folder / name for name in names.values()})
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise RecipeError(f"{folder} lacks {', '.join(missing)}, which {index.name} names")
    else:
        paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise RecipeError(f"{folder} holds no *.safetensors")
    for path in paths:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():
                    yield name.removeprefix("model."), file.get_tensor(name)
        except SafetensorError as error:
            with path.open("rb") as file:
                start = file.read(64).decode("latin-1")
            raise RecipeError(f"{path} is {foreign_kind(start) or f'no whole safetensors file: {error}'}") from error


def read_weights(folder: Path, family: Family, config: DecoderConfig, scheme: Scheme) -> dict:
    """Every weight of the decoder, quantised by the scheme as it is read. Raises RecipeError."""
    expected = weight_shapes(config)
    weights, unknown = {}, []
    for name, tensor in checkpoint(folder):
        if name in expected:
            if tuple(tensor.shape) != expected[name]:
                raise RecipeError(f"{name} is {tuple(tensor.shape)}, by config.json {expected[name]}")
            if name.endswith("norm.weight") and family.norm_offset:
                tensor = tensor.float() + family.norm_offset
            weights[name] = scheme.quantize(name, tensor)
        elif name != "lm_head.weight" and not name.endswith("rotary_emb.inv_freq"):
            unknown.append(name)
    missing = sorted(expected.keys() - weights.keys())
    if missing or unknown:
        raise RecipeError(
            f"the checkpoint in {folder} is not of this family: "
            f"{len(missing)} weights are missing {missing[:3]}, {len(unknown)} are unknown {sorted(unknown)[:3]}"
        )
    return weights


# What generation_config.json says about sampling: kept for whoever runs the model.
SAMPLING_FIELDS = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def special_tokens(folder: Path | None, config: Config) -> Tokens:
    """From generation_config.json, or from config.json where there is none."""
    path = folder and folder / "generation_config.json"
    generation = read_json(path) if path and path.is_file() else {}
    ids = {**config.fields, **generation}
    eos = ids.get("eos_token_id")
    if eos is None:
        raise ConfigError(
            "eos_token_id", f"neither generation_config.json nor config.json of {config.origin} has eos_token_id"
        )
    for name, value in (("eos_token_id", eos), *((name, ids.get(name)) for name in ("bos_token_id", "pad_token_id"))):
        for token in value if name == "eos_token_id" and isinstance(value, list) else [value]:
            if value is not None and (not isinstance(token, int) or isinstance(token, bool)):
                raise ConfigError(name, f"{path or config.origin}: {name} is {value!r}, which is no token's number")
    sampling = {name: generation[name] for name in SAMPLING_FIELDS if generation.get(name) is not None}
    return Tokens(
        ids.get("bos_token_id"), tuple(eos) if isinstance(eos, list) else (eos,), ids.get("pad_token_id"), sampling
    )


def build_folder(family: Family, options: ExportOptions, licence: str = "") -> BuiltModel:
    """The model of a Hugging Face folder with the chosen scheme (default: int4 affine by 32, embedding int8)."""
    folder = Path(options.source)
    raw = read_config(folder, family)
    config = decoder_config(family, raw, options.max_len, options.logits, options.max_call)
    scheme = Scheme.of(options).for_model(config.tied_embedding)
    return text_model(
        config,
        read_weights(folder, family, config, scheme),
        special_tokens(folder, raw),
        scheme,
        Card(
            title=f"{folder.resolve().name} for executorch-webgpu",
            licence=licence or "that of the model which it was made from",
            source=f"a Hugging Face folder named {folder.resolve().name}",
        ),
        tokenizer_files(folder),
        folder.resolve().name,
    )
