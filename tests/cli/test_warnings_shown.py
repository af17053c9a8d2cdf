"""What tools say while they try in vain: a line on standard error, not silence, and not the last words twice."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from barnabas.cli import warnings_shown
from barnabas.client.core import troubles
from barnabas.testing import EmbeddedBroker
from tests.cli.tools import Told, Tools
from tests.ports import free_ports


@pytest.fixture
def nobody() -> str:
    """An address that is taken, and at which nobody listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


class OwnLog:
    """Runs tools as in a process of its own, in which nobody has a log; pytest has one while a test runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._tools = Tools(capture)

    def __call__(self, *arguments: str) -> Told:
        with self._monkeypatch.context() as patches:
            patches.setattr(logging.root, "handlers", [])
            return self._tools(*arguments)


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> OwnLog:
    return OwnLog(monkeypatch, capsys)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines come without a wait. How long it is, is tested elsewhere, on virtual time."""
    monkeypatch.setattr(troubles, "FIRST_AFTER_MS", 1)
    monkeypatch.setattr(troubles, "ERROR_IS_NEAR_MS", 1)


def hasty(tmp_path: Path) -> str:
    """A file of settings with which tools give up soon."""
    path = tmp_path / "client.properties"
    path.write_text("default.api.timeout.ms=300\nrequest.timeout.ms=200\n")
    return str(path)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "call",
    [
        "topics --list",
        "configs --describe --entity-type topics",
        "consumer-groups --list --timeout 300",
        "get-offsets --topic t",
        "cluster cluster-id",
    ],
)
def test_a_tool_says_that_nobody_answers_and_then_fails(nobody: str, call: str, tools: OwnLog, tmp_path: Path) -> None:
    words = call.split()
    place = 2 if words[0] == "cluster" else 1
    option = "--config" if words[0] == "cluster" else "--command-config"
    told = tools(*words[:place], "--bootstrap-server", nobody, option, hasty(tmp_path), *words[place:])
    warning, error = told.err.splitlines()
    assert told.code == 1
    assert warning.startswith(f"barnabas: no broker answers at {nobody} (no ")
    assert warning.endswith("; it is tried again. Check bootstrap.servers, and that a broker listens there")
    assert "none of the bootstrap servers answered within" in error


def test_a_tool_that_fails_soon_says_it_once(nobody: str, tools: OwnLog, tmp_path: Path) -> None:
    told = tools("topics", "--bootstrap-server", nobody, "--command-config", hasty(tmp_path), "--list")
    assert len(told.err.splitlines()) == 1


@pytest.mark.usefixtures("at_once")
def test_a_consumer_of_a_topic_that_does_not_exist_says_so(tools: OwnLog) -> None:
    with EmbeddedBroker(auto_create_topics_enable=False) as broker:
        told = tools(
            "console-consumer", "--bootstrap-server", broker.bootstrap_servers, "--topic", "x", "--timeout-ms", "500"
        )
    assert "barnabas: topic 'x' does not exist, say the brokers" in told.err
    assert told.out == ""


def test_other_warnings_are_lines_too_and_a_log_that_is_there_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    warnings_shown.show_warnings()
    logging.getLogger("barnabas.client.group").warning("group %s: \x1b[2J", "g")
    assert capsys.readouterr().err == "barnabas: group g: \\x1b[2J\n"
    warnings_shown.show_warnings()
    assert len(logging.root.handlers) == 1
