"""The native runtime: loads a `.pte` and runs it on the GPU (WebGPU by Dawn) or the CPU.

from executorch_webgpu.runtime import load

session = load("model.pte", device="webgpu")
(y,) = session.forward(x)  # numpy or torch in, the same out
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from executorch_webgpu.errors import (
    ExecuTorchWebGPUError,
    InvalidArgumentError,
    NoAdapterError,
    check_number,
    check_text,
)
from executorch_webgpu.native import _native

__all__ = ["Adapter", "ExecuTorchWebGPUError", "MethodSpec", "Session", "ValueSpec", "inspect_program", "load"]

DEFAULT_MEMORY_CAP = 4 << 30


def _path(name: str, value: Any) -> str:
    try:
        return os.fsdecode(value)
    except TypeError:
        raise InvalidArgumentError(f"{name}: {value!r} is no path") from None


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter: the folder that peft's save_pretrained writes. name: by which its scale is set, default that of
    the folder. scale: 1 as trained, 0 off."""

    path: str | os.PathLike
    scale: float = 1.0
    name: str | None = None

    def native(self) -> tuple[str, str, str, float]:
        """Name, path of the tensors, text of the configuration, scale."""
        folder = Path(_path("adapters", self.path))
        config, weights = folder / "adapter_config.json", folder / "adapter_model.safetensors"
        scale = check_number("adapters: scale", self.scale, -math.inf, math.inf)
        for file in (config, weights):
            if not file.is_file():
                raise InvalidArgumentError(f"{folder} is no adapter of peft: it lacks {file.name}")
        return (self.name or folder.resolve().name, str(weights), config.read_text(errors="replace"), scale)


@dataclass(frozen=True)
class ValueSpec:
    """An input or output: `kind` is tensor, int, float, bool, str or none; `sizes` are upper bounds where dynamic."""

    kind: str
    dtype: str | None = None
    sizes: tuple[int, ...] = ()
    dynamic: bool = False

    @staticmethod
    def from_native(spec: dict[str, Any]) -> ValueSpec:
        sizes = tuple(spec.get("sizes", ()))
        return ValueSpec(spec["kind"], spec.get("dtype"), sizes, spec.get("dynamic", False))


@dataclass(frozen=True)
class MethodSpec:
    """A method of a program. Constant ones (metadata such as get_eos_ids) have their `values` here."""

    name: str
    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]
    constant: bool = False
    values: tuple[Any, ...] = ()


def _is_torch(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "torch"


def _to_native(value: Any) -> Any:
    if _is_torch(value):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            return value.contiguous()  # by DLPack: numpy has no bfloat16
        value = value.numpy()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf":
            raise InvalidArgumentError(f"an array of {value.dtype} is no input: it needs numbers or bools")
        value = value.astype(value.dtype.newbyteorder("="), copy=False)  # files may have the other order of bytes
        # ascontiguousarray makes a vector of a 0-d array
        return value if value.flags.c_contiguous else np.ascontiguousarray(value)
    return value


class Session:
    """A loaded program. Calls of one session run one after another, from whatever thread they come."""

    def __init__(self, native: _native.Session, device: str) -> None:
        self._native = native
        self.device = device
        self.methods: dict[str, MethodSpec] = {}
        for m in native.methods():
            inputs, outputs = (tuple(ValueSpec.from_native(v) for v in m[k]) for k in ("inputs", "outputs"))
            self.methods[m["name"]] = MethodSpec(m["name"], inputs, outputs, m["constant"], tuple(m["values"]))

    def run(self, method: str, *inputs: Any) -> list[Any]:
        """Runs a method. Inputs: numpy arrays, torch tensors, ints, floats, bools. Outputs are torch tensors where an
        input is one, else numpy arrays (bfloat16 as uint16 bits). InvalidArgumentError for inputs that the method does
        not take."""
        use_torch = any(map(_is_torch, inputs))
        outputs = self._native.run(check_text("method", method), [_to_native(v) for v in inputs])
        if not use_torch:
            return outputs
        import torch

        return [torch.from_numpy(o) if isinstance(o, np.ndarray) else o for o in outputs]

    def forward(self, *inputs: Any) -> list[Any]:
        """run("forward", …)"""
        return self.run("forward", *inputs)

    def constant(self, method: str) -> Any:
        """The value of a constant method ("get_max_seq_len"), or the list of its values if there are several; None
        without such a method."""
        spec = self.methods.get(method)
        if spec is None or not spec.constant:
            return None
        return spec.values[0] if len(spec.values) == 1 else list(spec.values)

    def reset(self) -> None:
        """All states (KV caches, mutable buffers) back to their initial values."""
        self._native.reset()

    def tune(self, method: str = "forward", budget_s: float = 15) -> dict[str, Any]:
        """Tries the GPU kernels that `method`, a language model's, could run with, and keeps the fastest: wall-clock of
        tokens and of chunks of a prompt. `tuning` of the result is for load(tuning=…) the next time; `token_ms` and
        `chunk_ms` with it and `…_before` without, `candidates` how many were tried: none is begun after `budget_s`
        seconds. States are reset. UnsupportedOperatorError on the CPU; InvalidArgumentError while a generator is on the
        session."""
        return self._native.tune(check_text("method", method), 1000 * check_number("budget_s", budget_s, 0, 1e9))

    @property
    def adapters(self) -> dict[str, float]:
        """The scale of each adapter by name."""
        return self._native.adapter_scales()

    def set_adapter_scale(self, name: str, scale: float) -> None:
        """What an adapter counts from the next call on: 1 as trained, 0 off. Caches keep what was computed before:
        reset() where that must not mix. InvalidArgumentError for an unknown name, or during a call."""
        scale = check_number("scale", scale, -math.inf, math.inf)
        self._native.set_adapter_scale(check_text("name", name), scale)

    def close(self) -> None:
        """Frees all memory of the program now; later calls are InvalidArgumentError."""
        self._native.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def memory_report(self) -> dict[str, int]:
        """Bytes of weights, state, arena and the rest; `arena_without_reuse` for comparison."""
        return self._native.memory_report()

    @property
    def last_stats(self) -> dict[str, int]:
        """Dispatches, submits and bytes moved by the last run()."""
        return self._native.last_stats()

    @property
    def capabilities(self) -> dict[str, Any] | None:
        """Of the GPU; None on the CPU."""
        return self._native.capabilities()

    def inspect(self) -> dict[str, Any]:
        """What is in the program: see `executorch-webgpu inspect`."""
        from executorch_webgpu.inspect import explain

        return explain(json.loads(self._native.inspect_json()))


def _get_proc_address() -> int:
    """The address of wgpuGetProcAddress in the Dawn that the package wgpudawn brings."""
    from wgpudawn import _lib

    return int(_lib.ffi.cast("uintptr_t", _lib.ffi.addressof(_lib.lib, "wgpuGetProcAddress")))


def _has_adapter() -> bool:
    try:
        _native.check_adapter(_get_proc_address())
    except (ImportError, NoAdapterError):
        return False
    return True


def _data_files(data: str | os.PathLike | Iterable[str | os.PathLike]) -> list[str]:
    one = isinstance(data, str | bytes | os.PathLike) or not isinstance(data, Iterable)
    return [_path("data", d) for d in ([data] if one else data)]


def load(
    path: str | os.PathLike,
    device: str = "webgpu",
    *,
    data: str | os.PathLike | Iterable[str | os.PathLike] = (),
    precision: str = "f32",
    activations: str = "auto",
    kv_cache: str = "auto",
    threads: int | None = None,
    max_tier: str = "subgroup_matrix",
    memory_cap: int = DEFAULT_MEMORY_CAP,
    disable_passes: str | None = None,
    default_limits: bool = False,
    wide_kernels: bool = False,
    emulate_matrices: int = 0,
    max_binding_bytes: int = 0,
    tuning: str = "",
    adapters: Iterable[Adapter | str | os.PathLike] = (),
    check_values: bool = False,
    progress: Callable[[int, int], bool | None] | None = None,
) -> Session:
    """Loads a program.

    device: "webgpu", "cpu", or "auto": the GPU unless there is none, then the CPU; Session.device tells. data: `.ptd`
    files with weights. precision: "f32" or "f16", of intermediates on the GPU; the CPU, which has f32, ignores it.
    activations: how the CPU multiplies quantised weights, "auto", "exact", "int16" or "int8". kv_cache: of the CPU,
    "f16", "f32" or "auto": f32 with exact activations, else f16. threads: of the CPU, default all. max_tier: the
    highest tier of GPU kernels, "baseline", "f16", "subgroups" or "subgroup_matrix". memory_cap: refuse programs that
    need more bytes. disable_passes: names of graph passes to leave out, default $ETWGPU_DISABLE_PASSES. default_limits:
    WebGPU's default limits even where the device offers more. wide_kernels: the kernels for large GPUs on software
    adapters too (for tests). emulate_matrices: 8 or 16, for tests: subgroup matrices of that size in plain WGSL.
    max_binding_bytes: for tests, a limit below the device's; buffers hold twice that at most. tuning: what
    Session.tune() has found on this device. adapters: up to four LoRA adapters, as folders of peft or as Adapter with a
    scale: the weights of the program stay as they are. check_values: for debugging, slow: calls and generations raise
    NonFiniteError at the first operator that gives a NaN or an infinity, which is named. progress: called with bytes
    read and their total; returning False cancels.

    Raises a subclass of ExecuTorchWebGPUError.
    """
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = check_number("threads", threads, 1, 1024, whole=True)
    memory_cap = check_number("memory_cap", memory_cap, 0, 2**64 - 1, whole=True)
    emulate_matrices = check_number("emulate_matrices", emulate_matrices, 0, 2**31 - 1, whole=True)
    max_binding_bytes = check_number("max_binding_bytes", max_binding_bytes, 0, 2**64 - 1, whole=True)
    for name, value in (
        ("device", device),
        ("precision", precision),
        ("activations", activations),
        ("kv_cache", kv_cache),
        ("max_tier", max_tier),
        ("disable_passes", "" if disable_passes is None else disable_passes),
        ("tuning", tuning),
    ):
        check_text(name, value)
    if not isinstance(adapters, Iterable) or isinstance(adapters, str):
        raise InvalidArgumentError(f"adapters: {adapters!r} is no list")
    if progress is not None and not callable(progress):
        raise InvalidArgumentError(f"progress: {progress!r} is no function")
    if device == "auto":
        device = "webgpu" if _has_adapter() else "cpu"
    if disable_passes is None:
        disable_passes = os.environ.get("ETWGPU_DISABLE_PASSES", "")
    native = _native.load(
        _path("path", path),
        _data_files(data),
        device,
        _get_proc_address() if device == "webgpu" else 0,
        precision,
        activations,
        kv_cache,
        threads,
        max_tier,
        memory_cap,
        disable_passes,
        bool(default_limits),
        bool(wide_kernels),
        emulate_matrices,
        max_binding_bytes,
        tuning,
        [(a if isinstance(a, Adapter) else Adapter(a)).native() for a in adapters],
        bool(check_values),
        progress,
    )
    return Session(native, device)


def inspect_program(path: str | os.PathLike, data: Iterable[str | os.PathLike] = ()) -> dict[str, Any]:
    """The report on a program, whether or not this runtime could run it: nothing but the program itself is read."""
    from executorch_webgpu.inspect import explain

    return explain(json.loads(_native.inspect(str(Path(path)), _data_files(data))))
