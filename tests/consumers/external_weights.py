"""external_weights.py FOLDER: model.pte, weights.ptd and what eager says of a row of ones (expected.json)."""

import json
import sys
from pathlib import Path

import torch
from executorch.exir import to_edge_transform_and_lower
from executorch_webgpu import WebGPUPartitioner

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
model = torch.nn.Linear(12, 5).eval()
row = torch.ones(1, 12)
partitioner = WebGPUPartitioner(external_weights="weights")
program = to_edge_transform_and_lower(torch.export.export(model, (row,)), partitioner=[partitioner]).to_executorch()
(folder / "model.pte").write_bytes(program.buffer)
program.write_tensor_data_to_file(str(folder))
(folder / "expected.json").write_text(json.dumps(model(row)[0].tolist()))
