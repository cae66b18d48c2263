"""Without these, a suite that crashes, hangs or runs nothing could look green."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import run_tests
from run_tests import Counts, Suite

JSON_LINE = """import sys; print('{"passed": 2, "failed": %d}'); sys.exit(%d)"""


@pytest.fixture(autouse=True)
def reports(tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests, "REPORTS", tmp_path)


def counts_of(program: str, counts=run_tests.from_json_line, minutes: float = 1) -> Counts:
    return run_tests.run(Suite("s", [sys.executable, "-c", program], counts, minutes=minutes))[0]


def test_counts_are_those_of_the_suite():
    assert counts_of(JSON_LINE % (0, 0)) == Counts(2, 0)
    assert counts_of(JSON_LINE % (1, 1)) == Counts(2, 1)


def test_a_crash_after_passed_tests_is_a_failure():
    assert counts_of(JSON_LINE % (0, 3)) == Counts(2, 1)


def test_no_counts_are_a_failure():
    assert counts_of("print('hello')") == Counts(0, 1)


def test_no_tests_are_a_failure():
    assert counts_of("""print('{"passed": 0, "failed": 0}')""") == Counts(0, 1)


def test_running_out_of_time_is_a_failure():
    assert counts_of("import time; time.sleep(30)", minutes=0.01) == Counts(0, 1)


def test_a_build_counts_only_when_it_fails():
    assert counts_of("pass", run_tests.no_tests) == Counts(0, 0)
    assert counts_of("raise SystemExit(1)", run_tests.no_tests) == Counts(0, 1)


def test_a_program_that_is_not_there_is_a_failure():
    assert run_tests.run(Suite("s", ["./no-such-program"], run_tests.from_json_line))[0] == Counts(0, 1)


def test_junit_xml(tmp_path):
    report = tmp_path / "r.xml"
    report.write_text(
        "<testsuites><testsuite><testcase name='a'/><testcase name='b'><failure/></testcase>"
        "<testcase name='c'><error/></testcase><testcase name='d'><skipped/></testcase>"
        "<testcase name='e' status='notrun'/></testsuite></testsuites>"
    )
    assert run_tests.from_xml(report, "") == Counts(passed=1, failed=2, skipped=2)


def suite(name: str, program: str, counts=run_tests.from_json_line) -> Suite:
    return Suite(name, [sys.executable, "-c", program], counts, minutes=1)


def test_builds_come_first_and_a_failure_hides_no_other(tmp_path, capsys):
    built = tmp_path / "built"
    needs_build = f"import os; assert os.path.exists({str(built)!r}); "
    total = run_tests.run_all(
        [
            suite("first", needs_build + JSON_LINE % (1, 1)),
            suite("build", f"open({str(built)!r}, 'w')", run_tests.no_tests),
            suite("second", needs_build + JSON_LINE % (0, 0)),
            suite("third", needs_build + "raise SystemExit('broken')"),
        ]
    )
    assert (total.passed, total.failed) == (4, 2)
    text = capsys.readouterr().out
    assert "[4/4] third: FAILED" in text and "broken" in text and "[3/4] second: ok (2 passed, 0 failed, " in text


def test_suites_run_side_by_side(tmp_path):
    """Each waits for the other."""
    a, b = str(tmp_path / "a"), str(tmp_path / "b")

    def waiting(mine: str, other: str) -> str:
        wait = f"import os, time\nopen({mine!r}, 'w')\nwhile not os.path.exists({other!r}): time.sleep(0.01)\n"
        return wait + JSON_LINE % (0, 0)

    total = run_tests.run_all([suite("a", waiting(a, b)), suite("b", waiting(b, a))])
    assert (total.passed, total.failed) == (4, 0)
