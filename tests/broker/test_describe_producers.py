"""DescribeProducers: what partitions know of their producers."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.broker.data_plane import DataPlane, batch, code_of


def describe(plane: DataPlane, *topics: tuple[str, list[int]]) -> list[tuple[str, list[Any]]]:
    asked = [TopicRequest(name=name, partition_indexes=numbers) for name, numbers in topics]
    return [(each.name, each.partitions) for each in plane.ask(DescribeProducersRequest(topics=asked)).topics]


def test_producers_are_told_with_their_last_batch() -> None:
    plane = DataPlane()
    plane.create_topic("t")
    plane.append("t", b"1", b"2", producer_id=9, producer_epoch=3, base_sequence=0)
    plane.append("t", b"3", producer_id=9, producer_epoch=3, base_sequence=2)
    plane.append("t", b"of nobody")
    [(_, [partition])] = describe(plane, ("t", [0]))
    [told] = partition.active_producers
    assert (told.producer_id, told.producer_epoch, told.last_sequence) == (9, 3, 2)
    assert (told.last_timestamp, told.coordinator_epoch, told.current_txn_start_offset) == (plane.now_ms, -1, -1)


def test_an_open_transaction_is_told_until_it_ends() -> None:
    plane = DataPlane()
    plane.create_topic("t")
    plane.append("t", b"before")
    plane.append_in_transaction("t", 5, b"in it")
    [(_, [partition])] = describe(plane, ("t", [0]))
    assert [each.current_txn_start_offset for each in partition.active_producers] == [1]
    plane.end_transaction("t", 5, committed=True)
    [(_, [partition])] = describe(plane, ("t", [0]))
    [told] = partition.active_producers
    assert (told.current_txn_start_offset, told.coordinator_epoch) == (-1, 0)


def test_what_is_named_twice_is_answered_once() -> None:
    plane = DataPlane()
    plane.create_topic("t", 2)
    answer = describe(plane, ("t", [0, 0, 1]), ("nope", [0]), ("t", [1, 0]), ("nope", [0]))
    assert [(name, [each.partition_index for each in found]) for name, found in answer] == [
        ("t", [0, 1]),
        ("nope", [0]),
    ]


def test_partitions_that_cannot_be_told_of_say_why() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk, log_dirs="/one,/two")
    plane.create_topic("elsewhere", replicas=(2, 3))
    plane.create_topic("followed", replicas=(2, 1))
    plane.create_topic("broken")
    disk.fail_next(errno.EIO, path="/two/broken", name="write_at")
    plane.produce({("broken", 0): batch([b"x"])})
    names = ["elsewhere", "followed", "broken", "no such", "nope"]
    codes = [code_of(each) for _, [each] in describe(plane, *((name, [0]) for name in names))]
    assert codes == [
        "NOT_LEADER_OR_FOLLOWER",
        "NOT_LEADER_OR_FOLLOWER",
        "KAFKA_STORAGE_ERROR",
        "INVALID_TOPIC_EXCEPTION",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
