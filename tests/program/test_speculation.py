"""Drafts by prompt lookup: the tokens stay the model's own, in fewer calls; what is drafted is counted."""

from __future__ import annotations

import pytest
from executorch_webgpu import errors
from executorch_webgpu.generation import TextGenerator
from program.test_generation import DEVICES, VARIED

PERIOD = [11, 12, 13, 50, 3]
PROMPTS = [PERIOD * 4, [77, 21, 6], [90, 4, 90, 4, 8, 90, 4]]


@pytest.fixture(scope="module")
def folders(folder_of):
    """The small decoder with the logits of the last position, and with those of all."""
    return {name: folder_of(name) for name in ("decoder2", "decoder2_all")}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["decoder2", "decoder2_all"])
def test_the_same_tokens_in_fewer_calls(folders, device, name):
    with TextGenerator(folders[name], device, activations="exact") as model:
        fewer = 0
        for prompt in PROMPTS:
            plain = model.generate(prompt, max_tokens=30)
            assert (plain.model_calls, plain.proposed_tokens) == (29, 0)
            for options in ({"speculation": 1}, {"speculation": 8}, {"speculation": 15, "ngram": 1}):
                model.reset()
                found = model.generate(prompt, max_tokens=30, **options)
                assert found.ids == plain.ids and found.finish_reason == plain.finish_reason
                assert model.cached_ids == prompt + plain.ids[:-1]
                assert found.accepted_tokens <= found.proposed_tokens
                assert found.model_calls + found.accepted_tokens == 29
                fewer += found.model_calls < 15
        assert fewer >= 2  # the decoder repeats itself, as the first prompt does


@pytest.mark.parametrize("device", DEVICES)
def test_ends_within_a_draft(folders, device):
    """A stop token, leaving the loop, the end of the context and sliding over it."""
    with TextGenerator(folders["decoder2"], device, activations="exact") as model:
        prompt = PROMPTS[0]
        plain = model.generate(prompt)
        assert model.generate(prompt, speculation=8).ids == plain.ids
        sliding = model.generate(prompt, max_tokens=120, overflow="sliding").ids
        assert model.generate(prompt, max_tokens=120, overflow="sliding", speculation=8).ids == sliding
        for last in (3, 9, 10, 11):
            model.reset()
            for i, token in enumerate(model.stream(prompt, speculation=15)):
                assert token.id == plain.ids[i]
                if i == last:
                    break
            assert model.cached_ids == prompt + plain.ids[:last]
            rest = model.generate(prompt + plain.ids[: last + 1], max_tokens=5)
            assert (rest.ids, rest.reused_tokens) == (plain.ids[last + 1 : last + 6], len(prompt) + last)
        at = max(plain.ids.index(i) for i in set(plain.ids))  # the first of a token that comes as late as any
        model.end_ids = frozenset({plain.ids[at]})
        ended = model.generate(prompt, speculation=15)
        assert (ended.ids, ended.finish_reason) == (plain.ids[: at + 1], "stop")


@pytest.mark.parametrize("device", DEVICES)
def test_a_sequence_has_its_own_drafts(folders, device):
    with TextGenerator(folders["decoder2"], device, activations="exact") as model:
        alone = [model.generate(prompt, max_tokens=20).ids for prompt in PROMPTS[:2]]
        model.reset()
        other = model.new_sequence()
        streams = [
            place.stream(prompt, max_tokens=20, speculation=8)
            for place, prompt in zip((model, other), PROMPTS, strict=False)
        ]
        together = [[t.id for t in tokens] for tokens in zip(*zip(*streams, strict=True), strict=True)]
        assert together == alone
        used = model.session.memory_report()
        other.generate(PROMPTS[0], speculation=8)
        assert model.session.memory_report() == used  # what checks drafts is made once


@pytest.mark.parametrize("device", DEVICES)
def test_without_drafts(folders, device):
    """Where tokens are drawn, the option changes nothing."""
    with TextGenerator(folders["decoder2"], device, activations="exact") as model:
        for options in (VARIED, {"temperature": 1.5, "seed": 3}, {"logprobs": True}):
            plain = model.generate(PROMPTS[0], max_tokens=12, **options)
            found = model.generate(PROMPTS[0], max_tokens=12, speculation=8, **options)
            assert (found.ids, found.proposed_tokens, found.model_calls) == (plain.ids, 0, 11)
        for wrong in ({"speculation": 16}, {"speculation": -1}, {"speculation": 1.5}, {"speculation": 2, "ngram": 0}):
            with pytest.raises(errors.InvalidArgumentError, match=r"speculation|ngram"):
                model.generate(PROMPTS[0], **wrong)
