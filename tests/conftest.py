"""Tests marked `full` take part with ETWGPU_TEST_FULL=1 only: what they are is left to `make test-full`."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(config, items):
    if os.environ.get("ETWGPU_TEST_FULL") == "1":
        return
    later = [item for item in items if item.get_closest_marker("full")]
    config.hook.pytest_deselected(items=later)
    items[:] = [item for item in items if item not in later]


@pytest.fixture(autouse=True)
def seed():
    """Every test begins with the same random numbers, alone or among others."""
    import torch

    torch.manual_seed(0)
