"""Language models natively: ours on the GPU (Dawn) and the CPU, llama.cpp on the CPU beside them.

    python benchmarks/llm/native.py OUT.json --model FOLDER --gguf FILE [--contexts 128,512] [--tokens 128] [--quick]

The report has the form of llm.js's, and is measured by the rules of protocol.js: wall-clock at the caller, who gets
every token; three warm-ups; the median of five rounds. llama.cpp is PyPI's xllamacpp, whose wheel has no GPU in it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LEAD = 8  # tokens that are decoded before the clock starts
BUDGET_S = 60.0  # after so long a cell gets fewer rounds, one at least


def prompt_of(length: int, vocabulary: int, round_: int = 0) -> list[int]:
    """The ids of protocol.js: without a short period; another round shares nothing with what is cached."""
    span = min(vocabulary - 50, 20000)
    return [50 + (i * 7919 + (round_ if i == 0 else 0)) % span for i in range(length)]


class Ours:
    def __init__(self, folder: Path, threads: int, **options: Any) -> None:
        from executorch_webgpu.generation import TextGenerator

        self.threads = threads
        self.generator = TextGenerator(folder, threads=threads, **options)
        self.vocabulary = self.generator.vocabulary

    def generate(self, ids: list[int], count: int, on_token: Callable[[int | None], None]) -> None:
        self.generator.generate(ids, max_tokens=count, on_token=lambda token: on_token(token.id))

    def describe(self) -> dict[str, Any]:
        session = self.generator.session
        description = {"runtime": "executorch-webgpu", "device": session.device, "adapter": session.capabilities}
        return description | {"threads": self.threads}

    def memory(self) -> dict[str, int]:
        return self.generator.session.memory_report()

    def close(self) -> None:
        self.generator.close()


class LlamaCpp:
    def __init__(self, file: Path, context: int, threads: int) -> None:
        import xllamacpp
        from gguf import GGUFReader

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(file)
        parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = context, 1, 0
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        parameters.warmup, parameters.verbosity, parameters.cache_ram_mib = False, -1, 0
        self.server = xllamacpp.Server(parameters)
        self.vocabulary = len(GGUFReader(file).fields["tokenizer.ggml.tokens"].data)
        self.threads, self.version = threads, xllamacpp.__version__

    def generate(self, ids: list[int], count: int, on_token: Callable[[int | None], None]) -> None:
        request = {"prompt": ids, "max_tokens": count, "temperature": 0, "stream": True, "ignore_eos": True}

        def take(chunk: dict[str, Any]) -> None:
            if "error" in chunk:
                raise RuntimeError(str(chunk["error"]))
            if chunk["choices"][0]["finish_reason"] is None:
                on_token(None)  # it gives texts, not ids

        self.server.handle_completions(request, take)

    def describe(self) -> dict[str, Any]:
        return {"runtime": "llama.cpp (xllamacpp)", "version": self.version, "device": "cpu", "threads": self.threads}

    def memory(self) -> None:
        return None

    def close(self) -> None:
        del self.server


def repeat(once: Callable[[int], float], warmups: int, rounds: int) -> list[float]:
    began = time.perf_counter()
    for i in range(warmups):
        if i and time.perf_counter() - began > BUDGET_S:
            break
        once(rounds + i)
    results: list[float] = []
    while len(results) < rounds and not (results and time.perf_counter() - began > 2 * BUDGET_S):
        results.append(once(len(results)))
    return results


def row(kind: str, context: int, rates: list[float], ids: list[int | None]) -> dict[str, Any]:
    spread = {"rate": statistics.median(rates), "low": min(rates), "high": max(rates), "rates": rates}
    known = {} if None in ids else {"ids": ids}
    return {"kind": kind, "context": context, **known, **spread}


def measure(session: Ours | LlamaCpp, context: int, tokens: int, warmups: int, rounds: int) -> list[dict[str, Any]]:
    """Prefill and decode of one context, tokens a second."""
    firsts: list[int | None] = []

    def prefill(round_: int) -> float:
        prompt, found = prompt_of(context, session.vocabulary, round_), []
        began = time.perf_counter()
        session.generate(prompt, 1, lambda token: found.append((token, time.perf_counter())))
        firsts.append(found[0][0])
        return context / (found[0][1] - began)

    ids: list[int | None] = []

    def decode(_: int) -> float:
        times: list[float] = []
        ids.clear()
        prompt = prompt_of(context, session.vocabulary)
        session.generate(prompt, tokens + LEAD, lambda token: (ids.append(token), times.append(time.perf_counter())))
        first = min(LEAD, len(times) - 2)
        return (len(times) - 1 - first) / (times[-1] - times[first])

    rates = repeat(prefill, warmups, rounds)
    rows = [row("prefill", context, rates, firsts[-len(rates) :])]
    rates = repeat(decode, warmups, rounds)
    return [*rows, row("decode", context, rates, ids)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="a model folder")
    parser.add_argument("--gguf", type=Path, required=True, help="the same geometry for llama.cpp")
    parser.add_argument("--contexts", default="128,512")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--quick", action="store_true", help="one round")
    arguments = parser.parse_args()
    contexts = [int(context) for context in arguments.contexts.split(",")]
    warmups, rounds = (1, 1) if arguments.quick else (3, 5)
    threads = len(os.sched_getaffinity(0))
    options = vars(arguments) | {"model": str(arguments.model), "gguf": str(arguments.gguf), "out": str(arguments.out)}
    report: dict[str, Any] = {
        "suite": "llm",
        "time": datetime.now(UTC).isoformat(),
        "userAgent": f"Python {platform.python_version()}, {platform.platform()}",
        "cores": threads,
        "options": options,
        "configurations": [],
        "rows": [],
        "failures": [],
    }
    context = max(contexts) + arguments.tokens + 2 * LEAD
    makers: dict[str, Callable[[], Ours | LlamaCpp]] = {
        "native-f32": lambda: Ours(arguments.model, threads, device="webgpu", precision="f32"),
        "native-f16": lambda: Ours(arguments.model, threads, device="webgpu", precision="f16"),
        "native-cpu": lambda: Ours(arguments.model, threads, device="cpu"),
        "llama.cpp-cpu": lambda: LlamaCpp(arguments.gguf, context, threads),
    }
    half = False  # whether the GPU has shader-f16
    for name, make in makers.items():
        if name == "native-f16" and not half:
            print("  native-f16: this GPU has no shader-f16", flush=True)
            continue
        try:
            began = time.perf_counter()
            session = make()
            load_ms = 1000 * (time.perf_counter() - began)
            result = {"name": name, "loadMs": load_ms, **session.describe()}
            report["configurations"].append(result)
            half = half or bool((result.get("adapter") or {}).get("f16"))
            for length in contexts:
                for line in measure(session, length, arguments.tokens, warmups, rounds):
                    report["rows"].append({"configuration": name, **line})
                    print(f"  {name}: {line['kind']} {length}: {line['rate']:.1f} tokens/s", flush=True)
            result["memory"] = session.memory()
            session.close()
        except Exception as error:  # one configuration must not cost the others
            print(f"  {name}: {type(error).__name__}: {error}", flush=True)
            report["failures"].append({"configuration": name, "error": f"{type(error).__name__}: {error}"})
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
