"""Where the time of a generated token goes: kernel times with bytes and operations, as a table and as a trace file.

    executorch-webgpu profile FOLDER --context 512 --bandwidth 4400 --tflops 50 --trace trace.json

A trace opens in https://ui.perfetto.dev and in chrome://tracing. Times of a GPU are those of its own clock, each
dispatch in a pass of its own; those of the CPU are wall-clock, and have no bytes or operations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a generator's last_profile() gives: kernel, node, us, bytes, flops, in the order of execution.
Times = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Peak:
    """What a machine can do; a profile's floors are computed of it."""

    bytes_per_second: float
    flops: float = float("inf")

    def floor_us(self, row: Mapping[str, Any]) -> float:
        """Microseconds that the row's bytes or its operations take at least, whichever is longer."""
        return 1e6 * max(row["bytes"] / self.bytes_per_second, row["flops"] / self.flops)


def by_kernel(times: Times) -> list[dict[str, Any]]:
    """Rows summed by kernel, with `count`, the slowest first."""
    rows: dict[str, dict[str, Any]] = {}
    for time in times:
        row = rows.setdefault(time["kernel"], {"kernel": time["kernel"], "count": 0, "us": 0.0, "bytes": 0, "flops": 0})
        row["count"] += 1
        for key in ("us", "bytes", "flops"):
            row[key] += time[key]
    return sorted(rows.values(), key=lambda row: -row["us"])


def table(times: Times, peak: Peak | None = None, each: bool = False) -> str:
    """Lines of kernel, node or number of calls, µs, share, MB, GB/s, GFLOP, TFLOP/s and the part of the floor.

    each: one line a dispatch, in order, instead of one a kernel.
    """
    rows = list(times) if each else by_kernel(times)
    total = sum(row["us"] for row in rows)
    lines = [("kernel", "node" if each else "calls", "µs", "share", "MB", "GB/s", "GFLOP", "TFLOP/s", "of floor")]
    for row in rows:
        us = row["us"] or float("nan")  # clocks may be too coarse for a dispatch
        cells = [row["kernel"], str(row["node"] if each else row["count"]), f"{row['us']:.1f}"]
        cells += [f"{100 * row['us'] / total:.1f} %" if total else "–", f"{row['bytes'] / 1e6:.3f}"]
        cells += [f"{row['bytes'] / 1e3 / us:.1f}", f"{row['flops'] / 1e9:.3f}", f"{row['flops'] / 1e6 / us:.2f}"]
        lines.append((*cells, f"{100 * peak.floor_us(row) / us:.0f} %" if peak else "–"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [
        "  ".join(c.ljust(w) if i < 1 + each else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    ]
    return "\n".join([*text, f"{len(times)} dispatches, {total:.1f} µs"])


def trace(profiles: Mapping[str, Times]) -> dict[str, Any]:
    """Chrome's trace events (JSON object format): a thread a profile, dispatches one after another."""
    events: list[dict[str, Any]] = []
    for thread, (name, times) in enumerate(profiles.items()):
        events.append({"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": name}})
        at = 0.0
        for time in times:
            facts = {key: time[key] for key in ("node", "bytes", "flops")}
            event = {"ph": "X", "pid": 1, "tid": thread, "name": time["kernel"], "cat": "kernel"}
            events.append({**event, "ts": at, "dur": time["us"], "args": facts})
            at += time["us"]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def profile(folder: Path, device: str, context: int, **options: Any) -> dict[str, Times]:
    """{"prefill": of the last step of a prompt of `context` tokens, "decode": of one token after it}.

    options: those of runtime.load. Raises LimitExceededError where the context does not fit.
    """
    from executorch_webgpu.generation import TextGenerator

    with TextGenerator(folder, device, **options) as model:
        span = min(model.vocabulary - 50, 20000)
        prompt = [50 + i * 7919 % span for i in range(context)]
        model.generate(prompt, max_tokens=2)  # warms up
        model.reset()
        model.set_profiling(True)
        model.generate(prompt, max_tokens=1)
        prefill = model.last_profile
        model.generate(prompt, max_tokens=4)
        return {"prefill": prefill, "decode": model.last_profile}


def write_trace(path: Path, profiles: Mapping[str, Times]) -> None:
    path.write_text(json.dumps(trace(profiles)))
