"""`leader-election`: what it is given, and what it says of each partition. That it says it in Kafka's words stands in
`test_same_as_kafkas_tools`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.leader_election import parse_partitions
from tests.cli.tools import Tools


def test_the_file_names_partitions() -> None:
    data = b'{"partitions": [{"topic": "b", "partition": 1}, {"topic": "a", "partition": 0}], "version": 1}'
    assert parse_partitions(data, "f") == [TopicPartition("b", 1), TopicPartition("a", 0)]
    assert parse_partitions(b'{"partitions": []}', "f") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f: the file is empty"),
        ("{", "f: no JSON"),
        ("{}", "f: a list named 'partitions' is missing"),
        ("[]", "f: a list named 'partitions' is missing"),
        ('{"partitions": [{"topic": "a"}]}', r"f: partitions\[0\]: a topic \(text\) and a partition"),
        ('{"partitions": [{"topic": "a", "partition": "0"}]}', r"f: partitions\[0\]"),
        ('{"partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 0}]}', "a-0 is there more than"),
    ],
)
def test_a_file_that_is_wrong(text: str, said: str) -> None:
    with pytest.raises(BarnabasError, match=said):
        parse_partitions(text.encode(), "f")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("--election-type preferred --all-topic-partitions", "--bootstrap-server is missing"),
        ("--bootstrap-server a:1 --all-topic-partitions", "--election-type is missing"),
        ("--bootstrap-server a:1 --election-type other --all-topic-partitions", "'other' is not one of"),
        ("--bootstrap-server a:1 --election-type preferred", "--topic, --all-topic-partitions or --path-to-json-file"),
        ("--bootstrap-server a:1 --election-type preferred --topic a", "--partition is missing for --topic"),
        ("--bootstrap-server a:1 --election-type preferred --partition 0 --all-topic-partitions", "only with --topic"),
        (
            "--bootstrap-server a:1 --election-type preferred --topic a --partition 0 --all-topic-partitions",
            "not --topic and --all-topic-partitions",
        ),
        ("--bootstrap-server a:1 --election-type preferred --path-to-json-file /nowhere.json", "/nowhere.json"),
        (
            "--bootstrap-server a:1 --election-type unclean --all-topic-partitions --command-config a --admin.config a",
            "--admin.config does not go with --command-config",
        ),
    ],
)
def test_wrong_calls_end_with_1(barnabas: Tools, call: str, said: str) -> None:
    told = barnabas("leader-election", *call.split())
    assert told.code == 1
    assert said in told.err


def test_what_a_partition_says(barnabas: Tools, our_node: str, tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": [{"topic": "clicks", "partition": 0}, {"topic": "nothing", "partition": 3}]}')
    told = barnabas.at(our_node, f"leader-election --election-type preferred --path-to-json-file {file}")
    assert told.code == 1
    assert told.out.splitlines() == [
        "Valid replica already elected for partitions clicks-0",
        "Error completing leader election (PREFERRED) for partition: nothing-3: No such topic as nothing",
    ]
    assert "1 replica(s) could not be elected" in told.err
    told = barnabas.at(our_node, f"leader-election --election-type preferred --path-to-json-file {file} --json")
    assert json.loads(told.out) == [
        {"topic": "clicks", "partition": 0, "elected": False},
        {"topic": "nothing", "partition": 3, "error": "No such topic as nothing"},
    ]


def test_no_partition_is_no_question(barnabas: Tools, our_node: str, tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": []}')
    told = barnabas.at(our_node, f"leader-election --election-type unclean --path-to-json-file {file}")
    assert (told.code, told.out) == (0, "")
