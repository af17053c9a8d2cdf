"""`log-dirs`; `test_same_as_kafkas_tools` sets it beside Kafka's."""

from __future__ import annotations

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.cli.log_dirs import _document, _rows
from barnabas.client.admin import LogDirDescription, ReplicaInfo
from tests.cli.tools import Tools


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("--describe", "--bootstrap-server is missing"),
        ("--bootstrap-server a:1", "--describe is missing"),
        ("--bootstrap-server a:1 --describe --broker-list x", "'x' is no list of broker ids"),
    ],
)
def test_wrong_calls_end_with_1(barnabas: Tools, call: str, said: str) -> None:
    told = barnabas("log-dirs", *call.split())
    assert told.code == 1
    assert said in told.err


def test_brokers_that_there_are_not(barnabas: Tools, our_node: str) -> None:
    told = barnabas.at(our_node, "log-dirs --describe --broker-list 1,9,8")
    assert told.code == 1
    assert "there are no brokers 9,8; those that there are: 1" in told.err


def test_json_is_the_same_without_the_lines_around_it(barnabas: Tools, our_node: str) -> None:
    found = barnabas.json_at(our_node, "log-dirs --describe --topic-list clicks")
    (broker,) = found["brokers"]
    (directory,) = broker["logDirs"]
    assert {each["partition"] for each in directory["partitions"]} == {"clicks-0", "clicks-1"}
    assert barnabas.at(our_node, "log-dirs --describe --topic-list clicks").out.count("\n") == 3


def test_a_table_for_people(barnabas: Tools, our_node: str, terminal: None) -> None:
    told = barnabas.at(our_node, "log-dirs --describe --topic-list clicks")
    assert "clicks-0" in told.out
    assert "2 replicas" in told.out
    assert "Querying" not in told.out


def test_a_directory_that_failed_has_the_name_that_kafka_gives_the_error() -> None:
    replicas = {TopicPartition("a", 0): ReplicaInfo(10, 3, False), TopicPartition("b", 0): ReplicaInfo(5, 0, True)}
    found = {
        1: {
            "/good": LogDirDescription("/good", None, replicas, 100, 40),
            "/bad": LogDirDescription("/bad", BrokerError(ErrorCode.KAFKA_STORAGE_ERROR), {}),
        }
    }
    good, bad = _document(found, {"a"})["brokers"][0]["logDirs"]
    assert good == {
        "partitions": [{"partition": "a-0", "size": 10, "offsetLag": 3, "isFuture": False}],
        "error": None,
        "logDir": "/good",
    }
    assert bad == {
        "partitions": [],
        "error": "org.apache.kafka.common.errors.KafkaStorageException",
        "logDir": "/bad",
    }
    rows = list(_rows(found, set()))
    assert rows[0] == (1, "/good", "2 replicas", 15, "", "40 free of 100")
    assert rows[2][5] == "a copy that will take its place"
    assert str(rows[3][2]).startswith("offline: ")
