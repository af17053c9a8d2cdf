"""What both brokers are asked about records, offsets and groups."""

from __future__ import annotations

from typing import Any

from barnabas.records import BatchBuilder, Codec
from barnabas.wire.message import Request
from barnabas.wire.messages import (
    delete_groups,
    delete_records,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from tests.compat.duel import COMPACTED, TOPIC, UNKNOWN_ID, Ask, Side
from tests.compat.samples import TIME_MS

_LARGE = 1 << 20

# Records


def batch_of(codec: Codec = Codec.NONE, key: bytes | None = b"k", time_ms: int = TIME_MS, **others: Any) -> bytes:
    builder = BatchBuilder(_LARGE, codec=codec, **others)
    builder.append(b"value", key, time_ms, [])
    return bytes(builder.build())


def produced(records: bytes | None, topic: str = TOPIC, partition: int = 0, acks: int = -1) -> Ask:
    def ask(side: Side) -> list[Request]:
        data = produce.PartitionProduceData(index=partition, records=None if records is None else memoryview(records))
        wanted = produce.TopicProduceData(
            name=topic, topic_id=side.topic_ids.get(topic, UNKNOWN_ID), partition_data=[data]
        )
        return [produce.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[wanted])]

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
    part_bytes: int = _LARGE,
    **others: Any,
) -> Ask:
    def ask(side: Side) -> list[Request]:
        wanted = fetch.FetchPartition(
            partition=partition,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            last_fetched_epoch=last_epoch,
            partition_max_bytes=part_bytes,
        )
        asked = fetch.FetchTopic(topic=topic, topic_id=side.topic_ids.get(topic, UNKNOWN_ID), partitions=[wanted])
        settings = {"max_wait_ms": 10, "min_bytes": 1, "session_id": 0, "session_epoch": -1} | others
        return [fetch.FetchRequest(topics=[asked], **settings)]

    return ask


def _offsets(*partitions: tuple[int, int, int], topic: str = TOPIC, isolation: int = 0) -> Ask:
    wanted = [
        list_offsets.ListOffsetsPartition(partition_index=number, timestamp=time_ms, current_leader_epoch=epoch)
        for number, time_ms, epoch in partitions
    ]
    asked = list_offsets.ListOffsetsTopic(name=topic, partitions=wanted)
    return lambda _side: [list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[asked])]


def _epoch_end(leader_epoch: int, current_epoch: int = -1, partition: int = 0, topic: str = TOPIC) -> Ask:
    wanted = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current_epoch, leader_epoch=leader_epoch
    )
    return lambda _side: [
        offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            replica_id=-2, topics=[offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        )
    ]


def _delete_records(offset: int, topic: str = TOPIC, partition: int = 0) -> Ask:
    wanted = delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
    return lambda _side: [
        delete_records.DeleteRecordsRequest(
            topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=1000
        )
    ]


RECORDS: dict[str, Ask] = {
    "produce: fine": produced(batch_of(), partition=1),
    "produce: acks=1": produced(batch_of(), partition=1, acks=1),
    "produce: acks=2": produced(batch_of(), acks=2),
    "produce: unknown partition": produced(batch_of(), partition=9),
    "produce: unknown topic": produced(batch_of(), "nothing"),
    "produce: nothing": produced(b"", partition=1),
    "produce: bad checksum": produced(_damaged(batch_of(), 60, 0xFF)),
    "produce: magic 1": produced(_damaged(batch_of(), 16, 1)),
    "produce: magic 9": produced(_damaged(batch_of(), 16, 9)),
    "produce: cut off": produced(batch_of()[:-1]),
    "produce: two batches": produced(batch_of() + batch_of(), partition=1),
    "produce: no key to a compacted topic": produced(batch_of(key=None), COMPACTED),
    "produce: zstd": produced(batch_of(Codec.ZSTD), partition=1),
    "produce: internal topic": produced(batch_of(), "__cluster_metadata"),
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

# Groups


def _join(group: str = "g", member: str = "", session_ms: int = 10_000, kind: str = "consumer", **others: Any) -> Ask:
    protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=b"")]
    settings: dict[str, Any] = {"protocols": protocols, "rebalance_timeout_ms": 10_000} | others
    return lambda _side: [
        join_group.JoinGroupRequest(
            group_id=group, session_timeout_ms=session_ms, member_id=member, protocol_type=kind, **settings
        )
    ]


def commit_of(
    group: str = "commits", topic: str = TOPIC, partition: int = 0, note: str | None = "", **others: Any
) -> Ask:
    wanted = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=1, committed_metadata=note
    )
    settings: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": ""} | others

    def ask(side: Side) -> list[Request]:
        asked = offset_commit.OffsetCommitRequestTopic(
            name=topic, topic_id=side.topic_ids.get(topic, UNKNOWN_ID), partitions=[wanted]
        )
        return [offset_commit.OffsetCommitRequest(group_id=group, topics=[asked], **settings)]

    return ask


def _committed(group: str, *partitions: int, topic: str = TOPIC) -> Ask:
    def ask(side: Side) -> list[Request]:
        old = offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))
        new = offset_fetch.OffsetFetchRequestTopics(
            name=topic, topic_id=side.topic_ids.get(topic, UNKNOWN_ID), partition_indexes=list(partitions)
        )
        asked = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=[new] if partitions else None)
        return [
            offset_fetch.OffsetFetchRequest(group_id=group, topics=[old] if partitions else None),
            offset_fetch.OffsetFetchRequest(groups=[asked]),
        ]

    return ask


def coordinator_of(key: str, kind: int = 0) -> Ask:
    return lambda _side: [
        find_coordinator.FindCoordinatorRequest(key=key, key_type=kind),
        find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]),
    ]


def _offset_delete(group: str, topic: str = TOPIC) -> Ask:
    wanted = [offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
    asked = [offset_delete.OffsetDeleteRequestTopic(name=topic, partitions=wanted)]
    return lambda _side: [offset_delete.OffsetDeleteRequest(group_id=group, topics=asked)]


def _sync(group: str) -> Ask:
    return lambda _side: [sync_group.SyncGroupRequest(group_id=group, generation_id=1, member_id="x", assignments=[])]


def _heartbeat(group: str) -> Ask:
    return lambda _side: [heartbeat.HeartbeatRequest(group_id=group, generation_id=1, member_id="x")]


def _leave(group: str, *members: tuple[str, str | None]) -> Ask:
    leaving = [leave_group.MemberIdentity(member_id=member, group_instance_id=name) for member, name in members]
    return lambda _side: [
        leave_group.LeaveGroupRequest(group_id=group, member_id=members[0][0]),
        leave_group.LeaveGroupRequest(group_id=group, members=leaving),
    ]


GROUPS: dict[str, Ask] = {
    "coordinator: of a group": coordinator_of("g"),
    "coordinator: of no group": coordinator_of(""),
    "coordinator: unknown type": coordinator_of("g", 9),
    "commit": commit_of(),
    "commit: no group": commit_of(""),
    "commit: long note": commit_of(note="x" * 5000),
    "commit: null note": commit_of(note=None),
    "commit: unknown topic": commit_of(topic="nothing"),
    "commit: unknown partition": commit_of(partition=9),
    "commit: unknown member": commit_of(member_id="x", generation_id_or_member_epoch=1),
    "commit: unknown group and member": commit_of("no-group", member_id="x", generation_id_or_member_epoch=1),
    "commit: generation without a member": commit_of("no-group", generation_id_or_member_epoch=1),
    "committed": _committed("commits", 0, 1),
    "committed: all": _committed("commits"),
    "committed: unknown group": _committed("no-group", 0),
    "committed: all of an unknown group": _committed("no-group"),
    "committed: unknown topic": _committed("commits", 0, topic="nothing"),
    "committed: no group": _committed("", 0),
    "offset delete: unknown group": _offset_delete("no-group"),
    "offset delete: unknown topic": _offset_delete("commits", "nothing"),
    "offset delete: no group": _offset_delete(""),
    "describe: unknown, none, known": lambda _side: [
        describe_groups.DescribeGroupsRequest(groups=["no-group", "", "commits"])
    ],
    "describe: with operations": lambda _side: [
        describe_groups.DescribeGroupsRequest(groups=["commits", "no-group"], include_authorized_operations=True)
    ],
    "list": lambda _side: [list_groups.ListGroupsRequest()],
    "list: empty ones": lambda _side: [list_groups.ListGroupsRequest(states_filter=["empty", "nonsense"])],
    "list: stable ones": lambda _side: [list_groups.ListGroupsRequest(states_filter=["Stable"])],
    "list: classic ones": lambda _side: [list_groups.ListGroupsRequest(types_filter=["Classic"])],
    "list: modern ones": lambda _side: [list_groups.ListGroupsRequest(types_filter=["consumer"])],
    "delete: unknown and none": lambda _side: [delete_groups.DeleteGroupsRequest(groups_names=["no-group", ""])],
    "join: no group": _join(""),
    "join: session too short": _join(session_ms=1),
    "join: session too long": _join(session_ms=10_000_000),
    "join: unknown member": _join(member="x"),
    "join: unknown member of an unknown group": _join("no-group", member="x"),
    "join: no protocols": _join(protocols=[]),
    "join: no type": _join(kind=""),
    "sync: unknown": lambda _side: [
        sync_group.SyncGroupRequest(group_id="no-group", generation_id=1, member_id="x", assignments=[])
    ],
    "sync: no group": lambda _side: [
        sync_group.SyncGroupRequest(group_id="", generation_id=1, member_id="x", assignments=[])
    ],
    "sync: unknown member": lambda _side: [
        sync_group.SyncGroupRequest(group_id="commits", generation_id=1, member_id="x", assignments=[])
    ],
    "heartbeat: unknown": _heartbeat("no-group"),
    "heartbeat: no group": _heartbeat(""),
    "heartbeat: unknown member": _heartbeat("commits"),
    "leave: unknown": _leave("no-group", ("x", None)),
    "leave: unknown member": _leave("commits", ("x", None), ("", "y")),
    "leave: no group": _leave("", ("x", None)),
    "producer id": lambda _side: [
        init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    ],
    "producer id: with an epoch": lambda _side: [
        init_producer_id.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=5, producer_epoch=3
        )
    ],
}
