"""The programs in examples/ run as their users run them, and print what they should."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.spark.rig import sessions

EXAMPLES = Path(__file__).parents[1] / "examples"

#: The lines that each program prints, in any order.
PRINTED = {
    "produce.py": [
        "hello is at offset N of partition 0",
        "world is at offset N of partition 0",
        "1000 written, 0 failed",
    ],
    "consume_in_a_group.py": [
        f"{'Anna' if number % 4 < 2 else 'Bert'} cooked order {number} of partition {number % 4}"
        for number in range(12)
    ],
    "with_asyncio.py": [
        line for number in range(5) for line in (f"sent message {number} to partition 0", f"read message {number}")
    ],
    "arrow_into_polars_and_duckdb.py": [
        *("Polars: cellar 12.50", "Polars: kitchen 21.40", "DuckDB: cellar 12.9", "DuckDB: kitchen 21.8"),
        "sent 2 rows of DuckDB's to the topic warmest",
    ],
}


def _skip_if_it_cannot_run(program: str) -> None:
    imported = re.findall(r"^import (\w+)", (EXAMPLES / program).read_text(encoding="utf-8"), re.M)
    for package in imported:
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make test does it")


def _run(*command: str | Path, folder: Path, more: dict[str, str] | None = None) -> str:
    """What a program prints that a user starts, in a folder of its own."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **(more or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _lines(printed: str) -> list[str]:
    """Sorted. Offsets depend on what was in the topic before; which cook gets which half, on who comes first."""
    printed = re.sub(r"at offset \d+", "at offset N", printed)
    if "Bert cooked order 0 " in printed:
        printed = re.sub("Anna|Bert", lambda name: {"Anna": "Bert", "Bert": "Anna"}[name[0]], printed)
    return sorted(printed.splitlines())


@pytest.mark.parametrize("program", PRINTED)
def test_it_brings_its_own_broker(program: str, tmp_path: Path) -> None:
    _skip_if_it_cannot_run(program)
    assert _lines(_run(EXAMPLES / program, folder=tmp_path)) == sorted(PRINTED[program])


@pytest.mark.parametrize("program", PRINTED)
def test_it_takes_the_address_of_a_broker_and_can_run_again_there(
    program: str, barnabas_bootstrap: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _skip_if_it_cannot_run(program)
    monkeypatch.setattr(sys, "argv", [program, barnabas_bootstrap])
    for _ in range(2):
        runpy.run_path(str(EXAMPLES / program), run_name="__main__")
        assert _lines(capsys.readouterr().out) == sorted(PRINTED[program])


def test_the_tests_with_fixtures_pass(tmp_path: Path) -> None:
    command = ("-m", "pytest", "-p", "no:cacheprovider", EXAMPLES / "test_with_a_broker.py")
    assert "2 passed" in _run(*command, folder=tmp_path)


@pytest.mark.slow  # with a JVM of its own; tests/spark/test_example.py runs it in the one that is there
def test_a_stream_of_spark(tmp_path: Path) -> None:
    reason = sessions.missing()
    if reason is not None:
        pytest.skip(reason)
    # The compiler that starts fast, as for every session of the tests.
    fast = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    printed = _run(EXAMPLES / "spark_stream.py", folder=tmp_path, more=sessions.environment(tmp_path) | fast)
    assert sorted(printed.splitlines()) == ["u1 has a cart", "u3 has a cart"]


def test_every_order_is_counted_exactly_once(tmp_path: Path) -> None:
    printed = _run(EXAMPLES / "exactly_once.py", folder=tmp_path).splitlines()
    assert printed[-1] == "400 of 400 orders are counted, in spite of everything"
    assert [line.rpartition(" ")[2] for line in printed[-4:-1]] == ["right"] * 3
    assert printed[0].startswith("killed the worker")


def test_each_is_in_the_list_and_has_a_test() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == {*PRINTED, "test_with_a_broker.py", "spark_stream.py", "exactly_once.py"}
    listed = re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(programs)
