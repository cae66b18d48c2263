"""`executorch-webgpu merge`: one folder with several variants of a model."""

from __future__ import annotations

import hashlib
import json

import pytest
from executorch_webgpu import cli
from executorch_webgpu.errors import InvalidArgumentError
from executorch_webgpu.generation import TextGenerator

pytestmark = pytest.mark.full  # two exports; how a page chooses among variants is tested in browsers, always


@pytest.fixture(scope="module")
def folders(llama_folder, tmp_path_factory):
    """The small Llama in 4 and in 8 bits."""
    out = tmp_path_factory.mktemp("folders")
    for bits in (8, 4):
        arguments = ["export", "llama", "--from", llama_folder, "--out", out / str(bits), "--bits", bits]
        assert cli.main([*map(str, arguments), "--max-len", "32"]) == 0
    return [out / "8", out / "4"]


@pytest.fixture(scope="module")
def merged(folders, tmp_path_factory):
    out = tmp_path_factory.mktemp("merged") / "model"
    assert cli.main(["merge", *map(str, folders), "--out", str(out)]) == 0
    return out


def test_the_manifest_names_every_variant_and_file(merged, folders):
    manifest = json.loads((merged / "manifest.json").read_text())
    assert [v["name"] for v in manifest["variants"]] == ["int8", "int4-g32"]
    listed = {file["path"]: file for file in manifest["files"]}
    assert listed.keys() == {path.name for path in merged.iterdir()} - {"manifest.json"}
    for variant, folder in zip(manifest["variants"], folders, strict=True):
        content = (merged / variant["program"]).read_bytes()
        assert content == (folder / "model.pte").read_bytes()
        assert listed[variant["program"]]["sha256"] == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("variant", [None, "int8", "int4-g32"])
def test_each_variant_answers_as_its_own_folder(merged, folders, variant):
    with TextGenerator(merged, "cpu", variant=variant) as model:
        found = model.generate([3, 5, 7], max_tokens=8).ids
    with TextGenerator(folders[variant == "int4-g32"], "cpu") as model:
        assert found == model.generate([3, 5, 7], max_tokens=8).ids


def test_a_variant_that_is_not_there_is_named(merged):
    with pytest.raises(InvalidArgumentError, match="no variant int2, only int8, int4-g32"):
        TextGenerator(merged, "cpu", variant="int2")


def test_what_cannot_be_one_model_is_refused(folders, tmp_path, capsys):
    def merge(*parts):
        status = cli.main(["merge", *map(str, parts), "--out", str(tmp_path / "out")])
        assert status == 1 and not (tmp_path / "out").exists()
        return capsys.readouterr().err

    assert "more than one variant is called int8" in merge(folders[0], folders[0])
    assert "has no manifest.json" in merge(folders[0], tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    for file in folders[1].iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((other / "manifest.json").read_text())
    for file in manifest["files"]:
        if file["path"] == "tokenizer.json":
            file["sha256"] = "0" * 64
    (other / "manifest.json").write_text(json.dumps(manifest))
    assert "tokenizer.json differs between" in merge(folders[0], other)
