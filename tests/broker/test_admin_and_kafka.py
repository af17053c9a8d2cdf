"""The same requests to Apache Kafka and to our handlers: the same errors, the same settings, the same sources."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.broker.handlers import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)
from barnabas.wire.apis import api
from barnabas.wire.frames import frame_parts
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.message import Request
from barnabas.wire.messages import alter_configs as replacing
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.admin import AdminNode
from tests.metadata.clusters import new_topic, uuid
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import FORMAT_WITHOUT_ELR, KafkaServer

pytestmark = needs_kafka()

HANDLERS = {
    module.API_KEY: module
    for module in (
        alter_configs,
        create_partitions,
        create_topics,
        delete_topics,
        describe_configs,
        incremental_alter_configs,
    )
}
SET, DELETE, APPEND, SUBTRACT = range(4)


@dataclass
class Both:
    """Kafka and our handlers, asked in turn."""

    address: tuple[str, int]
    node: AdminNode

    def ask(self, request: Request, version: int) -> tuple[Any, Any]:
        """Kafka's answer, then ours."""
        return self._kafka(request, version), self.node.ask(HANDLERS[api(request.API_KEY).key], request, version)

    def _kafka(self, request: Request, version: int) -> Any:
        with socket.create_connection(self.address, timeout=30) as connection:
            connection.sendall(b"".join(map(bytes, frame_parts(encode_request(request, version, 7, "tests")))))
            stream = connection.makefile("rb")
            frame = stream.read(int.from_bytes(stream.read(4), "big"))
        return decode_response(api(request.API_KEY).response, version, frame)[1]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with KafkaServer(tmp_path_factory.mktemp("kafka"), format_options=FORMAT_WITHOUT_ELR) as server:
        host, _, port = server.bootstrap.partition(":")
        pair = Both((host, int(port)), AdminNode())
        pair.ask(CreateTopicsRequest(topics=[new_topic("old.topic", 2, 1, configs={"retention.ms": "5000"})]), 7)
        yield pair


def codes(results: list[Any]) -> dict[Any, ErrorCode]:
    def key(result: Any) -> Any:
        name = getattr(result, "name", None) or getattr(result, "resource_name", None)
        return name or getattr(result, "resource_type", None)

    return {key(each): ErrorCode.of(each.error_code) for each in results}


NEW_TOPICS: list[tuple[str, list[CreatableTopic]]] = [
    ("good", [new_topic("good", 3, 1, configs={"flush.ms": "7"})]),
    ("defaults", [new_topic("defaults")]),
    ("exists", [new_topic("old.topic", 1, 5)]),
    ("empty", [new_topic("")]),
    ("dot", [new_topic(".")]),
    ("dots", [new_topic("..")]),
    ("long", [new_topic("a" * 250)]),
    ("longest", [new_topic("a" * 249)]),
    ("blank", [new_topic("a b")]),
    ("letters", [new_topic("grün")]),
    ("collision", [new_topic("old_topic")]),
    ("collision within the request", [new_topic("x.y"), new_topic("x_y")]),
    ("twice", [new_topic("d"), new_topic("d"), new_topic("e")]),
    ("no partitions", [new_topic("p0", 0, 1)]),
    ("negative partitions", [new_topic("p2", -2, 1)]),
    ("no replicas", [new_topic("r0", 1, 0)]),
    ("negative replicas", [new_topic("r2", 1, -2)]),
    ("neither", [new_topic("n0", 0, 0)]),
    ("too many replicas", [new_topic("r9", 1, 9)]),
    ("assigned", [new_topic("m", assignment={0: [1], 1: [1]})]),
    ("assigned and counted", [new_topic("m1", 1, -1, assignment={0: [1]})]),
    ("assigned and factored", [new_topic("m2", -1, 1, assignment={0: [1]})]),
    ("assigned to a stranger", [new_topic("m3", assignment={0: [7]})]),
    ("assigned twice to one", [new_topic("m4", assignment={0: [1, 1]})]),
    ("assigned to nobody", [new_topic("m5", assignment={0: []})]),
    ("assigned with a gap", [new_topic("m6", assignment={0: [1], 2: [1]})]),
    ("assigned below zero", [new_topic("m7", assignment={-1: [1]})]),
    ("one partition assigned twice", [new_topic("m8", assignment=[(0, [1]), (0, [1])])]),
    ("unknown setting", [new_topic("c1", configs={"no.such": "1"})]),
    ("setting of a broker", [new_topic("c2", configs={"log.retention.ms": "1"})]),
    ("setting without a name", [new_topic("c3", configs={"": "1"})]),
    ("no number", [new_topic("c4", configs={"retention.ms": "abc"})]),
    ("too small", [new_topic("c5", configs={"min.insync.replicas": "0"})]),
    ("null", [new_topic("c6", configs={"retention.ms": None})]),
    ("contradiction", [new_topic("c7", configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})]),
    ("bad item", [new_topic("c8", configs={"cleanup.policy": "foo"})]),
    ("no policy", [new_topic("c9", configs={"cleanup.policy": ""})]),
    ("policy twice", [new_topic("c10", configs={"cleanup.policy": "delete,delete"})]),
    ("tiered", [new_topic("c11", configs={"remote.storage.enable": "true"})]),
    ("small segments", [new_topic("c12", configs={"segment.bytes": "10"})]),
    ("no boolean", [new_topic("c13", configs={"preallocate": "yes"})]),
    ("blanks around", [new_topic("c14", configs={"retention.ms": " 5 "})]),
    ("bad setting and factor", [new_topic("c15", 1, 5, configs={"retention.ms": "abc"})]),
    ("metadata", [new_topic("__cluster_metadata")]),
]


@pytest.mark.parametrize("version", [2, 7])
@pytest.mark.parametrize("topics", [each[1] for each in NEW_TOPICS], ids=[each[0] for each in NEW_TOPICS])
def test_new_topics(both: Both, topics: list[CreatableTopic], version: int) -> None:
    request = CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=version == 2)
    kafka, ours = both.ask(request, version)
    assert codes(ours.topics) == codes(kafka.topics)
    by_name = {each.name: each for each in ours.topics}
    for theirs in kafka.topics:
        mine = by_name[theirs.name]
        assert (mine.num_partitions, mine.replication_factor) == (theirs.num_partitions, theirs.replication_factor)
        assert bool(mine.error_message) == bool(theirs.error_message)
        assert (mine.topic_id == Uuid.ZERO) == (theirs.topic_id == Uuid.ZERO)
        told = [[(c.name, c.value, c.config_source, c.read_only) for c in each.configs] for each in (mine, theirs)]
        assert told[0] == told[1]


@pytest.mark.parametrize(
    "counts", [[9_999], [10_000], [10_001], [6_000, 6_000], [150] * 100], ids=lambda each: str(each[:2])
)
def test_too_much_at_once(both: Both, counts: list[int]) -> None:
    topics = [new_topic(f"big{number}", count, 1) for number, count in enumerate(counts)]
    kafka, ours = both.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000, validate_only=True), 7)
    assert codes(ours.topics) == codes(kafka.topics)


GROWTH: list[tuple[str, list[tuple[str, int, list[list[int]] | None]]]] = [
    ("more", [("old.topic", 3, None)]),
    ("as many", [("old.topic", 2, None)]),
    ("fewer", [("old.topic", 1, None)]),
    ("none", [("old.topic", 0, None)]),
    ("negative", [("old.topic", -1, None)]),
    ("unknown", [("nope", 3, None)]),
    ("empty name", [("", 3, None)]),
    ("twice", [("old.topic", 3, None), ("old.topic", 4, None)]),
    ("assigned", [("old.topic", 3, [[1]])]),
    ("too few assigned", [("old.topic", 4, [[1]])]),
    ("too many assigned", [("old.topic", 3, [[1], [1]])]),
    ("none assigned", [("old.topic", 3, [])]),
    ("assigned to nobody", [("old.topic", 3, [[]])]),
    ("assigned to a stranger", [("old.topic", 3, [[9]])]),
    ("assigned twice to one", [("old.topic", 3, [[1, 1]])]),
]


@pytest.mark.parametrize("topics", [each[1] for each in GROWTH], ids=[each[0] for each in GROWTH])
def test_growth(both: Both, topics: list[tuple[str, int, list[list[int]] | None]]) -> None:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None if given is None else [CreatePartitionsAssignment(broker_ids=each) for each in given],
            )
            for name, count, given in topics
        ],
        timeout_ms=10_000,
        validate_only=True,
    )
    kafka, ours = both.ask(request, 3)
    assert codes(ours.results) == codes(kafka.results)


@pytest.mark.parametrize(
    "topics",
    [
        [("nope", 0)],
        [("a b", 0)],
        [("", 0)],
        [("__cluster_metadata", 0)],
        [(None, 0)],
        [(None, 12345)],
        [("old.topic", 12345)],
        [("old.topic", 0), ("old.topic", 0)],
        [(None, 12345), (None, 12345)],
    ],
)
def test_deletions_that_are_refused(both: Both, topics: list[tuple[str | None, int]]) -> None:
    states = [DeleteTopicState(name=name, topic_id=uuid(number)) for name, number in topics]
    kafka, ours = both.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)
    assert [(each.name, each.topic_id, each.error_code) for each in ours.responses] == [
        (each.name, each.topic_id, each.error_code) for each in kafka.responses
    ]


def test_deletion(both: Both) -> None:
    both.ask(CreateTopicsRequest(topics=[new_topic("short"), new_topic("lived")], timeout_ms=10_000), 7)
    short = [DeleteTopicState(name="short", topic_id=Uuid.ZERO)]
    kafka, ours = both.ask(DeleteTopicsRequest(topics=short, timeout_ms=10_000), 6)
    assert codes(ours.responses) == codes(kafka.responses) == {"short": ErrorCode.NONE}
    kafka, ours = both.ask(DeleteTopicsRequest(topic_names=["lived", "short"], timeout_ms=10_000), 5)
    assert codes(ours.responses) == codes(kafka.responses)


Change = tuple[str, int, str | None]
CHANGES: list[tuple[int, str, list[Change]]] = [
    (2, "old.topic", [("retention.ms", SET, "7")]),
    (2, "old.topic", [("retention.ms", DELETE, None)]),
    (2, "old.topic", [("flush.ms", DELETE, None)]),
    (2, "old.topic", [("no.such", DELETE, None)]),
    (2, "old.topic", [("no.such", SET, "1")]),
    (2, "old.topic", [("retention.ms", SET, "x")]),
    (2, "old.topic", [("retention.ms", SET, None)]),
    (2, "old.topic", [("cleanup.policy", APPEND, "compact")]),
    (2, "old.topic", [("cleanup.policy", SUBTRACT, "delete")]),
    (2, "old.topic", [("cleanup.policy", APPEND, "foo")]),
    (2, "old.topic", [("cleanup.policy", APPEND, None)]),
    (2, "old.topic", [("retention.ms", APPEND, "1")]),
    (2, "old.topic", [("retention.ms", SUBTRACT, "1")]),
    (2, "old.topic", [("flush.ms", SET, "1"), ("flush.ms", SET, "2")]),
    (2, "old.topic", [("retention.ms", SET, "11"), ("flush.ms", SET, "x")]),
    (2, "old.topic", [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")]),
    (2, "old.topic", []),
    (2, "nope", [("retention.ms", SET, "7")]),
    (2, "", [("retention.ms", SET, "7")]),
    (2, "a b", [("retention.ms", SET, "7")]),
    (2, "__cluster_metadata", [("retention.ms", SET, "7")]),
    (4, "1", [("log.retention.ms", SET, "100000")]),
    (4, "", [("log.retention.ms", SET, "200000")]),
    (4, "1", [("log.cleanup.policy", APPEND, "compact")]),
    (4, "1", [("log.retention.ms", APPEND, "1")]),
    (4, "1", [("log.retention.ms", SET, "x")]),
    (4, "1", [("log.retention.ms", SET, None)]),
    (4, "1", [("log.segment.bytes", SET, "10")]),
    (4, "", [("message.max.bytes", SET, "-1")]),
    (4, "1", [("node.id", SET, "7")]),
    (4, "1", [("node.id", DELETE, None)]),
    (4, "", [("log.dirs", SET, "/x")]),
    (4, "", [("num.partitions", SET, "5")]),
    (4, "", [("auto.create.topics.enable", SET, "false")]),
    (4, "1", [("advertised.listeners", SET, "PLAINTEXT://foo:9092")]),
    (4, "1", [("no.such", SET, "7")]),
    (4, "1", [("num.io.threads", SET, "8")]),
    (4, "", [("cordoned.log.dirs", SET, "*")]),
    (4, "1", [("cordoned.log.dirs", SET, "*")]),
    (4, "7", [("log.retention.ms", SET, "1")]),
    (4, "abc", [("log.retention.ms", SET, "1")]),
    (4, "1", []),
    (8, "2", [("root", SET, "INFO")]),
    (8, "1", [("no.such", SET, "INFO")]),
    (0, "x", [("a", SET, "1")]),
    (99, "x", [("a", SET, "1")]),
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_changes_of_settings(both: Both, change: tuple[int, str, list[Change]]) -> None:
    kind, name, changes = change
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=op, value=value) for key, op, value in changes],
            )
        ],
        validate_only=True,
    )
    kafka, ours = both.ask(request, 1)
    assert codes(ours.responses) == codes(kafka.responses)


@pytest.mark.parametrize(
    ("kind", "name", "configs"),
    [
        (2, "old.topic", {"flush.ms": "8"}),
        (2, "old.topic", {"flush.ms": None}),
        (2, "old.topic", {"no.such": "1"}),
        (2, "old.topic", {}),
        (2, "nope", {"flush.ms": "8"}),
        (4, "1", {"node.id": "4"}),
        (4, "1", {"log.retention.ms": "400000"}),
        (4, "1", {}),
        (8, "1", {"root": "INFO"}),
        (99, "1", {}),
    ],
)
def test_replacements_of_settings(both: Both, kind: int, name: str, configs: dict[str, str | None]) -> None:
    request = replacing.AlterConfigsRequest(
        resources=[
            replacing.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[replacing.AlterableConfig(name=key, value=value) for key, value in configs.items()],
            )
        ],
        validate_only=True,
    )
    kafka, ours = both.ask(request, 2)
    assert codes(ours.responses) == codes(kafka.responses)


def _describe(both: Both, kind: int, name: str, *, synonyms: bool = True) -> tuple[Any, Any]:
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)],
        include_synonyms=synonyms,
    )
    kafka, ours = both.ask(request, 4)
    return kafka.results[0], ours.results[0]


@pytest.mark.parametrize(
    ("kind", "name"), [(2, "nope"), (2, "a b"), (2, ""), (4, "2"), (4, "abc"), (8, "2"), (8, ""), (99, "x")]
)
def test_descriptions_that_are_refused(both: Both, kind: int, name: str) -> None:
    kafka, ours = _describe(both, kind, name)
    assert ErrorCode.of(ours.error_code) is ErrorCode.of(kafka.error_code)


def test_settings_of_a_topic(both: Both) -> None:
    kafka, ours = _describe(both, 2, "old.topic")

    def shown(result: Any) -> dict[str, tuple[Any, ...]]:
        return {
            each.name: (each.value, each.config_source, each.config_type, each.read_only, each.is_sensitive)
            for each in result.configs
        }

    assert shown(ours) == shown(kafka)
    places = {each.name: [(s.name, s.value, s.source) for s in each.synonyms] for each in kafka.configs}
    for each in ours.configs:
        # Kafka may leave out the setting in a coarser unit from which a default comes.
        known = [(s.name, s.value, s.source) for s in each.synonyms if (s.name, s.value, s.source) in places[each.name]]
        assert known == places[each.name]


def test_settings_of_a_broker(both: Both) -> None:
    kafka, ours = _describe(both, 4, "1")
    theirs = {each.name: each for each in kafka.configs}
    mine = {each.name: each for each in ours.configs}
    assert not set(theirs) - set(mine)
    defaults = [name for name, each in theirs.items() if each.config_source == mine[name].config_source == 5]
    assert {name: mine[name].value for name in defaults} == {name: theirs[name].value for name in defaults}
    assert [name for name in mine if name in theirs and mine[name].config_type != theirs[name].config_type] == []
    assert [name for name in mine if name in theirs and mine[name].is_sensitive != theirs[name].is_sensitive] == []
    # What can be changed here can be changed there.
    assert [name for name in mine if name in theirs and theirs[name].read_only and not mine[name].read_only] == []
