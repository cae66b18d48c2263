"""Validate every kernel variant with tint; the last line is {"passed": n, "failed": m}.

The variants come from `tools/wgsl_variants FOLDER` (any executable), which writes one .wgsl file per variant, as the
device would get it: after includes, defines and constants.
"""

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOOLS = Path(__file__).resolve().parent


def validate(path: Path) -> str:
    """What tint says about a file; empty if it is valid."""
    command = ["tint", "--format", "spirv", "-o", "/dev/null", str(path)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return "" if result.returncode == 0 else result.stdout or f"tint ended with {result.returncode}"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([TOOLS / "wgsl_variants", folder], check=True)
        variants = sorted(Path(folder).rglob("*.wgsl"))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            messages = list(pool.map(validate, variants))
    failed = 0
    for path, message in zip(variants, messages, strict=True):
        if message:
            failed += 1
            print(f"{path.name}:\n{message}")
    print(json.dumps({"passed": len(variants) - failed, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
