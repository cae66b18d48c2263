"""JSON by schema out of SmolLM2, whatever the seed; grammars; what is refused."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from executorch_webgpu import errors
from executorch_webgpu.generation import TextGenerator
from executorch_webgpu.grammar import Grammars, simplified, unsupported_keyword, vocabulary_of
from models.conftest import FULL

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["cat", "dog", "bird"]},
        "likes": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age", "kind", "likes"],
    "additionalProperties": False,
}
PROMPT = [{"role": "user", "content": "Describe a pet as JSON."}]


def is_text(value, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most


def is_number(value, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def fits(value) -> bool:
    """What SCHEMA says."""
    likes = value["likes"]
    return (
        sorted(value) == ["age", "kind", "likes", "name"]
        and is_text(value["name"], 12)
        and is_number(value["age"], 0, 120)
        and value["kind"] in ("cat", "dog", "bird")
        and 1 <= len(likes) <= 2
        and all(is_text(text, 8) for text in likes)
    )


PLACE = {
    "type": "object",
    "properties": {
        "lat": {"type": "integer", "minimum": -90, "maximum": 90},
        "name": {"type": "string", "maxLength": 9},
    },
    "required": ["lat"],
    "additionalProperties": False,
}


def is_place(value) -> bool:
    return (
        "lat" in value
        and value.keys() <= {"lat", "name"}
        and is_number(value["lat"], -90, 90)
        and is_text(value.get("name", ""), 9)
    )


# name: a schema, and what it says
SCHEMAS = {
    "object": (SCHEMA, fits),
    "list": (
        {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 99}, "minItems": 3, "maxItems": 3},
        lambda value: len(value) == 3 and all(is_number(number, 1, 99) for number in value),
    ),
    "nested": (
        {
            "type": "object",
            "properties": {
                "from": {"$ref": "#/$defs/place"},
                "stops": {"type": "array", "items": {"$ref": "#/$defs/place"}, "maxItems": 2},
            },
            "required": ["from", "stops"],
            "additionalProperties": False,
            "$defs": {"place": PLACE},
        },
        lambda value: (
            list(value) == ["from", "stops"]
            and len(value["stops"]) <= 2
            and all(map(is_place, [value["from"], *value["stops"]]))
        ),
    ),
    "either": (
        {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"ok": {"const": True}},
                    "required": ["ok"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": {"error": {"type": "string", "maxLength": 20}, "code": {"enum": [1, 2, None]}},
                    "required": ["error", "code"],
                    "additionalProperties": False,
                },
            ]
        },
        lambda value: (
            (list(value) == ["ok"] and value["ok"] is True)
            or (
                list(value) == ["error", "code"]
                and is_text(value["error"], 20)
                and (value["code"] is None or is_number(value["code"], 1, 2))
            )
        ),
    ),
    "pattern": (
        {
            "type": "object",
            "properties": {"day": {"type": "string", "pattern": "^[0-9]{4}-[01][0-9]$"}, "open": {"type": "boolean"}},
            "required": ["day", "open"],
            "additionalProperties": False,
        },
        lambda value: (
            list(value) == ["day", "open"]
            and bool(re.fullmatch("[0-9]{4}-[01][0-9]", value["day"]))
            and type(value["open"]) is bool
        ),
    ),
}


@pytest.fixture(scope="module")
def model(models):
    with TextGenerator(models / "smollm2-135m-instruct", "cpu") as model:
        yield model


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_seed_gives_json_by_the_schema(model, name):
    """Hot, so that without the grammar nearly nothing would be JSON."""
    schema, follows = SCHEMAS[name]
    cut = 0
    seeds = 200 if FULL else 4 if name == "object" else 1
    for seed in range(seeds):
        result = model.generate(PROMPT, json_schema=schema, temperature=1.5, seed=seed, max_tokens=100)
        if result.finish_reason == "length":
            cut += 1
            continue
        assert result.finish_reason == "stop" and follows(json.loads(result.text)), (seed, result.text)
    assert cut < seeds / 4
    # one token was in flight, and the cache holds the text
    assert model.cached_ids[-3:] == result.ids[-4:-1]


def test_greedy_and_grammars(model):
    plain = model.generate(PROMPT, max_tokens=3).text
    assert not plain.startswith("{")
    result = model.generate(PROMPT, json_schema=SCHEMA, max_tokens=100)
    assert fits(json.loads(result.text))
    digits = model.generate(
        PROMPT, grammar='root ::= "<" [0-9]+ ">"', max_tokens=40, temperature=1, seed=4, logprobs=True
    )
    assert re.fullmatch(r"<[0-9]+>", digits.text) and len(digits.logprobs) == len(digits.ids)
    either = model.generate(PROMPT, grammar='root ::= "yes" | "no"', stop=["no"])
    assert either.text in ("yes", "") and either.finish_reason == "stop"
    assert model.generate(PROMPT, max_tokens=3).text == plain  # no trace of a mask


@pytest.mark.gpu
@pytest.mark.full
def test_the_gpu_gives_the_same(model, models):
    expected = model.generate(PROMPT, json_schema=SCHEMA, max_tokens=12)
    with TextGenerator(models / "smollm2-135m-instruct", "webgpu") as gpu:
        found = gpu.generate(PROMPT, json_schema=SCHEMA, max_tokens=12)
        assert found.ids == expected.ids
        assert gpu.last_stats["read_back_bytes"] == 8


def test_what_is_refused(model, monkeypatch):
    def refused(error, words, **options):
        with pytest.raises(error, match=words):
            model.generate(PROMPT, max_tokens=1, **options)

    refused(errors.InvalidArgumentError, "json_schema", json_schema={"type": "nothing"})
    refused(errors.InvalidArgumentError, "grammar", grammar="root ::= (")
    refused(errors.InvalidArgumentError, "one of them", grammar='root ::= "a"', json_schema={})
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    monkeypatch.setattr(model, "_grammars", None)
    refused(errors.PackageMissingError, "xgrammar", json_schema=SCHEMA)
    refused(errors.PackageMissingError, "xgrammar", grammar='root ::= "a"')
    with pytest.raises(errors.InvalidArgumentError, match="ends a text"):
        Grammars(model._folder, model.vocabulary, [])


def test_vocabularies_are_told_apart():
    words = {"vocab": {"a": 1, "b": 0}}
    special = [{"id": 2, "content": "</s>", "special": True}, {"id": 4, "content": "x"}]
    byte_level = {"model": words, "added_tokens": special, "decoder": {"type": "ByteLevel"}}
    assert vocabulary_of(byte_level) == (["b", "a", "", "", "x"], "byte_level", False)
    unigram = {"model": {"vocab": [["▁", -1.0], ["c", -2.0]]}, "pre_tokenizer": {"type": "Metaspace"}}
    assert vocabulary_of(unigram) == (["▁", "c"], "byte_fallback", True)
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}]}
    fallback = {"model": words | {"byte_fallback": True}, "normalizer": prepend}
    assert vocabulary_of(fallback) == (["b", "a"], "byte_fallback", True)
    assert vocabulary_of({"model": words}) == (["b", "a"], "raw", False)


def test_special_tokens_never_come(model):
    """Their text inside of a string would vanish from the answer."""
    matcher = Grammars(model._folder, model.vocabulary, model.end_ids).matcher({"type": "string"}, None)
    quote = model.text_model.encode('"')
    for token in quote:
        matcher.accept(token)
    allowed = np.unpackbits(matcher.allowed().view(np.uint8), bitorder="little")
    tokenizer = json.loads((model._folder / "tokenizer.json").read_text())
    special = [t["id"] for t in tokenizer["added_tokens"] if t["special"]]
    assert special and not allowed[special].any() and allowed.sum() > model.vocabulary / 2


# which web/test/grammar.test.ts reads, too
KNOWN = json.loads(Path(__file__).with_name("json_schemas.json").read_text())


@pytest.mark.parametrize(
    ("schema", "found"), KNOWN["unsupported"], ids=[json.dumps(s) for s, _ in KNOWN["unsupported"]]
)
def test_keywords_that_would_not_hold_are_named(schema, found):
    assert unsupported_keyword(schema) == found


def test_what_only_looks_like_a_keyword_is_none():
    for schema in [*KNOWN["supported"], *(schema for schema, _ in SCHEMAS.values())]:
        assert unsupported_keyword(schema) is None, schema


@pytest.mark.parametrize(("schema", "simple"), KNOWN["simplified"])
def test_what_libraries_write_is_understood(schema, simple, model):
    before = json.dumps(schema)
    assert simplified(schema) == simple and unsupported_keyword(simple) is None
    assert Grammars(model._folder, model.vocabulary, model.end_ids).matcher(schema, None).allowed().any()
    assert json.dumps(schema) == before


def test_a_schema_that_would_not_hold_is_refused(tmp_path):
    pieces = [*' {}[]:,."-0123456789abcdefghijklmnopqrstuvwxyz', "end"]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {p: i for i, p in enumerate(pieces)}}}))
    grammars = Grammars(tmp_path, len(pieces), [len(pieces) - 1])
    assert grammars.matcher({"items": {"type": "integer"}}, None).allowed().any()
    with pytest.raises(errors.InvalidArgumentError, match="json_schema: #/items: not is not supported"):
        grammars.matcher({"items": {"not": {}}}, None)
