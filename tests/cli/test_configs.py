"""`configs`: JSON, tables, lists in brackets, files, and what goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.configs import parse_settings
from tests.cli.tools import Tools


def test_settings_are_set_and_removed(barnabas: Tools, our_node: str, tmp_path: Path) -> None:
    assert barnabas.at(our_node, "topics --create --topic settings").code == 0
    path = tmp_path / "add.properties"
    path.write_text("# a comment\nretention.ms = 5000\ncleanup.policy=compact,delete\n")
    changed = barnabas.json_at(our_node, f"configs --alter --topic settings --add-config-file {path}")
    assert changed == {
        "entities": [{"type": "topics", "name": "settings"}],
        "set": ["cleanup.policy", "retention.ms"],
        "deleted": [],
    }
    (described,) = barnabas.json_at(our_node, "configs --describe --topic settings")
    assert {each["name"]: each["value"] for each in described["configs"]} == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "5000",
    }
    assert described["configs"][1]["source"] == "DYNAMIC_TOPIC_CONFIG"
    told = barnabas.at(our_node, "configs --alter --topic settings --delete-config retention.ms,cleanup.policy")
    assert told.out == "Completed updating config for topic settings.\n"
    assert (
        barnabas.at(our_node, "configs --describe --topic settings").out == "Dynamic configs for topic settings are:\n"
    )
    assert barnabas.json_at(our_node, "configs --describe --topic nothing") == []


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("--alter --topic nothing --add-config retention.ms=1", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("--alter --topic clicks --add-config nonsense=1", "INVALID_CONFIG"),
        ("--alter --topic clicks --add-config retention.ms=soon", "INVALID_CONFIG"),
        ("--alter --topic clicks --add-config-file /nowhere", "/nowhere: No such file"),
        ("--alter --user ann --add-config speed=1", "users have no 'speed', only consumer_byte_rate"),
        ("--alter --client app --add-config SCRAM-SHA-256=[password=x]", "clients have no 'SCRAM-SHA-256'"),
        ("--alter --user ann --client app --delete-config SCRAM-SHA-256", "have no 'SCRAM-SHA-256'"),
        ("--alter --ip 127.0.0.1 --add-config producer_byte_rate=1", "ips have no 'producer_byte_rate'"),
        ("--alter --user ann --add-config producer_byte_rate=fast", "producer_byte_rate must be a number, not 'fast'"),
        ("--alter --client app --add-config producer_byte_rate=nan", "producer_byte_rate must be a number, not 'nan'"),
        ("--alter --client app --add-config producer_byte_rate=inf", "producer_byte_rate must be a number, not 'inf'"),
        ("--alter --client app --add-config producer_byte_rate=-1", "--delete-config producer_byte_rate removes it"),
        ("--alter --user ann --add-config SCRAM-SHA-256=secret", "SCRAM-SHA-256=[iterations=8192,password=secret]"),
        ("--alter --user ann --add-config SCRAM-SHA-256=[iterations=7,password=x]", "at least 4096 iterations, not 7"),
        ("--alter --user-defaults --add-config SCRAM-SHA-256=[password=x]", "SCRAM-SHA-256 is for one user"),
        ("--alter --user ann --add-config SCRAM-SHA-256=[password=x],producer_byte_rate=1", "in two steps"),
    ],
)
def test_failures_are_told_in_one_line(barnabas: Tools, our_node: str, call: str, said: str) -> None:
    told = barnabas.at(our_node, f"configs {call}")
    assert (told.code, told.out) == (1, "")
    assert said in told.err
    assert told.err.count("\n") == 1
    assert "password=x" not in told.err


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("--client nobody", "no quotas are set for client-id 'nobody'\n"),
        ("--client-defaults", "no quotas are set for the default client-id\n"),
        ("--user nobody", "no quotas or passwords are set for user-principal 'nobody'\n"),
    ],
)
def test_who_has_nothing_is_told_beside_the_output(barnabas: Tools, our_node: str, call: str, said: str) -> None:
    assert barnabas.at(our_node, f"configs --describe {call}") == (0, "", said)


def test_lists_stand_in_brackets() -> None:
    assert parse_settings("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}
    assert parse_settings("SCRAM-SHA-256=[iterations=8192,password=a=b]") == {
        "SCRAM-SHA-256": "iterations=8192,password=a=b"
    }
    assert parse_settings(" a = 1 , b = 2") == {"a": "1", "b": "2"}


def test_at_a_terminal_there_are_tables(barnabas: Tools, our_node: str, terminal: None) -> None:
    told = barnabas.at(our_node, "configs --describe --topic clicks --all")
    assert "All configs for topic clicks are:" in told.out
    assert "┃" in told.out
    assert "sensitive=" not in told.out
