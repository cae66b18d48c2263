"""PyTorch models on the GPU of whoever opens the page: export, quantisation, recipes and a native runtime."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Imported when first used: the runtime needs neither torch nor executorch.
_EXPORTS = {
    "WebGPUPartitioner": "executorch_webgpu.partitioner",
    "WebGPUBackend": "executorch_webgpu.backend",
    "QuantizedEmbedding": "executorch_webgpu.quantization",
    "QuantizedLinear": "executorch_webgpu.quantization",
    "QuantizedWeight": "executorch_webgpu.quantization",
    "quantize_model": "executorch_webgpu.quantization",
}
__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
