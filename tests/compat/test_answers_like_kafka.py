"""Requests that real clients seldom or never send, to Kafka and to our node: every version, the same answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.base.ids import Uuid
from barnabas.records import BatchBuilder, Codec
from barnabas.wire.message import Request
from barnabas.wire.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from tests.compat.duel import COMPACTED, TOPIC, ZERO, Ask, Side, both, differences
from tests.compat.samples import TIME_MS
from tests.oracles import missing

UNKNOWN_ID = Uuid(bytes(range(1, 17)))
LARGE = 1 << 20


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with both(tmp_path_factory.mktemp("duel")) as sides:
        for side in sides:
            for number in range(3):
                side.call(_produce(_batch(time_ms=TIME_MS + 10 * number))(side), 9)
        yield sides


# Metadata and topics


def _metadata(*topics: str | Uuid | None, create: bool = False) -> Ask:
    asked = [
        metadata.MetadataRequestTopic(topic_id=each, name=None)
        if isinstance(each, Uuid)
        else metadata.MetadataRequestTopic(name=each)
        for each in topics
    ]
    return lambda _side: metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=create)


def _by_id(name: str) -> Ask:
    return lambda side: metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(topic_id=side.topic_ids[name], name=None)],
        allow_auto_topic_creation=False,
    )


def _create(*topics: Any, validate_only: bool = True) -> Ask:
    return lambda _side: create_topics.CreateTopicsRequest(
        topics=list(topics), timeout_ms=10_000, validate_only=validate_only
    )


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
    return lambda _side: create_partitions.CreatePartitionsRequest(
        topics=[topic], timeout_ms=10_000, validate_only=True
    )


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
    "delete: unknown": lambda _side: delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name="nothing", topic_id=ZERO)], topic_names=["nothing"], timeout_ms=1000
    ),
    "delete: unknown id": lambda _side: delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name=None, topic_id=UNKNOWN_ID)], timeout_ms=1000
    ),
    "delete: name and id": lambda side: delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name="nothing", topic_id=UNKNOWN_ID)], timeout_ms=1000
    ),
    "delete: none": lambda _side: delete_topics.DeleteTopicsRequest(timeout_ms=1000),
    "topic partitions": lambda _side: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=each) for each in (TOPIC, "nothing", "sp ace")],
        response_partition_limit=2000,
    ),
    "topic partitions, one by one": lambda _side: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=each) for each in (TOPIC, COMPACTED)],
        response_partition_limit=1,
    ),
    "topic partitions from a cursor": lambda _side: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=each) for each in (TOPIC, COMPACTED)],
        response_partition_limit=2,
        cursor=describe_topic_partitions.Cursor(topic_name=TOPIC, partition_index=1),
    ),
    "topic partitions from a bad cursor": lambda _side: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=TOPIC)],
        response_partition_limit=2,
        cursor=describe_topic_partitions.Cursor(topic_name=TOPIC, partition_index=-1),
    ),
}

# Records


def _batch(codec: Codec = Codec.NONE, key: bytes | None = b"k", time_ms: int = TIME_MS, **others: Any) -> bytes:
    builder = BatchBuilder(LARGE, codec=codec, **others)
    builder.append(b"value", key, time_ms, [])
    return bytes(builder.build())


def _produce(
    records: bytes | None, topic: str = TOPIC, partition: int = 0, acks: int = -1, transactional: str | None = None
) -> Ask:
    def ask(side: Side) -> Request:
        data = produce.PartitionProduceData(index=partition, records=None if records is None else memoryview(records))
        wanted = produce.TopicProduceData(
            name=topic, topic_id=side.topic_ids.get(topic, UNKNOWN_ID), partition_data=[data]
        )
        return produce.ProduceRequest(transactional_id=transactional, acks=acks, timeout_ms=1000, topic_data=[wanted])

    return ask


def _damaged(records: bytes, position: int, value: int) -> bytes:
    changed = bytearray(records)
    changed[position] = value
    return bytes(changed)


def _fetch(
    offset: int = 0,
    topic: str = TOPIC,
    partition: int = 0,
    *,
    epoch: int = -1,
    last_epoch: int = -1,
    part_bytes: int = LARGE,
    **others: Any,
) -> Ask:
    def ask(side: Side) -> Request:
        wanted = fetch.FetchPartition(
            partition=partition,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=part_bytes,
        )
        asked = fetch.FetchTopic(topic=topic, topic_id=side.topic_ids.get(topic, UNKNOWN_ID), partitions=[wanted])
        settings = {"max_wait_ms": 10, "min_bytes": 1, "session_id": 0, "session_epoch": -1} | others
        return fetch.FetchRequest(topics=[asked], **settings)

    return ask


def _offsets(*partitions: tuple[int, int, int], topic: str = TOPIC, isolation: int = 0) -> Ask:
    wanted = [
        list_offsets.ListOffsetsPartition(partition_index=number, timestamp=time_ms, current_leader_epoch=epoch)
        for number, time_ms, epoch in partitions
    ]
    asked = list_offsets.ListOffsetsTopic(name=topic, partitions=wanted)
    return lambda _side: list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked])


def _epoch_end(leader_epoch: int, current_epoch: int = -1, partition: int = 0, topic: str = TOPIC) -> Ask:
    wanted = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current_epoch, leader_epoch=leader_epoch
    )
    return lambda _side: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=-2, topics=[offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )


def _delete_records(offset: int, topic: str = TOPIC, partition: int = 0) -> Ask:
    wanted = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
    return lambda _side: delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=1000
    )


RECORDS: dict[str, Ask] = {
    "produce: fine": _produce(_batch(), partition=1),
    "produce: acks=1": _produce(_batch(), partition=1, acks=1),
    "produce: acks=2": _produce(_batch(), acks=2),
    "produce: unknown partition": _produce(_batch(), partition=9),
    "produce: unknown topic": _produce(_batch(), "nothing"),
    "produce: nothing": _produce(b"", partition=1),
    "produce: null": _produce(None, partition=1),
    "produce: bad checksum": _produce(_damaged(_batch(), 60, 0xFF)),
    "produce: magic 1": _produce(_damaged(_batch(), 16, 1)),
    "produce: magic 9": _produce(_damaged(_batch(), 16, 9)),
    "produce: cut off": _produce(_batch()[:-1]),
    "produce: two batches": _produce(_batch() + _batch(), partition=1),
    "produce: no key to a compacted topic": _produce(_batch(key=None), COMPACTED),
    "produce: zstd": _produce(_batch(Codec.ZSTD), partition=1),
    "produce: internal topic": _produce(_batch(), "__cluster_metadata"),
    "produce: no such transaction": _produce(_batch(), transactional="somebody"),
    "fetch": _fetch(),
    "fetch: one partition at least": _fetch(part_bytes=1),
    "fetch: few bytes": _fetch(max_bytes=1),
    "fetch: nothing new": _fetch(3),
    "fetch: read committed": _fetch(isolation_level=1),
    "fetch: beyond the end": _fetch(1000),
    "fetch: before the beginning": _fetch(-5),
    "fetch: unknown partition": _fetch(partition=9),
    "fetch: unknown topic": _fetch(topic="nothing"),
    "fetch: epoch too new": _fetch(epoch=5),
    "fetch: epoch known": _fetch(epoch=0),
    "fetch: last epoch too new": _fetch(last_epoch=5),
    "fetch: unknown session": _fetch(session_id=77, session_epoch=3),
    "fetch: session of nobody ended": _fetch(session_id=77, session_epoch=-1),
    "fetch: new session": _fetch(session_id=0, session_epoch=0),
    "fetch: session 0 continued": _fetch(session_id=0, session_epoch=1),
    "offsets: both ends": _offsets((0, -1, -1), (1, -2, -1)),
    "offsets: youngest": _offsets((0, -3, -1)),
    "offsets: local and tiered": _offsets((0, -4, -1)),
    "offsets: tiered": _offsets((0, -5, -1)),
    "offsets: pending upload": _offsets((0, -6, -1)),
    "offsets: no such spec": _offsets((0, -7, -1)),
    "offsets: by time": _offsets((0, TIME_MS + 5, -1)),
    "offsets: too late": _offsets((0, TIME_MS + 5000, -1)),
    "offsets: committed": _offsets((0, -1, -1), isolation=1),
    "offsets: unknown partition": _offsets((9, -1, -1)),
    "offsets: unknown topic": _offsets((0, -1, -1), topic="nothing"),
    "offsets: epoch too new": _offsets((0, -1, 5)),
    "offsets: epoch known": _offsets((0, -1, 0)),
    "offsets: twice": _offsets((0, -1, -1), (0, -2, -1)),
    "epoch: known": _epoch_end(0),
    "epoch: later": _epoch_end(4),
    "epoch: earlier": _epoch_end(-1),
    "epoch: current too new": _epoch_end(0, 5),
    "epoch: unknown partition": _epoch_end(0, partition=9),
    "epoch: unknown topic": _epoch_end(0, topic="nothing"),
    "delete records: too many": _delete_records(1000),
    "delete records: minus two": _delete_records(-2),
    "delete records: none": _delete_records(0),
    "delete records: unknown partition": _delete_records(0, partition=9),
    "delete records: unknown topic": _delete_records(0, "nothing"),
    "delete records: compacted": _delete_records(0, COMPACTED),
}

# Configs and the cluster

_TOPIC, _BROKER, _LOGGER, _METRICS, _GROUP = 2, 4, 8, 16, 32


def _described(kind: int, name: str, *keys: str, synonyms: bool = True) -> Ask:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) if keys else None
    )
    return lambda _side: describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)


def _incremental(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Ask:
    configs = [
        incremental_alter_configs.AlterableConfig(name=each, config_operation=operation, value=value)
        for each, operation, value in changes
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return lambda _side: incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=True
    )


def _replaced(kind: int, name: str, **configs: str | None) -> Ask:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            alter_configs.AlterableConfig(name=each.replace("_", "."), value=value) for each, value in configs.items()
        ],
    )
    return lambda _side: alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)


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
    "alter: unknown operation": _incremental(_TOPIC, TOPIC, ("retention.ms", 9, "5")),
    "alter: nothing": _incremental(_TOPIC, TOPIC),
    "alter: the broker": _incremental(_BROKER, "0", ("log.cleaner.threads", _SET, "2")),
    "alter: the broker's read-only": _incremental(_BROKER, "0", ("broker.rack", _SET, "x")),
    "alter: another broker": _incremental(_BROKER, "77", ("log.cleaner.threads", _SET, "2")),
    "alter: odd broker": _incremental(_BROKER, "x", ("log.cleaner.threads", _SET, "2")),
    "alter: all brokers": _incremental(_BROKER, "", ("log.cleaner.threads", _SET, "2")),
    "alter: an unknown type": _incremental(99, "x", ("a", _SET, "2")),
    "replace: fine": _replaced(_TOPIC, TOPIC, retention_ms="5"),
    "replace: unknown topic": _replaced(_TOPIC, "nothing", retention_ms="5"),
    "replace: unknown setting": _replaced(_TOPIC, TOPIC, no_such="5"),
    "replace: null value": _replaced(_TOPIC, TOPIC, retention_ms=None),
    "replace: the broker": _replaced(_BROKER, "0", log_cleaner_threads="2"),
    "cluster": lambda _side: describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True),
    "cluster: controllers": lambda _side: describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=2
    ),
    "cluster: unknown endpoints": lambda _side: describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=7
    ),
    "quorum: another topic": lambda _side: describe_quorum.DescribeQuorumRequest(
        topics=[
            describe_quorum.TopicData(topic_name=TOPIC, partitions=[describe_quorum.PartitionData(partition_index=0)])
        ]
    ),
    "quorum: another partition": lambda _side: describe_quorum.DescribeQuorumRequest(
        topics=[
            describe_quorum.TopicData(
                topic_name="__cluster_metadata", partitions=[describe_quorum.PartitionData(partition_index=1)]
            )
        ]
    ),
}

# Groups


def _join(group: str = "g", member: str = "", session_ms: int = 10_000, kind: str = "consumer", **others: Any) -> Ask:
    protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=b"")]
    settings: dict[str, Any] = {"protocols": protocols, "rebalance_timeout_ms": 10_000} | others
    return lambda _side: join_group.JoinGroupRequest(
        group_id=group, session_timeout_ms=session_ms, member_id=member, protocol_type=kind, **settings
    )


def _commit(
    group: str = "commits", topic: str = TOPIC, partition: int = 0, note: str | None = "", **others: Any
) -> Ask:
    wanted = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=1, committed_metadata=note
    )
    settings: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": ""} | others

    def ask(side: Side) -> Request:
        asked = offset_commit.OffsetCommitRequestTopic(
            name=topic, topic_id=side.topic_ids.get(topic, UNKNOWN_ID), partitions=[wanted]
        )
        return offset_commit.OffsetCommitRequest(group_id=group, topics=[asked], **settings)

    return ask


def _committed(group: str, *partitions: int, topic: str = TOPIC) -> Ask:
    def ask(side: Side) -> Request:
        old = offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))
        new = offset_fetch.OffsetFetchRequestTopics(
            name=topic, topic_id=side.topic_ids.get(topic, UNKNOWN_ID), partition_indexes=list(partitions)
        )
        asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[new] if partitions else None)
        return offset_fetch.OffsetFetchRequest(group_id=group, topics=[old] if partitions else None, groups=[asked])

    return ask


def _coordinator(key: str, kind: int = 0) -> Ask:
    return lambda _side: find_coordinator.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


def _offset_delete(group: str, topic: str = TOPIC) -> Ask:
    wanted = [offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
    asked = [offset_delete.OffsetDeleteRequestTopic(name=topic, partitions=wanted)]
    return lambda _side: offset_delete.OffsetDeleteRequest(group_id=group, topics=asked)


GROUPS: dict[str, Ask] = {
    "coordinator: of a group": _coordinator("g"),
    "coordinator: of no group": _coordinator(""),
    "coordinator: unknown type": _coordinator("g", 9),
    "commit": _commit(),
    "commit: no group": _commit(""),
    "commit: long note": _commit(note="x" * 5000),
    "commit: null note": _commit(note=None),
    "commit: unknown topic": _commit(topic="nothing"),
    "commit: unknown partition": _commit(partition=9),
    "commit: unknown member": _commit(member_id="x", generation_id_or_member_epoch=1),
    "commit: unknown group and member": _commit("no-group", member_id="x", generation_id_or_member_epoch=1),
    "commit: generation without a member": _commit("no-group", generation_id_or_member_epoch=1),
    "committed": _committed("commits", 0, 1),
    "committed: all": _committed("commits"),
    "committed: unknown group": _committed("no-group", 0),
    "committed: all of an unknown group": _committed("no-group"),
    "committed: unknown topic": _committed("commits", 0, topic="nothing"),
    "committed: no group": _committed("", 0),
    "offset delete: unknown group": _offset_delete("no-group"),
    "offset delete: unknown topic": _offset_delete("commits", "nothing"),
    "offset delete: no group": _offset_delete(""),
    "describe: unknown, none, known": lambda _side: describe_groups.DescribeGroupsRequest(
        groups=["no-group", "", "commits"]
    ),
    "describe: with operations": lambda _side: describe_groups.DescribeGroupsRequest(
        groups=["commits", "no-group"], include_authorized_operations=True
    ),
    "list": lambda _side: list_groups.ListGroupsRequest(),
    "list: empty ones": lambda _side: list_groups.ListGroupsRequest(states_filter=["empty", "nonsense"]),
    "list: stable ones": lambda _side: list_groups.ListGroupsRequest(states_filter=["Stable"]),
    "list: classic ones": lambda _side: list_groups.ListGroupsRequest(types_filter=["Classic"]),
    "list: modern ones": lambda _side: list_groups.ListGroupsRequest(types_filter=["consumer"]),
    "delete: unknown and none": lambda _side: delete_groups.DeleteGroupsRequest(groups_names=["no-group", ""]),
    "join: no group": _join(""),
    "join: session too short": _join(session_ms=1),
    "join: session too long": _join(session_ms=10_000_000),
    "join: unknown member": _join(member="x"),
    "join: unknown member of an unknown group": _join("no-group", member="x"),
    "join: no protocols": _join(protocols=[]),
    "join: no type": _join(kind=""),
    "sync: unknown": lambda _side: sync_group.SyncGroupRequest(
        group_id="no-group", generation_id=1, member_id="x", assignments=[]
    ),
    "sync: no group": lambda _side: sync_group.SyncGroupRequest(
        group_id="", generation_id=1, member_id="x", assignments=[]
    ),
    "sync: unknown member": lambda _side: sync_group.SyncGroupRequest(
        group_id="commits", generation_id=1, member_id="x", assignments=[]
    ),
    "heartbeat: unknown": lambda _side: heartbeat.HeartbeatRequest(group_id="no-group", generation_id=1, member_id="x"),
    "heartbeat: no group": lambda _side: heartbeat.HeartbeatRequest(group_id="", generation_id=1, member_id="x"),
    "heartbeat: unknown member": lambda _side: heartbeat.HeartbeatRequest(
        group_id="commits", generation_id=1, member_id="x"
    ),
    "leave: unknown": lambda _side: leave_group.LeaveGroupRequest(
        group_id="no-group", member_id="x", members=[leave_group.MemberIdentity(member_id="x")]
    ),
    "leave: unknown member": lambda _side: leave_group.LeaveGroupRequest(
        group_id="commits",
        member_id="x",
        members=[
            leave_group.MemberIdentity(member_id="x"),
            leave_group.MemberIdentity(member_id="", group_instance_id="y"),
        ],
    ),
    "leave: no group": lambda _side: leave_group.LeaveGroupRequest(group_id="", member_id="x"),
    "producer id": lambda _side: init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    ),
    "producer id: with an epoch": lambda _side: init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=5, producer_epoch=3
    ),
}

CASES = {
    f"{area}: {name}": ask
    for area, cases in {"topics": TOPICS, "records": RECORDS, "configs": CONFIGS, "groups": GROUPS}.items()
    for name, ask in cases.items()
}


@pytest.mark.parametrize("name", CASES)
def test_our_node_answers_as_kafka_does(sides: tuple[Side, Side], name: str) -> None:
    kafka, ours = sides
    assert differences(kafka, ours, CASES[name]) == []
