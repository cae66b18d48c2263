"""A process of its own that loads, generates and closes again and again, beside a model that stays; what it holds after
each cycle goes to the caller as JSON. In the process of other tests the allocator's free pages hide what is lost."""

from __future__ import annotations

import gc
import json
import sys
import threading
from pathlib import Path

import numpy as np
from executorch_webgpu import runtime
from executorch_webgpu.generation import TextGenerator


def holds() -> dict[str, int]:
    """Resident bytes, open files and threads of this process."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return {
        "bytes": int(status.split("VmRSS:")[1].split()[0]) * 1024,
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
    }


def main(device: str, folder: str, large: str, other: str, cycles: str) -> None:
    """folder: of a language model; large: a program of [1, 1024]; other: a program of [5, 48] that stays loaded."""
    x, y = np.ones((1, 1024), np.float32), np.linspace(-1, 1, 5 * 48, dtype=np.float32).reshape(5, 48)
    with runtime.load(other, device) as alive:
        (expected,) = alive.forward(y)
        report, after = alive.memory_report(), []
        for _ in range(int(cycles)):
            with TextGenerator(folder, device) as model:
                model.generate("w1 w2 w3", max_tokens=5)
            runtime.load(large, device).forward(x)  # ends without being closed
            np.testing.assert_array_equal(alive.forward(y)[0], expected)
            after.append(holds())
        assert alive.memory_report() == report
    print(json.dumps(after))


if __name__ == "__main__":
    main(*sys.argv[1:])
