"""A failure is a failure; what waits for programs of others may fail once, beside the others, and is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: Each run of a test leaves a line; `fails` says how many of them fail.
TESTS = """
import os
import pathlib
import pytest

def fails(times, name):
    runs = pathlib.Path(name)
    count = len(runs.read_text().splitlines()) if runs.exists() else 0
    runs.write_text("run\\n" * (count + 1))
    assert count >= times

other = pytest.mark.other_process(missing=None)
"""
KINDS = {
    "good": "def test_good(): fails(0, 'good')",
    "ours": "def test_ours(): fails(1, 'ours')",
    "once": "@other\n@pytest.mark.parametrize('way', ['a::b [c]', 'd'])\ndef test_once(way): fails(1, 'once' + way[0])",
    "always": "@other\ndef test_always(): fails(9, 'always')",
    "fixture": "@pytest.fixture\ndef broken(): fails(1, 'fixture')\n@other\ndef test_fixture(broken): pass",
    "skips": "@other\ndef test_skips():\n    fails(1, 'skips')\n    pytest.skip('not here')",
    "dies": "@other\ndef test_dies():\n    fails(0, 'dies')\n    os._exit(7)",
    "broken": "raise RuntimeError('cannot be read')",
}


def run(folder: Path, kinds: str, workers: int) -> tuple[int, str, dict[str, int]]:
    """The code of exit, what was said, and how often each test ran."""
    for kind in kinds.split():
        (folder / f"test_{kind}.py").write_text(TESTS + KINDS[kind] + "\n")
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = -q --strict-markers\nmarkers =\n    other_process\n    slow\n"
    )
    parallel = ("-p", "xdist", "-n", str(workers), "--dist", "loadscope") if workers else ()
    done = subprocess.run(
        [sys.executable, "-m", "tests.second_run", *parallel, "--", "-m", "not slow", "-p", "no:cacheprovider"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    runs = {
        each.name: len(each.read_text().splitlines()) for each in folder.iterdir() if not each.suffix and each.is_file()
    }
    return done.returncode, done.stdout + done.stderr, runs


def test_all_is_well(tmp_path: Path) -> None:
    code, told, runs = run(tmp_path, "good", 0)
    assert (code, runs) == (0, {"good": 1})
    assert "second run" not in told


@pytest.mark.parametrize("workers", [0, 2])
def test_what_waits_for_other_programs_may_fail_once_and_is_counted_and_named(tmp_path: Path, workers: int) -> None:
    code, told, runs = run(tmp_path, "good once fixture", workers)
    assert (code, runs) == (0, {"good": 1, "oncea": 2, "onced": 2, "fixture": 2})
    end = told[told.index("Needed a second run: 3") :]
    assert {line.strip() for line in end.splitlines()[1:]} == {
        "test_once.py::test_once[a::b [c]]",
        "test_once.py::test_once[d]",
        "test_fixture.py::test_fixture",
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failure_of_ours_ends_it(tmp_path: Path, workers: int) -> None:
    code, told, runs = run(tmp_path, "ours once", workers)
    assert (code, runs) == (1, {"ours": 1, "oncea": 1, "onced": 1})
    assert "Failed, and nothing runs again: 1\n    test_ours.py::test_ours\n" in told


def test_what_fails_twice_has_failed(tmp_path: Path) -> None:
    code, told, runs = run(tmp_path, "once always", 0)
    assert (code, runs) == (1, {"oncea": 2, "onced": 2, "always": 2})
    assert "Failed in the second run too: 1\n    test_always.py::test_always\n" in told
    assert "Needed a second run: 2" in told


def test_what_is_skipped_the_second_time_has_not_passed(tmp_path: Path) -> None:
    code, told, runs = run(tmp_path, "skips", 0)
    assert (code, runs) == (1, {"skips": 2})
    assert "Failed in the second run too: 1" in told


def test_a_process_that_dies_over_a_test_is_a_failure(tmp_path: Path) -> None:
    code, told, runs = run(tmp_path, "good dies", 2)
    assert (code, runs["good"]) == (1, 1)
    assert "Failed, and nothing runs again: 1\n    test_dies.py::test_dies\n" in told


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_cannot_be_read_is_a_failure(tmp_path: Path, workers: int) -> None:
    code, told, runs = run(tmp_path, "broken once", workers)
    assert code in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert max(runs.values(), default=0) <= 1
    assert "Needed a second run" not in told
