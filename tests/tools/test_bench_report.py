"""The report of the language model benchmark: medians, ratios and the comparison of ids, out of the rows."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def row(configuration: str, kind: str, context: int, rate: float, ids: list[int]) -> dict:
    facts = {"rate": rate, "low": 0.9 * rate, "high": 1.1 * rate, "rates": [rate], "ids": ids}
    return {"configuration": configuration, "kind": kind, "context": context, "ms": 1000 * context / rate, **facts}


def report(model: str, *rows: dict, failures: tuple = ()) -> str:
    names = dict.fromkeys(one["configuration"] for one in rows)
    configurations = [{"name": name, "loadMs": 1500, "runtime": "r", "memory": {"weights": 7e6}} for name in names]
    return json.dumps(
        {
            "suite": "llm",
            "time": "now",
            "userAgent": "browser",
            "cores": 2,
            "options": {"model": f"/m/{model}/"},
            "configurations": configurations,
            "rows": rows,
            "failures": failures,
        }
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    ours = [row("f16", "prefill", 512, 30000, [5]), row("f16", "decode", 512, 1200, [1, 2, 3, 4])]
    ours += [row("f32", "decode", 512, 900, [1, 2, 9, 4])]
    failure = {"configuration": "baseline", "error": "no adapter"}
    (folder / "ours.json").write_text(report("small", *ours, failures=(failure,)))
    theirs = [row("onnxruntime-f16", "prefill", 512, 15000, [0]), row("onnxruntime-f16", "decode", 512, 100, [0])]
    (folder / "theirs.json").write_text(report("onnx", *theirs))
    (folder / "trace-f16-512.json").write_text("{}")  # no report
    command = ["node", ROOT / "benchmarks/llm/report.mjs", folder, "--out", folder / "out"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return text, folder / "out"


def test_rates_ratios_and_ids(made):
    lines = made[0].splitlines()
    assert "| small: f16 | 1,200 (1,080–1,320) |" in lines
    assert "| small: f16 | 12.0 |" in lines and "| small: f32 | 9.0 |" in lines  # decode, times onnxruntime's
    assert "| small: f16 | 2.0 |" in lines  # prefill
    assert "- small after 512: f32 = f16 for 2 of 4 tokens" in lines
    assert "- small: f16: first token of 512 after 17.1 ms" in lines
    assert "- baseline failed: no adapter" in lines


def test_rows_and_plot(made):
    rows = [json.loads(line) for line in (made[1] / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 5 and {one["model"] for one in rows} == {"/m/small/", "/m/onnx/"}
    plot = (made[1] / "plot.svg").read_text()
    assert plot.count("<polyline") == 2 * 4  # three series and llama.cpp, in two panels
    assert "small: f16" in plot and "NaN" not in plot
