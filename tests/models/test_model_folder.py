"""The export command from end to end on small models: the folder is complete, honest and reproducible."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys

import pytest
from executorch_webgpu import cli
from executorch_webgpu.recipes import RECIPES


def export(*arguments):
    """Runs the command in this process. Returns its exit status."""
    return cli.main(["export", *map(str, arguments)])


@pytest.fixture(scope="module")
def exported(llama_folder, tmp_path_factory):
    """A model folder of the small Llama, with the cache and the scheme chosen."""
    folder = tmp_path_factory.mktemp("out") / "model"
    assert export("llama", "--from", llama_folder, "--out", folder, "--max-len", 32, "--symmetric") == 0
    return folder


def program(folder):
    """The program of model.pte, read by executorch's own reader."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    return deserialize_pte_binary((folder / "model.pte").read_bytes()).program


def test_folder_is_complete(exported):
    names = {path.name for path in exported.iterdir()}
    tokenizer = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    assert names == {"model.pte", "manifest.json", "recipe.json", "README.md"} | tokenizer


def test_manifest_tells_the_truth(exported):
    """Sizes and hashes of every file and chunk, so that a download can be verified and resumed."""
    manifest = json.loads((exported / "manifest.json").read_text())
    listed = {entry["path"] for entry in manifest["files"]}
    assert listed == {path.name for path in exported.iterdir()} - {"manifest.json"}
    for entry in manifest["files"]:
        content = (exported / entry["path"]).read_bytes()
        step = manifest["chunk_bytes"]
        assert entry["size"] == len(content)
        assert entry["sha256"] == hashlib.sha256(content).hexdigest()
        assert entry["chunks"] == [
            hashlib.sha256(content[i : i + step]).hexdigest() for i in range(0, len(content), step)
        ]
    assert (manifest["name"], manifest["recipe"], manifest["task"]) == ("small-llama", "llama", "text-generation")
    (variant,) = manifest["variants"]
    assert variant["name"] == "int4-g32-symmetric"
    assert variant["weights"] == {"bits": 4, "group": 32, "symmetric": True, "embedding_bits": 8}
    assert variant["metadata"]["get_max_context_len"] == 32
    assert {"exporter", "payload", "executorch", "torch"} <= manifest["versions"].keys()


def test_chunks_of_a_large_file(tmp_path):
    from executorch_webgpu import model_folder

    content = bytes(range(256)) * (model_folder.CHUNK_BYTES // 256) + b"rest"
    (tmp_path / "large").write_bytes(content)
    entry = model_folder.describe_file(tmp_path / "large", tmp_path)
    assert [len(entry["chunks"]), entry["size"]] == [2, len(content)]
    assert entry["chunks"][1] == hashlib.sha256(b"rest").hexdigest()


def test_one_delegate_and_nothing_else(exported):
    """A kernel call left in the program would run on the CPU between two halves of the model."""
    (plan,) = [plan for plan in program(exported).execution_plan if plan.name == "forward"]
    assert [delegate.id for delegate in plan.delegates] == ["WebGPUBackend"]
    assert plan.operators == []


def test_every_weight_is_stored_once(exported):
    """A tied embedding, exported under two names, must not be stored a second time beside the delegate."""
    assert sum(len(buffer.storage) for buffer in program(exported).constant_buffer) == 0


def test_metadata_methods(exported):
    plans = {plan.name: plan for plan in program(exported).execution_plan}
    expected = {"get_vocab_size": 96, "get_max_context_len": 32, "get_bos_id": 1, "get_eos_ids": 2, "get_n_layers": 2}
    for name, value in expected.items():
        (output,) = plans[name].outputs
        assert plans[name].values[output].val.int_val == value, name


@pytest.mark.full
def test_recipe_and_card_reproduce_it(exported, llama_folder, tmp_path):
    made = json.loads((exported / "recipe.json").read_text())
    assert made["options"] == {"source": "small-llama", "symmetric": True, "max_len": 32}
    assert made["command"] in (exported / "README.md").read_text()
    words = made["command"].split()[1:]
    words[words.index("--from") + 1], words[words.index("--out") + 1] = str(llama_folder), str(tmp_path)
    assert cli.main(words) == 0
    assert (tmp_path / "model.pte").read_bytes() == (exported / "model.pte").read_bytes()


def test_no_path_of_this_machine_in_the_folder(exported, llama_folder):
    for path in exported.iterdir():
        assert str(llama_folder.parent).encode() not in path.read_bytes(), path.name


def test_card_claims_no_accuracy_that_was_not_measured(exported):
    assert "Not measured for this file." in (exported / "README.md").read_text()


def test_limits_and_progress(llama_folder, tmp_path, capsys):
    """What the MLP computes for 63 positions is the largest buffer that is bound whole."""
    assert export("llama", "--from", llama_folder, "--out", tmp_path, "--logits", "all", "--bits", 32) == 0
    (variant,) = json.loads((tmp_path / "manifest.json").read_text())["variants"]
    assert variant["limits"]["maxStorageBufferBindingSize"] == 63 * 160 * 4
    assert variant["name"] == "f32"
    shown = capsys.readouterr()
    for text in ("loading weights: ", "exporting with torch.export: ", "lowering to the WebGPU delegate: ", "writing "):
        assert text in shown.err
    assert "0 nodes not delegated" in shown.err
    assert shown.out.startswith(str(tmp_path / "model.pte"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-model"], "there is no recipe 'no-such-model'"),
        (["llama"], "needs --from DIR"),
        (["efficientnet-lite0", "--bits", "4"], "takes no option bits"),
        (["llama", "--from", "missing-folder"], "lacks config.json"),
    ],
)
def test_errors_are_sentences(arguments, message, tmp_path, capsys):
    assert export(*arguments, "--out", tmp_path / "out") == 1
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_written_is_said_before_the_work(llama_folder, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "below", file / "far" / "below"):
        assert export("llama", "--from", llama_folder, "--out", out) == 1
        shown = capsys.readouterr().err
        assert shown == f"executorch-webgpu: cannot write to {out}: {file} is no folder\n"
    assert file.read_text() == "mine"


def test_a_system_error_is_a_sentence(llama_folder, tmp_path, monkeypatch, capsys):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", str(tmp_path / "out"))

    monkeypatch.setattr("executorch_webgpu.model_folder.write", refuse)
    assert export("llama", "--from", llama_folder, "--out", tmp_path / "out") == 1
    assert capsys.readouterr().err == f"executorch-webgpu: {tmp_path / 'out'}: Permission denied\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"[]", "config.json holds no JSON object"),
        ("config.json", b"<html>", "config.json is an HTML page"),
        ("config.json", bytes([255, 254, 0]), "config.json is no text"),
        ("generation_config.json", b"5", "generation_config.json holds no JSON object"),
        ("tokenizer_config.json", b"{", "tokenizer_config.json is no JSON"),
        ("model.safetensors.index.json", b"{}", "has no weight_map"),
    ],
)
def test_damaged_files_of_a_source_are_named(llama_folder, tmp_path, capsys, name, content, message):
    source = tmp_path / "source"
    shutil.copytree(llama_folder, source)
    (source / name).write_bytes(content)
    assert export("llama", "--from", source, "--out", tmp_path / "out") == 1
    shown = capsys.readouterr().err
    assert message in shown and "Traceback" not in shown
    assert not (tmp_path / "out").exists()


def test_missing_package_is_named(monkeypatch, llama_folder, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert export("llama", "--from", llama_folder, "--out", tmp_path) == 1
    assert "pip install safetensors" in capsys.readouterr().err


def test_inspect_passes_its_arguments_on(exported, capsys):
    pytest.importorskip("executorch_webgpu._native")
    assert cli.main(["inspect", "--json", str(exported / "model.pte")]) == 0
    assert "WebGPUBackend" in json.dumps(json.loads(capsys.readouterr().out))


def test_unknown_arguments_are_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["recipes", "--fast"])
    assert "unrecognized arguments: --fast" in capsys.readouterr().err


def test_list_of_recipes_is_quick(capsys):
    assert cli.main(["recipes"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in RECIPES)
    # Listing must not import torch: seconds of waiting for three lines.
    code = "import sys; from executorch_webgpu import cli; cli.main(['recipes']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
