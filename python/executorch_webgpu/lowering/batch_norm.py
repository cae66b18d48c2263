"""Folds batch norms after convolutions into the convolutions' weights, in float64.

norm(conv(x)) = (w · s) * x + (b − mean) · s + beta,   s = gamma / sqrt(variance + eps)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.fx import Graph, Node

from .calls import Call, is_getitem, op_name
from .constants import Constants

CONVOLUTION = "aten.convolution.default"
BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"


@dataclass
class Folded:
    """weights: new (weight, bias) of a convolution; norms: batch norms that are the convolution's own result now;
    removed: those norms and their getitems."""

    weights: dict[Node, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    norms: dict[Node, list[Node]] = field(default_factory=dict)
    removed: set[Node] = field(default_factory=set)


def fold_batch_norms(graph: Graph, constants: Constants) -> Folded:
    folded = Folded()
    for norm in graph.nodes:
        if norm.op != "call_function" or op_name(norm) != BATCH_NORM:
            continue
        call = Call(norm)
        source = call["input"]
        if source.op != "call_function" or op_name(source) != CONVOLUTION or len(source.users) != 1:
            continue
        conv = Call(source)
        tensors = [
            conv["weight"],
            conv["bias"],
            call["weight"],
            call["bias"],
            call["running_mean"],
            call["running_var"],
        ]
        if conv["transposed"] or not all(t is None or constants.is_constant(t) for t in tensors):
            continue
        if any(not is_getitem(u) or (u.args[1] != 0 and u.users) for u in norm.users):
            continue
        folded.weights[source] = _fold(*(None if t is None else constants.evaluate(t) for t in tensors), call["eps"])
        folded.norms[source] = [norm]
        folded.removed.update({norm, *norm.users})
    return folded


def _fold(weight, bias, gamma, beta, mean, variance, eps) -> tuple[torch.Tensor, torch.Tensor]:
    weight, mean, variance = weight.double(), mean.double(), variance.double()
    scale = torch.rsqrt(variance + eps)
    if gamma is not None:
        scale = scale * gamma.double()
    bias = torch.zeros_like(mean) if bias is None else bias.double()
    bias = (bias - mean) * scale + (0 if beta is None else beta.double())
    return (weight * scale.view(-1, *[1] * (weight.dim() - 1))).float(), bias.float()
