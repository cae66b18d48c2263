"""Quantised weights: modules that compute in PyTorch what the runtime computes, and the packing R4."""

from .modules import QuantizedEmbedding, QuantizedLinear, QuantizedWeight, quantize_model

__all__ = ["QuantizedEmbedding", "QuantizedLinear", "QuantizedWeight", "quantize_model"]
