"""Choosing GPU kernels by measuring: the tokens stay the same, what was found is taken the next time."""

from __future__ import annotations

import pytest
from executorch_webgpu import _native, errors, runtime

PROMPT = [11, 12, 13, 50, 3]


def greedy(session, count=12):
    generator = _native.Generator(session._native, "forward")
    generator.begin(PROMPT, max_tokens=count)
    return [generator.next()[0] for _ in range(count)]


@pytest.mark.gpu
def test_tuning(fixture_of):
    path = fixture_of("decoder2").path
    with runtime.load(path, "webgpu", wide_kernels=True) as session:
        memory = session.memory_report()
        # as many candidates as begin in that time; the software GPU compiles each for a while
        report = session.tune(budget_s=1)
        assert report["candidates"] >= 1
        assert report["token_ms"] <= report["token_ms_before"] and report["token_ms"] > 0
        assert report["chunk_ms"] <= report["chunk_ms_before"] and report["chunk_ms"] > 0
        assert session.memory_report() == memory
        tokens = greedy(session)
        with pytest.raises(errors.InvalidArgumentError, match="generator"):
            generator = _native.Generator(session._native, "forward")  # noqa: F841  it lives while tune() is called
            session.tune()
    with runtime.load(path, "webgpu", wide_kernels=True, tuning=report["tuning"]) as session:
        assert greedy(session) == tokens
    # a shape that no default has
    with runtime.load(path, "webgpu", wide_kernels=True, tuning="gemv.plain.f32 4,2,2,2,0\nprocessors 8\n") as session:
        assert greedy(session) == tokens
    with runtime.load(path, "cpu", activations="exact") as session:
        assert greedy(session) == tokens
        with pytest.raises(errors.UnsupportedOperatorError, match="GPU"):
            session.tune()


def test_bad_tuning(fixture_of):
    with pytest.raises(errors.InvalidArgumentError, match="processors 3"):
        runtime.load(fixture_of("decoder2").path, "cpu", tuning="processors 3")
