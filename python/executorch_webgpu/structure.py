"""Model folders without weights, for measurements of models that are not at hand.

`executorch-webgpu export NAME --structure-only` writes a program whose weights are to be in `weights.ptd`, and instead
of that file

weights.ptd.head   its first bytes: everything before the weights
structure.json     its size, and what each weight consists of: random bytes, or a pattern of bytes that is repeated

With these, `fill` here, or a script on any machine, or a page that never has a file, makes a weights.ptd of the right
size with values of the right magnitude. Needs numpy alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HEAD, STRUCTURE, DATA = "weights.ptd.head", "structure.json", "weights.ptd"
ALIGNMENT = 256
# Standard deviations of evenly spread stored values: 0 … 15, and −127 … 127.
SPREAD = {4: 4.61, 8: 73.3}
CHUNK = 1 << 24


def fill(folder: Path) -> Path:
    """Writes weights.ptd beside a structure-only program, the same bytes every time. Returns its path."""
    path, written = folder / DATA, 0
    with path.open("wb") as file:
        for piece in chunks(folder):
            written += file.write(piece)
    size = json.loads((folder / STRUCTURE).read_text())["bytes"]
    if written != size:
        raise ValueError(f"{path} came to {written} bytes, not {size}: {STRUCTURE} and {HEAD} do not belong together")
    return path


def chunks(folder: Path) -> Iterator[bytes]:
    """The bytes of weights.ptd in order, a few MiB at a time."""
    structure = json.loads((folder / STRUCTURE).read_text())
    head = (folder / HEAD).read_bytes()
    noise = np.random.default_rng(0).integers(0, 256, CHUNK, dtype=np.uint8).tobytes()
    yield head
    at = len(head)
    for weight in structure["weights"]:
        for part in weight["parts"]:
            begin = weight["offset"] + part["offset"]
            if begin > at:
                yield bytes(begin - at)
            pattern = base64.b64decode(part["pattern"]) if "pattern" in part else noise
            block = pattern * max(CHUNK // len(pattern), 1)
            for done in range(0, part["bytes"], len(block)):
                yield block[: part["bytes"] - done]
            at = begin + part["bytes"]
    if structure["bytes"] > at:
        yield bytes(structure["bytes"] - at)


# ---- at export -------------------------------------------------------------------------------------------------------


def files(lowered: Any) -> dict[str, bytes]:
    """structure.json and weights.ptd.head of executorch's EdgeProgramManager with weights left out."""
    weights = {w["name"]: w for method in lowered.methods for w in _missing(lowered.exported_program(method))}
    head, offsets, size = _head([(name, weight["bytes"]) for name, weight in weights.items()])
    listed = [{"name": name, "offset": offsets[name], **weight} for name, weight in weights.items()]
    content = {"file": DATA, "head": HEAD, "bytes": size, "weights": listed}
    return {HEAD: head, STRUCTURE: (json.dumps(content, indent=1) + "\n").encode()}


def _missing(program: Any) -> Iterator[dict[str, Any]]:
    """The weights of a method's delegates that have a key and no data."""
    from executorch.exir.lowered_backend_module import get_lowered_backend_modules

    from executorch_webgpu.backend import BACKEND_ID
    from executorch_webgpu.lowering import payload

    for module in get_lowered_backend_modules(program.graph_module):
        if module.backend_id != BACKEND_ID:
            continue
        graph, stored = payload.decode(module.processed_bytes), module.named_data_store_output
        kept = set(stored.pte_data) if stored else set()
        for value in graph.values:
            if value.kind == "constant" and value.data_key and value.data_key not in kept:
                dims = [graph.exprs[d].value for d in value.dims]
                yield {"name": value.data_key, **_parts(value, dims)}


def _parts(value: Any, dims: list[int]) -> dict[str, Any]:
    """Bytes, kind and parts of a weight: the words of a quantised one are random, everything else is a pattern."""
    from executorch_webgpu.quantization import r4

    if not value.quantization:
        vector, size = len(dims) == 1, 4 * int(np.prod(dims))
        noise = np.random.default_rng(dims[-1]).standard_normal(509).astype("<f4")  # a prime: rows differ
        if vector:
            pattern = 0.05 * noise + (0 if value.name.endswith(".bias") else 1)
        else:
            pattern = noise * dims[-1] ** -0.5
        part = {"offset": 0, "bytes": size, "kind": "f32", "pattern": _encode(pattern.astype("<f4"))}
        return {"bytes": size, "kind": "vector" if vector else "matrix", "parts": [part]}
    q = value.quantization
    n, k = dims
    offset, size = r4.packed_bytes(n, k, q.bits, q.group, q.symmetric)
    scale = k**-0.5 / SPREAD[q.bits]  # rows of norm 1
    if q.bits == 8:
        kind, constants = "f32", np.array([scale], "<f4")
    elif q.symmetric:
        kind, constants = "f16", np.array([scale], "<f2")
    else:  # planes of four rows: scales, then minima
        kind, constants = "f16", np.array([scale] * 4 + [-7.5 * scale] * 4, "<f2")
    words = {"offset": 0, "bytes": n_words(n, k, q.bits), "kind": "words"}
    tail = {"offset": offset, "bytes": size - offset, "kind": kind, "pattern": _encode(constants)}
    return {"bytes": size, "kind": q.scheme, "parts": [words, tail]}


def n_words(rows: int, k: int, bits: int) -> int:
    """Bytes of the words of a packed weight, rows padded to a multiple of 8."""
    return -(-rows // 8) * 8 * k * bits // 8


def _encode(values: np.ndarray) -> str:
    return base64.b64encode(values.tobytes()).decode()


def _head(weights: list[tuple[str, int]]) -> tuple[bytes, dict[str, int], int]:
    """The bytes of a .ptd file before its data, the place of each weight in the file, and the size of the file."""
    from executorch.exir._serialize._program import _insert_flatbuffer_header
    from executorch.exir._serialize.padding import pad_to
    from executorch.extension.flat_tensor.serialize import flat_tensor_schema as schema
    from executorch.extension.flat_tensor.serialize import serialize

    segments, end = [], 0
    for _, size in weights:
        begin = -(-end // ALIGNMENT) * ALIGNMENT
        segments.append(schema.DataSegment(offset=begin, size=size))
        end = begin + size
    named = [schema.NamedData(key=name, segment_index=i, tensor_layout=None) for i, (name, _) in enumerate(weights)]
    flat = bytes(serialize._serialize_to_flatbuffer(schema.FlatTensor(0, segments, named)))
    header_size = -(-serialize.FlatTensorHeader.EXPECTED_LENGTH // 16) * 16
    base = -(-(len(flat) + header_size) // ALIGNMENT) * ALIGNMENT
    header = serialize.FlatTensorHeader(header_size, len(flat), base, end).to_bytes()
    head = _insert_flatbuffer_header(flat, r"FT[0-9a-zA-Z][0-9a-zA-Z]", pad_to(header, header_size))
    offsets = {name: base + segment.offset for (name, _), segment in zip(weights, segments, strict=True)}
    return pad_to(head, base), offsets, base + end
