"""`barnabas demo` without Spark: what it refuses, what it misses, what it prints, and clicks for a cluster of yours."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas import Admin
from barnabas.cli.demo import _Lines
from barnabas.spark.demo.picture import Picture, line
from barnabas.testing import EmbeddedBroker
from tests.cli.tools import Tools


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
    assert "pip install 'barnabas[spark]'" in told.err


def test_clicks_can_be_written_to_any_cluster(tool: Tools, address: str) -> None:
    told = tool("demo", "--clicks-only", address, "--seconds", "1", "--rate", "500", "--seed", "3")
    assert told.code == 0, told.err
    assert f"writing clicks to {address}, 500 in a second" in told.out
    assert " clicks (" in told.out
    with Admin(bootstrap_servers=address) as admin:
        assert {"clicks", "users", "sessions", "clicks.dead"} <= set(admin.list_topics())


def test_lines_come_now_and_then_and_when_something_changes(capsys: pytest.CaptureFixture[str]) -> None:
    show = _Lines(line)
    picture = Picture("127.0.0.1:9092", 0.5, "starting", hint="look here")
    for elapsed_s, phase in [(0.5, "starting"), (0.7, "starting"), (2.6, "starting"), (2.7, "update 1")]:
        show(replace(picture, elapsed_s=elapsed_s, phase=phase))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "node at 127.0.0.1:9092; look into it with: look here"
    assert [text.split()[0] for text in lines[1:]] == ["0.5", "2.6", "2.7"]
