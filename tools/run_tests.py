"""Build everything, run all suites, and end with the line `N passed, N failed`.

Builds run one after another; then suites run side by side, the longest first, beginning with those that need no model
while the models are exported. A suite fails as a whole (one failure more) if it crashes, runs out of time or counts no
test: a silent suite is not a green one. ETWGPU_TEST_FULL=1 adds the long suites. `run_tests.py NAME...` runs only the
suites of these names. The output of each is in build/test-reports.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "build" / "test-reports"
FULL = os.environ.get("ETWGPU_TEST_FULL") == "1"
TAIL_LINES = 60
SIDE_BY_SIDE = 2  # suites; most use more than one core at times


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0


# ---- how the counts of a suite are read: each takes the report file and the output ----


def from_xml(report: Path, output: str) -> Counts:
    """JUnit XML, as pytest and GoogleTest write it."""
    counts = Counts()
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            counts.failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            counts.skipped += 1
        else:
            counts.passed += 1
    return counts


def from_vitest(report: Path, output: str) -> Counts:
    data = json.loads(report.read_text())
    return Counts(data["numPassedTests"], data["numFailedTests"], data["numPendingTests"])


def from_json_line(report: Path, output: str) -> Counts:
    """The last line of the form {"passed": n, "failed": m}, as our own suites print it."""
    lines = re.findall(r'^\{"passed".*\}$', output, re.MULTILINE)
    data = json.loads(lines[-1])
    return Counts(data["passed"], data["failed"], data.get("skipped", 0))


def no_tests(report: Path, output: str) -> Counts:
    """A preparation: it counts only when it fails."""
    return Counts()


@dataclass
class Suite:
    name: str
    command: list[str]  # {report} is replaced
    counts: Callable[[Path, str], Counts]
    needs: str = ""  # a path or glob below the root; without it the suite is not there yet
    minutes: int = 20
    full: bool = False  # only with ETWGPU_TEST_FULL=1
    models: bool = False  # needs what is exported
    short: bool = False  # without the long tests, also in full runs


def pytest(name: str, *paths: str) -> Suite:
    command = [sys.executable, "-m", "pytest", *paths, "-q", "--junitxml={report}"]
    return Suite(name, command, from_xml, needs="tests/**/test_*.py", minutes=120 if FULL else 40, models=True)


def mutations(name: str, preset: str, full: bool = False) -> Suite:
    command = ["tools/mutations.sh", preset, "10000"]
    return Suite(name, command, from_json_line, needs="tests/fuzz/CMakeLists.txt", full=full, models=True)


def cpp(name: str, preset: str, minutes: int = 40, full: bool = False, short: bool = False) -> Suite:
    command = [f"build/{preset}/etwgpu_tests", "--gtest_output=xml:{report}"]
    return Suite(name, command, from_xml, "tests/cpp/**/*_test.cpp", minutes, full, short=short)


EXPORTS = Suite("exports", ["sh", "-ec", "tools/fixtures.sh; tools/models.sh"], no_tests)
SUITES = [
    Suite("build native", ["make", "build"], no_tests),
    Suite("build wasm", ["make", "wasm"], no_tests, needs="runtime/bindings/wasm/*.cpp"),
    Suite("build web", ["make", "web"], no_tests, needs="web/package.json"),
    Suite("build asan", ["make", "build-asan"], no_tests, full=True),
    EXPORTS,
    # from here on the longest first
    # compiles WGSL variants (full: all) for the software GPU, unless Mesa has them in its cache: some take minutes
    cpp("c++", "native", minutes=300 if FULL else 40),
    # the sanitizers look at our code, not at what Mesa compiles
    cpp("c++ asan", "native-asan", full=True, short=True),
    Suite("wgsl", [sys.executable, "tools/validate_wgsl.py"], from_json_line, needs="tools/wgsl_variants"),
    Suite("lint", [sys.executable, "tools/lint.py"], from_json_line),
    Suite(
        "web",
        ["npm", "exec", "--workspace=web", "--", "vitest", "run", "--reporter=json", "--outputFile={report}"],
        from_vitest,
        needs="web/package.json",
    ),
    pytest("python", "tests", "--ignore=tests/operators"),
    pytest("operators", "tests/operators"),
    Suite(
        "browser",
        ["node", "tests/browser/run.mjs"],
        from_json_line,
        needs="tests/browser/run.mjs",
        minutes=120 if FULL else 40,
        models=True,
    ),
    Suite(
        "package", ["node", "tests/browser/package.mjs"], from_json_line, needs="tests/browser/package.mjs", models=True
    ),
    Suite(
        "consumers",
        ["node", "tests/consumers/run.mjs"],
        from_json_line,
        needs="tests/consumers/run.mjs",
        minutes=40,
        models=True,
    ),
    mutations("mutations", "native"),
    mutations("mutations asan", "native-asan", full=True),
]


def run(suite: Suite) -> tuple[Counts, str]:
    """The counts of a suite, and the text to show if it failed."""
    report = REPORTS / (suite.name.replace(" ", "-").replace("+", "p") + ".report")
    report.unlink(missing_ok=True)
    command = [part.replace("{report}", str(report)) for part in suite.command]
    try:
        # a process group of its own, so that running out of time ends what the suite has started, too
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | ({"ETWGPU_TEST_FULL": "0"} if suite.short else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Counts(failed=1), str(error)
    try:
        output, _ = process.communicate(timeout=suite.minutes * 60)
        problem = ""
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        problem = f"not finished after {suite.minutes} minutes"
    report.with_suffix(".log").write_text(output)

    try:
        counts = suite.counts(report, output)
    except (OSError, ValueError, KeyError, IndexError, ElementTree.ParseError) as error:
        counts = Counts()
        problem = problem or f"its counts could not be read: {error!r}"
    if not problem and process.returncode != 0 and counts.failed == 0:
        problem = f"ended with exit code {process.returncode}"
    if not problem and suite.counts is not no_tests and counts.passed + counts.failed == 0:
        problem = "no test was run"
    if problem:
        counts.failed += 1
    return counts, "\n".join([*output.splitlines()[-TAIL_LINES:], problem])


def run_all(suites: Sequence[Suite]) -> Counts:
    """Runs the builds in order, then the others side by side; prints when each begins and how it ended."""
    total, lock = Counts(), threading.Lock()
    numbers = {suite.name: f"[{number}/{len(suites)}] {suite.name}" for number, suite in enumerate(suites, 1)}

    def one(suite: Suite) -> None:
        with lock:
            print(f"{numbers[suite.name]} ...", flush=True)
        start = time.monotonic()
        counts, text = run(suite)
        seconds = time.monotonic() - start
        skipped = f", {counts.skipped} skipped" if counts.skipped else ""
        with lock:
            if counts.failed:
                print(text, flush=True)
            print(
                f"{numbers[suite.name]}: {'FAILED' if counts.failed else 'ok'}"
                f" ({counts.passed} passed, {counts.failed} failed{skipped}, {seconds:.0f} s)",
                flush=True,
            )
            total.passed += counts.passed
            total.failed += counts.failed
            total.skipped += counts.skipped

    builds = [suite for suite in suites if suite.counts is no_tests and suite is not EXPORTS]
    for suite in builds:
        one(suite)
    exported = threading.Event()

    def in_turn(suite: Suite) -> None:
        if suite.models and EXPORTS in suites:
            exported.wait()
        try:
            one(suite)
        finally:
            if suite is EXPORTS:
                exported.set()

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for done in [pool.submit(in_turn, suite) for suite in suites if suite not in builds]:
            done.result()
    return total


def main() -> int:
    REPORTS.mkdir(parents=True, exist_ok=True)
    wanted = sys.argv[1:]
    total = run_all(
        [
            suite
            for suite in SUITES
            if (suite.name in wanted or (not wanted and (FULL or not suite.full)))
            and (not suite.needs or any(ROOT.glob(suite.needs)))
        ]
    )
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
