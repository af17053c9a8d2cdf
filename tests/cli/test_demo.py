"""`barnabas demo` without Spark: what it refuses, what it misses, what it prints, and clicks for a cluster of yours."""

from __future__ import annotations

import importlib.util
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.base.errors import BarnabasError
from barnabas.cli.demo import _ending, _Lines, _next_steps, _tell
from barnabas.spark.demo import running, writing
from barnabas.spark.demo.picture import Picture, line
from barnabas.spark.demo.running import DemoOptions, DemoResult
from barnabas.spark.pipelines import server
from barnabas.testing import EmbeddedBroker
from tests.cli.tools import Tools
from tests.ports import free_ports


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tools:
    return Tools(capsys)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rate", "1"),
        ("--seconds", "soon"),
        ("--open-port", "70000"),
        ("--clicks-only", "127.0.0.1:9092", "--keep", "shop"),
    ],
)
def test_wrong_calls_are_told_in_one_line(tool: Tools, arguments: tuple[str, ...]) -> None:
    told = tool("demo", *arguments)
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert arguments[0] in told.err


def test_without_java_nothing_starts(tool: Tools, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    told = tool("demo", "--seconds", "1")
    assert (told.code, told.out) == (1, "")
    assert "Spark needs Java" in told.err


def test_without_pyspark_it_says_what_to_install(tool: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, package=None: None if name == "pyspark" else found(name, package)
    )
    told = tool("demo")
    assert (told.code, told.out) == (1, "")
    assert "pip install 'pyarrow>=17'" in told.err


def test_clicks_can_be_written_to_any_cluster(tool: Tools, address: str) -> None:
    told = tool("demo", "--clicks-only", address, "--seconds", "1", "--rate", "500", "--seed", "3")
    assert told.code == 0, told.err
    assert f"writing clicks to {address}, 500 in a second" in told.out
    assert " clicks (" in told.out
    assert " more are gone)" in told.out
    with Admin(bootstrap_servers=address) as admin:
        assert {"clicks", "users", "sessions", "clicks.dead"} <= set(admin.list_topics())


def test_a_cluster_that_is_not_there_is_not_said_to_be_written_to(tool: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing.create_topics, "__defaults__", (0.3,))
    told = tool("demo", "--clicks-only", f"127.0.0.1:{free_ports(1)[0]}")
    assert (told.code, told.out, told.err.count("\n")) == (1, "", 1)


def test_waiting_for_a_cluster_can_be_broken_off(tool: Tools) -> None:
    threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()
    told = tool("demo", "--clicks-only", f"127.0.0.1:{free_ports(1)[0]}")
    assert (told.code, told.out) == (0, "")


def test_a_port_that_is_taken_is_told_by_the_name_of_the_option(tool: Tools, address: str) -> None:
    told = tool("demo", "--seconds", "1", "--open-port", address.rpartition(":")[2])
    assert told.code == 1
    assert f"{address} is already in use" in told.err
    assert "--open-port" in told.err
    assert "--listen" not in told.err


def outcome(*, updates: int, broken_off: int | None = None, is_complete: bool = False) -> DemoResult:
    return DemoResult(
        picture=Picture("127.0.0.1:9092", 1, "done", updates=updates),
        written=writing.WrittenClicks(),
        start_ms=0,
        is_complete=is_complete,
        distinct_clicks=0,
        broken_off=broken_off,
        sessions={},
        expected_sessions={},
        twice=0,
        failure=None,
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_ctrl_c_has_all_counted_and_another_signal_ends_it(
    tool: Tools, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    class SignalledDemo:
        def __init__(self, *_: object) -> None: ...

        def run(self, stop: threading.Event, enough: threading.Event) -> DemoResult:
            signal.raise_signal(number)
            assert stop.is_set() != enough.is_set()
            return outcome(updates=1, is_complete=enough.is_set())

    monkeypatch.setattr(running, "Demo", SignalledDemo)
    monkeypatch.setattr(server, "check_installed", lambda: None)
    told = tool("demo")
    assert told.code == code
    assert ("Counted: every valid click" in told.out) == (number == signal.SIGINT)
    assert ("Not counted: it was stopped" in told.out) == (number == signal.SIGTERM)


def test_an_outcome_that_is_not_exact_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    exact = outcome(updates=1, is_complete=True)
    _tell(exact, DemoOptions())
    assert "is in the table, once" in capsys.readouterr().out
    with pytest.raises(BarnabasError, match=r"it is not exact: of 0 valid clicks 0 are in the table, .* twice"):
        _tell(replace(exact, twice=1), DemoOptions())
    sessions = {("u1", "2026-11-18T10:00:00.000Z"): 3, ("u2", "2026-11-18T10:01:00.000Z"): 1}
    missing = replace(exact, expected_sessions=sessions, sessions=dict(list(sessions.items())[:1]))
    with pytest.raises(BarnabasError, match=r"of 2 sessions that are over 1 are in their topic"):
        _tell(missing, DemoOptions())


def test_the_end_says_how_far_it_came() -> None:
    assert _ending(outcome(updates=3, broken_off=4, is_complete=True)) == "3 updates"
    assert _ending(outcome(updates=1, is_complete=True)) == "1 update"
    assert _ending(outcome(updates=3, broken_off=4)) == "stopped during update 4"
    assert _ending(outcome(updates=0, broken_off=1)) == "stopped during update 1"
    assert _ending(outcome(updates=0)) == "stopped before the first update"


@pytest.mark.parametrize("kept", [None, Path("shop")])
def test_what_to_try_next_fits_a_terminal_and_works(kept: Path | None) -> None:
    lines = list(_next_steps(kept))
    assert max(map(len, lines)) <= 78
    for text in lines:
        shlex.split(text, comments=True)
    if kept is not None:
        assert "barnabas pipeline run shop --full-refresh-all" in lines


def test_folders_are_quoted_in_what_to_try_next() -> None:
    kept = Path("my $shop's")
    lines = [shlex.split(line, comments=True) for line in _next_steps(kept)]
    assert lines[1] == ["less", "my $shop's/README.md"]
    done = subprocess.run(
        ["sh", "-c", next(_next_steps(kept)).replace("import pandas; print(pandas.read_parquet(", "print((")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "my $shop's/tables/clicks\n"


def test_lines_come_now_and_then_and_when_something_changes(capsys: pytest.CaptureFixture[str]) -> None:
    show = _Lines(line)
    picture = Picture("127.0.0.1:9092", 0.5, "starting", hint="look here")
    for elapsed_s, phase in [(0.5, "starting"), (0.7, "starting"), (2.6, "starting"), (2.7, "update 1")]:
        show(replace(picture, elapsed_s=elapsed_s, phase=phase))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "node at 127.0.0.1:9092; look into it with: look here"
    assert [text.split()[0] for text in lines[1:]] == ["0.5", "2.6", "2.7"]
