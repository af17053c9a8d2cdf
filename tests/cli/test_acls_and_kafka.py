"""`barnabas acls` beside Kafka's `kafka-acls`, on a node of ours: the same words for the same rules."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from barnabas.testing import EmbeddedBroker
from tests.cli.kafka_tools import KafkaTools
from tests.cli.tools import Told, Tools
from tests.oracles import needs_kafka

pytestmark = needs_kafka()

CALLS = """
--list
--add --allow-principal User:ann --operation Read --operation Write --topic clicks
--add --allow-principal User:ann --allow-host 10.0.0.1 --allow-host 10.0.0.2 --operation DescribeConfigs --topic clicks
--add --deny-principal User:eve --deny-host 10.0.0.9 --topic sec --resource-pattern-type prefixed
--add --allow-principal User:bob --producer --topic clicks --transactional-id txn --idempotent
--add --allow-principal User:bob --consumer --topic clicks --group readers
--add --allow-principal User:bob --producer --consumer --topic both --group readers
--add --allow-principal User:ann --operation Alter --cluster
--add --allow-principal User:ann --operation CreateTokens --user-principal User:bob
--add --allow-principal User:ann --operation Describe --delegation-token '*'
--list
--list --topic clicks
--list --topic secret --resource-pattern-type match
--list --topic sec --resource-pattern-type any
--list --cluster
--list --principal User:bob
--list --principal User:bob --principal User:nobody --topic clicks
--remove --allow-principal User:ann --operation Read --topic clicks --force
--list --topic clicks
--remove --topic clicks --force
--remove --topic secret --resource-pattern-type match --force
--remove --topic nothing --force
--list
--list --group nothing
""".strip().splitlines()

WRONG = """
--add --allow-principal User:ann --operation ClusterAction --topic clicks
--add --topic clicks
--add --allow-principal User:ann
--add --allow-principal User:ann --topic clicks --resource-pattern-type match
--add --list
--list --allow-principal User:ann
--add --allow-principal User:ann --producer
--add --allow-principal User:ann --consumer --topic clicks
--add --allow-principal User:ann --topic clicks --idempotent
--remove --topic clicks --principal User:ann
""".strip().splitlines()


@pytest.fixture(scope="module")
def kafka_tools() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


def _node() -> EmbeddedBroker:
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    return EmbeddedBroker(overrides={"authorizer.class.name": name, "super.users": "User:ANONYMOUS"})


def _blocks(told: Told) -> tuple[int, list[list[str]]]:
    """What was printed, by resource; in which order resources and rules come, Kafka leaves to chance."""
    blocks: list[list[str]] = []
    for line in told.out.splitlines():
        if not line.startswith(("\t", " \t")) or not blocks:
            blocks.append([])
        blocks[-1].append(line.strip())
    return told.code, sorted([block[0], *sorted(block[1:])] for block in blocks if any(block))


def test_both_say_the_same_of_the_same_rules(barnabas: Tools, kafka_tools: KafkaTools) -> None:
    with _node() as theirs, _node() as ours:
        for call in CALLS:
            expected = kafka_tools("acls", "--bootstrap-server", theirs.bootstrap_servers, *shlex.split(call))
            told = barnabas.at(ours.bootstrap_servers, f"acls {call}")
            assert _blocks(told) == _blocks(expected), call


@pytest.mark.parametrize("call", ["--remove --topic clicks", "--remove --topic clicks --allow-principal User:ann"])
def test_both_ask_before_they_remove(
    barnabas: Tools, kafka_tools: KafkaTools, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    add = "--add --allow-principal User:ann --topic clicks"
    with _node() as node:
        assert barnabas.at(node.bootstrap_servers, f"acls {add}").code == 0
        connected = ("acls", "--bootstrap-server", node.bootstrap_servers)
        # Nobody answers it here: it asks, and gives up.
        expected = kafka_tools(*connected, *shlex.split(call)).out
        monkeypatch.setattr("builtins.input", lambda: "n")
        told = barnabas.at(node.bootstrap_servers, f"acls {call}")
        assert told.code == 0
        assert told.out.endswith("? (y/n)\n")
        assert expected.startswith(told.out)
        assert len(barnabas.json_at(node.bootstrap_servers, "acls --list")) == 1
        monkeypatch.setattr("builtins.input", lambda: "y")
        assert barnabas.at(node.bootstrap_servers, f"acls {call}").code == 0
        assert barnabas.json_at(node.bootstrap_servers, "acls --list") == []


@pytest.mark.parametrize("call", WRONG)
def test_both_refuse_what_makes_no_sense(barnabas: Tools, kafka_tools: KafkaTools, call: str) -> None:
    nowhere = "127.0.0.1:1"
    assert kafka_tools("acls", "--bootstrap-server", nowhere, *shlex.split(call)).code == 1
    assert barnabas.at(nowhere, f"acls {call}").code == 1
