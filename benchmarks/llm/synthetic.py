#!/usr/bin/env python3
"""Makes a model folder with pseudo-random weights out of a structure (model.pte without its weights, weights.json):

    python3 synthetic.py STRUCTURE OUT [--seed N]

Runs on a measuring machine without a network and with nothing but Python's standard library; 700 MB take a few seconds.
The same seed gives the same bytes everywhere. Quantised weights get uniform integers and scales such that a weight's
standard deviation is about 1 / sqrt(K): activations stay finite through any depth, logits come out with a standard
deviation near 1, and the best token leads by far more than rounding moves it, so greedy ids can be compared.

weights.json: {"entries": [{"key", "size", …}], "vocabulary"}; an entry is either
  {"kind": "quantized", "bits", "group", "symmetric", "constants_offset", "dims": [N, K]}   packed as R4
  {"kind": "literal", "data": base64}
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import math
import random
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

CHUNK = 16 << 20  # of random bytes made at a time
ALIGNMENT = 256  # of every weight in the file
POOL = 1 << 14  # different scales, repeated


def align(offset: int, to: int) -> int:
    return -(-offset // to) * to


def flat_tensor_head(entries: list[dict]) -> tuple[bytes, list[int]]:
    """The head of a .ptd (flatbuffer `FT01` around the header `FH01`) for entries with "key" and "size".

    Returns its bytes, padded, and the offset of each entry's data from there on. The flatbuffer is laid out forward:
    every offset in it points to something later, tables to a vtable before them.
    """
    offsets, end = [], 0
    for entry in entries:
        offsets.append(end)
        end = align(end + entry["size"], ALIGNMENT)

    out = bytearray(48)  # root offset, identifier, header: filled in at the end
    vtable = {}
    for name, slots in {"root": (12, 0, 4, 8), "segment": (24, 8, 16), "named": (12, 4, 8)}.items():
        vtable[name] = len(out)
        out += struct.pack(f"<{len(slots) + 1}H", 2 * len(slots) + 2, *slots)
        out += bytes(-len(out) % 4)

    def patch(at: int) -> None:
        """The offset at `at` points to what comes next."""
        struct.pack_into("<I", out, at, len(out) - at)

    def vector() -> int:
        nonlocal out
        out += struct.pack("<I", len(entries))
        start = len(out)
        out += bytes(4 * len(entries))
        return start

    out += bytes(-len(out) % 8)
    root = len(out)
    out += struct.pack("<iII", root - vtable["root"], 0, 0)
    patch(root + 4)
    segments = vector()
    patch(root + 8)
    named = vector()
    keys = []
    for i in range(len(entries)):
        patch(named + 4 * i)
        out += struct.pack("<iII", len(out) - vtable["named"], 0, i)
        keys.append(len(out) - 8)
    for i, entry in enumerate(entries):
        out += bytes(-len(out) % 8)
        patch(segments + 4 * i)
        out += struct.pack("<iIQQ", len(out) - vtable["segment"], 0, offsets[i], entry["size"])
    for at, entry in zip(keys, entries, strict=True):
        patch(at)
        key = entry["key"].encode()
        out += struct.pack("<I", len(key)) + key + bytes(4 - len(key) % 4)
    base = align(len(out), ALIGNMENT)
    struct.pack_into("<I4s4sIQQQQ", out, 0, root, b"FT01", b"FH01", 40, 48, len(out) - 48, base, end)
    return bytes(out) + bytes(base - len(out)), offsets


def random_bytes(size: int, generator: random.Random) -> Iterator[bytes]:
    for at in range(0, size, CHUNK):
        yield generator.randbytes(min(CHUNK, size - at))


def constants(entry: dict, generator: random.Random) -> bytes:
    """Scales (and minima) of a quantised weight, in its packing."""
    rows, k = align(entry["dims"][0], 8), entry["dims"][1]
    spread = 73.5 if entry["bits"] == 8 else 4.61  # standard deviation of the integers
    scales = [(0.5 + generator.random()) / (spread * math.sqrt(k)) for _ in range(POOL)]
    if entry["bits"] == 8:
        pool, count = struct.pack(f"<{POOL}f", *scales), rows
        width = 4
    elif entry["symmetric"]:
        # Signs, because 0 … 15 less 8 is -0.5 on average: rows of one sign would all see the same sum of x, and every
        # token would end up the same.
        scales = [generator.choice((-1, 1)) * scale for scale in scales]
        pool, count = struct.pack(f"<{POOL}e", *scales), rows * k // entry["group"]
        width = 2
    else:
        # four scales, then their four minima, which centre the integers 0 … 15
        blocks = [s for i in range(0, POOL, 4) for s in (*scales[i : i + 4], *(-7.5 * x for x in scales[i : i + 4]))]
        pool, count = struct.pack(f"<{2 * POOL}e", *blocks), rows * k // entry["group"] * 2
        width = 2
    size = count * width
    return (pool * (size // len(pool) + 1))[:size]


def weight(entry: dict, seed: int) -> Iterator[bytes]:
    """The bytes of an entry, in pieces."""
    if entry["kind"] == "literal":
        yield base64.b64decode(entry["data"])
        return
    # By its key, so that the bytes depend on neither the order nor the other weights.
    generator = random.Random(zlib.crc32(entry["key"].encode()) ^ seed)
    yield from random_bytes(entry["constants_offset"], generator)
    yield constants(entry, generator)


def write_weights(path: Path, entries: list[dict], seed: int) -> None:
    head, offsets = flat_tensor_head(entries)
    with path.open("wb") as file:
        file.write(head)
        for entry, offset in zip(entries, offsets, strict=True):
            file.write(bytes(len(head) + offset - file.tell()))
            for piece in weight(entry, seed):
                file.write(piece)
            if file.tell() != len(head) + offset + entry["size"]:
                raise SystemExit(f"{entry['key']}: made {file.tell() - len(head) - offset} of {entry['size']} bytes")


def tokenizer(vocabulary: int) -> dict:
    """Every id a word of its own: text as long as a real tokenizer's, for what decoding it costs."""
    words = {f"Ġ{i:x}": i for i in range(vocabulary)}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": words, "merges": [], "unk_token": None, "byte_fallback": False},
    }


def digest_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_folder(structure: Path, out: Path, seed: int) -> None:
    weights = json.loads((structure / "weights.json").read_text())
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(structure / "model.pte", out / "model.pte")
    write_weights(out / "weights.ptd", weights["entries"], seed)
    (out / "tokenizer.json").write_text(json.dumps(tokenizer(weights["vocabulary"]), ensure_ascii=False))
    (out / "tokenizer_config.json").write_text("{}")
    names = ["model.pte", "weights.ptd", "tokenizer.json", "tokenizer_config.json"]
    manifest = {
        "format": 1,
        "name": structure.name,
        "task": "text-generation",
        "files": [
            {"path": name, "size": (out / name).stat().st_size, "sha256": digest_of(out / name)} for name in names
        ],
        "variants": [{"name": "synthetic", "program": "model.pte", "data": "weights.ptd"}],
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("structure", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_folder(arguments.structure, arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
