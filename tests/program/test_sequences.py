"""Several conversations on one loaded model: the same tokens as alone, in any order of calls; memory comes and goes."""

from __future__ import annotations

import pytest
from executorch_webgpu import errors
from executorch_webgpu.generation import TextGenerator
from program.test_generation import DEVICES, VARIED

FIRST, SECOND, THIRD = [11, 12, 13, 50, 3], [77, 21, 6], [5] * 20
STATE = 2 * 2 * 2 * 64 * 16 * 4  # layers, keys and values, heads, positions, their width, f32
CASES = [(FIRST, {}), (SECOND, VARIED | {"temperature": 1.5, "seed": 3}), (THIRD, VARIED | {"logprobs": True})]


@pytest.mark.parametrize("device", DEVICES)
def test_alternating_generations_give_what_each_gives_alone(folder, device):
    """Token by token, greedy and sampled, each with steps in flight where the device has any."""
    with TextGenerator(folder, device, activations="exact") as model:
        alone = [model.generate(prompt, max_tokens=24, **options) for prompt, options in CASES]
        model.reset()
        places = [model, model.new_sequence(), model.new_sequence()]
        streams = [
            place.stream(prompt, max_tokens=24, **options)
            for place, (prompt, options) in zip(places, CASES, strict=True)
        ]
        together = [list(tokens) for tokens in zip(*zip(*streams, strict=True), strict=True)]
        for place, case, tokens, expected in zip(places, CASES, together, alone, strict=True):
            assert [t.id for t in tokens] == expected.ids
            if expected.logprobs is not None:
                assert [t.logprob for t in tokens] == pytest.approx(expected.logprobs, abs=1e-5)
            assert place.cached_ids == case[0] + expected.ids[:-1]
        # further turns find their own conversation
        for place, (prompt, _), expected in zip(places, CASES, alone, strict=True):
            turn = place.generate(prompt + expected.ids + [1, 2], max_tokens=2)
            assert turn.reused_tokens == len(prompt) + 23


@pytest.mark.parametrize("device", DEVICES)
def test_a_sequence_adds_its_states_and_little_else(folder, device):
    with TextGenerator(folder, device, activations="exact") as model:
        model.generate(FIRST, max_tokens=3)
        before = model.session.memory_report()
        assert model.state_bytes == before["state"] == STATE
        other = model.new_sequence()
        assert other.state_bytes == STATE
        with_other = model.session.memory_report()
        assert with_other["state"] == 2 * STATE
        assert (with_other["weights"], with_other["arena"]) == (before["weights"], before["arena"])
        other.generate(FIRST, max_tokens=3)
        used = model.session.memory_report()
        for _ in range(2):
            model.generate(FIRST, max_tokens=3)
            other.generate([*FIRST, 9], max_tokens=3)
            assert model.session.memory_report() == used
        other.close()
        assert model.session.memory_report() == before
        other.close()
        for call in (lambda: other.generate(FIRST), other.save_state, other.reset, lambda: other.state_bytes):
            with pytest.raises(errors.InvalidArgumentError, match="the sequence is closed"):
                call()
        assert model.generate(FIRST, max_tokens=3).reused_tokens == len(FIRST) - 1


@pytest.mark.parametrize("device", DEVICES)
def test_states_are_its_own(folder, device):
    with TextGenerator(folder, device) as model:
        other = model.new_sequence()
        model.generate(FIRST, max_tokens=4)
        saved = model.save_state()
        expected = model.generate(FIRST + SECOND, max_tokens=5)
        other.generate(THIRD, max_tokens=4)
        other.restore_state(saved)
        assert other.save_state() == saved
        other.reset()
        assert (other.cached_ids, model.cached_ids) == ([], FIRST + SECOND + expected.ids[:-1])
        other.restore_state(saved)
        found = other.generate(FIRST + SECOND, max_tokens=5)
        assert (found.ids, found.reused_tokens) == (expected.ids, expected.reused_tokens)
        another = other.new_sequence()  # of the same model, and empty
        assert another.cached_ids == [] and another.generate(FIRST + SECOND, max_tokens=5).ids == expected.ids


@pytest.mark.parametrize("device", DEVICES)
def test_closed_in_the_middle(folder, device):
    model = TextGenerator(folder, device)
    one, two = model.new_sequence(), model.new_sequence()
    streams = [place.stream(FIRST) for place in (model, one, two)]
    ids = {tuple(next(s).id for _ in range(3)) for s in streams}
    assert len(ids) == 1
    one.close()
    with pytest.raises(errors.InvalidArgumentError, match="the sequence is closed"):
        next(streams[1])
    assert next(streams[2]).id == next(streams[0]).id
    model.close()
    for stream in (streams[0], streams[2]):
        with pytest.raises(errors.InvalidArgumentError, match="the session is closed"):
            next(stream)
    with pytest.raises(errors.InvalidArgumentError, match="the session is closed"):
        two.new_sequence()
    two.close()


@pytest.mark.parametrize("device", DEVICES)
def test_the_memory_cap_holds_for_all_sequences(folder, device):
    with TextGenerator(folder, device) as model:
        model.generate(FIRST, max_tokens=3)
        report = model.session.memory_report()
    cap = sum(report[kind] for kind in ("weights", "state", "arena", "other")) + report["state"] // 2
    with TextGenerator(folder, device, memory_cap=cap) as model:
        made = []  # the CPU's weights, in place in the file, leave room for some
        with pytest.raises(errors.LimitExceededError, match="memory cap"):
            for _ in range(8):
                made.append(model.new_sequence())
        assert model.session.memory_report()["state"] == (1 + len(made)) * report["state"]
        for sequence in made:
            sequence.close()
        assert len(model.generate(FIRST, max_tokens=3).ids) == 3
