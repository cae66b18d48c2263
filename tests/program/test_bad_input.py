"""What Python answers to damaged model folders and to prompts that are none: errors of ours that name the culprit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from executorch_webgpu import cli, errors
from executorch_webgpu.generation import TextGenerator
from executorch_webgpu.variants import manifest_of
from program.conftest import save_tokenizer

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
NO_OBJECTS = {
    "html": (b"<!doctype html><html>", "is an HTML page"),
    "pointer": (LFS, "is a Git-LFS pointer"),
    "binary": (bytes([0x1F, 0x8B, 0xFF, 0]), "is no text"),
    "cut": (b'{"a": ', "is no JSON"),
    "deep": (b"[" * 100_000, "is no JSON"),
    "list": (b"[]", "holds no JSON object"),
}
FILES = ("manifest.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
GOOD = {"format": 1, "files": [], "variants": [{"name": "a", "program": "model.pte"}]}


@pytest.fixture(scope="module")
def model(folder):
    with TextGenerator(folder, "cpu") as model:
        yield model


@pytest.fixture
def copy(folder, tmp_path):
    """The folder, to be damaged."""
    return shutil.copytree(folder, tmp_path / "model")


@pytest.mark.parametrize("kind", NO_OBJECTS)
@pytest.mark.parametrize("name", FILES)
def test_files_that_are_no_objects(copy, name, kind):
    content, message = NO_OBJECTS[kind]
    (copy / name).write_bytes(content)
    with pytest.raises(errors.NotAProgramError, match=f"{name} {message}"):
        TextGenerator(copy, "cpu")


def variant(**fields):
    return GOOD | {"variants": [{"name": "a", "program": "model.pte"} | fields]}


@pytest.mark.parametrize(
    ("manifest", "error", "message"),
    [
        ({}, errors.NotAProgramError, "is not the manifest of a model folder"),
        (GOOD | {"format": "1"}, errors.NotAProgramError, "is not the manifest"),
        (GOOD | {"format": 7}, errors.UnsupportedVersionError, r"has format 7, this package reads up to 1"),
        (GOOD | {"variants": []}, errors.InvalidProgramError, "names no program"),
        (GOOD | {"variants": ["a"]}, errors.InvalidProgramError, r"variants\[0\] has no program"),
        (GOOD | {"files": [{"path": 5}]}, errors.InvalidProgramError, r"files\[0\] has no path"),
        (variant(name=None), errors.InvalidProgramError, r"variants\[0\] has no name"),
        (variant(data=[]), errors.InvalidProgramError, r"variants\[0\] has no data"),
        (variant(program="../model.pte"), errors.InvalidProgramError, "outside of the folder"),
        (variant(program="/model.pte"), errors.InvalidProgramError, "outside of the folder"),
        (variant(program="other.pte"), errors.FileError, r"has no other\.pte"),
        (variant(data="other.ptd"), errors.FileError, r"has no other\.ptd"),
    ],
)
def test_damaged_manifests(copy, capsys, manifest, error, message):
    (copy / "manifest.json").write_text(json.dumps(GOOD))
    assert manifest_of(copy) == GOOD
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(error, match=message):
        TextGenerator(copy, "cpu")
    # the command says it in one line, and merge reads manifests in the same way
    assert cli.main(["run", str(copy), "w1", "--device", "cpu"]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("executorch-webgpu: ") and shown.count("\n") == 1
    if error is not errors.FileError:
        assert cli.main(["merge", str(copy), str(copy), "--out", str(copy / "out")]) == 1
        assert capsys.readouterr().err == shown


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("tokenizer_config.json", {"chat_template": 5}, "chat_template"),
        ("tokenizer_config.json", {"chat_template": ["w1"]}, "chat_template"),
        ("tokenizer_config.json", {"chat_template": [{"name": "default"}]}, "chat_template"),
        ("tokenizer_config.json", {"eos_token": 5}, "eos_token is 5"),
        ("tokenizer_config.json", {"bos_token": {"content": []}}, "bos_token"),
        ("tokenizer_config.json", {"chat_template": "{% if"}, "the chat template has an error"),
        ("tokenizer.json", {}, "is not a tokenizer"),
        ("tokenizer.json", {"model": {"type": "BPE"}}, "is not a tokenizer"),
        ("generation_config.json", {"eos_token_id": "2"}, "eos_token_id"),
        ("generation_config.json", {"eos_token_id": [2, 1.5]}, "eos_token_id"),
        ("generation_config.json", {"eos_token_id": 1 << 40}, "eos_token_id"),
    ],
)
def test_fields_of_another_type(copy, name, fields, message):
    (copy / name).write_text(json.dumps(fields))
    with pytest.raises(errors.InvalidProgramError, match=rf"{name}:? .*{message}"):
        TextGenerator(copy, "cpu")


def test_missing_files(copy, tmp_path, capsys):
    (copy / "chat_template.jinja").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.NotAProgramError, match=r"chat_template\.jinja is no text"):
        TextGenerator(copy, "cpu")
    for damaged in ("{% for x in %}", "{{ w1"):
        (copy / "chat_template.jinja").write_text(damaged)
        with pytest.raises(errors.InvalidProgramError, match=r"chat_template\.jinja: the chat template has an error"):
            TextGenerator(copy, "cpu")
    (copy / "chat_template.jinja").unlink()
    (copy / "model.pte").unlink()
    with pytest.raises(errors.FileError, match=r"model has no model\.pte"):
        TextGenerator(copy, "cpu")
    for place in (tmp_path / "nothing", copy / "tokenizer.json"):
        with pytest.raises(errors.FileError, match="there is no folder"):
            TextGenerator(place, "cpu")
    arguments = ["profile", str(copy), "--device", "cpu", "--trace", str(tmp_path / "no" / "trace.json")]
    assert cli.main(arguments) == 1
    shown = capsys.readouterr().err
    assert "trace.json: there is no folder" in shown and "Traceback" not in shown


def user(**fields):
    return [{"role": "user", "content": "w1"}, {"role": "user"} | fields]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (user(content=None), "message 1 has content None"),
        (user(content=5), "message 1 has content 5"),
        (user(), "message 1 has content None"),
        (user(role=None, content="w1"), "message 1 has no role"),
        ([{"content": "w1"}], "message 0 has no role"),
        ([{"role": "user", "content": "w1"}, 5], "message 1 is 5"),
        (user(content="w1 \ud800"), "lone surrogate"),
        ("w1 \udfff", "lone surrogate at 3"),
        ([1, 1.5], r"holds 1\.5"),
        ([1, "2"], "holds '2'"),
        ([1, None], "holds None"),
        (np.array([1.0, 2.0]), "neither a message nor a token id"),
        ([1, -1], "token id -1 is outside"),
        ([1, 1 << 31], "token id 2147483648 is outside"),
        ([1, 1 << 70], "is outside"),
        ([1, 96, 2], "token id 96 is outside of the vocabulary of 96"),
        (5, "the prompt is 5"),
        (None, "the prompt is None"),
        (b"w1", "the prompt is b'w1'"),
        ({"role": "user", "content": "w1"}, "the prompt is {"),
        ([], "the prompt is empty"),
    ],
)
def test_prompts_that_are_none(model, prompt, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        model.stream(prompt)  # said here, not at the first token


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop": 5}, "stop: 5"),
        ({"stop": [5]}, r"stop: \[5\]"),
        ({"stop": None}, "stop: None"),
        ({"stop": b"w1"}, "stop: b'w1'"),
        ({"tools": 5}, "tools: 5"),
        ({"tools": "f"}, "tools: 'f'"),
        ({"template_options": [1]}, r"template_options: \[1\]"),
        ({"max_tokens": np.float64(2)}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens: True"),
        ({"seed": "1"}, "seed: '1'"),
        ({"temperature": np.bool_(True)}, "temperature"),
        ({"temperature": np.float32("nan")}, "temperature"),
    ],
)
def test_options_of_another_type(model, options, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        model.stream([{"role": "user", "content": "w1"}], **options)


def test_numbers_of_other_kinds(model):
    own = {"max_tokens": 3, "seed": 7, "temperature": 0.5, "top_k": 20, "speculation": 0}
    other = {name: np.int64(value) for name, value in own.items()} | {"temperature": np.float32(0.5)}
    sliding = {"overflow": "sliding", "sinks": np.int8(2), "keep": np.uint16(9)}
    expected = model.generate([1, 2], **own)
    assert model.generate([1, 2], **other).ids == model.generate([1, 2], **other, **sliding).ids == expected.ids
    assert len(expected.ids) == 3 and type(errors.check_number("n", np.int64(1), 0, 2, whole=True)) is int


@pytest.mark.parametrize("saved", ["abc", 5, None, [1]])
def test_states_that_are_no_bytes(model, saved):
    with pytest.raises(errors.InvalidArgumentError, match=r"saved: a .* is no bytes"):
        model.restore_state(saved)


def test_scales_and_names_of_another_type(model):
    with pytest.raises(errors.InvalidArgumentError, match="name: 5 is no string"):
        model.set_adapter_scale(5, 1)
    with pytest.raises(errors.InvalidArgumentError, match="scale: 'x'"):
        model.set_adapter_scale("a", "x")


def test_what_is_a_prompt_stays_one(model):
    encode = model.text_model.encode
    assert encode(np.array([1, 2])) == encode((1, 2)) == encode(range(1, 3)) == [1, 2]
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "w5"}]}
    assert encode([{"role": "user", "content": "w1"}, call])[:3] == [92, 1, 9]
    assert encode([{"role": "user", "content": [{"type": "text", "text": "w1"}]}])[0] == 92
    assert len(model.generate(np.array([1, 2]), max_tokens=2, stop=("w1 w2",)).ids) == 2


@pytest.mark.parametrize("expression", ["1 + messages[0].content", "1 // 0", "{} | tojson(indent='a', x=1)", "a.b.c"])
def test_a_template_that_fails(copy, expression):
    save_tokenizer(copy, template="{{ " + expression + " }}")
    with TextGenerator(copy, "cpu") as model:
        with pytest.raises(errors.InvalidArgumentError, match=r"the chat template (failed on|refused) the messages"):
            model.generate([{"role": "user", "content": "w1"}])


def test_inspect_takes_a_folder(folder, capsys):
    assert cli.main(["inspect", str(folder), "--json"]) == 0
    of_folder = json.loads(capsys.readouterr().out)
    assert cli.main(["inspect", str(folder / "model.pte"), "--json"]) == 0
    assert of_folder == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("positions", ["0", "-5", "many", "3"])
def test_contexts_that_are_none(positions, tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["export", "smollm2-135m-instruct", "--out", str(tmp_path / "out"), f"--context={positions}"])
    assert f"--context/--max-len: '{positions}' is no number of positions: 4 or more" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_folders_that_cannot_be_made(tmp_path, monkeypatch, capsys):
    for work in ("model_folder.write", "variants.merge"):
        monkeypatch.setattr(f"executorch_webgpu.{work}", lambda *_: pytest.fail("the work has begun"))
    full = tmp_path / "file"
    full.touch()
    for out in ("/proc/x", "/proc/x/y", str(full / "x")):  # not even root may
        for arguments in (["export", "smollm2-135m-instruct"], ["merge", str(tmp_path), str(tmp_path)]):
            assert cli.main([*arguments, "--out", out]) == 1
            assert capsys.readouterr().err.startswith(f"executorch-webgpu: cannot write to {out}: ")
    for out in (tmp_path, tmp_path / "a" / "b"):
        cli.check_writable(out)
    assert list(tmp_path.iterdir()) == [full]  # it only looked


def test_module_is_the_command():
    command = [sys.executable, "-m", "executorch_webgpu", "export", "--help"]
    assert "executorch-webgpu export" in subprocess.run(command, capture_output=True, text=True, check=True).stdout
