"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords, as clients see them. The rules are in tests/replication."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.data_plane import DataPlane, batch, code_of, values_of


@pytest.fixture
def plane() -> DataPlane:
    plane = DataPlane()
    plane.create_topic("t", 2)
    return plane


def look_up(
    plane: DataPlane, *asked: tuple[str, int, int], version: int = 11, leader_epoch: int = -1, **how: Any
) -> list[Any]:
    """The answers, one for each (topic, partition, timestamp)."""
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=number, timestamp=timestamp, current_leader_epoch=leader_epoch)
            ],
        )
        for topic, number, timestamp in asked
    ]
    response = plane.ask(ListOffsetsRequest(**{"replica_id": -1, **how}, topics=topics), version)
    return [each for topic in response.topics for each in topic.partitions]


def found(answer: Any) -> tuple[str, int, int, int]:
    return code_of(answer), answer.timestamp, answer.offset, answer.leader_epoch


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends_of_a_log_in_every_version(plane: DataPlane, version: int) -> None:
    plane.append("t", b"a", b"b")
    epoch = 0 if version >= 4 else -1
    first, last = look_up(plane, ("t", 0, -2), ("t", 1, -1), version=version)
    assert (found(first), found(last)) == (("NONE", -1, 0, epoch), ("NONE", -1, 0, epoch))
    [last] = look_up(plane, ("t", 0, -1), version=version)
    assert found(last) == ("NONE", -1, 2, epoch)


def test_a_record_is_found_by_its_time(plane: DataPlane) -> None:
    now_ms = plane.now_ms
    for age_ms in (300, 100, 200):
        plane.produce({("t", 0): batch([b"x"], timestamp_ms=now_ms - age_ms)})
    times = [look_up(plane, ("t", 0, now_ms - age_ms))[0] for age_ms in (301, 300, 200, 99)]
    assert [found(each)[1:3] for each in times] == [
        (now_ms - 300, 0),
        (now_ms - 300, 0),
        (now_ms - 100, 1),
        (-1, -1),
    ]
    [youngest] = look_up(plane, ("t", 0, -3))
    assert found(youngest) == ("NONE", now_ms - 100, 1, 0)


@pytest.mark.parametrize(("timestamp", "first_version"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_times_need_their_versions(plane: DataPlane, timestamp: int, first_version: int) -> None:
    assert code_of(look_up(plane, ("t", 0, timestamp), version=first_version - 1)[0]) == "UNSUPPORTED_VERSION"
    assert code_of(look_up(plane, ("t", 0, timestamp), version=first_version)[0]) == "NONE"
    assert code_of(look_up(plane, ("t", 0, -7))[0]) == "UNSUPPORTED_VERSION"


def test_errors_of_lookups(plane: DataPlane) -> None:
    plane.create_topic("elsewhere", replicas=(2,))
    answers = look_up(plane, ("nope", 0, -1), ("t", 5, -1), ("elsewhere", 0, -1), ("t", 0, -1), ("t", 0, -2))
    assert [code_of(each) for each in answers] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "INVALID_REQUEST",  # named twice, refused once
    ]
    plane.change_partition("t", 0, leader_epoch=3)
    assert code_of(look_up(plane, ("t", 0, -1), leader_epoch=2)[0]) == "FENCED_LEADER_EPOCH"
    assert code_of(look_up(plane, ("t", 0, -1), leader_epoch=4)[0]) == "UNKNOWN_LEADER_EPOCH"


def test_isolation_decides_where_the_end_is(plane: DataPlane) -> None:
    plane.append("t", b"a")
    plane.append_in_transaction("t", 7, b"b")
    plane.create_topic("r", replicas=(1, 2))
    plane.produce({("r", 0): batch([b"a"])}, acks=1)
    ends = [
        look_up(plane, ("t", 0, -1), isolation_level=0)[0].offset,
        look_up(plane, ("t", 0, -1), isolation_level=1)[0].offset,
        look_up(plane, ("r", 0, -1))[0].offset,
        look_up(plane, ("r", 0, -1), replica_id=-2)[0].offset,
    ]
    assert ends == [2, 1, 0, 1]


def test_a_leader_that_does_not_know_yet_says_so_in_the_words_of_the_version(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    plane.produce({("r", 0): batch([b"a"])}, acks=1)
    plane.change_partition("r", leader_epoch=1)
    assert code_of(look_up(plane, ("r", 0, -1), version=5)[0]) == "OFFSET_NOT_AVAILABLE"
    assert code_of(look_up(plane, ("r", 0, -1), version=4)[0]) == "LEADER_NOT_AVAILABLE"


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_ends_of_epochs(plane: DataPlane, version: int) -> None:
    plane.append("t", b"a", b"b")
    plane.change_partition("t", 0, leader_epoch=2)
    plane.append("t", b"c")

    def ask(epoch: int, current: int = -1, topic: str = "t") -> tuple[str, int, int]:
        asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
        [answer] = plane.ask(request, version).topics[0].partitions
        return code_of(answer), answer.leader_epoch, answer.end_offset

    assert [ask(epoch) for epoch in (0, 1, 2, 3)] == [("NONE", 0, 2), ("NONE", 0, 2), ("NONE", 2, 3), ("NONE", -1, -1)]
    assert ask(0, current=1) == ("FENCED_LEADER_EPOCH", -1, -1)
    assert ask(0, current=3) == ("UNKNOWN_LEADER_EPOCH", -1, -1)
    assert ask(0, topic="nope") == ("UNKNOWN_TOPIC_OR_PARTITION", -1, -1)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_deleting_records(plane: DataPlane, version: int) -> None:
    plane.append("t", b"a", b"b", b"c")
    plane.create_topic("compacted", cleanup_policy="compact")
    plane.create_topic("__consumer_offsets")

    def delete(topic: str, offset: int) -> tuple[str, int]:
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=100)
        [answer] = plane.ask(request, version).topics[0].partitions
        return code_of(answer), answer.low_watermark

    assert delete("t", 2) == ("NONE", 2)
    assert delete("t", 9) == ("OFFSET_OUT_OF_RANGE", -1)
    assert delete("compacted", 0) == ("POLICY_VIOLATION", -1)
    assert delete("__consumer_offsets", 0) == ("INVALID_TOPIC_EXCEPTION", -1)
    assert delete("nope", 0) == ("UNKNOWN_TOPIC_OR_PARTITION", -1)
    assert values_of(plane.fetch("t", 2), from_offset=2) == [b"c"]
    assert code_of(plane.fetch("t", 1)) == "OFFSET_OUT_OF_RANGE"
    assert plane.append("t", b"d").log_start_offset == 2
    assert delete("t", -1) == ("NONE", 4)
