"""Formatting, linters and type checks, each one check; the last line is {"passed": n, "failed": m}.

The checks of the npm workspaces take a minute: they are not repeated for files that they have passed.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NPM = "npm run lint"
PASSED = ROOT / "build" / "lint-passed"  # what npm_inputs said
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
        commands[NPM] = ["npm", "run", "--silent", "lint"]
    return commands


def npm_inputs() -> str:
    """A digest of all that `npm run lint` depends on: a file's types count in others, so it is one for them all."""
    digest = hashlib.sha256()
    types = [str(path.relative_to(ROOT)) for path in (ROOT / "web" / "dist").rglob("*.d.ts")]  # the playground's
    names = tracked("web", "playground", "tools", "benchmarks", "tests/browser", "tests/consumers", "runtime/bindings")
    settings = [*tracked("*.json", "*prettier*", "*eslint*", "*.editorconfig"), "node_modules/.package-lock.json"]
    for name in sorted({*names, *types, *settings}):
        if (path := ROOT / name).is_file():
            digest.update(f"{name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def main() -> int:
    failed = 0
    PASSED.parent.mkdir(parents=True, exist_ok=True)
    commands = checks()
    for name, command in commands.items():
        inputs = npm_inputs() if name == NPM else ""
        if inputs and PASSED.exists() and PASSED.read_text() == inputs:
            print(f"{name}: ok, as when these files last passed", flush=True)
            continue
        result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(f"{name}: {'ok' if result.returncode == 0 else 'FAILED'}", flush=True)
        if result.returncode != 0:
            failed += 1
            print(result.stdout[-4000:])
        elif inputs:
            PASSED.write_text(inputs)
    print(json.dumps({"passed": len(commands) - failed, "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
