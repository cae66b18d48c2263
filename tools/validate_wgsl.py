"""Validate every kernel variant with tint; the last line is {"passed": n, "failed": m}.

The variants come from `tools/wgsl_variants FOLDER` (any executable), which writes one .wgsl file per variant, as the
device would get it: after includes, defines and constants. What this tint has found valid is not looked at again.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
# A digest a line. install-tint.sh, whose `tint` on the path is a script, begins with an empty folder for another tint.
VALID = Path(os.environ.get("ETWGPU_CACHE", TOOLS.parent / "build")) / "tint" / "valid-wgsl.txt"


def validate(path: Path) -> str:
    """What tint says about a file; empty if it is valid."""
    command = ["tint", "--format", "spirv", "-o", "/dev/null", str(path)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return "" if result.returncode == 0 else result.stdout or f"tint ended with {result.returncode}"


def digests(paths: list[Path]) -> dict[Path, str]:
    """One for each file, of its text and of the tint on the path."""
    tint = hashlib.sha256(Path(shutil.which("tint") or "tint").read_bytes())
    found = {}
    for path in paths:
        digest = tint.copy()
        digest.update(path.read_bytes())
        found[path] = digest.hexdigest()
    return found


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([TOOLS / "wgsl_variants", folder], check=True)
        variants = sorted(Path(folder).rglob("*.wgsl"))
        digest_of = digests(variants)
        known = set(VALID.read_text().split()) if VALID.exists() else set()
        fresh = [path for path in variants if digest_of[path] not in known]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            messages = dict(zip(fresh, pool.map(validate, fresh), strict=True))
    failed = 0
    for path, message in messages.items():
        if message:
            failed += 1
            print(f"{path.name}:\n{message}")
    valid = known | {digest for path, digest in digest_of.items() if not messages.get(path)}
    VALID.parent.mkdir(parents=True, exist_ok=True)
    unfinished = VALID.with_suffix(f".{os.getpid()}")
    unfinished.write_text("\n".join(sorted(valid)))
    unfinished.replace(VALID)
    print(f"{len(fresh)} of {len(variants)} were new to tint")
    print(json.dumps({"passed": len(variants) - failed, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
