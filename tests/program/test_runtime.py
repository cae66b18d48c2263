"""The native runtime against PyTorch eager, and what it says about files that it cannot run."""

from __future__ import annotations

import io
import json
import shutil
import threading

import numpy as np
import pytest
import torch
from executorch_webgpu import WebGPUPartitioner, errors, inspect
from executorch_webgpu.runtime import inspect_program, load
from export.make_fixtures import lower

# decoder2 is quantised: its reference is eager on the dequantised weights
TOLERANCE = {"mlp": 1e-5, "conv": 1e-5, "mixed": 1e-5, "portable": 1e-5, "decoder2": 1e-3}
DEVICES = ["cpu", pytest.param("webgpu", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("name", TOLERANCE)
@pytest.mark.parametrize("device", DEVICES)
def test_equals_eager(fixture_of, name, device):
    fixture = fixture_of(name)
    session = load(fixture.path, device, activations="exact")
    for k, (inputs, expected) in enumerate(fixture.calls):
        if k in fixture.reset:
            session.reset()
        outputs = session.forward(*inputs)
        assert [o.shape for o in outputs] == [e.shape for e in expected]
        for output, reference in zip(outputs, expected, strict=True):
            assert np.isfinite(output).all()
            np.testing.assert_allclose(output, reference, rtol=0, atol=TOLERANCE[name])


@pytest.mark.parametrize("start", [-1, 63, 64])
@pytest.mark.parametrize("device", DEVICES)
def test_positions_beyond_the_cache_are_refused(fixture_of, device, start):
    """Two tokens at a position of decoder2's caches where they have no room: refused before anything is written."""
    fixture = fixture_of("decoder2")
    session = load(fixture.path, device, activations="exact")
    inputs, expected = fixture.calls[0]
    with pytest.raises(errors.InvalidArgumentError, match="fit into a cache of 64"):
        session.forward(inputs[0][:, :2], np.array([start], np.int64))
    np.testing.assert_allclose(session.forward(*inputs)[0], expected[0], rtol=0, atol=TOLERANCE["decoder2"])


class Rows(torch.nn.Module):
    """Rows of tables, by every operator that takes indices."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)
        self.register_buffer("rows", torch.randn(7, 4))

    def forward(self, ids, select, index):
        return self.table(ids), torch.index_select(self.rows, 0, select), self.rows[index]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    model = Rows().eval()
    path = tmp_path_factory.mktemp("rows") / "model.pte"
    path.write_bytes(lower(model, tuple(torch.zeros(3, 2, dtype=torch.int64)), None, WebGPUPartitioner()).buffer)
    return path, model


@pytest.mark.parametrize("device", DEVICES)
def test_indices_out_of_range_are_refused(rows, device):
    path, model = rows
    session = load(path, device)
    good = [torch.tensor(v) for v in ([9, 0], [6, 0], [-7, 6])]
    for k, bad in ((0, 10), (0, -1), (1, 7), (1, -1), (2, 7), (2, -8)):
        call = [v.clone() for v in good]
        call[k][1] = bad
        with pytest.raises(errors.InvalidArgumentError, match=f"index {bad} is out of range"):
            session.forward(*call)
    for found, expected in zip(session.forward(*good), model(*good), strict=True):
        torch.testing.assert_close(found, expected)


def test_reset_forgets(fixture_of):
    """Reset in a delegate: the first call gives the same again, bit by bit."""
    fixture = fixture_of("decoder2")
    session = load(fixture.path, "cpu", activations="exact")
    first = session.forward(*fixture.calls[0][0])[0]
    for inputs, _ in fixture.calls[1:]:
        session.forward(*inputs)
    session.reset()
    np.testing.assert_array_equal(session.forward(*fixture.calls[0][0])[0], first)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.tensor([5.0]))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 1.0


def _export(module, inputs, partition=False, **kwargs):
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    program = torch.export.export(module.eval(), inputs, **kwargs)
    lowered = to_edge_transform_and_lower(
        program,
        partitioner=[WebGPUPartitioner()] if partition else [],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    return lowered


def _write(path, program):
    path.write_bytes(program.buffer)
    return path


def test_mutable_buffers_keep_their_value_and_reset_to_the_initial_one(tmp_path):
    """Without a delegate: state in an arena, its initial value in the file."""
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    config = ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(["total"])])
    path = _write(tmp_path / "counter.pte", _export(Counter(), (torch.ones(1),)).to_executorch(config))
    session = load(path, "cpu")
    assert [session.forward(np.ones(1, np.float32))[0].item() for _ in range(3)] == [6, 7, 8]
    session.reset()
    assert session.forward(np.ones(1, np.float32))[0].item() == 6


def test_torch_in_torch_out(fixture_of):
    fixture = fixture_of("mlp")
    session = load(fixture.path, "cpu")
    x = torch.from_numpy(fixture.calls[1][0][0])
    (y,) = session.forward(x.t().contiguous().t())  # not contiguous
    assert isinstance(y, torch.Tensor)
    np.testing.assert_allclose(y.numpy(), fixture.calls[1][1][0], atol=1e-5)


def test_methods_and_memory(fixture_of):
    session = load(fixture_of("mlp").path, "cpu")
    method = session.methods["forward"]
    assert method.inputs[0].dtype == "f32" and method.inputs[0].dynamic
    assert method.inputs[0].sizes == (16, 48)
    memory = session.memory_report()
    assert memory["weights"] == 26960 and memory["arena"] > 0
    assert session.capabilities is None


def test_wrong_inputs_are_typed_errors(fixture_of):
    session = load(fixture_of("mlp").path, "cpu")
    with pytest.raises(errors.InvalidArgumentError, match="takes 1 inputs, got 0"):
        session.forward()
    with pytest.raises(errors.InvalidArgumentError, match="dimension 0 is 17, allowed are 0 to 16"):
        session.forward(np.zeros((17, 48), np.float32))
    with pytest.raises(errors.InvalidArgumentError, match="is f64, f32 is expected"):
        session.forward(np.zeros((1, 48)))
    with pytest.raises(errors.InvalidArgumentError, match="no method nothing"):
        session.run("nothing")
    with pytest.raises(ValueError):  # also by its usual Python class
        session.forward("text")
    with pytest.raises(
        errors.InvalidArgumentError, match="size of dimension 0, 0 is outside of what was exported, 1 to 16"
    ):
        session.forward(np.zeros((0, 48), np.float32))
    for method in (5, None, ["forward"]):
        with pytest.raises(errors.InvalidArgumentError, match=r"method: .* is no string"):
            session.run(method)
    for dtype in ("c8", "U8", object):
        with pytest.raises(errors.InvalidArgumentError, match=r"an array of .* is no input"):
            session.forward(np.zeros((1, 48), dtype))


def test_the_other_order_of_bytes(fixture_of):
    session, (x,) = load(fixture_of("mlp").path, "cpu"), fixture_of("mlp").calls[0][0]
    assert np.array_equal(session.forward(x.astype(">f4"))[0], session.forward(x)[0])


def test_threads_share_a_session(fixture_of):
    fixture = fixture_of("mlp")
    session = load(fixture.path, "cpu")
    wrong = []

    def run(k):
        inputs, expected = fixture.calls[k % len(fixture.calls)]
        for _ in range(20):
            if not np.allclose(session.forward(*inputs)[0], expected[0], atol=1e-5):
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def _zip():
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data.pkl", "x")
    return buffer.getvalue()


def _safetensors():
    from safetensors.numpy import save

    return save({"a": np.zeros(4, np.float32)})


WRONG_FILES = {
    "empty": (lambda: b"", "is empty"),
    "html": (lambda: b"<!DOCTYPE html>\n<title>404</title>", "HTML page"),
    "lfs": (lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n", "Git-LFS pointer"),
    "zip": (_zip, "zip archive"),
    "gzip": (lambda: __import__("gzip").compress(b"x" * 100), "gzip"),
    "gguf": (lambda: b"GGUF" + bytes(60), "GGUF"),
    "safetensors": (_safetensors, "safetensors"),
    "noise": (lambda: bytes(range(100, 200)), "it starts with"),
}


@pytest.mark.parametrize("kind", WRONG_FILES)
def test_wrong_files_say_what_they_are(tmp_path, kind):
    make, message = WRONG_FILES[kind]
    path = tmp_path / "model.pte"
    path.write_bytes(make())
    with pytest.raises(errors.NotAProgramError, match=message):
        load(path, "cpu")


def test_missing_file_and_truncation(tmp_path, fixture_of):
    with pytest.raises(errors.FileError, match="cannot open"):
        load(tmp_path / "nothing.pte", "cpu")
    whole = fixture_of("mlp").path.read_bytes()
    path = tmp_path / "part.pte"
    for size in (40, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(errors.InvalidProgramError, match="is the download complete"):
            load(path, "cpu")


def test_newer_payload_names_both_versions(tmp_path, fixture_of):
    """The version is the first field of the payload's root table, found through flatbuffers' own layout."""
    import struct

    data = bytearray(fixture_of("mlp").path.read_bytes())
    start = data.index(b"EWGG") - 4
    root = start + struct.unpack_from("<I", data, start)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    field = struct.unpack_from("<H", data, vtable + 4)[0]
    struct.pack_into("<I", data, root + field, 99)
    path = tmp_path / "newer.pte"
    path.write_bytes(data)
    with pytest.raises(errors.UnsupportedVersionError, match=r"99.*\b1\b"):
        load(path, "cpu")


def test_memory_cap(fixture_of):
    with pytest.raises(errors.LimitExceededError, match="the memory cap is 1000"):
        load(fixture_of("mlp").path, "cpu", memory_cap=1000)


def test_progress_and_cancelling(fixture_of):
    seen = []
    load(fixture_of("decoder2").path, "cpu", progress=lambda done, total: seen.append((done, total)))
    assert seen and seen == sorted(seen) and seen[-1][0] == seen[-1][1]
    with pytest.raises(errors.CancelledError):
        load(fixture_of("decoder2").path, "cpu", progress=lambda done, total: False)

    def broken(done, total):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        load(fixture_of("decoder2").path, "cpu", progress=broken)


def test_external_weights(tmp_path):
    """Weights in a .ptd: with it right, without it an error that names the key and the .ptd, with another one too."""
    from executorch.exir import ExecutorchBackendConfig

    torch.manual_seed(0)
    module, x = torch.nn.Linear(12, 5), torch.randn(3, 12)
    program = _export(module, (x,)).to_executorch(ExecutorchBackendConfig(external_constants=True))
    path = _write(tmp_path / "model.pte", program)
    program.write_tensor_data_to_file(str(tmp_path))
    (data,) = tmp_path.glob("*.ptd")
    with pytest.raises(errors.DataMissingError, match=r"'(weight|bias)'.*\.ptd"):
        load(path, "cpu")
    (y,) = load(path, "cpu", data=data).forward(x)
    np.testing.assert_allclose(y.numpy(), module(x).detach().numpy(), atol=1e-5)
    with pytest.raises(errors.NotAProgramError, match=r"is a \.ptd file"):
        load(data, "cpu")
    with pytest.raises(errors.NotAProgramError, match=r"not a \.ptd file"):
        load(path, "cpu", data=path)
    assert "bias" in inspect_program(path)["missing_data"]
    shutil.copy(data, tmp_path / "cut.ptd")
    (tmp_path / "cut.ptd").write_bytes(data.read_bytes()[:-40])
    with pytest.raises(errors.InvalidProgramError, match="is the download complete"):
        load(path, "cpu", data=tmp_path / "cut.ptd")


class Strange(torch.nn.Module):
    def forward(self, x):
        values, indices = torch.sort(x)
        return torch.linalg.vector_norm(values) + torch.asinh(x).sum(), torch.asinh(x), indices


class Loop(torch.nn.Module):
    """control flow: et_copy_index, jumps, integers"""

    def forward(self, xs, y):
        from torch._higher_order_ops.map import map as torch_map

        return torch_map(lambda x, y: x + y, xs, y)


class Branch(torch.nn.Module):
    def forward(self, x, flag):
        return torch.cond(flag, lambda x: x * 2.0, lambda x: x - 1.0, (x,))


def test_undelegated_program_names_missing_kernels(tmp_path, capsys):
    path = _write(tmp_path / "strange.pte", _export(Strange(), (torch.randn(7),)).to_executorch())
    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        load(path, "cpu")
    assert "aten::asinh.out" in str(caught.value) and "aten::sort.values" in str(caught.value)
    report = inspect_program(path)
    assert report["missing_operators"]["aten::sort.values"] == 1
    assert inspect.main([str(path)]) == 0
    text = capsys.readouterr().out
    assert "NO KERNEL" in text and "aten::asinh.out × " in text
    assert inspect.main([str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == report


class Spectrum(torch.nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).abs()


def test_complex_tensors_are_inspected(tmp_path):
    path = _write(tmp_path / "spectrum.pte", _export(Spectrum(), (torch.randn(8),)).to_executorch())
    assert any("fft" in name for name in inspect_program(path)["missing_operators"])
    with pytest.raises(errors.UnsupportedOperatorError, match="fft"):
        load(path, "cpu")


OUT_OF_RANGE = [
    {"threads": 0},
    {"threads": 1 << 20},
    {"threads": "2"},
    {"memory_cap": -1},
    {"memory_cap": 1e9},
    {"memory_cap": 1 << 70},
    {"max_binding_bytes": -1},
    {"emulate_matrices": 1 << 40},
    {"precision": 16},
    {"precision": "bf16"},
    {"disable_passes": ["linear"]},
    {"adapters": 5},
    {"adapters": [None]},
    {"data": 5},
    {"progress": 5},
    {"tuning": None},
]


@pytest.mark.parametrize("options", OUT_OF_RANGE)
def test_options_out_of_range(fixture_of, options):
    with pytest.raises(errors.InvalidArgumentError, match=next(iter(options))):
        load(fixture_of("mlp").path, "cpu", **options)


def test_the_cpu_ignores_the_precision_of_the_gpu(fixture_of):
    x = fixture_of("mlp").calls[0][0]
    (plain,), (half,) = (load(fixture_of("mlp").path, "cpu", precision=p).forward(*x) for p in ("f32", "f16"))
    assert np.array_equal(plain, half)


def test_map(tmp_path):
    xs, y = torch.randn(5, 3), torch.randn(3)
    path = _write(tmp_path / "loop.pte", _export(Loop(), (xs, y)).to_executorch())
    (out,) = load(path, "cpu").forward(xs, y)
    np.testing.assert_allclose(out.numpy(), (xs + y).numpy(), atol=1e-6)


@pytest.mark.parametrize("flag", [True, False])
def test_branches(tmp_path, flag):
    x = torch.randn(4)
    path = _write(tmp_path / "branch.pte", _export(Branch(), (x, torch.tensor(True))).to_executorch())
    (out,) = load(path, "cpu").forward(x, torch.tensor(flag))
    np.testing.assert_allclose(out.numpy(), (x * 2 if flag else x - 1).numpy(), atol=1e-6)


def test_constant_methods(tmp_path):
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    program = torch.export.export(torch.nn.ReLU(), (torch.randn(2),))
    lowered = to_edge_transform_and_lower(
        program,
        constant_methods={"get_eos_ids": [2, 3], "get_max_seq_len": 512, "name": "relu"},
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    session = load(_write(tmp_path / "m.pte", lowered.to_executorch()), "cpu")
    assert session.constant("get_eos_ids") == [2, 3]
    assert session.constant("get_max_seq_len") == 512
    assert session.constant("name") == "relu"
    assert session.constant("forward") is None
    assert session.run("get_eos_ids") == [2, 3]


def test_inspect_shows_islands_and_schemes(fixture_of, capsys):
    report = inspect_program(fixture_of("mixed").path)
    (method,) = report["methods"]
    assert [i["kind"] for i in method["instructions"]] == ["delegate", "kernel", "delegate"]
    (island,) = method["islands"]
    assert island["operators"] == ["aten::cumsum.out"] and island["bytes_copied"] == 2 * 9 * 24 * 4
    assert inspect.main([str(fixture_of("decoder2").path)]) == 0
    text = capsys.readouterr().out
    assert "int4 group 32 affine" in text and "etwgpu.attention_linear × 2" in text


class Mixed(torch.nn.Module):
    """Three reasons to stay on the CPU."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        y = self.linear(x).cumsum(0)
        y = self.linear((y.double() * 2.0).float())
        return self.linear(y.reshape(1, 1, 1, 1, 1, 4, 8).permute(6, 1, 2, 3, 4, 5, 0).reshape(8, 4).t() * 1.5)


def test_inspect_says_why(tmp_path, capsys):
    path = _write(tmp_path / "m.pte", _export(Mixed(), (torch.randn(4, 8),), partition=True).to_executorch())
    (method,) = inspect_program(path)["methods"]
    why = {i["operator"]: i["why"] for i in method["instructions"] if i["kind"] == "kernel"}
    assert why["aten::cumsum.out"] == "no GPU kernel: aten.cumsum.default is not in schema/operators.yaml"
    assert why["aten::mul.out"] == "no GPU kernel for f64: supported are f32, i32, i64"
    assert why["aten::permute_copy.out"] == "rank 7: GPU kernels take up to 6"
    assert inspect.main([str(path)]) == 0
    text = capsys.readouterr().out
    assert "aten.cumsum.default is not in schema/operators.yaml" in text
    assert "FAILS: no CPU kernel for f64" in text
    assert max(map(len, text.splitlines())) <= 160


class Volume(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv3d(2, 3, 3)

    def forward(self, x):
        return self.conv(x).relu()


def test_inspect_says_what_would_fail(tmp_path, capsys):
    """What it says fails, fails when it is called; what it does not, runs."""
    x = torch.randn(1, 2, 5, 5, 5)
    path = _write(tmp_path / "m.pte", _export(Volume(), (x,), partition=True).to_executorch())
    (method,) = inspect_program(path)["methods"]
    (call,) = (i for i in method["instructions"] if i["kind"] == "kernel")
    assert call["why"] == "3 spatial dimensions: GPU kernels take 1 or 2"
    assert call["fails"] == "no CPU kernel for 3 spatial dimensions"
    assert inspect.main([str(path)]) == 0
    assert "FAILS: no CPU kernel for 3 spatial dimensions" in capsys.readouterr().out
    with pytest.raises(errors.ExecuTorchWebGPUError, match=r"aten\.convolution"):
        load(path, "cpu").forward(x)
    half = _write(tmp_path / "h.pte", _export(Mixed(), (torch.randn(4, 8),), partition=True).to_executorch())
    with pytest.raises(errors.ExecuTorchWebGPUError, match="no kernel for f64"):
        load(half, "cpu").forward(torch.randn(4, 8))


def test_inspect_of_a_program_without_delegates(fixture_of):
    (method,) = inspect_program(fixture_of("portable").path)["methods"]
    why = {i["operator"]: i["why"] for i in method["instructions"]}
    assert "exported with WebGPUPartitioner?" in why["aten::gelu.out"]


def test_error_classes_cover_all_codes():
    from executorch_webgpu.native import _native

    for code in _native.error_codes():
        if code != "ok":
            assert errors.error_class(code).code == code


def test_kernel_names_are_up_to_date():
    """runtime/program/kernel_names.inc is what tools/gen_kernel_names.py makes of schema/operators.yaml."""
    import subprocess
    import sys
    from pathlib import Path

    script = Path(__file__).resolve().parents[2] / "tools/gen_kernel_names.py"
    assert subprocess.run([sys.executable, script, "--check"], capture_output=True).returncode == 0
