"""Reading a shard back: transactions, tombstones, codecs, old formats, and what belongs to others."""

from __future__ import annotations

import pytest

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.coordinator.classic.records import group_tombstone
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.offsets.records import offset_record, offset_tombstone
from barnabas.coordinator.results import CoordinatorRecord, Record
from barnabas.records.batch import BatchView
from barnabas.records.compression import Codec
from barnabas.records.control import TransactionMarker, build_marker
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequestTopics
from barnabas.wire.stored.consumer_offsets import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tests.coordinator.driver import Bench, batch_of, replayed

PARTITION = TopicPartition("t", 0)


class LogWriter:
    """Writes the log of a partition batch by batch."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.next_offset = 0

    def add(self, *records: Record | CoordinatorRecord, codec: Codec = Codec.NONE, **producer: int) -> None:
        self.data += batch_of(records, self.next_offset, codec=codec, **producer)
        self.next_offset += len(records)

    def transactional(self, producer_id: int, *records: Record | CoordinatorRecord) -> None:
        self.add(*records, producer_id=producer_id, producer_epoch=0, base_sequence=0)

    def end(self, producer_id: int, *, committed: bool) -> None:
        batch = build_marker(TransactionMarker(producer_id, 0, 0, committed), 0)
        BatchView(batch).stamp(base_offset=self.next_offset, leader_epoch=0)
        self.data += batch
        self.next_offset += 1

    def load(self, **limits: int) -> Bench:
        bench = Bench(**limits)
        bench.log, bench.next_offset = self.data, self.next_offset
        bench.reload()
        assert bench.runtime.load(b"") is None
        assert bench.runtime.next_offset == self.next_offset
        return bench


def committed(offset: int, group: str = "g", partition: TopicPartition = PARTITION) -> CoordinatorRecord:
    return offset_record(
        group, partition, OffsetCommitValue(offset=offset, leader_epoch=-1, metadata="", commit_timestamp=0)
    )


def offset_of(bench: Bench, group: str = "g") -> int | None:
    found = bench.shard.offsets.committed(group).get(PARTITION)
    return None if found is None else found.offset


def stable_fetch(bench: Bench) -> tuple[int, int]:
    bench.fetch_stable_offsets("g", [OffsetFetchRequestTopics(name="t", partition_indexes=[0])], "token")
    (reply,) = bench.runtime.take_replies()
    (partition,) = reply.response.topics[0].partitions  # type: ignore[attr-defined]
    return partition.committed_offset, partition.error_code


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_every_codec_are_read(codec: Codec) -> None:
    log = LogWriter()
    log.add(*(committed(offset) for offset in range(100)), codec=codec)
    assert offset_of(log.load()) == 99


def test_the_offsets_of_a_transaction_count_once_it_is_committed() -> None:
    log = LogWriter()
    log.add(committed(1))
    log.transactional(7, committed(5))
    open_still = log.load()
    assert offset_of(open_still) == 1
    assert stable_fetch(open_still) == (-1, 88)
    log.end(7, committed=True)
    bench = log.load()
    assert offset_of(bench) == 5
    assert stable_fetch(bench) == (5, 0)


def test_an_aborted_transaction_leaves_nothing() -> None:
    log = LogWriter()
    log.transactional(7, committed(5))
    log.end(7, committed=False)
    bench = log.load()
    assert offset_of(bench) is None
    assert stable_fetch(bench) == (-1, 0)


def test_a_later_plain_commit_beats_a_transaction_that_ends_after_it() -> None:
    log = LogWriter()
    log.transactional(7, committed(5))
    log.add(committed(9))
    log.end(7, committed=True)
    assert offset_of(log.load()) == 9


def test_a_group_with_an_open_transaction_is_not_swept_away() -> None:
    log = LogWriter()
    log.transactional(7, committed(5))
    bench = log.load()
    bench.advance(10**10)
    assert list(bench.groups) == ["g"]


def test_tombstones_delete() -> None:
    log = LogWriter()
    log.add(committed(1), committed(2, partition=TopicPartition("t", 1)), committed(3, "h"))
    log.transactional(7, committed(5))
    log.add(offset_tombstone("g", PARTITION), offset_tombstone("h", PARTITION), group_tombstone("h"))
    log.end(7, committed=True)
    bench = log.load()
    assert list(bench.groups) == ["g"]
    assert [each.partition for each in bench.shard.offsets.committed("g")] == [1]


def test_records_of_other_kinds_are_passed_over() -> None:
    log = LogWriter()
    log.add(
        Record(
            ConsumerGroupMetadataKey(group_id="new").encode_key(),
            ConsumerGroupMetadataValue(epoch=3).encode_value(0),
        ),
        Record(b"\x7f\xff from the future", b"?"),
        committed(4),
    )
    bench = log.load()
    assert list(bench.groups) == ["g"]
    assert offset_of(bench) == 4
    assert bench.runtime.skipped.lines() == [
        "1 skipped, at the offsets 0: groups of their kind are not built (the first: ConsumerGroupMetadataKey)",
        "1 skipped, at the offsets 1: their type is not known (the first: type 32767)",
    ]


def test_a_version_that_is_not_known_is_not_guessed_at() -> None:
    log = LogWriter()
    key = OffsetCommitKey(group="g", topic="t", partition=0).encode_key()
    log.add(committed(4), Record(key, b"\x00\x09 from the future"))
    bench = log.load()
    assert offset_of(bench) == 4
    [line] = bench.runtime.skipped.lines()
    assert line.startswith("1 skipped, at the offsets 1: their value cannot be read (the first: group 'g': ")
    assert "version 9 was stored" in line


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x01", b"\x00\x02", b"\x00\x01\x00\x05g", b"\xff\xff"])
@pytest.mark.parametrize("value", [None, b"", b"\x00", b"\x00\x03"])
def test_a_record_that_makes_no_sense_keeps_no_group_from_its_coordinator(
    key: bytes | None, value: bytes | None
) -> None:
    log = LogWriter()
    log.add(committed(4), Record(key, value), committed(5, "h"))  # type: ignore[arg-type]
    bench = log.load()
    assert (offset_of(bench), offset_of(bench, "h"), len(bench.runtime.skipped)) == (4, 5, 1)


def test_many_records_that_make_no_sense_are_told_in_one_line() -> None:
    log = LogWriter()
    group = "x" * 500
    key = OffsetCommitKey(group=group, topic="t", partition=0).encode_key()
    log.add(*(Record(key, b"\x00") for _ in range(1000)))
    [line] = log.load().runtime.skipped.lines()
    assert line.startswith("1000 skipped, at the offsets 0, 1, 2, 3, 4, …: their value cannot be read")
    assert len(line) < 300


def test_a_group_that_names_a_member_twice_is_passed_over() -> None:
    log = LogWriter()
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=7_000, subscription=b"", assignment=b""
    )
    value = GroupMetadataValue(protocol_type="x", generation=4, protocol="p", leader="m", members=[member, member])
    log.add(committed(4), Record(GroupMetadataKey(group="g").encode_key(), value.encode_value(3)))
    bench = log.load()
    assert (bench.groups["g"].members, offset_of(bench), len(bench.runtime.skipped)) == ({}, 4, 1)


def test_a_batch_whose_records_cannot_be_read_is_passed_over() -> None:
    log = LogWriter()
    log.add(committed(4))
    broken = bytearray(batch_of([committed(5, "h")], log.next_offset))
    broken[-8:] = b"\xff" * 8
    log.data += broken
    log.next_offset += 1
    log.add(committed(6, "i"))
    bench = log.load()
    assert (offset_of(bench), offset_of(bench, "i"), len(bench.runtime.skipped)) == (4, 6, 1)


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_all_versions_are_read(version: int) -> None:
    value = OffsetCommitValue(
        offset=3, leader_epoch=2, metadata="m", commit_timestamp=5, expire_timestamp=6, topic_id=Uuid(b"x" * 16)
    )
    log = LogWriter()
    log.add(Record(OffsetCommitKey(group="g", topic="t", partition=0).encode_key(), value.encode_value(version)))
    log.add(
        Record(LegacyOffsetCommitKey(group="old", topic="t", partition=0).encode_key(), value.encode_value(version))
    )
    bench = log.load()
    for group in ("g", "old"):
        found = bench.shard.offsets.committed(group)[PARTITION]
        assert (found.offset, found.metadata, found.commit_timestamp_ms) == (3, "m", 5)
        assert found.expire_timestamp_ms == (6 if version == 1 else -1)
        assert found.leader_epoch == (2 if version >= 3 else -1)


def test_an_offset_with_a_time_of_expiry_is_replayed_as_it_is_stored() -> None:
    bench = Bench()
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=3, committed_leader_epoch=2, committed_metadata="m"
    )
    topic = OffsetCommitRequestTopic(name="t", topic_id=Uuid(b"x" * 16), partitions=[partition])
    for token, retention_time_ms in (("kept", -1), ("expires", 5)):
        request = OffsetCommitRequest(group_id=token, retention_time_ms=retention_time_ms, topics=[topic])
        bench.asked[token] = None
        bench.commit_offsets(request, 4, token)
    bench.settle()
    assert replayed(bench.shard) == replayed(bench.loaded().shard)
    topic_ids = {group: bench.shard.offsets.committed(group)[PARTITION].topic_id for group in ("kept", "expires")}
    assert topic_ids == {"kept": topic.topic_id, "expires": Uuid.ZERO}


@pytest.mark.parametrize("version", range(5))
def test_groups_of_all_versions_are_read(version: int) -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="one",
        client_id="c",
        client_host="/h",
        rebalance_timeout=9_000,
        session_timeout=7_000,
        subscription=b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader="m",
        current_state_timestamp=11,
        members=[member],
    )
    log = LogWriter()
    log.add(Record(GroupMetadataKey(group="g").encode_key(), value.encode_value(version)))
    group = log.load().groups["g"]
    assert (group.state, group.generation, group.leader_id) == (ClassicGroupState.STABLE, 4, "m")
    assert group.subscribed_topics == frozenset({"t"})
    assert group.members["m"].rebalance_timeout_ms == (9_000 if version else 7_000)
    assert group.static_ids == ({"one": "m"} if version >= 3 else {})
    assert group.state_since_ms == (11 if version >= 2 else None)


def test_a_group_that_grew_too_large_comes_back_to_the_barrier() -> None:
    log = LogWriter()
    members = [
        MemberMetadata(
            member_id=name, client_id="c", client_host="/h", session_timeout=7_000, subscription=b"", assignment=b""
        )
        for name in ("a", "b", "c")
    ]
    value = GroupMetadataValue(protocol_type="x", generation=4, protocol="p", leader="a", members=members)
    log.add(Record(GroupMetadataKey(group="g").encode_key(), value.encode_value(3)))
    assert log.load(initial_rebalance_delay_ms=0, max_size=2).groups["g"].state is ClassicGroupState.PREPARING_REBALANCE
