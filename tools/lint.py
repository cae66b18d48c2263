"""Formatting, linters and type checks, each one check; the last line is {"passed": n, "failed": m}."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON_DIRS = [name for name in ("python", "tests", "tools", "benchmarks") if (ROOT / name).is_dir()]


def tracked(*patterns: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [name for name in names if name and (ROOT / name).exists()]


def checks() -> dict[str, list[str]]:
    commands = {
        "ruff check": ["ruff", "check", "--quiet", *PYTHON_DIRS],
        "ruff format": ["ruff", "format", "--quiet", "--check", *PYTHON_DIRS],
    }
    cpp = tracked("runtime/*.cpp", "runtime/*.h", "tests/*.cpp", "tests/*.h")
    if cpp:
        commands["clang-format"] = ["clang-format", "--dry-run", "-Werror", *cpp]
    scripts = tracked("*.sh")
    commands["bash -n"] = ["bash", "-c", 'for script; do bash -n "$script" || exit 1; done', "bash", *scripts]
    if (ROOT / "node_modules").is_dir():
        commands["npm run lint"] = ["npm", "run", "--silent", "lint"]
    return commands


def main() -> int:
    failed = 0
    commands = checks()
    for name, command in commands.items():
        result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(f"{name}: {'ok' if result.returncode == 0 else 'FAILED'}", flush=True)
        if result.returncode != 0:
            failed += 1
            print(result.stdout[-4000:])
    print(json.dumps({"passed": len(commands) - failed, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
