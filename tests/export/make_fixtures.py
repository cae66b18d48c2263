"""Small programs that cover the runtime: make_fixtures(folder) writes <name>.pte, <name>.txt (payloads as text),
<name>.json (calls: inputs, outputs, states to begin with) and <name>.npz (the tensors).

A .json: {"calls": [{"inputs": [{"name": "0.in0", "dtype": …, "shape": …}], "outputs": [...]}], "reset": [call, …]}.
Calls run in order on one loaded program; before a call whose index is in "reset", state is zero (load anew).
Outputs are PyTorch eager's, in f32, on the same (quantised) weights.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch_webgpu.lowering import reference
from executorch_webgpu.lowering.payload import to_text
from executorch_webgpu.partitioner import WebGPUPartitioner
from executorch_webgpu.quantization import quantize_model
from torch import nn
from torch.export import Dim, export


@dataclass
class Fixture:
    """A model with the calls to try. reset: indices of calls before which the state is zero."""

    model: nn.Module
    calls: list[tuple]
    dynamic_shapes: tuple | dict | None = None
    example: tuple | None = None  # for torch.export; default: the first call
    reset: list[int] = field(default_factory=list)
    delegate: bool = True


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(48), nn.Linear(48, 96), nn.Linear(96, 20)

    def forward(self, x):
        return self.down(F.gelu(self.up(self.norm(x))))


def mlp() -> Fixture:
    calls = [(torch.randn(n, 48),) for n in (1, 5, 16)]
    return Fixture(Mlp(), calls, ({0: Dim("batch", min=1, max=16)},), (torch.randn(3, 48),))


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(12)
        self.depthwise = nn.Conv2d(12, 12, 3, padding=1, groups=12)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(12, 10)
        for name, buffer in self.norm.named_buffers():
            if buffer.is_floating_point():
                buffer.copy_(torch.rand(12) + (0.5 if "var" in name else -0.5))

    def forward(self, x):
        x = F.relu6(self.norm(self.conv(x)))
        x = F.max_pool2d(F.relu(self.depthwise(x)), 2)
        return F.softmax(self.head(self.pool(x).flatten(1)), dim=-1)


def conv() -> Fixture:
    calls = [(torch.randn(n, 3, 18, 14),) for n in (1, 3, 4)]
    return Fixture(Conv(), calls, ({0: Dim("batch", min=1, max=4)},), (torch.randn(2, 3, 18, 14),))


class Mixed(nn.Module):
    """cumsum has no kernel in a delegate: an island on the CPU between two delegates."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 24), nn.Linear(24, 8)

    def forward(self, x):
        return self.b(torch.cumsum(F.relu(self.a(x)), dim=0)) + 1.0


def mixed() -> Fixture:
    calls = [(torch.randn(n, 16),) for n in (1, 4, 9)]
    return Fixture(Mixed(), calls, ({0: Dim("rows", min=1, max=9)},), (torch.randn(3, 16),))


def portable() -> Fixture:
    """No delegate: every operator is an ordinary kernel call."""
    return Fixture(Mlp(), [(torch.randn(n, 48),) for n in (2, 7)], ({0: Dim("batch", min=2, max=8)},), delegate=False)


class Layer(nn.Module):
    def __init__(self, dim, heads, kv_heads, head_dim, ffn, max_len):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.attention_norm, self.ffn_norm = nn.RMSNorm(dim, eps=1e-5), nn.RMSNorm(dim, eps=1e-5)
        self.q = nn.Linear(dim, heads * head_dim, bias=False)
        self.k = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.v = nn.Linear(dim, kv_heads * head_dim, bias=False)
        self.o = nn.Linear(heads * head_dim, dim, bias=False)
        self.gate, self.up = nn.Linear(dim, ffn, bias=False), nn.Linear(dim, ffn, bias=False)
        self.down = nn.Linear(ffn, dim, bias=False)
        self.register_buffer("k_cache", torch.zeros(1, kv_heads, max_len, head_dim), persistent=False)
        self.register_buffer("v_cache", torch.zeros(1, kv_heads, max_len, head_dim), persistent=False)

    def forward(self, x, positions, rotary, mask):
        length, h = x.shape[1], self.attention_norm(x)
        q, k, v = (p(h).view(1, length, -1, self.head_dim).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = _rotate(q, rotary), _rotate(k, rotary)
        self.k_cache.index_copy_(2, positions, k)
        self.v_cache.index_copy_(2, positions, v)
        y = F.scaled_dot_product_attention(
            q, self.k_cache, self.v_cache, mask, scale=self.head_dim**-0.5, enable_gqa=self.heads != self.kv_heads
        )
        x = x + self.o(y.transpose(1, 2).reshape(1, length, -1))
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def _rotate(x, rotary):
    """x [1, H, S, D], rotary [S, 2, D/2]: cos, sin."""
    a, b = x.chunk(2, -1)
    cos, sin = rotary[:, 0], rotary[:, 1]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Decoder(nn.Module):
    """Two layers of the Llama family, with the graph that recipes/ produce."""

    def __init__(
        self, all_logits=False, dim=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=96, layers=2, max_len=64
    ):
        super().__init__()
        self.all_logits, self.max_len = all_logits, max_len
        self.embedding = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, kv_heads, head_dim, ffn, max_len) for _ in range(layers))
        self.norm = nn.RMSNorm(dim, eps=1e-5)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.embedding.weight
        frequencies = 10000.0 ** -(torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angles = torch.arange(max_len, dtype=torch.float32)[:, None] * frequencies
        self.register_buffer("rotary", torch.stack([angles.cos(), angles.sin()], 1), persistent=False)

    def forward(self, ids, start):
        positions = torch.arange(ids.shape[1]) + start
        mask = torch.arange(self.max_len)[None] <= positions[:, None]
        rotary, x = self.rotary[positions], self.embedding(ids)
        for layer in self.layers:
            x = layer(x, positions, rotary, mask)
        return self.head(self.norm(x if self.all_logits else x[:, -1]))


def decoder(all_logits: bool = False) -> Fixture:
    model = Decoder(all_logits)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(3)
            else:
                parameter.uniform_(0.5, 1.5)
    quantize_model(model.requires_grad_(False), bits=4, group=32, symmetric=False, embedding_bits=8)
    calls, reset = [], []
    for chunks in ([7, 1, 1], [63, 1], [1, 1, 2]):
        reset.append(len(calls))
        start = 0
        for length in chunks:
            calls.append((torch.randint(0, 96, (1, length)), torch.tensor([start])))
            start += length
    return Fixture(
        model,
        calls,
        ({1: Dim("length", min=1, max=63)}, None),
        (torch.zeros(1, 5, dtype=torch.long), torch.tensor([0])),
        reset,
    )


class Ratio(nn.Module):
    def forward(self, x, y):
        return x / y


def ratio() -> Fixture:
    return Fixture(Ratio(), [(torch.ones(2, 2), 2 * torch.ones(2, 2))])


FIXTURES: dict[str, Callable[[], Fixture]] = {
    "mlp": mlp,
    "conv": conv,
    "mixed": mixed,
    "portable": portable,
    "ratio": ratio,
    "decoder2": decoder,
    "decoder2_all": lambda: decoder(all_logits=True),
}


def lower(model: nn.Module, example: tuple, dynamic_shapes=None, partitioner: WebGPUPartitioner | None = None):
    """Exports and lowers; returns the ExecutorchProgramManager."""
    model = model.eval().requires_grad_(False)
    program = export(model, example, dynamic_shapes=dynamic_shapes, strict=False)
    edge = to_edge_transform_and_lower(
        program,
        partitioner=[partitioner] if partitioner else None,
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    return edge.to_executorch()


@torch.no_grad()
def eager_outputs(fixture: Fixture) -> list[list[torch.Tensor]]:
    results = []
    fixture.model.eval()
    for i, call in enumerate(fixture.calls):
        if i in fixture.reset:
            for name, buffer in fixture.model.named_buffers():
                if name.endswith("_cache"):
                    buffer.zero_()
        out = fixture.model(*call)
        results.append([t.clone() for t in (out if isinstance(out, tuple) else (out,))])
    for name, buffer in fixture.model.named_buffers():
        if name.endswith("_cache"):
            buffer.zero_()
    return results


def make_fixture(name: str, folder: Path) -> None:
    torch.manual_seed(0)
    fixture = FIXTURES[name]()
    fixture.model.eval().requires_grad_(False)
    expected = eager_outputs(fixture)
    partitioner = WebGPUPartitioner() if fixture.delegate else None
    program = lower(fixture.model, fixture.example or fixture.calls[0], fixture.dynamic_shapes, partitioner)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.pte").write_bytes(program.buffer)
    (folder / f"{name}.txt").write_text("\n".join(to_text(d.graph) for d in reference.delegates(program)))
    arrays, calls = {}, []

    def describe(key: str, tensor: torch.Tensor) -> dict:
        arrays[key] = tensor.numpy()
        return {"name": key, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}

    for i, (inputs, outputs) in enumerate(zip(fixture.calls, expected, strict=True)):
        calls.append(
            {
                "inputs": [describe(f"{i}.in{j}", t) for j, t in enumerate(inputs)],
                "outputs": [describe(f"{i}.out{j}", t) for j, t in enumerate(outputs)],
            }
        )
    np.savez(folder / f"{name}.npz", **arrays)
    (folder / f"{name}.json").write_text(json.dumps({"calls": calls, "reset": fixture.reset}, indent=1))
    if partitioner:
        print(name, partitioner.report(), sep="\n")


def make_fixtures(folder: str | Path) -> None:
    for name in FIXTURES:
        make_fixture(name, Path(folder))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.getLogger().setLevel(logging.ERROR)
    if len(sys.argv) > 2:
        for fixture_name in sys.argv[2:]:
            make_fixture(fixture_name, Path(sys.argv[1]))
    else:
        make_fixtures(sys.argv[1] if len(sys.argv) > 1 else "build/fixtures")
