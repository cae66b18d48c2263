"""Small programs for browsers, with what PyTorch eager says of them.

small_models.py dtypes FOLDER      model.pte: tensors of many element types in and out; expected.json: {"inputs",
                                   "outputs"}, each a list of [dtype, shape, numbers]
small_models.py external FOLDER    model.pte and weights.ptd; expected.json: of a row of ones
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch_webgpu import WebGPUPartitioner

NAMES = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.bool: "bool",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
}


class Dtypes(torch.nn.Module):
    """Whole numbers and eighths, which every type holds exactly. Halves are moved only: no kernel computes in them."""

    def forward(self, half, brain, single, flags, long, short, byte):
        moved = half[1:].permute(1, 0), brain[:, 1:]
        return *moved, torch.where(flags, single, single * 2), ~flags, long - 5, short * 3, byte + byte


def lowered(model: torch.nn.Module, inputs: tuple, **options):
    program = torch.export.export(model.eval(), inputs)
    config = EdgeCompileConfig(_check_ir_validity=False)
    partitioner = [WebGPUPartitioner(**options)]
    return to_edge_transform_and_lower(program, partitioner=partitioner, compile_config=config).to_executorch()


def described(tensors) -> list:
    return [[NAMES[t.dtype], list(t.shape), t.double().flatten().tolist()] for t in tensors]


def dtypes(folder: Path) -> None:
    eighths = (torch.arange(12).reshape(3, 4) - 5) / 8
    inputs = (
        eighths.half(),
        eighths.bfloat16(),
        eighths,
        eighths > 0,
        torch.arange(12).reshape(3, 4) * 2**20,
        torch.arange(12, dtype=torch.int32).reshape(3, 4) - 6,
        torch.arange(12, dtype=torch.uint8).reshape(3, 4),
    )
    (folder / "model.pte").write_bytes(lowered(Dtypes(), inputs).buffer)
    expected = {"inputs": described(inputs), "outputs": described(Dtypes()(*inputs))}
    (folder / "expected.json").write_text(json.dumps(expected))


def external(folder: Path) -> None:
    torch.manual_seed(0)
    model, row = torch.nn.Linear(12, 5), torch.ones(1, 12)
    program = lowered(model, (row,), external_weights="weights")
    (folder / "model.pte").write_bytes(program.buffer)
    program.write_tensor_data_to_file(str(folder))
    (folder / "expected.json").write_text(json.dumps(model(row)[0].tolist()))


MAKERS = {"dtypes": dtypes, "external": external}


def make(name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    MAKERS[name](folder)


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
