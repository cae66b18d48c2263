"""Text of a given form: which tokens may come next, by the package xgrammar (`pip install xgrammar`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from executorch_webgpu.errors import InvalidArgumentError, PackageMissingError

__all__ = ["Grammars", "Matcher", "simplified", "unsupported_keyword", "vocabulary_of"]

# Keywords of JSON Schema that xgrammar passes over in silence: what they ask for would not hold. These, where schemas
# lie in a schema, and the rules of unsupported_keyword as in web/src/worker/grammar.ts.
_IGNORED = (
    *("multipleOf", "uniqueItems", "contains", "minContains", "maxContains", "not", "if", "dependentRequired"),
    *("dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"),
)
_OF_VALUES = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "pattern", "format"),
    *("minProperties", "maxProperties", "propertyNames", "minItems", "maxItems"),
)
_OF_PARTS = (
    *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "required"),
    *("items", "prefixItems", "unevaluatedItems"),
)
# keywords beside which everything else is passed over
_ALONE = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
# keyword → more of such keywords
_IGNORED_BESIDE = {
    **{word: ("pattern", "format") for word in ("minLength", "maxLength")},
    "pattern": ("format",),
    "patternProperties": ("properties",),
    "propertyNames": ("properties", "patternProperties", "additionalProperties", "unevaluatedProperties"),
    # names may be written twice
    "minProperties": ("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
}
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
_SINGLE = ("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "propertyNames")
# of a pattern without escapes and classes: lookaheads, and anchors within a text
_PASSED_OVER = re.compile(r"\(\?[=!]|[^(|:]\^|\$[^)|]")


def unsupported_keyword(schema: Any, path: str = "#", root: Any = None) -> str | None:
    """The first keyword of a JSON schema that would be passed over, with its place ("#/properties/a: not"); None where
    all of it holds. Only what is a schema is looked at: no enum, const, default or name of a property. root: where
    `$ref` begins."""
    if not isinstance(schema, Mapping):
        return None
    root = schema if root is None else root
    for word, value in schema.items():
        if word in _IGNORED and value is not False:
            return f"{path}: {word}"
        if word == "allOf" and isinstance(value, list) and len(value) > 1:
            return f"{path}: allOf of several"
        if word == "$ref" and not (_resolved(schema, root) and re.match(r"#(?!.*/(any|one)Of/)", str(value))):
            return f"{path}: $ref to {value}"
        beside = _IGNORED_BESIDE.get(word, ())
        if word in ("type", *_OF_VALUES, *_OF_PARTS, *_ALONE):
            beside += _ALONE
        for other in beside:
            without = other not in schema or other == word or (word == "minProperties" and schema[other] is False)
            if not without and not (word == "type" and _agrees(schema)):
                return f"{path}: {word} beside {other}"
        if word in _OF_VALUES and "type" not in schema:
            return f"{path}: {word} without type"
        for pattern in _patterns(word, value):
            if _PASSED_OVER.search(re.sub(r"\\.|\[(\\.|[^\]])*\]", "x", pattern)):
                return f"{path}: {word} with an assertion"
    if missing := [name for name in schema.get("required") or () if name not in (schema.get("properties") or ())]:
        return f"{path}: required {missing[0]}, which properties lacks"
    alternatives = schema.get("oneOf")
    if isinstance(alternatives, list) and not all(_apart(a, b, root) for a, b in combinations(alternatives, 2)):
        return f"{path}: oneOf of schemas that may hold at once"
    inner = [(word, schema[word]) for word in _SINGLE if word in schema]
    for word in _MAPS:
        if isinstance(schema.get(word), Mapping):
            inner += [(f"{word}/{name}", part) for name, part in schema[word].items()]
    for word in _LISTS:
        if isinstance(schema.get(word), list):
            inner += [(f"{word}/{i}", part) for i, part in enumerate(schema[word])]
    return next((found for name, part in inner if (found := unsupported_keyword(part, f"{path}/{name}", root))), None)


def _patterns(word: str, value: Any) -> Iterable[str]:
    if word == "pattern":
        return [str(value)]
    return value if word == "patternProperties" and isinstance(value, Mapping) else ()


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    """What `const` or `enum` lets through; None: there is neither."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _kind(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return "integer"
    kinds = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return kinds.get(type(value), "object")


def _types(schema: Mapping[str, Any]) -> list[str]:
    """The types that a schema lets through; []: any."""
    if (values := _values(schema)) is not None:
        return [_kind(value) for value in values]
    named = schema.get("type", [])
    return [named] if isinstance(named, str) else list(named)


def _agrees(schema: Mapping[str, Any]) -> bool:
    """Whether `type` lets through all that `const` or `enum` does."""
    values = _values(schema)
    named = _types({"type": schema["type"]})
    return values is not None and all(
        kind in named or (kind == "integer" and "number" in named) for kind in map(_kind, values)
    )


def _apart(a: Any, b: Any, root: Any, depth: int = 8) -> bool:
    """Whether no value is by both schemas, which is what oneOf asks for: xgrammar takes it as anyOf. False where that
    cannot be told from values, types and properties that both require."""
    a, b = _resolved(a, root), _resolved(b, root)
    if a is None or b is None or depth == 0:
        return False
    values, others = _values(a), _values(b)
    if values is not None and others is not None:
        written = [json.dumps(value) for value in others]
        return all(_kind(value) not in ("array", "object") and json.dumps(value) not in written for value in values)
    types, other_types = (["number" if kind == "integer" else kind for kind in _types(of)] for of in (a, b))
    if not types or not other_types or any(kind != "object" for kind in types if kind in other_types):
        return False
    shared = [name for name in a.get("required") or () if name in (b.get("required") or ())]
    one, other = (of.get("properties") if isinstance(of.get("properties"), Mapping) else {} for of in (a, b))
    return (
        "object" not in types
        or "object" not in other_types
        or any(_apart(one.get(name), other.get(name), root, depth - 1) for name in shared)
    )


def _resolved(schema: Any, root: Any) -> Mapping[str, Any] | None:
    """What a chain of `$ref` within the schema leads to."""
    for _ in range(8):
        if not isinstance(schema, Mapping):
            return None
        if "$ref" not in schema:
            return schema
        parts = str(schema["$ref"]).split("/")[1:]
        schema = root
        for part in parts:
            schema = schema.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(schema, Mapping) else None
    return None


def simplified(schema: Any) -> Any:
    """The schema without what libraries write though it asks for nothing, names of properties that are texts (zod); and
    with properties of given values and a default, as pydantic's tags of unions are, required: what is written then is
    by the given schema, too."""
    if isinstance(schema, list):
        return [simplified(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    of = dict(schema)
    for word in {*_SINGLE, *_LISTS} & of.keys():
        of[word] = simplified(of[word])
    for word in _MAPS:
        if isinstance(of.get(word), Mapping):
            of[word] = {name: simplified(part) for name, part in of[word].items()}
    if of.get("propertyNames") == {"type": "string"}:
        del of["propertyNames"]
    required, properties = of.get("required", []), of.get("properties")
    if isinstance(required, list) and isinstance(properties, Mapping) and "maxProperties" not in of:
        tags = [
            name
            for name, part in properties.items()
            if isinstance(part, Mapping) and "default" in part and ("const" in part or "enum" in part)
        ]
        if missing := [name for name in tags if name not in required]:
            of["required"] = required + missing
    return of


def vocabulary_of(tokenizer: dict[str, Any]) -> tuple[list[str], str, bool]:
    """Of a tokenizer.json: the pieces by id as the tokenizer writes them ("" for those that are no text), how they are
    written (byte_level, byte_fallback or raw), and whether the tokenizer puts a blank before a text. As in
    web/src/worker/grammar.ts."""
    vocabulary = tokenizer["model"].get("vocab") or {}
    pairs = (
        enumerate(p for p, _ in vocabulary) if isinstance(vocabulary, list) else ((i, p) for p, i in vocabulary.items())
    )
    by_id = dict(pairs)
    for token in tokenizer.get("added_tokens") or []:
        by_id[token["id"]] = "" if token.get("special") else token["content"]
    around = json.dumps([tokenizer.get(part) for part in ("normalizer", "pre_tokenizer", "decoder")])

    def has(kind: str) -> bool:
        return f'"type": "{kind}"' in around

    fallback = tokenizer["model"].get("byte_fallback") or has("ByteFallback") or has("Metaspace")
    kind = "byte_level" if has("ByteLevel") else "byte_fallback" if fallback else "raw"
    metaspace = has("Metaspace") and '"prepend_scheme": "never"' not in around
    return [by_id.get(i, "") for i in range(max(by_id, default=-1) + 1)], kind, has("Prepend") or metaspace


class Matcher:
    """Follows one text."""

    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher = matcher
        self._mask = np.zeros((1, (vocabulary + 31) // 32), np.int32)

    def allowed(self) -> np.ndarray:
        """A bit for each token that may come; valid until the next call."""
        self._matcher.fill_next_token_bitmask(self._mask)
        return self._mask[0]

    def accept(self, token: int) -> None:
        """The token that came."""
        if not self._matcher.accept_token(token):
            raise InvalidArgumentError(f"token {token} does not fit the grammar")


class Grammars:
    """What a tokenizer needs once: its pieces by their bytes, for every grammar."""

    def __init__(self, folder: Path, vocabulary: int, end_ids: Iterable[int]) -> None:
        """vocabulary: ids of the model's logits. end_ids: tokens that end a text."""
        self._vocabulary = vocabulary
        ends = sorted(end_ids)
        if not ends:
            raise InvalidArgumentError("a grammar needs a model with a token that ends a text")
        try:
            import xgrammar
        except ImportError as error:
            raise PackageMissingError(f"json_schema and grammar need the package xgrammar: {error}") from error
        self._xgrammar = xgrammar
        pieces, kind, blank = vocabulary_of(json.loads((folder / "tokenizer.json").read_text()))
        info = xgrammar.TokenizerInfo(
            pieces[:vocabulary],
            xgrammar.VocabType[kind.upper()],
            vocab_size=vocabulary,
            stop_token_ids=ends,
            add_prefix_space=blank,
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1)

    def matcher(self, json_schema: Mapping[str, Any] | None, grammar: str | None) -> Matcher:
        """json_schema: JSON without whitespace but a blank after `:` and `,`. grammar: EBNF as llama.cpp has it (GBNF).
        InvalidArgumentError for what is neither, and for keywords that would not hold."""
        try:
            if grammar is None:
                schema = simplified(json_schema)
                written = json.dumps(schema)
                if found := unsupported_keyword(schema):
                    raise ValueError(f"{found} is not supported")
                compiled = self._compiler.compile_json_schema(written, any_whitespace=False)
            else:
                compiled = self._compiler.compile_grammar(grammar)
            return Matcher(self._xgrammar.GrammarMatcher(compiled), self._vocabulary)
        except (RuntimeError, ValueError, TypeError) as error:
            what = "json_schema" if grammar is None else "grammar"
            raise InvalidArgumentError(f"{what}: {error}") from error
