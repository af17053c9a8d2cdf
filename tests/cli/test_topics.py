"""`topics`: JSON for programs, tables for people, and what goes wrong."""

from __future__ import annotations

import re

import pytest

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.cli.topics import parse_assignment
from barnabas.cli.topics_shown import ShownTopic
from barnabas.client.admin import PartitionReassignment, TopicDescription, TopicPartitionInfo
from barnabas.client.core.metadata import Node
from tests.cli.tools import Tools

NODES = tuple(Node(number, "host", 9092, None) for number in range(5))


def test_the_life_of_a_topic_as_json(barnabas: Tools, our_node: str) -> None:
    created = barnabas.json_at(our_node, "topics --create --topic life --partitions 2 --config retention.ms=5")
    topic_id = created.pop("topicId")
    assert created == {"topic": "life", "created": True, "partitions": 2, "replicationFactor": 1}
    again = barnabas.json_at(our_node, "topics --create --topic life --if-not-exists")
    assert again == {"topic": "life", "created": False}
    assert "life" in barnabas.json_at(our_node, "topics --list")
    assert barnabas.json_at(our_node, "topics --alter --topic life --partitions 3") == [
        {"topic": "life", "partitions": 3}
    ]
    (described,) = barnabas.json_at(our_node, f"topics --describe --topic-id {topic_id}")
    assert (described["topic"], described["partitionCount"]) == ("life", 3)
    assert described["configs"]["retention.ms"] == "5"
    assert described["partitions"][2] | {"elr": None, "lastKnownElr": None} == {
        "partition": 2,
        "leader": 1,
        "replicas": [1],
        "isr": [1],
        "elr": None,
        "lastKnownElr": None,
    }
    assert barnabas.json_at(our_node, "topics --delete --topic 'li.e'") == [{"topic": "life", "deleted": True}]
    assert barnabas.json_at(our_node, "topics --delete --topic life --if-exists") == []
    assert barnabas.json_at(our_node, "topics --describe --topic life --if-exists") == []


def test_a_json_document_is_alone_on_standard_output(barnabas: Tools, our_node: str) -> None:
    told = barnabas.at(our_node, "topics --create --topic under_score --json")
    assert told.out.startswith('{"topic":"under_score"')
    assert told.err.startswith("WARNING: ")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("--create --topic clicks", "TOPIC_ALREADY_EXISTS"),
        ("--create --topic new --replication-factor 3", "INVALID_REPLICATION_FACTOR"),
        ("--create --topic new --config nonsense=1", "INVALID_CONFIG"),
        ("--create --topic new!", "INVALID_TOPIC_EXCEPTION"),
        ("--alter --topic clicks --partitions 1", "INVALID_PARTITIONS"),
        ("--alter --topic nothing --partitions 1", "no topic matches 'nothing' (with --if-exists this is no error)"),
        ("--delete --topic nothing", "no topic matches 'nothing'"),
        ("--describe --topic nothing", "no topic matches 'nothing'"),
        ("--describe --topic '('", "--topic: '(' is not a regular expression"),
        ("--describe --topic-id AAAAAAAAAAAAAAAAAAAAAw", "no topic has the id AAAAAAAAAAAAAAAAAAAAAw"),
        ("--describe --topic-id short", "--topic-id: 'short' is not an id"),
    ],
)
def test_failures_are_told_in_one_line(barnabas: Tools, our_node: str, call: str, said: str) -> None:
    told = barnabas.at(our_node, f"topics {call}")
    assert (told.code, told.out) == (1, "")
    assert told.err.startswith("barnabas: ")
    assert said in told.err
    assert told.err.count("\n") == 1


def test_partitions_are_added_where_they_are_wanted(barnabas: Tools, our_node: str) -> None:
    assert barnabas.at(our_node, "topics --create --topic placed --replica-assignment 1").code == 0
    told = barnabas.at(our_node, "topics --alter --topic placed --partitions 3 --replica-assignment 1,1,99")
    assert told.code == 1
    assert "INVALID_REPLICA_ASSIGNMENT" in told.err
    assert barnabas.at(our_node, "topics --alter --topic placed --partitions 3 --replica-assignment 1,1,1").code == 0
    assert barnabas.json_at(our_node, "topics --describe --topic placed")[0]["partitionCount"] == 3


def test_an_option_that_lost_its_meaning_is_warned_of(barnabas: Tools, our_node: str) -> None:
    told = barnabas.at(our_node, "topics --describe --topic clicks --delete-config retention.ms")
    assert told.code == 0
    assert told.err.startswith("--delete-config has no effect here")


def test_at_a_terminal_there_are_tables(barnabas: Tools, our_node: str, terminal: None) -> None:
    told = barnabas.at(our_node, "topics --describe --topic clicks")
    assert "Partition" in told.out
    assert "┃" in told.out
    first = told.out.splitlines()[0]
    assert re.search(r"Topic: clicks   TopicId: [\w-]{22}   PartitionCount: \d+   ReplicationFactor: 1", first)
    assert told.out.count("clicks") == 1
    assert "clicks" in barnabas.at(our_node, "topics --list").out
    assert barnabas.at(our_node, "topics --describe --under-replicated-partitions").out == ""


@pytest.mark.parametrize("columns", [20, 50, 80])
def test_a_narrow_terminal_breaks_no_name(
    barnabas: Tools, our_node: str, terminal: None, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "a-topic-with-a-name-that-is-wider-than-some-terminals"
    assert barnabas.at(our_node, f"topics --create --if-not-exists --topic {name}").code == 0
    told = barnabas.at(our_node, f"topics --describe --topic {name}").out
    title = told.splitlines()[0]
    assert name in title
    assert "PartitionCount: 1   ReplicationFactor: 1" in title
    assert "LastKnownElr" in told
    assert name in barnabas.at(our_node, "topics --list").out
    barnabas.at(our_node, f"topics --delete --topic {name}")


def test_nobody_answers(barnabas: Tools, unused_port: int, tmp_path: object) -> None:
    config = f"{tmp_path}/client.properties"
    with open(config, "w") as file:
        file.write("default.api.timeout.ms=200\nbootstrap.servers=elsewhere:1\n")
    told = barnabas.at(f"127.0.0.1:{unused_port}", f"topics --list --command-config {config}")
    assert (told.code, told.out) == (1, "")
    assert f"127.0.0.1:{unused_port}" in told.err
    assert told.err.count("\n") == 1


def test_replica_assignments() -> None:
    assert parse_assignment("1:2,2:3") == ((1, 2), (2, 3))
    assert parse_assignment(" 1 , 2 ") == ((1,), (2,))


def shown(
    *,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    leader: int | None,
    needed: int = 2,
    moving: tuple[int, ...] = (),
) -> tuple[ShownTopic, TopicPartitionInfo]:
    partition = TopicPartitionInfo(
        partition=0,
        leader=None if leader is None else NODES[leader],
        leader_epoch=0,
        replicas=tuple(NODES[each] for each in replicas),
        isr=tuple(NODES[each] for each in isr),
    )
    topic = TopicDescription(name="t", topic_id=Uuid.ZERO, is_internal=False, partitions=(partition,))
    reassignments = {TopicPartition("t", 0): PartitionReassignment(replicas, moving, ())} if moving else {}
    return ShownTopic(topic, {}, needed, reassignments), partition


ALL = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)


@pytest.mark.parametrize(
    ("described", "reports"),
    [
        (shown(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1), ()),
        (shown(replicas=(1, 2, 3), isr=(1, 2), leader=1), (ALL[0], ALL[3])),
        (shown(replicas=(1, 2, 3), isr=(1,), leader=1), (ALL[0], ALL[2])),
        (shown(replicas=(1, 2, 3), isr=(1, 2, 3), leader=None), (ALL[1], ALL[2])),
        (shown(replicas=(1, 2, 3), isr=(1, 2, 3), leader=4), (ALL[1],)),
        # A replica that is only just being added is not missed.
        (shown(replicas=(1, 2, 3), isr=(1, 2), leader=1, moving=(3,)), (ALL[3],)),
        # The reassignment was over when the partition was described.
        (shown(replicas=(1, 2, 3), isr=(1, 2), leader=1, moving=(4,)), (ALL[0], ALL[3])),
    ],
)
def test_which_partitions_are_reported(
    described: tuple[ShownTopic, TopicPartitionInfo], reports: tuple[str, ...]
) -> None:
    topic, partition = described
    live = frozenset({1, 2, 3})
    assert tuple(report for report in ALL if topic.is_reported(partition, [report], live)) == reports
