#!/usr/bin/env python3
"""Writes Llama-3.2-1B with random Q4_0 weights as GGUF, with a vocabulary in which every prompt id of the benchmark is
one character (runtimes/wllama.js):

    python3 make_gguf.py OUT [--small]

Needs numpy.
"""

from __future__ import annotations

import argparse
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

F32, Q4_0 = 0, 2  # tensor types
U32, I32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # types of metadata
BLOCK = 32
ALIGNMENT = 32
FIRST_CHARACTER, FIRST_ID, CHARACTERS = 0x4E00, 50, 20000  # as in runtimes/wllama.js
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # kinds of tokens
BYTES_AT = FIRST_ID + CHARACTERS

LARGE = {"layers": 16, "hidden": 2048, "ffn": 8192, "heads": 32, "kv": 8, "d": 64, "vocabulary": 128256}
SMALL = {"layers": 2, "hidden": 256, "ffn": 512, "heads": 4, "kv": 2, "d": 64, "vocabulary": 21000}


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def field(name: str, kind: int, value) -> bytes:
    scalars = {U32: "<I", FLOAT: "<f", BOOL: "<?"}
    head = text(name) + struct.pack("<I", kind)
    return head + (text(value) if kind == STRING else struct.pack(scalars[kind], value))


def array(name: str, kind: int, values: list) -> bytes:
    head = text(name) + struct.pack("<IIQ", ARRAY, kind, len(values))
    if kind == STRING:
        return head + b"".join(map(text, values))
    return head + np.asarray(values, "<f4" if kind == FLOAT else "<i4").tobytes()


def vocabulary(size: int) -> tuple[int, bytes]:
    """Unknown, begin, end, fillers, one character each, the bytes, fillers."""
    tokens = [f"[{i}]" for i in range(size)]
    kinds = [NORMAL] * size
    tokens[:3], kinds[:3] = ["<unk>", "<s>", "</s>"], [UNKNOWN, CONTROL, CONTROL]
    tokens[FIRST_ID:BYTES_AT] = [chr(FIRST_CHARACTER + i) for i in range(CHARACTERS)]
    tokens[BYTES_AT : BYTES_AT + 256] = [f"<0x{i:02X}>" for i in range(256)]
    kinds[BYTES_AT : BYTES_AT + 256] = [BYTE] * 256
    parts = [
        field("tokenizer.ggml.model", STRING, "llama"),
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.scores", FLOAT, [0.0] * size),
        array("tokenizer.ggml.token_type", I32, kinds),
        field("tokenizer.ggml.bos_token_id", U32, 1),
        field("tokenizer.ggml.eos_token_id", U32, 2),
        field("tokenizer.ggml.unknown_token_id", U32, 0),
        field("tokenizer.ggml.add_bos_token", BOOL, False),
        field("tokenizer.ggml.add_space_prefix", BOOL, False),
    ]
    return len(parts), b"".join(parts)


def metadata(g: dict) -> tuple[int, bytes]:
    parts = [field("general.architecture", STRING, "llama"), field("general.name", STRING, "synthetic")]
    counts = {
        "block_count": g["layers"],
        "context_length": 131072,
        "embedding_length": g["hidden"],
        "feed_forward_length": g["ffn"],
        "attention.head_count": g["heads"],
        "attention.head_count_kv": g["kv"],
        "rope.dimension_count": g["d"],
        "vocab_size": g["vocabulary"],
    }
    parts += [field(f"llama.{name}", U32, value) for name, value in counts.items()]
    parts.append(field("llama.rope.freq_base", FLOAT, 500000.0))
    parts.append(field("llama.attention.layer_norm_rms_epsilon", FLOAT, 1e-5))
    count, words = vocabulary(g["vocabulary"])
    return len(parts) + count, b"".join(parts) + words


def tensors(g: dict) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes, rows first."""
    hidden, ffn, q, kv = g["hidden"], g["ffn"], g["heads"] * g["d"], g["kv"] * g["d"]
    yield "token_embd.weight", (g["vocabulary"], hidden)
    yield "output_norm.weight", (hidden,)
    for i in range(g["layers"]):
        p = f"blk.{i}."
        yield f"{p}attn_norm.weight", (hidden,)
        yield f"{p}ffn_norm.weight", (hidden,)
        matrices = {"attn_q": (q, hidden), "attn_k": (kv, hidden), "attn_v": (kv, hidden), "attn_output": (hidden, q)}
        matrices |= {"ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden), "ffn_down": (hidden, ffn)}
        for name, shape in matrices.items():
            yield f"{p}{name}.weight", shape


def data(shape: tuple[int, ...], random: np.random.Generator) -> bytes:
    if len(shape) == 1:
        return np.ones(shape, "<f4").tobytes()
    n, k = shape
    blocks = np.empty((n, k // BLOCK, 18), np.uint8)
    blocks[..., 2:] = random.integers(0, 256, (n, k // BLOCK, 16), dtype=np.uint8)
    # the standard deviation of a weight is about 1 / sqrt(k); signs, since 0 … 15 less 8 is -0.5 on average
    scale = (0.5 + random.random((n, k // BLOCK), np.float32)) / (4.61 * k**0.5)
    scale *= random.choice(np.array([-1, 1], np.float32), scale.shape)
    blocks[..., :2] = scale.astype("<f2")[..., None].view(np.uint8)
    return blocks.tobytes()


def write(file: BinaryIO, g: dict) -> None:
    fields, described = metadata(g)
    listed, offset = [], 0
    for name, shape in tensors(g):
        kind = F32 if len(shape) == 1 else Q4_0
        size = 4 * shape[0] if kind == F32 else shape[0] * shape[1] // BLOCK * 18
        listed.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset))
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    file.write(struct.pack("<4sIQQ", b"GGUF", 3, len(listed), fields) + described + b"".join(listed))
    random = np.random.default_rng(0)
    for _, shape in tensors(g):
        file.write(bytes(-file.tell() % ALIGNMENT))
        file.write(data(shape, random))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, help="the folder to write model.gguf to")
    parser.add_argument("--small", action="store_true", help="two narrow layers, for tests")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "model.gguf").open("wb") as file:
        write(file, SMALL if arguments.small else LARGE)


if __name__ == "__main__":
    main()
