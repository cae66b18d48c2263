"""The payload's bytes are what flatc reads and writes by the same schema."""

import json
import shutil
import subprocess
from dataclasses import asdict

import pytest
from executorch_webgpu.lowering import payload
from executorch_webgpu.lowering.payload import (
    Arg,
    Expr,
    Graph,
    Input,
    Mutation,
    Node,
    Output,
    Quantization,
    Symbol,
    Value,
)
from executorch_webgpu.operators import find_schema

GRAPH = Graph(
    exporter="test é",
    data_digest="0123456789abcdef",
    exprs=[Expr("constant", value=-(2**62)), Expr("symbol", a=0), Expr("floordiv", 1, 0)],
    symbols=[Symbol("s0", 1, 2**40, "input_int", 1), Symbol("s1", 0, 5, "input_dim", 0, 3)],
    values=[
        Value("x", "i64", [0, 1, 2], "input"),
        Value("w", "f32", [0], "constant", "w.r4", Quantization(4, 32, True, 2**33)),
        Value("flag", "bool_", [], "state"),
    ],
    nodes=[
        Node(
            "aten.any.thing",
            [
                Arg("none"),
                Arg("value", ids=[0]),
                Arg("values", ids=[0, -1]),
                Arg("ints", ids=[1, 2]),
                Arg("double_", numbers=[0.1]),
                Arg("bools", flags=[True, False]),
                Arg("string_", text="tanh"),
                Arg("dtype", dtype="bf16"),
                Arg("ints"),
            ],
            [2],
            "node",
        )
    ],
    inputs=[Input(0), Input()],
    outputs=[Output(value=2), Output(expr=2)],
    mutations=[Mutation(2, 0)],
)


def flatc(folder, *arguments):
    tool = shutil.which("flatc")
    if not tool:
        pytest.skip("no flatc")
    subprocess.run([tool, "-o", str(folder), *map(str, arguments)], check=True, cwd=folder, capture_output=True)


def test_round_trip():
    assert payload.decode(payload.encode(GRAPH)) == GRAPH


def test_flatc_reads_what_we_write(tmp_path):
    (tmp_path / "p.bin").write_bytes(payload.encode(GRAPH))
    flatc(tmp_path, "-t", "--strict-json", "--defaults-json", "--raw-binary", find_schema("graph.fbs"), "--", "p.bin")
    found = json.loads((tmp_path / "p.json").read_text())
    expected = asdict(GRAPH)

    def compare(a, b, path=""):
        if isinstance(a, dict):
            for key, value in a.items():
                if value in ([], "", None) and key not in b:
                    continue
                compare(value, b[key], f"{path}.{key}")
        elif isinstance(a, list):
            assert len(a) == len(b), path
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                compare(x, y, f"{path}[{i}]")
        else:
            assert a == b, path

    compare(expected, found)


def test_we_read_what_flatc_writes(tmp_path):
    (tmp_path / "p.bin").write_bytes(payload.encode(GRAPH))
    schema = find_schema("graph.fbs")
    flatc(tmp_path, "-t", "--strict-json", "--raw-binary", schema, "--", "p.bin")
    (tmp_path / "p.bin").unlink()
    flatc(tmp_path, "-b", schema, "p.json")
    written = next(p for p in tmp_path.iterdir() if p.suffix != ".json")
    assert payload.decode(written.read_bytes()) == GRAPH


def test_later_version_is_refused_with_both_numbers():
    with pytest.raises(payload.PayloadError, match=r"version 7.*up to 1"):
        payload.decode(payload.encode(Graph(version=7)))


@pytest.mark.parametrize("data", [b"", b"<!DOCTYPE html>", payload.encode(GRAPH)[:100]])
def test_other_bytes_are_refused(data):
    with pytest.raises(payload.PayloadError):
        payload.decode(data)
