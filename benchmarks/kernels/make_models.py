"""Small programs of linears and attention for kernels.html: python make_models.py FOLDER.

Writes <name>.pte and cases.json: [{"name", "calls": [[{"dtype", "shape", "value"?}, …]]}]; tensors without a value are
filled by the page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch_webgpu.partitioner import WebGPUPartitioner
from executorch_webgpu.quantization import QuantizedLinear, QuantizedWeight
from torch import nn
from torch.export import Dim, export

INT4, AFFINE, INT8, PLAIN = (4, 64, True), (4, 32, False), (8, 0, True), None
ROWS = [5, 64, 65, 130, 300, 1030, 2048]


def linear(n: int, k: int, scheme, bias: bool = False) -> nn.Module:
    if scheme is None:
        return nn.Linear(k, n, bias=bias)
    weight = QuantizedWeight.from_float(torch.randn(n, k) / k**0.5, *scheme)
    return QuantizedLinear(weight, torch.randn(n) if bias else None)


class Rows(nn.Module):
    """A linear whose input and output are intermediates, which are f16 in half precision."""

    def __init__(self, n: int, k: int, scheme):
        super().__init__()
        self.linear = linear(n, k, scheme, bias=True)

    def forward(self, x):
        return self.linear(x * 0.5) * 2.0


class Gated(nn.Module):
    def __init__(self, dim: int, ffn: int, scheme):
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        self.gate, self.up, self.down = linear(ffn, dim, scheme), linear(ffn, dim, scheme), linear(dim, ffn, scheme)

    def forward(self, x):
        x = x * 0.5
        h = self.norm(x)
        return (x + self.down(F.silu(self.gate(h)) * self.up(h))) * 2.0


class Attention(nn.Module):
    """Causal attention over a cache, of a query, key and value that lie in x."""

    def __init__(self, heads: int, kv_heads: int, head_dim: int, length: int, window: int):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.length, self.window = heads, kv_heads, head_dim, length, window
        self.register_buffer("k_cache", torch.zeros(1, kv_heads, length, head_dim), persistent=False)
        self.register_buffer("v_cache", torch.zeros(1, kv_heads, length, head_dim), persistent=False)

    def forward(self, x, start):
        rows, d = x.shape[1], self.head_dim
        positions = torch.arange(rows) + start
        x = (x * 2.0).view(1, rows, -1, d).transpose(1, 2)
        q, k, v = x.split([self.heads, self.kv_heads, self.kv_heads], 1)
        self.k_cache.index_copy_(2, positions, k)
        self.v_cache.index_copy_(2, positions, v)
        keys = torch.arange(self.length)[None]
        mask = keys <= positions[:, None]
        if self.window:
            mask = mask & (keys + self.window > positions[:, None])
        y = F.scaled_dot_product_attention(
            q, self.k_cache, self.v_cache, mask, scale=d**-0.5, enable_gqa=self.heads != self.kv_heads
        )
        return y.transpose(1, 2).reshape(1, rows, -1) * 1.0


class Plain(nn.Module):
    def __init__(self, causal: bool):
        super().__init__()
        self.causal = causal

    def forward(self, q, k, v):
        y = F.scaled_dot_product_attention(q * 1.0, k * 1.0, v * 1.0, is_causal=self.causal, enable_gqa=True)
        return y * 1.0


def floats(*shape: int) -> dict:
    return {"dtype": "f32", "shape": list(shape)}


def position(start: int) -> dict:
    return {"dtype": "i64", "shape": [1], "value": start}


def cases():
    """(name, model, calls, dynamic shapes)"""
    rows = {1: Dim("rows", min=1, max=max(ROWS))}
    for name, scheme in (("int4", INT4), ("affine", AFFINE), ("int8", INT8), ("plain", PLAIN)):
        for n, k in ((328, 512), (2048, 128)):
            if scheme is PLAIN and n == 2048:
                continue
            calls = [[floats(1, m, k)] for m in ROWS]
            yield f"linear_{name}_{n}x{k}", Rows(n, k, scheme), calls, (rows,)
    for name, scheme in (("int4", INT4), ("int8", INT8)):
        yield f"gated_{name}", Gated(256, 1024, scheme), [[floats(1, m, 256)] for m in ROWS], (rows,)
    for heads, kv_heads, d, window in ((8, 2, 64, 0), (4, 4, 128, 0), (4, 1, 256, 0), (4, 2, 64, 100), (3, 1, 80, 0)):
        width = (heads + 2 * kv_heads) * d
        calls, start = [], 0
        for m in (70, 1, 130, 5, 64, 300):
            calls.append([floats(1, m, width), position(start)])
            start += m
        dims = ({1: Dim("rows", min=1, max=511)}, None)
        yield f"cached_{heads}_{kv_heads}x{d}_{window}", Attention(heads, kv_heads, d, 600, window), calls, dims
    for causal in (False, True):
        calls = [[floats(2, 4, 150, 64), floats(2, 2, 150, 64), floats(2, 2, 150, 64)]]
        yield f"plain_attention_{'causal' if causal else 'full'}", Plain(causal), calls, None


def example(call: list[dict]) -> tuple:
    return tuple(torch.tensor([c["value"]]) if "value" in c else torch.randn(c["shape"]) for c in call)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    manifest = []
    for name, model, calls, dynamic in cases():
        program = export(model.eval().requires_grad_(False), example(calls[0]), dynamic_shapes=dynamic, strict=False)
        edge = to_edge_transform_and_lower(
            program, partitioner=[WebGPUPartitioner()], compile_config=EdgeCompileConfig(_check_ir_validity=False)
        )
        (folder / f"{name}.pte").write_bytes(edge.to_executorch().buffer)
        manifest.append({"name": name, "calls": calls})
    (folder / "cases.json").write_text(json.dumps(manifest))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
