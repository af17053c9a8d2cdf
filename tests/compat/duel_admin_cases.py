"""What both brokers are asked about topics, settings and the cluster."""

from __future__ import annotations

from typing import Any

from barnabas.base.ids import Uuid
from barnabas.wire.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_quorum,
    describe_topic_partitions,
    incremental_alter_configs,
    metadata,
)
from tests.compat.duel import COMPACTED, TOPIC, UNKNOWN_ID, ZERO, Ask

# Metadata and topics


def _metadata(*topics: str | Uuid | None, create: bool = False) -> Ask:
    asked = [
        metadata.MetadataRequestTopic(topic_id=each, name=None)
        if isinstance(each, Uuid)
        else metadata.MetadataRequestTopic(name=each)
        for each in topics
    ]
    return lambda _side: [metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=create)]


def _by_id(name: str) -> Ask:
    return lambda side: [
        metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(topic_id=side.topic_ids[name], name=None)],
            allow_auto_topic_creation=False,
        )
    ]


def _create(*topics: Any, validate_only: bool = True) -> Ask:
    return lambda _side: [
        create_topics.CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
    ]


def _topic(name: str, partitions: int = 1, replicas: int = 1, *assignments: list[int], **configs: str | None) -> Any:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in enumerate(assignments)
        ],
        configs=[
            create_topics.CreatableTopicConfig(name=each.replace("_", "."), value=value)
            for each, value in configs.items()
        ],
    )


def _partitions(name: str, count: int, *assignments: list[int]) -> Ask:
    placed = [create_partitions.CreatePartitionsAssignment(broker_ids=each) for each in assignments] or None
    topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=placed)
    return lambda _side: [
        create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)
    ]


TOPICS: dict[str, Ask] = {
    "metadata of a topic": _metadata(TOPIC),
    "metadata of a topic by id": _by_id(TOPIC),
    "metadata of unknown topics": _metadata("nothing", TOPIC),
    "metadata of a bad name": _metadata("sp ace", ".."),
    "metadata of an empty name": _metadata(""),
    "metadata of a bad name to be created": _metadata("sp ace", create=True),
    "metadata of an unknown id": _metadata(UNKNOWN_ID),
    "metadata of nothing": _metadata(),
    "create: fine": _create(_topic("new")),
    "create: defaults": _create(_topic("new", -1, -1)),
    "create: no partitions": _create(_topic("new", 0)),
    "create: minus two partitions": _create(_topic("new", -2)),
    "create: replication factor 0": _create(_topic("new", 1, 0)),
    "create: replication factor 2": _create(_topic("new", 1, 2)),
    "create: there already": _create(_topic(TOPIC)),
    "create: collides": _create(_topic("duel_compacted"), _topic("a.b"), _topic("a_b")),
    "create: twice": _create(_topic("new"), _topic("new"), _topic("other")),
    "create: bad names": _create(_topic(""), _topic("."), _topic("x" * 250), _topic("ä")),
    "create: unknown config": _create(_topic("new", no_such="1")),
    "create: bad configs": _create(_topic("a", retention_ms="x"), _topic("b", cleanup_policy="x")),
    "create: null config": _create(_topic("new", retention_ms=None)),
    "create: placed": _create(_topic("new", -1, -1, [0], [0])),
    "create: placed and counted": _create(_topic("new", 1, 1, [0])),
    "create: placed on an unknown broker": _create(_topic("new", -1, -1, [7])),
    "create: placed twice on one": _create(_topic("new", -1, -1, [0, 0])),
    "create: placed nowhere": _create(_topic("new", -1, -1, [])),
    "create: internal name": _create(_topic("__cluster_metadata"), _topic("__consumer_offsets")),
    "create: none": _create(),
    "partitions: fine": _partitions(TOPIC, 4),
    "partitions: same": _partitions(TOPIC, 2),
    "partitions: fewer": _partitions(TOPIC, 1),
    "partitions: none": _partitions(TOPIC, 0),
    "partitions: unknown topic": _partitions("nothing", 2),
    "partitions: placed": _partitions(TOPIC, 3, [0]),
    "partitions: too few placed": _partitions(TOPIC, 4, [0]),
    "partitions: placed on an unknown broker": _partitions(TOPIC, 3, [7]),
    "partitions: placed nowhere": _partitions(TOPIC, 3, []),
    "delete: unknown": lambda _side: [
        delete_topics.DeleteTopicsRequest(topic_names=["nothing"], timeout_ms=1000),
        delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name="nothing", topic_id=ZERO)], timeout_ms=1000
        ),
    ],
    "delete: unknown id": lambda _side: [
        delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=None, topic_id=UNKNOWN_ID)], timeout_ms=1000
        )
    ],
    "delete: name and id": lambda side: [
        delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name="nothing", topic_id=UNKNOWN_ID)], timeout_ms=1000
        )
    ],
    "delete: none": lambda _side: [delete_topics.DeleteTopicsRequest(timeout_ms=1000)],
    "topic partitions": lambda _side: [
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=each) for each in (TOPIC, "nothing", "sp ace")],
            response_partition_limit=2000,
        )
    ],
    "topic partitions, one by one": lambda _side: [
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=each) for each in (TOPIC, COMPACTED)],
            response_partition_limit=1,
        )
    ],
    "topic partitions from a cursor": lambda _side: [
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=each) for each in (TOPIC, COMPACTED)],
            response_partition_limit=2,
            cursor=describe_topic_partitions.Cursor(topic_name=TOPIC, partition_index=1),
        )
    ],
    "topic partitions from a bad cursor": lambda _side: [
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=TOPIC)],
            response_partition_limit=2,
            cursor=describe_topic_partitions.Cursor(topic_name=TOPIC, partition_index=-1),
        )
    ],
}

# Configs and the cluster

_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32


def _described(kind: int, name: str, *keys: str, synonyms: bool = True) -> Ask:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    return lambda _side: [describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)]


def _incremental(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Ask:
    configs = [
        incremental_alter_configs.AlterableConfig(name=each, config_operation=operation, value=value)
        for each, operation, value in changes
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return lambda _side: [
        incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    ]


def _replaced(kind: int, name: str, **configs: str | None) -> Ask:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            alter_configs.AlterableConfig(name=each.replace("_", "."), value=value) for each, value in configs.items()
        ],
    )
    return lambda _side: [alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)]


def _cluster(endpoints: int, operations: bool = False) -> Ask:
    return lambda _side: [
        describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=operations, endpoint_type=endpoints
        )
    ]


def _quorum(topic: str, partition: int = 0) -> Ask:
    wanted = [describe_quorum.PartitionData(partition_index=partition)]
    return lambda _side: [
        describe_quorum.DescribeQuorumRequest(topics=[describe_quorum.TopicData(topic_name=topic, partitions=wanted)])
    ]


_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

CONFIGS: dict[str, Ask] = {
    "describe: a topic": _described(_TOPIC, TOPIC),
    "describe: one setting": _described(_TOPIC, TOPIC, "segment.bytes", "no.such"),
    "describe: no synonyms": _described(_TOPIC, TOPIC, "segment.bytes", synonyms=False),
    "describe: unknown topic": _described(_TOPIC, "nothing"),
    "describe: bad topic": _described(_TOPIC, "sp ace"),
    "describe: no topic": _described(_TOPIC, ""),
    "describe: another broker": _described(_BROKER, "77"),
    "describe: odd broker": _described(_BROKER, "x"),
    "describe: all brokers": _described(_BROKER, ""),
    "describe: some of the broker": _described(
        _BROKER, "0", "num.io.threads", "node.id", "log.retention.ms", "log.retention.hours", "log.segment.bytes"
    ),
    "describe: an unknown type": _described(99, "x"),
    "alter: fine": _incremental(_TOPIC, TOPIC, ("retention.ms", _SET, "5")),
    "alter: unknown topic": _incremental(_TOPIC, "nothing", ("retention.ms", _SET, "5")),
    "alter: bad topic": _incremental(_TOPIC, "sp ace", ("retention.ms", _SET, "5")),
    "alter: no topic": _incremental(_TOPIC, "", ("retention.ms", _SET, "5")),
    "alter: unknown setting": _incremental(_TOPIC, TOPIC, ("no.such", _SET, "5")),
    "alter: delete unknown setting": _incremental(_TOPIC, TOPIC, ("no.such", _DELETE, None)),
    "alter: bad value": _incremental(_TOPIC, TOPIC, ("retention.ms", _SET, "x")),
    "alter: null value": _incremental(_TOPIC, TOPIC, ("retention.ms", _SET, None)),
    "alter: twice": _incremental(_TOPIC, TOPIC, ("retention.ms", _SET, "5"), ("retention.ms", _SET, "6")),
    "alter: append to a number": _incremental(_TOPIC, TOPIC, ("retention.ms", _APPEND, "5")),
    "alter: append to a list": _incremental(_TOPIC, TOPIC, ("cleanup.policy", _APPEND, "compact")),
    "alter: subtract from a list": _incremental(_TOPIC, TOPIC, ("cleanup.policy", _SUBTRACT, "delete")),
    "alter: nothing": _incremental(_TOPIC, TOPIC),
    "alter: the broker": _incremental(_BROKER, "0", ("log.cleaner.threads", _SET, "2")),
    "alter: the broker's read-only": _incremental(_BROKER, "0", ("broker.rack", _SET, "x")),
    "alter: another broker": _incremental(_BROKER, "77", ("log.cleaner.threads", _SET, "2")),
    "alter: odd broker": _incremental(_BROKER, "x", ("log.cleaner.threads", _SET, "2")),
    "alter: all brokers": _incremental(_BROKER, "", ("log.cleaner.threads", _SET, "2")),
    "alter: throttles of a broker": _incremental(
        _BROKER, "0", ("leader.replication.throttled.rate", _SET, "1"), ("remote.log.reader.threads", _SET, "11")
    ),
    "alter: throttled replicas": _incremental(_TOPIC, TOPIC, ("leader.replication.throttled.replicas", _SET, "0:0")),
    "alter: retention of a tier": _incremental(_TOPIC, TOPIC, ("local.retention.ms", _SET, "1000")),
    "alter: remote storage": _incremental(_TOPIC, TOPIC, ("remote.storage.enable", _SET, "true")),
    "alter: a quota's window": _incremental(_BROKER, "0", ("quota.window.num", _SET, "5")),
    **{
        f"alter: group, {name}={value}": _incremental(_GROUP, "g", (name, _SET, value))
        for name, value in (
            ("consumer.session.timeout.ms", "50000"),
            ("consumer.session.timeout.ms", "x"),
            ("consumer.session.timeout.ms", "44999"),
            ("consumer.heartbeat.interval.ms", "15001"),
            ("consumer.assignment.interval.ms", "-1"),
            ("consumer.assignment.interval.ms", "99999"),
            ("share.record.lock.duration.ms", "14999"),
            ("share.delivery.count.limit", "11"),
            ("share.partition.max.record.locks", "99"),
            ("share.auto.offset.reset", "by_duration:PT1H"),
            ("share.auto.offset.reset", "by_duration:x"),
            ("share.isolation.level", "READ_COMMITTED"),
            ("share.renew.acknowledge.enable", "x"),
            ("streams.num.standby.replicas", "3"),
            ("streams.initial.rebalance.delay.ms", "-1"),
            ("no.such", "1"),
        )
    },
    "alter: no group": _incremental(_GROUP, "", ("consumer.session.timeout.ms", _SET, "50000")),
    "alter: group, append": _incremental(_GROUP, "g", ("consumer.session.timeout.ms", _APPEND, "50000")),
    "alter: group, delete": _incremental(_GROUP, "g", ("no.such", _DELETE, None)),
    **{
        f"alter: client metrics, {name}={value}": _incremental(_METRICS, "m", (name, _SET, value))
        for name, value in (
            ("interval.ms", "5000"),
            ("interval.ms", "5"),
            ("interval.ms", "x"),
            ("metrics", "org.apache.kafka."),
            ("match", "client_id=a.*"),
            ("match", "client_id=("),
            ("match", "client_id"),
            ("match", "foo=a"),
            ("no.such", "1"),
        )
    },
    "alter: no client metrics": _incremental(_METRICS, "", ("interval.ms", _SET, "5000")),
    "alter: client metrics, append": _incremental(_METRICS, "m", ("metrics", _APPEND, "a")),
    "replace: a group": _replaced(_GROUP, "g", consumer_session_timeout_ms="50000"),
    "replace: client metrics": _replaced(_METRICS, "m", interval_ms="5000"),
    "describe: a group": _described(_GROUP, "g"),
    "describe: no group": _described(_GROUP, ""),
    "describe: client metrics": _described(_METRICS, "m"),
    "describe: no client metrics": _described(_METRICS, ""),
    "alter: an unknown type": _incremental(99, "x", ("a", _SET, "2")),
    "replace: fine": _replaced(_TOPIC, TOPIC, retention_ms="5"),
    "replace: unknown topic": _replaced(_TOPIC, "nothing", retention_ms="5"),
    "replace: unknown setting": _replaced(_TOPIC, TOPIC, no_such="5"),
    "replace: null value": _replaced(_TOPIC, TOPIC, retention_ms=None),
    "replace: the broker": _replaced(_BROKER, "0", log_cleaner_threads="2"),
    "cluster": _cluster(1, operations=True),
    "cluster: controllers": lambda _side: [
        describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
    ],
    "cluster: unknown endpoints": lambda _side: [
        describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=7)
    ],
    "quorum: another topic": _quorum(TOPIC),
    "quorum: another partition": _quorum("__cluster_metadata", 1),
}
