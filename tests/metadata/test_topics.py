"""Creating, growing and deleting topics: what is accepted, what is refused, and what becomes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.base.persistent_map import PersistentMap
from barnabas.metadata.assignments import default_directory
from barnabas.metadata.image import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, ConfigResourceType
from barnabas.metadata.internal_topics import InternalTopicOptions, creatable_topic
from barnabas.metadata.options import ConfigSource, ControllerOptions, TopicDefault
from barnabas.metadata.placement import Placer
from barnabas.metadata.topic_names import is_internal
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.stored.cluster_metadata import ConfigRecord, PartitionRecord, TopicRecord
from tests.metadata.clusters import CLUSTER_ID, Cluster, new_topic, registration, uuid


def test_a_topic_has_its_partitions_its_settings_and_an_id() -> None:
    cluster = Cluster(brokers=1)
    (result,) = cluster.create(new_topic("orders", 3, 1, configs={"retention.ms": "5000"}))
    topic = cluster.image.topics["orders"]
    assert (result.error_code, result.error_message) == (0, None)
    assert result.topic_id == topic.topic_id != Uuid.ZERO
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert [(each.replicas, each.isr, each.leader) for each in topic.partitions] == [((1,), (1,), 1)] * 3
    assert [(each.leader_epoch, each.partition_epoch) for each in topic.partitions] == [(0, 0)] * 3
    assert cluster.image.config(ConfigResourceType.TOPIC, "orders") == {"retention.ms": "5000"}
    assert cluster.image.topic_by_id(topic.topic_id) == topic


def test_settings_lie_in_the_log_before_the_partitions() -> None:
    cluster = Cluster(brokers=1)
    request = CreateTopicsRequest(topics=[new_topic("t", 2, 1, configs={"flush.ms": "1"})])
    kinds = [type(record) for record in cluster.controller.create_topics(request).records]
    assert kinds == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]


def test_the_answer_tells_all_settings_and_where_they_come_from() -> None:
    defaults = {"segment.bytes": TopicDefault("2000000", ConfigSource.STATIC_BROKER)}
    cluster = Cluster(1, options=ControllerOptions(cluster_id=CLUSTER_ID, topic_defaults=defaults))
    (result,) = cluster.create(new_topic("t", configs={"retention.ms": "5000"}))
    told = {each.name: (each.value, each.config_source) for each in result.configs or ()}
    assert told["retention.ms"] == ("5000", ConfigSource.TOPIC)
    assert told["segment.bytes"] == ("2000000", ConfigSource.STATIC_BROKER)
    assert told["cleanup.policy"] == ("delete", ConfigSource.DEFAULT)
    assert told["follower.replication.throttled.replicas"] == ("", ConfigSource.DEFAULT)
    assert len(told) == 33
    assert "internal.segment.bytes" not in told


def test_who_may_not_see_settings_is_not_told_them() -> None:
    cluster = Cluster(brokers=1)
    request = CreateTopicsRequest(topics=[new_topic("t", 1, 1)])
    (result,) = cluster.controller.create_topics(request, may_see_configs=lambda name: False).response.topics
    assert result.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (result.error_code, result.num_partitions, result.replication_factor, result.configs) == (0, -1, -1, [])


def test_who_may_not_create_a_topic_does_not() -> None:
    cluster = Cluster(brokers=1)
    request = CreateTopicsRequest(topics=[new_topic("mine"), new_topic("theirs")])
    results = cluster.do(cluster.controller.create_topics(request, may_create=lambda name: name == "mine")).topics
    assert [each.error_code for each in results] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert list(cluster.image.topics) == ["mine"]


def test_defaults_stand_in_for_minus_one() -> None:
    options = ControllerOptions(cluster_id=CLUSTER_ID, num_partitions=4, default_replication_factor=2)
    cluster = Cluster(brokers=3, options=options)
    (result,) = cluster.create(new_topic("t"))
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_to_validate_changes_nothing() -> None:
    cluster = Cluster(brokers=1)
    before = len(cluster.log)
    good, bad = cluster.create(new_topic("good", 2, 1), new_topic("bad", 2, 9), validate_only=True)
    assert (good.error_code, good.num_partitions, bad.error_code) == (0, 2, ErrorCode.INVALID_REPLICATION_FACTOR)
    assert len(cluster.log) == before


REFUSED_TOPICS = [
    (new_topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "must not be empty"),
    (new_topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'.'"),
    (new_topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'..'"),
    (new_topic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "250 characters"),
    (new_topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "'a b'"),
    (new_topic("grün"), ErrorCode.INVALID_TOPIC_EXCEPTION, "letters"),
    (new_topic("old_topic"), ErrorCode.INVALID_TOPIC_EXCEPTION, "old.topic"),
    (new_topic("old.topic", 1, 9), ErrorCode.TOPIC_ALREADY_EXISTS, "exists already"),
    (new_topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "controllers"),
    (new_topic("t", 0, 1), ErrorCode.INVALID_PARTITIONS, "0 partitions"),
    (new_topic("t", -2, 1), ErrorCode.INVALID_PARTITIONS, "-2 partitions"),
    (new_topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "factor of 0"),
    (new_topic("t", 0, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "factor of 0"),
    (new_topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "only 3"),
    (new_topic("t", 1, -1, assignment={0: [1]}), ErrorCode.INVALID_REQUEST, "partition count must be -1"),
    (new_topic("t", -1, 1, assignment={0: [1]}), ErrorCode.INVALID_REQUEST, "replication factor must be -1"),
    (new_topic("t", assignment={0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 7"),
    (new_topic("t", assignment={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
    (new_topic("t", assignment={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replicas"),
    (new_topic("t", assignment={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "without gaps"),
    (new_topic("t", assignment={0: [1], 2: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "without gaps"),
    (new_topic("t", assignment=[(0, [1]), (0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "assigned twice"),
    (new_topic("t", assignment={0: [1], 1: [1, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "others have 1"),
    (new_topic("t", configs={"retention.mss": "1"}), ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
    (new_topic("t", configs={"log.retention.ms": "1"}), ErrorCode.INVALID_CONFIG, "'log.retention.ms'"),
    (new_topic("t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG, "not a whole number"),
    (new_topic("t", configs={"min.insync.replicas": "0"}), ErrorCode.INVALID_CONFIG, "at least 1"),
    (new_topic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "cannot be null"),
    (new_topic("t", 1, 9, configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG, "retention.ms"),
    (
        new_topic("t", configs={"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}),
        ErrorCode.INVALID_CONFIG,
        "lag",
    ),
    (new_topic("t", configs={"remote.storage.enable": "true"}), ErrorCode.INVALID_CONFIG, "not built"),
    (new_topic("t", 10_001, 1), ErrorCode.POLICY_VIOLATION, "10000"),
    (new_topic("t", 10_000, 1), ErrorCode.POLICY_VIOLATION, "10001"),
]


@pytest.mark.parametrize(("topic", "code", "message"), REFUSED_TOPICS)
def test_a_topic_that_cannot_be_is_refused_with_the_reason(
    topic: CreatableTopic, code: ErrorCode, message: str
) -> None:
    cluster = Cluster(brokers=3)
    cluster.create(new_topic("old.topic", 1, 1))
    before = cluster.image
    (result,) = cluster.create(topic)
    assert ErrorCode.of(result.error_code) is code
    assert message in (result.error_message or "")
    assert cluster.image == before


def test_a_name_that_stands_twice_is_refused_for_both() -> None:
    cluster = Cluster(brokers=1)
    results = cluster.create(new_topic("twice"), new_topic("once"), new_topic("twice"))
    assert {each.name: each.error_code for each in results} == {"twice": ErrorCode.INVALID_REQUEST, "once": 0}
    assert len(results) == 2
    assert list(cluster.image.topics) == ["once"]


def test_topics_of_one_request_stand_or_fall_by_themselves() -> None:
    cluster = Cluster(brokers=1)
    results = cluster.create(new_topic("bad", 1, 5), new_topic("good", 1, 1))
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REPLICATION_FACTOR, 0]
    assert list(cluster.image.topics) == ["good"]


def test_as_many_records_as_allowed_are_allowed() -> None:
    cluster = Cluster(brokers=1)
    (result,) = cluster.create(new_topic("t", 9_999, 1), validate_only=True)
    assert result.error_code == 0
    results = cluster.create(new_topic("t", 6_000, 1), new_topic("u", 6_000, 1), validate_only=True)
    assert [each.error_code for each in results] == [ErrorCode.POLICY_VIOLATION] * 2


def test_replicas_of_brokers_that_are_away_are_not_in_sync() -> None:
    cluster = Cluster(brokers=3)
    cluster.beat(2, fence=True)
    cluster.create(new_topic("by-hand", assignment={0: [2, 3, 1]}), new_topic("placed", 4, 3))
    partition = cluster.partition("by-hand")
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 3, 1), (3, 1), 3)
    for each in cluster.image.topics["placed"].partitions:
        assert sorted(each.replicas) == [1, 2, 3]
        assert sorted(each.isr) == [1, 3]
        assert each.leader == each.replicas[0] != 2


def test_a_partition_that_nobody_could_lead_is_refused() -> None:
    cluster = Cluster(brokers=2)
    cluster.beat(1, fence=True)
    (by_hand,) = cluster.create(new_topic("t", assignment={0: [1]}))
    assert by_hand.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.beat(2, fence=True)
    (placed,) = cluster.create(new_topic("t", 1, 1))
    assert placed.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "fenced" in (placed.error_message or "")


@pytest.mark.parametrize(("dirs", "expected"), [(0, MIGRATING_DIRECTORY), (2, UNASSIGNED_DIRECTORY)])
def test_a_directory_is_named_only_when_the_broker_has_no_choice(dirs: int, expected: Uuid) -> None:
    image = Cluster(brokers=1).image
    assert default_directory(image, 1) == registration(1).log_dirs[0]
    broker = replace(image.brokers[1], log_dirs=tuple(map(uuid, range(1000, 1000 + dirs))))
    assert default_directory(replace(image, brokers=PersistentMap({1: broker})), 1) == expected
    assert uuid(2) == LOST_DIRECTORY


# Growing


def test_a_topic_grows() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(new_topic("t", 2, 2))
    before = cluster.image.topics["t"].partitions
    assert cluster.grow("t", 5).error_code == 0
    after = cluster.image.topics["t"].partitions
    assert after[:2] == before
    assert [len(each.replicas) for each in after[2:]] == [2, 2, 2]
    assert cluster.grow("t", 7, [[3, 1], [1, 2]]).error_code == 0
    assert [each.replicas for each in cluster.image.topics["t"].partitions[5:]] == [(3, 1), (1, 2)]
    assert cluster.grow("t", 9, validate_only=True).error_code == 0
    assert len(cluster.image.topics["t"].partitions) == 7


@pytest.mark.parametrize(
    ("name", "count", "assignment", "code"),
    [
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 0, None, ErrorCode.INVALID_PARTITIONS),
        ("t", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("nope", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1], [1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 10_003, None, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_growth_that_cannot_be_is_refused(
    name: str, count: int, assignment: list[list[int]] | None, code: ErrorCode
) -> None:
    cluster = Cluster(brokers=2)
    cluster.create(new_topic("t", 2, 1))
    before = cluster.image
    result = cluster.grow(name, count, assignment)
    assert ErrorCode.of(result.error_code) is code
    assert result.error_message
    assert cluster.image == before


# Deleting


def test_a_topic_is_deleted_with_its_settings_and_comes_back_as_another() -> None:
    cluster = Cluster(brokers=1)
    (first,) = cluster.create(new_topic("t", configs={"flush.ms": "7"}))
    (result,) = cluster.delete("t")
    assert (result.error_code, result.name, result.topic_id) == (0, "t", first.topic_id)
    assert not cluster.image.topics
    assert not cluster.image.topic_names
    assert not cluster.image.configs
    (second,) = cluster.create(new_topic("t"))
    assert second.topic_id != first.topic_id
    assert cluster.image.config(ConfigResourceType.TOPIC, "t") == {}


def test_topics_are_deleted_by_id() -> None:
    cluster = Cluster(brokers=1)
    (created,) = cluster.create(new_topic("t"))
    (result,) = cluster.delete(created.topic_id)
    assert (result.error_code, result.name) == (0, "t")
    assert not cluster.image.topics


def test_old_versions_delete_by_names() -> None:
    cluster = Cluster(brokers=1)
    cluster.create(new_topic("a"), new_topic("b"))
    request = DeleteTopicsRequest(topic_names=["a", "nope"], timeout_ms=1)
    results = cluster.do(cluster.controller.delete_topics(request, 5)).responses
    assert [(each.name, each.error_code) for each in results] == [
        ("a", 0),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert list(cluster.image.topics) == ["b"]


def test_what_cannot_be_deleted_is_refused() -> None:
    cluster = Cluster(brokers=1)
    (created,) = cluster.create(new_topic("t"))
    unknown = uuid(12345)
    cases: list[tuple[list[DeleteTopicState], list[ErrorCode]]] = [
        ([DeleteTopicState(name="nope", topic_id=Uuid.ZERO)], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ([DeleteTopicState(name=None, topic_id=unknown)], [ErrorCode.UNKNOWN_TOPIC_ID]),
        ([DeleteTopicState(name=None, topic_id=Uuid.ZERO)], [ErrorCode.INVALID_REQUEST]),
        ([DeleteTopicState(name="t", topic_id=created.topic_id)], [ErrorCode.INVALID_REQUEST]),
        ([DeleteTopicState(name="t", topic_id=Uuid.ZERO)] * 2, [ErrorCode.INVALID_REQUEST]),
        ([DeleteTopicState(name=None, topic_id=created.topic_id)] * 2, [ErrorCode.INVALID_REQUEST]),
        (
            [
                DeleteTopicState(name="t", topic_id=Uuid.ZERO),
                DeleteTopicState(name=None, topic_id=created.topic_id),
            ],
            [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST],
        ),
    ]
    for topics, codes in cases:
        outcome = cluster.controller.delete_topics(DeleteTopicsRequest(topics=topics, timeout_ms=1), 6)
        assert [ErrorCode.of(each.error_code) for each in outcome.response.responses] == codes
        assert not outcome.records


def test_deletion_can_be_switched_off() -> None:
    cluster = Cluster(1, options=ControllerOptions(cluster_id=CLUSTER_ID, delete_topic_enable=False))
    cluster.create(new_topic("t"))
    assert cluster.delete("t")[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert cluster.delete("t", version=2)[0].error_code == ErrorCode.INVALID_REQUEST
    assert "t" in cluster.image.topics


def test_an_id_does_not_tell_strangers_the_name_of_the_topic() -> None:
    cluster = Cluster(brokers=1)
    (created,) = cluster.create(new_topic("t"))
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=created.topic_id)], timeout_ms=1)
    hidden = cluster.controller.delete_topics(request, 6, may_describe=lambda name: False)
    assert hidden.response.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert hidden.response.responses[0].name is None
    assert "'t'" not in (hidden.response.responses[0].error_message or "")
    seen = cluster.controller.delete_topics(request, 6, may_delete=lambda name: False)
    assert seen.response.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


# First use


def test_topics_come_about_on_first_use() -> None:
    cluster = Cluster(1, options=ControllerOptions(cluster_id=CLUSTER_ID, num_partitions=2))
    options = InternalTopicOptions(offsets_topic_replication_factor=1)
    wanted = [creatable_topic(name, options) for name in ("events", "__consumer_offsets")]
    response = cluster.do(cluster.controller.create_topics(CreateTopicsRequest(topics=wanted)))
    assert [each.error_code for each in response.topics] == [0, 0]
    assert len(cluster.image.topics["events"].partitions) == 2
    assert len(cluster.image.topics["__consumer_offsets"].partitions) == 50
    assert cluster.image.config(ConfigResourceType.TOPIC, "__consumer_offsets") == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert is_internal("__consumer_offsets")
    assert not is_internal("events")


# Placement


def test_leaders_and_replicas_are_spread_evenly() -> None:
    placer = Placer(Cluster(brokers=5).image.brokers, Random(3))
    placed = [placer.place(3) for _ in range(100)]
    assert set(Counter(replicas[0] for replicas in placed).values()) == {20}
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {60}
    # Who follows a leader changes, so that the load of a dead broker is shared.
    for leader in range(1, 6):
        assert len({broker for replicas in placed if replicas[0] == leader for broker in replicas}) == 5


def test_replicas_are_spread_over_racks() -> None:
    cluster = Cluster(brokers=6, racks=["a", "b", "c"])
    placer = Placer(cluster.image.brokers, Random(3))
    for _ in range(60):
        replicas = placer.place(3)
        assert sorted(cluster.image.brokers[each].rack or "" for each in replicas) == ["a", "b", "c"]


def test_more_replicas_than_racks_share_racks_evenly() -> None:
    cluster = Cluster(brokers=6, racks=["a", "b"])
    placer = Placer(cluster.image.brokers, Random(3))
    for _ in range(20):
        racks = Counter(cluster.image.brokers[each].rack for each in placer.place(4))
        assert sorted(racks.values()) == [2, 2]


def test_placement_begins_at_a_broker_that_chance_picks() -> None:
    brokers = Cluster(brokers=5).image.brokers
    assert len({Placer(brokers, Random(seed)).place(1)[0] for seed in range(40)}) == 5
    assert Placer(brokers, Random(7)).place(3) == Placer(brokers, Random(7)).place(3)


def test_brokers_that_shut_down_get_nothing() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(new_topic("t", 3, 1))
    cluster.beat(2, stop=True)
    assert cluster.image.brokers[2].in_controlled_shutdown
    placer = Placer(cluster.image.brokers, Random(3))
    assert {placer.place(2)[0] for _ in range(10)} == {1, 3}
