"""Text of a given form: which tokens may come next, by the package xgrammar (`pip install xgrammar`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from executorch_webgpu.errors import InvalidArgumentError, PackageMissingError

__all__ = ["Grammars", "Matcher", "vocabulary_of"]


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
        InvalidArgumentError for what is neither."""
        try:
            if grammar is None:
                compiled = self._compiler.compile_json_schema(json.dumps(json_schema), any_whitespace=False)
            else:
                compiled = self._compiler.compile_grammar(grammar)
            return Matcher(self._xgrammar.GrammarMatcher(compiled), self._vocabulary)
        except (RuntimeError, ValueError, TypeError) as error:
            what = "json_schema" if grammar is None else "grammar"
            raise InvalidArgumentError(f"{what}: {error}") from error
