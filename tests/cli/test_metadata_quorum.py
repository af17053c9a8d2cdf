"""`metadata-quorum` and `cluster list-endpoints`: beside Kafka's own tools."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from barnabas.cli.aliases import run
from tests.cli.kafka_tools import KafkaTools
from tests.cli.tools import Tools
from tests.oracles import needs_kafka


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


def same(text: str) -> str:
    """Numbers that change from call to call, without the width that they have."""
    text = re.sub(r"(HighWatermark: +|MaxFollowerLagTimeMs: +)-?\d+", r"\1N", text)
    return re.sub(r"(?m)\t[\d]+ *\t\d+ *\t\d+( ms ago)? *\t\d+( ms ago)? *\t", "\tN\t", re.sub(r" +\t", "\t", text))


def assert_same(barnabas: Tools, kafka: KafkaTools, bootstrap: str) -> None:
    at = ("--bootstrap-server", bootstrap)
    for action in ("--status", "--replication", "--replication --human-readable"):
        arguments = (*at, "describe", *action.split())
        ours, kafkas = barnabas("metadata-quorum", *arguments), kafka("metadata-quorum", *arguments)
        assert ours.code == kafkas.code == 0, (ours, kafkas)
        assert same(ours.out) == same(kafkas.out)
    for more in ((), ("--include-fenced-brokers",)):
        ours, kafkas = barnabas("cluster", "list-endpoints", *at, *more), kafka("cluster", "list-endpoints", *at, *more)
        assert ours == kafkas


@needs_kafka()
def test_of_our_node(barnabas: Tools, kafka: KafkaTools, our_node: str) -> None:
    assert_same(barnabas, kafka, our_node)


@needs_kafka()
def test_of_apache_kafka(barnabas: Tools, kafka: KafkaTools, apache_kafka: str) -> None:
    assert_same(barnabas, kafka, apache_kafka)


def test_json(barnabas: Tools, our_node: str) -> None:
    told = barnabas("metadata-quorum", "--bootstrap-server", our_node, "describe", "--replication", "--json")
    assert told.code == 0
    assert '"Status":"Leader"' in told.out
    told = barnabas("cluster", "list-endpoints", "--bootstrap-server", our_node, "--json")
    assert '"STATE":"unfenced","ENDPOINT_TYPE":"broker"' in told.out


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("--bootstrap-server a:1 describe", "give exactly one of --status or --replication"),
        ("--bootstrap-server a:1 describe --status --replication", "give exactly one of --status or --replication"),
        ("--bootstrap-server a:1 describe --status --human-readable", "--human-readable goes only with --replication"),
        ("describe --status", "give exactly one of --bootstrap-server or --bootstrap-controller"),
        ("--bootstrap-server a:1 add-controller", "metadata-quorum add-controller is not built yet"),
        ("--bootstrap-server a:1 remove-controller -i 3 -d x", "metadata-quorum remove-controller is not built yet"),
    ],
)
def test_wrong_calls_end_with_1(call: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kafka-metadata-quorum.sh", *call.split()]) == 1
    assert said in capsys.readouterr().err


def test_fenced_brokers_are_asked_of_brokers(barnabas: Tools) -> None:
    told = barnabas("cluster", "list-endpoints", "--bootstrap-controller", "a:1", "--include-fenced-brokers")
    assert told.code == 1
    assert "--include-fenced-brokers goes only with --bootstrap-server" in told.err
