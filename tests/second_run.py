"""Runs all tests, and once more, alone, those that failed beside the others and wait for programs which are not ours.

    python -m tests.second_run -n 4 --dist loadscope -- -m "not slow"

What stands before `--` is said to pytest in the first run only, what follows in both. A test may run again if it is
marked `other_process`; if any other failed, or if anything went wrong beside tests, that is the end. Tests that needed
the second run are counted and named.

This module is also the plug-in of pytest that tells how each test ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pytest

_MARK: Final = "other_process"

#: A test that hangs fails by itself (`timeout` in pyproject.toml). A run that does not end all the same is ended.
_LONGEST_RUN_S: Final = 40 * 60


@dataclass(slots=True)
class Outcomes:
    """How the tests of a run ended, by their node ids; whether a failed one may run again."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, bool] = field(default_factory=dict)


# The runner


def main(arguments: list[str]) -> int:
    """Pytest's code of exit: of the first run, or of the second where there is one."""
    divided = arguments.index("--") if "--" in arguments else len(arguments)
    first_only, both = arguments[:divided], arguments[divided + 1 :]
    code, outcomes = _run([*first_only, *both])
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    final = [test for test, may_run_again in outcomes.failed.items() if not may_run_again]
    if final or not outcomes.failed:
        _tell("Failed, and nothing runs again", final)
        return code
    _tell("Waited for other programs and failed, and run once more, alone", [*outcomes.failed])
    code, again = _run(["-v", *both, *outcomes.failed])
    still = [test for test in outcomes.failed if test in again.failed or test not in again.passed]
    if still:
        _tell("Failed in the second run too", still)
    _tell("Needed a second run", [test for test in outcomes.failed if test not in still])
    return code or (pytest.ExitCode.TESTS_FAILED if still else pytest.ExitCode.OK)


def _run(arguments: list[str]) -> tuple[int, Outcomes]:
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder, "outcomes.json")
        command = [sys.executable, "-m", "pytest", "-p", __spec__.name, f"--outcomes-to={told}", *arguments]
        try:
            code = subprocess.run(command, check=False, timeout=_LONGEST_RUN_S).returncode
        except subprocess.TimeoutExpired:
            _tell(f"Not through after {_LONGEST_RUN_S // 60} minutes, and ended", [])
            code = pytest.ExitCode.INTERRUPTED
        return code, Outcomes(**json.loads(told.read_text())) if told.exists() else Outcomes()


def _tell(what: str, tests: list[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in (f"\n{what}: {len(tests)}", *(f"    {test}" for test in tests))))
    sys.stdout.flush()


# The plug-in


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes-to", metavar="FILE", help="write how each test ended to this file")


def pytest_configure(config: pytest.Config) -> None:
    path: str | None = config.getoption("--outcomes-to")
    if path and not hasattr(config, "workerinput"):  # workers report to the process that started them
        config.pluginmanager.register(_Recorder(Path(path)))


class _Recorder:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes = Outcomes()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            # Whoever tells of a worker that died over a test knows no marks of it: that failure is final.
            self._failed(report.nodeid, may_run_again=_MARK in report.keywords)
        elif report.passed and report.when == "call":
            self._outcomes.passed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed(report.nodeid, may_run_again=False)

    def _failed(self, test: str, *, may_run_again: bool) -> None:
        self._outcomes.failed[test] = self._outcomes.failed.get(test, True) and may_run_again

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps(asdict(self._outcomes)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
