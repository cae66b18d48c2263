"""Text of a given form: which tokens may come next, by the package xgrammar (`pip install xgrammar`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from executorch_webgpu.errors import InvalidArgumentError, PackageMissingError

__all__ = ["Grammars", "Matcher", "unsupported_keyword", "vocabulary_of"]

# Keywords of JSON Schema that xgrammar passes over in silence: what they ask for would not hold. These, where schemas
# lie in a schema, and the rules of unsupported_keyword as in web/src/worker/grammar.ts.
_IGNORED = (
    *("multipleOf", "uniqueItems", "contains", "minContains", "maxContains", "not", "if", "dependentRequired"),
    *("dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"),
)
_OF_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_OF_STRINGS = ("minLength", "maxLength", "pattern", "format")
_OF_PARTS = (
    *("properties", "patternProperties", "additionalProperties", "required", "minProperties", "maxProperties"),
    *("propertyNames", "items", "prefixItems", "minItems", "maxItems"),
)
_ALTERNATIVES = ("$ref", "anyOf", "oneOf", "allOf")
# keyword → the keywords beside which it is passed over
_IGNORED_BESIDE = {
    **{word: ("pattern", "format") for word in ("minLength", "maxLength")},
    "pattern": ("format",),
    "propertyNames": ("properties", "patternProperties"),
}
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
_SINGLE = ("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "propertyNames")


def unsupported_keyword(schema: Any, path: str = "#") -> str | None:
    """The first keyword of a JSON schema that would be passed over, with its place ("#/properties/a: not"); None where
    all of it holds. Only what is a schema is looked at: no enum, const, default or name of a property."""
    if not isinstance(schema, Mapping):
        return None
    for word, value in schema.items():
        if word in _IGNORED and value is not False:
            return f"{path}: {word}"
        if word == "allOf" and isinstance(value, list) and len(value) > 1:
            return f"{path}: allOf of several"
        beside = _IGNORED_BESIDE.get(word, ())
        if word in _OF_NUMBERS + _OF_STRINGS + _OF_PARTS:
            beside += _ALTERNATIVES
        for other in beside:
            if other in schema:
                return f"{path}: {word} beside {other}"
        if word in _OF_NUMBERS + _OF_STRINGS and not schema.keys() & {"type", "enum", "const"}:
            return f"{path}: {word} without type"
    inner = [(word, schema[word]) for word in _SINGLE if word in schema]
    for word in _MAPS:
        if isinstance(schema.get(word), Mapping):
            inner += [(f"{word}/{name}", part) for name, part in schema[word].items()]
    for word in _LISTS:
        if isinstance(schema.get(word), list):
            inner += [(f"{word}/{i}", part) for i, part in enumerate(schema[word])]
    return next((found for name, part in inner if (found := unsupported_keyword(part, f"{path}/{name}"))), None)


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
                if found := unsupported_keyword(json_schema):
                    raise ValueError(f"{found} is not supported")
                compiled = self._compiler.compile_json_schema(json.dumps(json_schema), any_whitespace=False)
            else:
                compiled = self._compiler.compile_grammar(grammar)
            return Matcher(self._xgrammar.GrammarMatcher(compiled), self._vocabulary)
        except (RuntimeError, ValueError, TypeError) as error:
            what = "json_schema" if grammar is None else "grammar"
            raise InvalidArgumentError(f"{what}: {error}") from error
