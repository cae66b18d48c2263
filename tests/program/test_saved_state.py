"""Saving and restoring the KV cache: the same continuation, on both devices; what does not fit is refused."""

from __future__ import annotations

import struct

import pytest
from executorch_webgpu import errors
from executorch_webgpu.generation import TextGenerator
from program.test_generation import DEVICES, VARIED

FIRST, SECOND = [11, 12, 13, 50, 3], [77, 21, 6]
ROW = 2 * 2 * 2 * 16 * 4  # bytes of a position: layers, k and v, heads, their width, f32


@pytest.fixture(scope="module")
def folders(folder_of):
    """The small decoder as a model folder, and another model."""
    return [folder_of(name) for name in ("decoder2", "decoder2_all")]


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_continuation(folders, device):
    """Sampled, so that the position counts as well as the states."""
    options = VARIED | {"max_tokens": 9, "temperature": 1.5, "seed": 3}
    with TextGenerator(folders[0], device) as model:
        first = model.generate(FIRST, **options)
        prompt = FIRST + first.ids + SECOND
        saved = model.save_state()
        expected = model.generate(prompt, **options)
        assert expected.reused_tokens == len(FIRST) + 8
        with TextGenerator(folders[0], device) as fresh:
            fresh.restore_state(saved)
            assert fresh.cached_ids == FIRST + first.ids[:-1]
            assert fresh.save_state() == saved
            found = fresh.generate(prompt, **options)
            assert (found.ids, found.reused_tokens) == (expected.ids, expected.reused_tokens)
        model.restore_state(saved)  # over what came in between
        assert model.generate(prompt, **options).ids == expected.ids


@pytest.mark.gpu
def test_from_one_device_to_another(folders):
    with TextGenerator(folders[0], "webgpu") as gpu, TextGenerator(folders[0], "cpu", activations="exact") as cpu:
        gpu.generate(FIRST, max_tokens=4)
        expected = gpu.generate(FIRST + SECOND, max_tokens=12)
        gpu.generate(FIRST, max_tokens=1)
        cpu.restore_state(gpu.save_state())
        found = cpu.generate(FIRST + SECOND, max_tokens=12)
        assert (found.ids, found.reused_tokens) == (expected.ids, len(FIRST))


@pytest.mark.parametrize("device", DEVICES)
def test_only_rows_in_use_are_written(folders, device):
    sizes = []
    with TextGenerator(folders[0], device, activations="exact") as model:
        for length in (0, 1, 20, 40):
            if length:
                model.generate([7] * length, max_tokens=1)
            sizes.append(len(model.save_state()))
            model.reset()
    assert [size - sizes[0] for size in sizes] == [length * (ROW + 4) for length in (0, 1, 20, 40)]
    assert sizes[0] < 100


@pytest.mark.parametrize("device", DEVICES)
def test_what_does_not_fit_is_refused_and_nothing_lost(folders, device):
    with TextGenerator(folders[0], device) as model, TextGenerator(folders[1], device) as other:
        model.generate(FIRST, max_tokens=3)
        saved = model.save_state()
        model.generate([*FIRST[:2], *SECOND], max_tokens=3)
        kept = model.save_state()

        def refused(by, bytes_, words):
            with pytest.raises(errors.SavedStateError, match=words):
                by.restore_state(bytes_)

        refused(other, saved, "another model")
        refused(model, b"", "no saved state")
        refused(model, b"PK" + saved[2:], "no saved state")
        refused(model, saved[:4] + struct.pack("<I", 2) + saved[8:], "version 2")
        refused(model, saved[:-1], "damaged")
        refused(model, saved + b"\0", "damaged")
        for at in (24, 28, 32, 50, 70, len(saved) // 2, len(saved) - 9, len(saved) - 1):
            damaged = bytearray(saved)
            damaged[at] ^= 0x40
            refused(model, bytes(damaged), "damaged|precision")
        assert model.save_state() == kept
        steps = model.stream(FIRST)
        next(steps)
        for call in (model.save_state, lambda: model.restore_state(saved)):
            with pytest.raises(errors.InvalidArgumentError, match="under way"):
                call()
        steps.close()


@pytest.mark.gpu
def test_another_precision_is_refused(folders):
    with (
        TextGenerator(folders[0], "webgpu", precision="f16") as half,
        TextGenerator(folders[0], "webgpu") as single,
    ):
        assert half.session.capabilities["f16"], "the adapter has no shader-f16"
        half.generate(FIRST, max_tokens=2)
        single.generate(FIRST, max_tokens=2)
        saved = half.save_state()
        assert len(single.save_state()) - len(saved) == (len(FIRST) + 1) * ROW // 2
        for model, state in ((single, saved), (half, single.save_state())):
            with pytest.raises(errors.SavedStateError, match="precision"):
                model.restore_state(state)
        expected = half.generate(FIRST + SECOND, max_tokens=5)
        half.reset()
        half.restore_state(saved)
        assert half.generate(FIRST + SECOND, max_tokens=5).ids == expected.ids
