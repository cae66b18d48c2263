"""`executorch-webgpu inspect model.pte`: methods, delegates, operators, weights by scheme, islands, memory."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

from executorch_webgpu.errors import ExecuTorchWebGPUError
from executorch_webgpu.variants import variant_files


def _bytes(count: int) -> str:
    """1,234 B, 12.3 KB, 45.6 MB"""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e4)):
        if count >= size:
            return f"{count / (1e3 if unit == 'KB' else size):.1f} {unit}"
    return f"{count:,} B"


def _spec(spec: dict[str, Any]) -> str:
    if spec["kind"] != "tensor":
        return spec["kind"]
    sizes = ", ".join(map(str, spec["sizes"]))
    return f"{spec['dtype']}[{'up to ' if spec['dynamic'] else ''}{sizes}]"


def _table(rows: list[tuple[str, ...]], indent: str) -> list[str]:
    """Columns side by side; the last one is right-aligned nowhere, numbers come as text."""
    if not rows:
        return []
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return [indent + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _counts(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} × {count}" for name, count in ordered)


def _wrapped(label: str, text: str, indent: str) -> list[str]:
    """`label text` in lines that fit the terminal, the later ones indented; names are not broken."""
    width = min(shutil.get_terminal_size((100, 24)).columns, 120)
    joined = text.replace(" × ", "\u00a0×\u00a0")  # a name and its count stay together
    lines = textwrap.wrap(
        f"{label} {joined}",
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]


def why_on_cpu(call: dict[str, Any], delegates: int) -> str | None:
    """Why a kernel call of an inspected program is in no delegate, as far as the program tells; None for operators that
    belong to the program, such as arithmetic on its sizes."""
    if call["served_by"] == "primitive":
        return None
    from executorch_webgpu.operators.registry import load_operators

    listed = load_operators().get(call["kernel"])
    if listed is None:
        return f"no GPU kernel: {call['kernel']} is not in schema/operators.yaml"
    allowed = listed.dtypes.union(*listed.arg_dtypes.values())
    dtypes = sorted({t["dtype"] for t in call["tensors"]} - allowed)
    if dtypes:
        return f"no GPU kernel for {', '.join(dtypes)}: supported are {', '.join(sorted(allowed))}"
    rank = max((t["rank"] for t in call["tensors"]), default=0)
    if rank > listed.max_rank:
        return f"rank {rank}: GPU kernels take up to {listed.max_rank}"
    if call["kernel"] == "aten.convolution.default" and rank > 4:
        return f"{rank - 2} spatial dimensions: GPU kernels take 1 or 2"
    if not delegates:
        return "no delegate in this program: was it exported with WebGPUPartitioner?"
    return "refused at export for its arguments or neighbours: WebGPUPartitioner.report() told why"


def explain(report: dict[str, Any]) -> dict[str, Any]:
    """Adds to the kernel calls of a report `why` they are in no delegate, and in `fails` why the CPU cannot run them
    either, or None."""
    from executorch_webgpu.operators import why_not_on_cpu

    for method in report["methods"]:
        for instruction in method["instructions"]:
            if instruction["kind"] == "kernel":
                instruction["why"] = why_on_cpu(instruction, len(method["delegates"]))
                tensors, primitive = instruction["tensors"], instruction["served_by"] == "primitive"
                dtypes, rank = {t["dtype"] for t in tensors}, max((t["rank"] for t in tensors), default=0)
                fails = None if primitive else why_not_on_cpu(instruction["kernel"], dtypes, rank)
                instruction["fails"] = fails
    return report


def _delegate(index: int, delegate: dict[str, Any]) -> list[str]:
    lines = [f"  delegate {index}: {delegate['id']}, payload {_bytes(delegate['payload_bytes'])}"]
    if "error" in delegate:
        lines.append(f"    error: {delegate['error']}")
    if "operators" not in delegate:
        return lines
    lines.append(f"    made by {delegate['exporter']}; {delegate['nodes']} nodes")
    for symbol in delegate["symbols"]:
        lines.append(f"    {symbol['name']} from {symbol['min']} to {symbol['max']}")
    lines += _wrapped("operators:", _counts(delegate["operators"]), "    ")
    if "fused_operators" in delegate:
        lines += _wrapped("after fusion:", _counts(delegate["fused_operators"]), "    ")
    rows = [(s, f"{w['tensors']} tensors", _bytes(w["bytes"])) for s, w in delegate["weights"].items()]
    if rows:
        lines.append("    weights:")
        lines += _table(rows, "      ")
    if delegate["state_bytes"]:
        lines.append(f"    state: {_bytes(delegate['state_bytes'])}")
    if "arena_bytes" in delegate:
        without = _bytes(delegate["arena_without_reuse"])
        lines.append(f"    arena at the bounds: {_bytes(delegate['arena_bytes'])} (without reuse {without})")
    return lines


def _kernel_calls(method: dict[str, Any]) -> list[str]:
    """What runs on the CPU outside of delegates, and why."""
    calls: dict[tuple[str, str, str | None], int] = {}
    served = {"nothing": "NO KERNEL", "kernel": "CPU kernel", "primitive": "primitive"}
    for i in method["instructions"]:
        if i["kind"] == "kernel":
            label = f"FAILS: {i['fails']}" if i["served_by"] == "kernel" and i["fails"] else served[i["served_by"]]
            key = (i["operator"], label, i["why"])
            calls[key] = calls.get(key, 0) + 1
    if not calls:
        return []
    reasons = {why for _, _, why in calls if why}
    common = reasons.pop() if len(reasons) == 1 else None  # said once
    rows = [
        (op, f"× {n}", label, "" if why in (None, common) else why)
        for (op, label, why), n in sorted(calls.items(), key=lambda item: item[0][:2])
    ]
    return ["  kernel calls on the CPU" + (f" ({common}):" if common else ":"), *_table(rows, "    ")]


def _method(method: dict[str, Any]) -> list[str]:
    signature = f"({', '.join(map(_spec, method['inputs']))}) -> ({', '.join(map(_spec, method['outputs']))})"
    lines = [f"method {method['name']}{signature}"]
    kinds: dict[str, int] = {}
    for i in method["instructions"]:
        name = i["kind"] if i["kind"] != "kernel" else "kernel call"
        kinds[name] = kinds.get(name, 0) + 1
    lines.append(f"  instructions: {_counts(kinds) or 'none'}")
    lines += _kernel_calls(method)
    for k, delegate in enumerate(method["delegates"]):
        lines += _delegate(k, delegate)
    for island in method["islands"]:
        operators = ", ".join(island["operators"])
        copied = _bytes(island["bytes_copied"])
        last = f" to {island['last']}" if island["last"] != island["first"] else ""
        label = f"island on the CPU, instruction{'s' if last else ''} {island['first']}{last}, copies {copied}:"
        lines += _wrapped(label, operators, "  ")
    if method["arenas"]:
        lines.append(f"  arenas on the host: {', '.join(map(_bytes, method['arenas']))}")
    return lines


def render(report: dict[str, Any], graph: bool = False) -> str:
    """The report as text; with `graph` the delegates' graphs too."""
    lines = [f"{report['file']}: {_bytes(report['file_bytes'])}", ""]
    constants = [m for m in report["methods"] if m["constant"]]
    for method in report["methods"]:
        if not method["constant"]:
            lines += [*_method(method), ""]
    if constants:
        lines.append("constants")
        rows = [(m["name"], ", ".join(str(v) for v in m["values"])) for m in constants]
        lines += [*_table(rows, "  "), ""]
    memory = report["memory"]
    lines.append("memory")
    lines += _table([(k, _bytes(v)) for k, v in memory.items()], "  ")
    for adapter in report.get("adapters", []):
        linears = adapter["linears"]
        ranks = ", ".join(map(str, sorted(set(linears.values()))))
        lines += ["", f"adapter {adapter['name']}, scale {adapter['scale']:g}, rank {ranks}"]
        lines += _wrapped(f"{len(linears)} linears:", ", ".join(linears), "  ")
    if report["missing_operators"]:
        lines += ["", f"no kernel for: {_counts(report['missing_operators'])}"]
    if report["missing_data"]:
        lines += ["", "data in no file given: " + ", ".join(report["missing_data"]) + " (give the .ptd with --data)"]
    if graph:
        for method in report["methods"]:
            for k, delegate in enumerate(method["delegates"]):
                lines += ["", f"graph of {method['name']}, delegate {k}", delegate.get("graph", "(none)")]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="executorch-webgpu inspect", description=__doc__)
    parser.add_argument("program", type=Path, help="a .pte file, or a model folder")
    parser.add_argument("--data", type=Path, action="append", default=[], metavar="PTD", help="a .ptd file; repeatable")
    parser.add_argument("--json", action="store_true", help="the whole report as JSON")
    parser.add_argument("--graph", action="store_true", help="also the delegates' graphs as text")
    arguments = parser.parse_args(argv)
    try:
        from executorch_webgpu.runtime import inspect_program

        program, data = arguments.program, arguments.data
        if program.is_dir():
            program, data = variant_files(program)
        report = inspect_program(program, data or arguments.data)
    except ExecuTorchWebGPUError as error:
        print(f"executorch-webgpu: {error}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=1, ensure_ascii=False) if arguments.json else render(report, arguments.graph))
    return 0


if __name__ == "__main__":
    sys.exit(main())
