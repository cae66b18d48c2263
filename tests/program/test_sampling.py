"""What is drawn has the distribution that transformers' filters give the same logits, on both devices; a filter that is
wrong by one token, or comes in another order, would be noticed.

The model gives the same logits at every position, so that each of its tokens is a draw: of seeds and positions.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from executorch_webgpu.generation import TextGenerator
from executorch_webgpu.partitioner import WebGPUPartitioner
from export.make_fixtures import lower
from models.conftest import FULL, save_tokenizer
from torch import nn
from torch.export import Dim
from transformers.generation import logits_process as filters

VOCABULARY = 2600  # three parts of the GPU's sampling kernels
CONTEXT = 512
PROMPT_END = 7
# Of a device; the GPU's draws are also compared with the CPU's, one by one.
DRAWS = {"cpu": 4000, "webgpu": 4000 if FULL else 100}


def one_row() -> torch.Tensor:
    """48 tokens anywhere that may well come, no two alike, and many that come seldom."""
    generator = torch.Generator().manual_seed(2)
    row = torch.randn(VOCABULARY, generator=generator) * 0.3 - 8
    likely = torch.randperm(VOCABULARY, generator=generator)[:48]
    row[likely] = torch.linspace(2, -4, 48) + 0.1 * torch.rand(48, generator=generator)
    return row


ROW = one_row()
BEST = ROW.argsort(descending=True).tolist()
# every other token that may well come, with logits above and below 0, and some that come seldom
SEEN = [*BEST[0:48:2], *BEST[100:108], PROMPT_END]


class OneRow(nn.Module):
    """ROW, whatever was said before."""

    def __init__(self):
        super().__init__()
        self.nothing = nn.Embedding.from_pretrained(torch.zeros(VOCABULARY, 1))
        self.register_buffer("row", ROW, persistent=False)
        self.register_buffer("cache", torch.zeros(1, 1, CONTEXT, 4), persistent=False)

    def forward(self, ids, start):
        x = self.nothing(ids)
        self.cache.index_copy_(2, torch.arange(ids.shape[1]) + start, x.unsqueeze(1).expand(1, 1, ids.shape[1], 4))
        return x[:, -1] + self.row


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one-row")
    program = lower(
        OneRow(),
        (torch.zeros(1, 5, dtype=torch.long), torch.tensor([0])),
        ({1: Dim("length", min=1, max=64)}, None),
        WebGPUPartitioner(),
    )
    (folder / "model.pte").write_bytes(program.buffer)
    save_tokenizer(folder, VOCABULARY)
    return folder


ORDER = ("repetition_penalty", "temperature", "top_k", "min_p", "top_p")
FILTERS = {
    "repetition_penalty": filters.RepetitionPenaltyLogitsProcessor,
    "temperature": filters.TemperatureLogitsWarper,
    "top_k": filters.TopKLogitsWarper,
    "min_p": filters.MinPLogitsWarper,
    "top_p": filters.TopPLogitsWarper,
}


def probabilities(options: dict, prompt: list[int], order=ORDER) -> torch.Tensor:
    """By transformers' filters, in the order that the options document."""
    scores = ROW.double()[None]
    for name in order:
        if name in options:
            scores = FILTERS[name](options[name])(torch.tensor([prompt]), scores)
    return scores[0].softmax(-1)


def p_value(draws: list[int], expected: torch.Tensor) -> float:
    """Of Pearson's chi-square test: how often draws of this distribution are as far from it. 0: one was impossible."""
    counts = torch.bincount(torch.tensor(draws), minlength=VOCABULARY).double()
    if counts[expected == 0].any():
        return 0.0
    order = expected.argsort(descending=True)
    expected, counts = expected[order] * len(draws), counts[order]
    # cells of 5 or more; what is seldom is one of them, together with the last of the others
    first = max(int((expected >= 5).sum()) - 1, 1)
    cells = torch.cat([expected[:first], expected[first:].sum()[None]])
    found = torch.cat([counts[:first], counts[first:].sum()[None]])
    statistic = ((found - cells) ** 2 / cells).sum()
    return float(torch.special.gammaincc(torch.tensor(first / 2, dtype=torch.float64), statistic / 2))


def divided() -> torch.Tensor:
    """A repetition penalty that makes negative logits likelier."""
    scores = ROW.double().clone()
    scores[SEEN] /= 2
    return scores.softmax(-1)


MANY = {"temperature": 0.6, "top_k": 18, "top_p": 0.95, "repetition_penalty": 3.0}
BOTH = {"temperature": 1.1, "min_p": 0.06, "top_p": 0.9}
# name: the options, and what a wrong filter would make of them: options, an order of the filters, or what it draws from
CASES = {
    "temperature": ({"temperature": 1.0}, [{"temperature": 0.87}, {"temperature": 1.14}]),
    "hot": ({"temperature": 1.7}, [{"temperature": 1.55}, {"temperature": 1.85}]),
    "top_k": ({"temperature": 1.2, "top_k": 12}, [{"top_k": 11}, {"top_k": 13}]),
    "top_p": ({"temperature": 0.9, "top_p": 0.8}, [{"top_p": 0.77}, {"top_p": 0.83}]),
    "min_p": ({"temperature": 1.3, "min_p": 0.1}, [{"min_p": 0.085}, {"min_p": 0.115}]),
    "repetition_penalty": (
        {"temperature": 1.0, "repetition_penalty": 2.0},
        [{"repetition_penalty": 1.4}, {"repetition_penalty": 4.0}, {"repetition_penalty": 1.0}, divided],
    ),
    "many": (
        MANY,
        [
            *({name: 1000 if name == "top_k" else 1.0} for name in MANY),
            ("repetition_penalty", "top_k", "min_p", "top_p", "temperature"),
            ("temperature", "top_k", "min_p", "top_p", "repetition_penalty"),
            ("repetition_penalty", "temperature", "top_p", "top_k", "min_p"),
        ],
    ),
    "min_p, then top_p": (
        BOTH,
        [{"temperature": 1.0}, {"min_p": 0.0}, {"top_p": 1.0}, ("temperature", "top_p", "min_p")],
    ),
}


@pytest.fixture(scope="module")
def draw(folder):
    """(device, name of a case) → its draws, made once."""
    models = {}

    @cache
    def draws(device: str, name: str) -> list[int]:
        model = models.setdefault(device, TextGenerator(folder, device))
        options, ids, seed = CASES[name][0], [], 1
        # what is drawn counts as seen: with the penalty the next token would have another distribution
        length = 1 if "repetition_penalty" in options else CONTEXT - len(SEEN)
        while len(ids) < DRAWS[device]:
            ids += model.generate(SEEN, max_tokens=min(length, DRAWS[device] - len(ids)), seed=seed, **options).ids
            seed += 1
        return ids

    yield draws
    for model in models.values():
        model.close()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.gpu)])
def test_distribution(draw, device, name):
    """The bound: a right sampler is refused once in a thousand cases; seeds are fixed, so these are not among them."""
    ids = draw(device, name)
    assert p_value(ids, probabilities(CASES[name][0], SEEN)) > 1e-3
    if device == "webgpu":  # the same seed and logits: the same tokens, where two scores are not equal within rounding
        assert sum(a != b for a, b in zip(ids, draw("cpu", name), strict=False)) <= len(ids) // 200


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_filter_would_be_noticed(draw, name):
    ids, (options, wrong) = draw("cpu", name), CASES[name]
    for change in wrong:
        if isinstance(change, dict):
            expected = probabilities(options | change, SEEN)
        else:
            expected = probabilities(options, SEEN, change) if isinstance(change, tuple) else change()
        assert p_value(ids, expected) < 1e-6, change
