"""Caches of layers with a window are rings of the window and one call: a Gemma of random weights, several times around.

Logits against transformers' eager; what generation does against the runtime with whole caches, the same kernels but
for the place of a row.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from executorch_webgpu import errors, evaluation, model_folder, runtime
from executorch_webgpu.generation import TextGenerator
from executorch_webgpu.recipes import ExportOptions
from executorch_webgpu.recipes.base import Recipe
from executorch_webgpu.recipes.huggingface import call_bound
from models.conftest import FULL, save_tokenizer
from models.test_families import MODELS, VOCABULARY, WINDOW, random_model

CONTEXT, CALL, ROWS = 320, 24, 64  # positions; the most tokens of a call; rows of a ring: window + CALL, in 64s
LENGTH = 300
IDS = torch.randint(3, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(7)).tolist()
GPU = pytest.mark.gpu
CPU = pytest.param("cpu", {"activations": "exact"}, id="cpu")
DEVICES = [CPU, pytest.param("webgpu", {}, id="webgpu", marks=GPU)]
# what executors share; a software GPU compiles the same kernels again for each session
MOSTLY_CPU = [CPU, pytest.param("webgpu", {}, id="webgpu", marks=[GPU, pytest.mark.full])]
TIERS = {
    "f16": {"precision": "f16"},
    "baseline": {"max_tier": "baseline"},
    "wide": {"wide_kernels": True},
    "matrices": {"precision": "f16", "wide_kernels": True, "emulate_matrices": 8},
}


@pytest.fixture(scope="module")
def reference():
    """transformers' model and its logits of every position."""
    _, kind, geometry = MODELS["gemma3"]
    model = random_model(kind, {**geometry, "max_position_embeddings": CONTEXT})
    return model, model(torch.tensor([IDS]), use_cache=False).logits[0]


@pytest.fixture(scope="module")
def folder(reference, tmp_path_factory):
    source, target = tmp_path_factory.mktemp("hf") / "ring", tmp_path_factory.mktemp("ring")
    reference[0].save_pretrained(source)
    save_tokenizer(source, VOCABULARY)
    options = ExportOptions(source=source, max_len=CONTEXT, max_call=CALL, bits=32, embedding_bits=32)
    recipe = Recipe(
        name="gemma3",
        task="text-generation",
        summary="",
        module="executorch_webgpu.recipes.families",
        accepts=frozenset(options.given()),
        arguments={"family": "gemma3"},
    )
    model_folder.write(recipe, options, target, lambda text, seconds: None)
    return target


def splits(seed: int) -> list[int]:
    """Lengths of calls, single tokens among them, that add up to LENGTH."""
    rng, lengths = np.random.default_rng(seed), []
    while (left := LENGTH - sum(lengths)) > 0:
        lengths += [1] * rng.integers(0, 6) if rng.random() < 0.4 else [int(rng.integers(1, CALL + 1))]
        while sum(lengths) > LENGTH:
            lengths.pop()
        if left == 1 and sum(lengths) < LENGTH:
            lengths.append(1)
    return lengths


def difference(session, expected, lengths) -> float:
    """The largest difference of the logits at the ends of calls."""
    start, worst = 0, 0.0
    for length in lengths:
        logits = evaluation.feed(lambda *inputs: session.forward(*inputs)[0], IDS[start : start + length], start)
        start += length
        worst = max(worst, float((logits[0] - expected[start - 1]).abs().max()))
    assert start == LENGTH
    return worst


@pytest.mark.parametrize(("device", "options"), DEVICES)
def test_logits_far_beyond_the_window(folder, reference, device, options):
    """Every way to cut the calls; the last begins anew in rings that are full."""
    whole = [CALL] * (LENGTH // CALL) + [LENGTH % CALL]
    ways = (whole, splits(1), splits(2), [1] * LENGTH)
    with runtime.load(folder / "model.pte", device, **options) as session:
        for lengths in ways if device == "cpu" or FULL else ways[:2]:
            assert difference(session, reference[1], lengths) < 2e-3


def test_caches_in_half_precision(folder, reference):
    with runtime.load(folder / "model.pte", "cpu", threads=2) as session:
        assert difference(session, reference[1], splits(3)) < 0.03


@GPU
@pytest.mark.full
@pytest.mark.parametrize("name", TIERS)
def test_logits_by_every_kernel(folder, reference, name):
    with runtime.load(folder / "model.pte", "webgpu", **TIERS[name]) as session:
        limit = 0.05 if "precision" in TIERS[name] else 2e-3
        for seed in (4, 5):
            assert difference(session, reference[1], splits(seed)) < limit


@pytest.mark.parametrize(("device", "options"), MOSTLY_CPU)
def test_memory(folder, device, options):
    """Two layers with a window, one that sees everything: keys and values of one head of 256, f32."""
    row = 2 * 256 * 4
    with runtime.load(folder / "model.pte", device, **options) as session:
        assert session.memory_report()["state"] == row * (2 * ROWS + CONTEXT)
    with runtime.load(folder / "model.pte", device, disable_passes="ring_cache", **options) as session:
        assert session.memory_report()["state"] == row * 3 * CONTEXT


@pytest.mark.parametrize(("device", "options"), MOSTLY_CPU)
def test_a_call_that_begins_too_early_is_refused(folder, reference, device, options):
    with runtime.load(folder / "model.pte", device, **options) as session:

        def logits(start, length=1):
            ids = np.array([IDS[start : start + length]], np.int64)
            return session.forward(ids, np.array([start], np.int64))[0][0]

        for start in range(0, 240, CALL):
            logits(start, CALL)
        oldest = 240 - ROWS + WINDOW - 1
        with pytest.raises(errors.InvalidArgumentError, match=f"may begin at {oldest}, or again at 0"):
            logits(oldest - 1)
        assert np.abs(logits(oldest) - reference[1][oldest].numpy()).max() < 2e-3
        logits(0)
        assert np.abs(logits(1, CALL) - reference[1][CALL].numpy()).max() < 2e-3
        for start in range(0, 240, CALL):
            logits(start, CALL)
        session.reset()
        logits(3)  # a cache of zeros, as it was at first


class Pair:
    """A generator with rings and one with whole caches, which must say the same."""

    def __init__(self, folder, device, options):
        self.ring = TextGenerator(folder, device, **options)
        self.whole = TextGenerator(folder, device, disable_passes="ring_cache", **options)
        self.ring.end_ids = self.whole.end_ids = frozenset()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ring.close()
        self.whole.close()

    def generate(self, ids, **options):
        """(ids, reused by the one with rings, reused by the other)"""
        found, expected = (model.generate(ids, **options) for model in (self.ring, self.whole))
        assert found.ids == expected.ids
        assert found.finish_reason == expected.finish_reason
        return found.ids, found.reused_tokens, expected.reused_tokens


VARIED = {"repetition_penalty": 3.0, "temperature": 1.0, "seed": 3}


@pytest.mark.parametrize(("device", "options"), DEVICES)
def test_prefixes_are_used_while_the_rings_hold_them(folder, device, options):
    with Pair(folder, device, options) as pair:
        text = IDS[:200]
        text += pair.generate(text, max_tokens=30, **VARIED)[0]
        # the next turn, and one that goes back by a few tokens over the end of a ring
        for back in (1, 9, 30):
            ids, reused, expected = pair.generate([*text[: len(text) - back], 5, 6], max_tokens=8, **VARIED)
            assert reused == expected == len(text) - back
        # what a stop leaves in flight costs nothing
        pair.ring.end_ids = pair.whole.end_ids = frozenset(ids[2:3])
        stopped, _, _ = pair.generate([*text[:-30], 5, 6], max_tokens=8, **VARIED)
        pair.ring.end_ids = pair.whole.end_ids = frozenset()
        prompt = [*text[:-30], 5, 6, *stopped, 9]
        assert pair.generate(prompt, max_tokens=8, **VARIED)[1:] == (len(prompt) - 2,) * 2
        # further back than the rings go: all of it again
        _, reused, expected = pair.generate([*text[:100], 8], max_tokens=8, **VARIED)
        assert (reused, expected) == (0, 100)
        _, reused, expected = pair.generate([*text[:101], 7], max_tokens=8, **VARIED)
        assert reused == expected == 100


@pytest.mark.parametrize(("device", "options"), MOSTLY_CPU)
def test_restored_rings_go_on(folder, device, options):
    with Pair(folder, device, options) as pair:
        text = [*IDS[:150]]
        pair.generate(text, max_tokens=3, **VARIED)
        saved = pair.ring.save_state()
        assert len(saved) < 0.65 * len(pair.whole.save_state())
        prompt = [*text[:-5], 5, 6, 7]
        pair.generate(prompt, max_tokens=12, **VARIED)
        pair.ring.restore_state(saved)
        pair.generate([4, 5, 6], max_tokens=2, **VARIED)
        for ids, reused in ((prompt, 145), ([*text[:60], 5], 0)):
            pair.ring.restore_state(saved)
            assert pair.ring.save_state() == saved
            assert pair.generate(ids, max_tokens=12, **VARIED)[1] == reused
        # few tokens need few rows
        pair.generate([4, 5, 6, 7], max_tokens=1, **VARIED)
        assert len(pair.ring.save_state()) - len(pair.whole.save_state()) == 4
        with pytest.raises(errors.SavedStateError, match="version"):
            pair.whole.restore_state(saved)


@pytest.mark.parametrize(("device", "options"), MOSTLY_CPU)
def test_sliding_with_rings(folder, device, options):
    with Pair(folder, device, options) as pair:
        ids, *_ = pair.generate(IDS[:290], max_tokens=80, overflow="sliding", sinks=4, keep=200, **VARIED)
        assert len(ids) == 80


@pytest.mark.parametrize(("device", "options"), MOSTLY_CPU)
def test_sequences_and_drafts_with_rings(folder, device, options):
    """Each sequence has rings of its own, and what checks drafts of 16 writes into those of longer calls."""
    prompts = [IDS[:20] * 8, IDS[:170]]
    with TextGenerator(folder, device, disable_passes="ring_cache", **options) as whole:
        whole.end_ids = frozenset()
        expected = [whole.generate(prompt, max_tokens=100).ids for prompt in prompts]
    with TextGenerator(folder, device, **options) as model:
        model.end_ids = frozenset()
        places = [model, model.new_sequence()]
        assert places[1].state_bytes == model.state_bytes
        for speculation in (0, 15):
            streams = [
                place.stream(prompt, max_tokens=100, speculation=speculation)
                for place, prompt in zip(places, prompts, strict=True)
            ]
            together = [[t.id for t in tokens] for tokens in zip(*zip(*streams, strict=True), strict=True)]
            assert together == expected
            for place in places:
                place.reset()
        drafted = model.generate(prompts[0], max_tokens=100, speculation=15)
        assert drafted.ids == expected[0] and drafted.accepted_tokens > 20


def test_exports_bound_their_calls_where_windows_gain_by_it():
    gemma3_1b = [0 if i % 6 == 5 else 512 for i in range(26)]
    bound = call_bound(gemma3_1b, 32768)
    assert bound == 512
    rows = [512 + bound if window else 32768 for window in gemma3_1b]
    assert sum(rows) / (26 * 32768) < 0.181
    assert call_bound([1024, 0], 32768) == 1024
    assert call_bound(gemma3_1b, 1024) is None
    assert call_bound([0, 0], 32768) is None
    assert call_bound([], 32768) is None
