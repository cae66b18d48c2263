"""Programs without weights, for measurements of models that are not at hand.

`executorch-webgpu export NAME --structure-only` leaves the quantised weights out of model.pte and lists them in
weights.json: {"entries": [{"key", "size", "kind": "quantized", "bits", "group", "symmetric", "constants_offset",
"dims": [N, K]}, …], "vocabulary"}. benchmarks/llm/synthetic.py makes up a weights.ptd of them on the measuring machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from executorch.exir.lowered_backend_module import get_lowered_backend_modules

from executorch_webgpu.backend import BACKEND_ID
from executorch_webgpu.lowering import payload
from executorch_webgpu.quantization import r4

STRUCTURE = "weights.json"


def weights_json(lowered: Any, vocabulary: int) -> bytes:
    """weights.json of executorch's EdgeProgramManager, lowered with WebGPUPartitioner(structure_only=True)."""
    entries = {e["key"]: e for method in lowered.methods for e in _entries(lowered.exported_program(method))}
    return (json.dumps({"entries": list(entries.values()), "vocabulary": vocabulary}, indent=1) + "\n").encode()


def _entries(program: Any) -> Iterator[dict[str, Any]]:
    """The quantised weights of a method's delegates."""
    for module in get_lowered_backend_modules(program.graph_module):
        if module.backend_id != BACKEND_ID:
            continue
        graph = payload.decode(module.processed_bytes)
        for value in graph.values:
            if q := value.quantization:
                n, k = (graph.exprs[d].value for d in value.dims)
                yield {
                    "key": value.data_key,
                    "size": r4.packed_bytes(n, k, q.bits, q.group, q.symmetric)[1],
                    "kind": "quantized",
                    "bits": q.bits,
                    "group": q.group,
                    "symmetric": q.symmetric,
                    "constants_offset": q.constants_offset,
                    "dims": [n, k],
                }
