"""Kernel times with bytes and operations: against what the model's shapes say, as a table and as a trace."""

import json

import pytest
from executorch_webgpu import cli, profiling

CONTEXT = 12


@pytest.fixture(scope="module")
def folder(llama_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("profiled") / "model"
    assert cli.main(["export", "llama", "--from", str(llama_folder), "--out", str(out), "--max-len", "32"]) == 0
    return out


def expected_flops(config: dict, rows: int, start: int) -> int:
    """Of all matrices and of causal attention, for `rows` tokens at position `start`; the head sees one."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    kv = config.get("num_key_value_heads") or heads
    layer = hidden * head_dim * (2 * heads + 2 * kv) + 3 * hidden * config["intermediate_size"]
    seen = sum(start + 1 + i for i in range(rows))
    attention = 4 * heads * head_dim * seen
    return config["num_hidden_layers"] * (2 * rows * layer + attention) + 2 * hidden * config["vocab_size"]


@pytest.fixture(scope="module")
def profiles(folder):
    return profiling.profile(folder, "webgpu", CONTEXT)


def test_a_gpu_profile_counts_what_the_shapes_say(profiles, llama_folder):
    config = json.loads((llama_folder / "config.json").read_text())
    # decode: the profile is that of the last of three tokens after the prompt's
    for name, rows, start in (("prefill", CONTEXT, 0), ("decode", 1, CONTEXT + 2)):
        times = profiles[name]
        assert len(times) > config["num_hidden_layers"]
        assert all(time["us"] >= 0 and time["bytes"] > 0 for time in times)
        expected = expected_flops(config, rows, start)
        # pointwise kernels (copies, rotary tables) come on top
        assert expected <= sum(time["flops"] for time in times) < 1.1 * expected, name


def test_every_weight_is_read_once(profiles, folder):
    from executorch_webgpu import runtime

    with runtime.load(folder / "model.pte", "cpu") as session:
        weights = session.memory_report()["weights"]
    read = sum(time["bytes"] for time in profiles["decode"])
    assert weights < read < 1.5 * weights


def test_a_cpu_profile_has_times_alone(folder):
    times = profiling.profile(folder, "cpu", CONTEXT)["decode"]
    assert sum(time["us"] for time in times) > 0
    assert all(time["bytes"] == time["flops"] == 0 for time in times)


ROWS = [
    {"kernel": "a", "node": "first", "us": 10.0, "bytes": 2_000_000, "flops": 4_000_000},
    {"kernel": "b", "node": "second", "us": 30.0, "bytes": 1_000_000, "flops": 300_000_000},
    {"kernel": "a", "node": "third", "us": 10.0, "bytes": 2_000_000, "flops": 4_000_000},
]


def test_the_table_sums_kernels_and_states_the_part_of_the_floor():
    # 1,000 GB/s: 4 MB take 4 µs of 20; 20 TFLOP/s: 300 MFLOP take 15 µs of 30
    lines = profiling.table(ROWS, profiling.Peak(1e12, 20e12)).splitlines()
    assert [line.split()[:2] for line in lines[1:3]] == [["b", "1"], ["a", "2"]]
    assert [line.split()[-2:] for line in lines[1:3]] == [["50", "%"], ["20", "%"]]
    assert lines[-1] == "3 dispatches, 50.0 µs"
    each = profiling.table(ROWS, each=True).splitlines()
    assert [line.split()[1] for line in each[1:4]] == ["first", "second", "third"]


def test_the_trace_lays_dispatches_one_after_another(tmp_path):
    profiling.write_trace(tmp_path / "trace.json", {"prefill": ROWS, "decode": ROWS[:1]})
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert [(s["tid"], s["ts"], s["dur"]) for s in slices] == [(0, 0, 10), (0, 10, 30), (0, 40, 10), (1, 0, 10)]
    assert slices[1]["args"] == {"node": "second", "bytes": 1_000_000, "flops": 300_000_000}
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"prefill", "decode"}


def test_the_command_prints_a_table_and_writes_a_trace(folder, tmp_path, capsys):
    trace = tmp_path / "trace.json"
    arguments = [
        "profile",
        str(folder),
        "--device",
        "cpu",
        "--context",
        "8",
        "--bandwidth",
        "20",
        "--trace",
        str(trace),
    ]
    assert cli.main(arguments) == 0
    out = capsys.readouterr().out
    assert "prefill\nkernel" in out and "decode\nkernel" in out
    assert json.loads(trace.read_text())["traceEvents"]
