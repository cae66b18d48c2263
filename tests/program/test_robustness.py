"""Memory over many loads, a lost device, the memory cap."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from executorch_webgpu import errors, runtime
from executorch_webgpu.generation import TextGenerator
from program import memory_cycles
from program.test_runtime import _export, _write

MB = 1 << 20
DEVICES = ["cpu", pytest.param("webgpu", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A program with 4 MB of weights, so that one that stays is seen."""
    program = _export(torch.nn.Linear(1024, 1024), (torch.zeros(1, 1024),), partition=True)
    return _write(tmp_path_factory.mktemp("large") / "model.pte", program.to_executorch())


@pytest.mark.parametrize(
    ("device", "allowed"), [("cpu", MB), pytest.param("webgpu", 16 * MB, marks=[pytest.mark.gpu, pytest.mark.full])]
)
def test_memory_is_flat(folder, large, fixture_of, device, allowed):
    """20 times load, generate, close, beside a model that stays, in a process of their own."""
    command = [sys.executable, memory_cycles.__file__, device, folder, large, fixture_of("mlp").path, "32"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    after = json.loads(ran.stdout)
    # the least of six, since a software adapter's memory goes up and down
    first, last = (min(cycle["bytes"] for cycle in part) for part in (after[6:12], after[26:32]))
    assert last - first < allowed, [cycle["bytes"] for cycle in after]
    assert after[-1]["files"] <= after[11]["files"]
    assert after[-1]["threads"] == after[11]["threads"]


@pytest.mark.gpu
def test_lost_device(folder):
    """Every later call says so; other sessions and new ones live."""
    other = TextGenerator(folder, "webgpu")
    expected = other.generate("w1 w2 w3", max_tokens=4).ids
    model = TextGenerator(folder, "webgpu")
    steps = model.stream("w1 w2 w3")
    assert next(steps).id == expected[0]
    model.session._native._destroy_device()
    with pytest.raises(errors.DeviceLostError, match="lost"):
        next(steps)
    ids = np.array([[1]]), np.array([0])
    for call in (lambda: model.generate("w1"), lambda: model.session.forward(*ids), model.session.reset):
        with pytest.raises(errors.DeviceLostError):
            call()
    model.close()
    other.reset()
    assert other.generate("w1 w2 w3", max_tokens=4).ids == expected
    with TextGenerator(folder, "webgpu") as again:
        assert again.generate("w1 w2 w3", max_tokens=4).ids == expected


@pytest.mark.gpu
def test_device_lost_beside_a_running_thread(folder):
    """Of a loop in another thread: the next call ends with the error."""
    model = TextGenerator(folder, "webgpu")
    failures = []

    def work():
        try:
            while True:
                model.generate("w1 w2 w3", max_tokens=8)
        except errors.ExecuTorchWebGPUError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.3)
    model.session._native._destroy_device()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert [type(f) for f in failures] == [errors.DeviceLostError]


@pytest.mark.parametrize("device", DEVICES)
def test_memory_cap(large, fixture_of, device):
    """Refused before anything is allocated, by what the file declares or what its intermediate values need."""
    with pytest.raises(errors.LimitExceededError, match=r"declares .* the memory cap is 1000"):
        runtime.load(large, device, memory_cap=1000)
    what = r"(the result of etwgpu\.linear|'sample\.scratch')"
    largest = r"memory cap.*; the largest intermediate value, of \d+ bytes, is " + what
    with pytest.raises(errors.LimitExceededError, match=largest):
        runtime.load(fixture_of("decoder2").path, device, memory_cap=110_000)
    memory = runtime.load(large, device).memory_report()
    needed = sum(memory[part] for part in ("weights", "state", "arena", "other"))
    runtime.load(large, device, memory_cap=needed + 2 * 4096)  # and the program's own arenas
