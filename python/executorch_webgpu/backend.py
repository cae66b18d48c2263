"""The ExecuTorch backend `WebGPUBackend`: what to_edge_transform_and_lower calls for each delegate."""

from __future__ import annotations

import json
from typing import final

from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from .lowering import payload
from .lowering.serialize import ALIGNMENT, lower

BACKEND_ID = "WebGPUBackend"
# Compile specs that the partitioner hands over.
EXTERNAL_TAG = "external_weights"  # name of the .ptd file
RANGES = "ranges"  # JSON {symbol: [min, max]}: the bounds as the user gave them
AMBIGUOUS = "ambiguous"  # JSON [constant]: names that methods use for different bytes
STRUCTURE_ONLY = "structure_only"  # present: quantised weights have keys but no data


@final
class WebGPUBackend(BackendDetails):
    """Turns the program of a delegate into a payload (schema/graph.fbs) and named data."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        specs = {spec.key: spec.value.decode() for spec in compile_specs}
        ranges = {name: tuple(bounds) for name, bounds in json.loads(specs.get(RANGES, "{}")).items()}
        lowered = lower(edge_program, ranges, set(json.loads(specs.get(AMBIGUOUS, "[]"))), STRUCTURE_ONLY in specs)
        store = NamedDataStore()
        for data in lowered.data:
            store.add_named_data(data.key, data.tensor, alignment=ALIGNMENT, external_tag=specs.get(EXTERNAL_TAG))
        return PreprocessResult(
            processed_bytes=payload.encode(lowered.graph),
            debug_handle_map={},
            data_store_output=store.get_named_data_store_output(),
        )
