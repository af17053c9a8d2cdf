"""What is typed in any Kafka book reaches our tools."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from barnabas.cli.aliases import ALIASES, alias_of, run
from barnabas.cli.main import TOOLS

PROJECT = Path(__file__).parent.parent.parent / "pyproject.toml"


def test_every_alias_is_installed_with_and_without_its_ending() -> None:
    scripts = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
    kafkas = {name: place for name, place in scripts.items() if name.startswith("kafka-")}
    assert kafkas == {f"{name}{ending}": "barnabas.cli.aliases:run" for name in ALIASES for ending in ("", ".sh")}


def test_every_tool_of_kafkas_has_its_alias() -> None:
    assert {words[0] for words in ALIASES.values()} >= TOOLS.keys() - {
        "certs",
        "demo",
        "pipeline",
        "sim",
        "top",
        "up",
        "why",
    }


@pytest.mark.parametrize(
    "path", ["kafka-topics", "kafka-topics.sh", "/usr/bin/kafka-topics.sh", "C:\\kafka\\kafka-topics.sh.exe"]
)
def test_the_name_tells_what_is_meant(path: str) -> None:
    assert alias_of(path) == "kafka-topics"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("kafka-topics.sh --create --topic a --partitions x", "Invalid value for '--partitions'"),
        ("kafka-configs --describe", "--bootstrap-server or --bootstrap-controller"),
        ("kafka-consumer-groups.sh --list", "--bootstrap-server is missing"),
        ("kafka-get-offsets.sh --topic a", "--bootstrap-server is missing"),
        ("kafka-delete-records.sh --offset-json-file a", "--bootstrap-server is missing"),
        ("kafka-server-start.sh -daemon /nowhere/server.properties", "/nowhere/server.properties"),
        ("kafka-storage.sh info -c /nowhere/server.properties", "/nowhere/server.properties"),
        ("kafka-dump-log.sh --print-data-log", "Missing option '--files'"),
        ("kafka-metadata-shell.sh ls", "--snapshot"),
        ("kafka-broker-api-versions.sh", "Missing option '--bootstrap-server'"),
    ],
)
def test_arguments_go_to_the_tool(call: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(call.split()) != 0
    assert said in capsys.readouterr().err


def test_an_installed_script_knows_its_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["/opt/kafka/bin/kafka-storage.sh", "random-uuid"])
    assert run() == 0
    assert len(capsys.readouterr().out.strip()) == 22


def test_a_topic_is_made_as_in_the_books(our_node: str, capsys: pytest.CaptureFixture[str]) -> None:
    call = f"kafka-topics.sh --bootstrap-server {our_node} --create --topic by-the-book --partitions 3"
    assert run(call.split()) == 0
    assert capsys.readouterr().out == "Created topic by-the-book.\n"


def test_a_tool_that_is_not_there_is_not_pretended(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kafka-reassign-partitions.sh", "--list"]) == 1
    assert capsys.readouterr().err.startswith("barnabas: kafka-reassign-partitions: there is no such tool here")
