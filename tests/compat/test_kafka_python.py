"""kafka-python's producer and consumer: records of every shape, offsets, groups, and the errors they are told."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from barnabas.records import murmur2
from tests.compat.brokers import unique
from tests.compat.kafka_python_client import (
    TIMEOUT_MS,
    KafkaPython,
    Member,
    as_sample,
    kp,
    kp_errors,
    poll,
    polled,
    values,
)
from tests.compat.samples import BIG_BYTES, CODECS, RECORDS, TIME_MS, TIMEOUT_S, TOO_BIG_BYTES, Sample, until

#: kafka-python reads null in headers but does not send it.
SENDABLE = [replace(each, headers=tuple(pair for pair in each.headers if pair[1] is not None)) for each in RECORDS]


@pytest.fixture(scope="module")
def client(node: str) -> Iterator[KafkaPython]:
    client = KafkaPython(node)
    yield client
    client.close()


def numbered(count: int) -> list[Sample]:
    return [Sample(str(number).encode(), timestamp_ms=TIME_MS + number) for number in range(count)]


# Producing


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_shape_come_back_as_they_were(client: KafkaPython, codec: str) -> None:
    topic = client.topic()
    sent = client.produce(topic, SENDABLE, compression_type=None if codec == "none" else codec)
    assert [each.offset for each in sent] == list(range(len(SENDABLE)))
    received = client.consume(topic, len(SENDABLE), check_crcs=True)
    assert [as_sample(each) for each in received] == SENDABLE
    assert {each.timestamp_type for each in received} == {0}


def test_a_topic_stamps_records_when_they_are_appended(client: KafkaPython) -> None:
    topic = client.topic(config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    (sent,) = client.produce(topic, [Sample(b"x")])
    (received,) = client.consume(topic, 1)
    assert received.timestamp_type == 1
    assert before_ms <= received.timestamp == sent.timestamp <= time.time() * 1000


def test_big_records(client: KafkaPython) -> None:
    topic = client.topic()
    client.produce(topic, [Sample(b"v" * BIG_BYTES)])
    assert values(client.consume(topic, 1)) == [b"v" * BIG_BYTES]
    with pytest.raises(kp_errors.MessageSizeTooLargeError):
        client.produce(topic, [Sample(b"v" * TOO_BIG_BYTES)], max_request_size=2 * TOO_BIG_BYTES)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(client: KafkaPython, acks: int | str) -> None:
    topic = client.topic()
    sent = client.produce(topic, numbered(50), acks=acks, enable_idempotence=False)
    if acks != 0:
        assert [each.offset for each in sent] == list(range(50))
    assert values(client.consume(topic, 50)) == [each.value for each in numbered(50)]


def test_an_idempotent_producer_keeps_the_order(client: KafkaPython) -> None:
    topic = client.topic()
    sent = client.produce(topic, numbered(300), enable_idempotence=True, batch_size=200)
    assert [each.offset for each in sent] == list(range(300))
    assert values(client.consume(topic, 300)) == [each.value for each in numbered(300)]


def test_keys_choose_partitions_as_ours_do(client: KafkaPython) -> None:
    topic = client.topic(10)
    keys = [f"key {number}".encode() for number in range(50)]
    sent = client.produce(topic, [Sample(b"v", key) for key in keys])
    assert [each.partition for each in sent] == [(murmur2(key) & 0x7FFF_FFFF) % 10 for key in keys]


def test_errors_of_a_producer(client: KafkaPython) -> None:
    compacted = client.topic(config={"cleanup.policy": "compact"})
    with pytest.raises(kp_errors.InvalidRecordError):
        client.produce(compacted, [Sample(b"no key")])
    strict = client.topic(config={"message.timestamp.after.max.ms": "1000"})
    with pytest.raises(kp_errors.InvalidTimestampError):
        client.produce(strict, [Sample(b"x", timestamp_ms=int(time.time() * 1000) + 3_600_000)])


# Consuming by partition


def test_positions_and_seeking(client: KafkaPython) -> None:
    topic = client.topic()
    client.produce(topic, numbered(20))
    partition = kp.TopicPartition(topic, 0)
    with client.consumer() as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 15)
        assert values(polled(consumer, 5)) == [b"15", b"16", b"17", b"18", b"19"]
        assert (consumer.position(partition), consumer.highwater(partition)) == (20, 20)
        consumer.seek_to_beginning(partition)
        assert values(polled(consumer, 1)) == [b"0"]
        consumer.seek_to_end(partition)
        assert consumer.position(partition, timeout_ms=TIMEOUT_MS) == 20


def test_offsets_by_time_and_at_both_ends(client: KafkaPython) -> None:
    topic = client.topic(2)
    client.produce(topic, numbered(10), partition=0)
    client.admin.delete_records({kp.TopicPartition(topic, 0): 2})
    full, empty = kp.TopicPartition(topic, 0), kp.TopicPartition(topic, 1)
    with client.consumer() as consumer:
        found = consumer.offsets_for_times({full: TIME_MS + 4, empty: TIME_MS})
        assert (found[full].offset, found[full].timestamp, found[full].leader_epoch) == (4, TIME_MS + 4, 0)
        assert found[empty] is None
        assert consumer.beginning_offsets([full, empty]) == {full: 2, empty: 0}
        assert consumer.end_offsets([full, empty]) == {full: 10, empty: 0}


def test_a_paused_partition_is_silent_until_it_is_resumed(client: KafkaPython) -> None:
    topic = client.topic(2)
    client.produce(topic, [Sample(b"paused")], partition=0)
    client.produce(topic, [Sample(b"heard")], partition=1)
    first, second = kp.TopicPartition(topic, 0), kp.TopicPartition(topic, 1)
    with client.consumer() as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        assert values(polled(consumer, 1)) == [b"heard"]
        assert consumer.poll(300) == {}
        consumer.resume(first)
        assert values(polled(consumer, 1)) == [b"paused"]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 2), ("latest", 10)])
def test_an_offset_out_of_range_is_reset(client: KafkaPython, reset: str, expected: int) -> None:
    topic = client.topic()
    client.produce(topic, numbered(10))
    partition = kp.TopicPartition(topic, 0)
    client.admin.delete_records({partition: 2})
    with client.consumer(auto_offset_reset=reset) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        until(lambda: (consumer.poll(50, max_records=1), consumer.position(partition) != 1000)[1])
        assert consumer.position(partition) in (expected, expected + 1)


def test_an_offset_out_of_range_is_an_error_where_nobody_resets(client: KafkaPython) -> None:
    topic = client.topic()
    with client.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([kp.TopicPartition(topic, 0)])
        consumer.seek(kp.TopicPartition(topic, 0), 5)
        with pytest.raises(kp_errors.OffsetOutOfRangeError):
            until(lambda: consumer.poll(100))


def test_max_poll_records_bounds_what_a_poll_gives(client: KafkaPython) -> None:
    topic = client.topic()
    client.produce(topic, numbered(25))
    with client.consumer(max_poll_records=7) as consumer:
        consumer.assign([kp.TopicPartition(topic, 0)])
        sizes: list[int] = []
        while sum(sizes) < 25:
            sizes += [len(each) for each in consumer.poll(500).values()]
        assert max(sizes) == 7


def test_a_fetch_session_over_many_partitions_sees_each_new_record(client: KafkaPython) -> None:
    topic = client.topic(40)
    with client.consumer() as consumer:
        consumer.assign([kp.TopicPartition(topic, number) for number in range(40)])
        assert consumer.poll(200) == {}
        for partition in (0, 39, 17, 17):
            client.produce(topic, [Sample(b"x")], partition)
            (record,) = polled(consumer, 1)
            assert record.partition == partition
        consumer.assign([kp.TopicPartition(topic, 17), kp.TopicPartition(topic, 18)])
        consumer.seek_to_beginning()
        assert len(polled(consumer, 2)) == 2


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_see_records_outside_of_transactions(client: KafkaPython, isolation: str) -> None:
    topic = client.topic()
    client.produce(topic, numbered(10))
    assert len(client.consume(topic, 10, isolation_level=isolation)) == 10


# Groups


def settle(consumers: list[Any], done: Callable[[], bool]) -> None:
    """Let consumers poll until something has come about."""
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, [each.assignment() for each in consumers]
        for each in consumers:
            poll(each, 20)


@pytest.mark.parametrize(
    "assignor",
    [
        "range.RangePartitionAssignor",
        "roundrobin.RoundRobinPartitionAssignor",
        "sticky.sticky_assignor.StickyPartitionAssignor",
        "cooperative_sticky.CooperativeStickyAssignor",
    ],
)
def test_members_come_and_go(client: KafkaPython, assignor: str) -> None:
    module, _, name = assignor.rpartition(".")
    strategy = getattr(import_module(f"kafka.coordinator.assignors.{module}"), name)
    topic, group = client.topic(6), unique("group")

    def join(stack: ExitStack) -> Member:
        return stack.enter_context(client.member(topic, group, partition_assignment_strategy=[strategy]))

    with ExitStack() as one:
        first = join(one)
        with ExitStack() as others:
            second = join(others)
            until(lambda: shared_out([first, second], 6))
            third = join(others)
            until(lambda: shared_out([first, second, third], 6))
        until(lambda: shared_out([first], 6))
        client.produce(topic, [Sample(b"for the last one")], partition=5)
        until(lambda: first.values == [b"for the last one"])


def shared_out(members: list[Member], partitions: int) -> bool:
    """Whether each has its share, nobody has what another has, and all know of the same generation."""
    shares = [each.partitions for each in members]
    return (
        all(shares)
        and sorted(number for share in shares for number in share) == list(range(partitions))
        and len({each.generation for each in members}) == 1
    )


def test_a_static_member_comes_back_to_what_it_had(client: KafkaPython) -> None:
    topic, group = client.topic(4), unique("group")
    with client.member(topic, group, group_instance_id="stays") as stays:
        with client.member(topic, group, group_instance_id="returns") as leaves:
            until(lambda: shared_out([stays, leaves], 4))
            before, generation = leaves.partitions, stays.generation
        with client.member(topic, group, group_instance_id="returns") as returns:
            until(lambda: shared_out([stays, returns], 4))
            assert (returns.partitions, returns.generation) == (before, generation)


def test_a_group_resumes_where_it_committed(client: KafkaPython) -> None:
    topic, group = client.topic(), unique("group")
    client.produce(topic, numbered(10))
    partition = kp.TopicPartition(topic, 0)
    with client.consumer(topic, group=group) as consumer:
        assert consumer.committed(partition) is None
        polled(consumer, 4)
        consumer.commit()
        polled(consumer, 3)
    with client.consumer(topic, group=group) as consumer:
        assert values(polled(consumer, 2)) == [b"4", b"5"]
        told: list[Any] = []
        consumer.commit_async(callback=lambda offsets, answer: told.append((offsets, answer)))
        settle([consumer], lambda: bool(told))
        assert told[0][0][partition].offset == 6
        assert consumer.committed(partition) == 6


def test_offsets_are_committed_in_the_background(client: KafkaPython) -> None:
    topic, group = client.topic(), unique("group")
    client.produce(topic, numbered(3))
    with client.consumer(topic, group=group, enable_auto_commit=True, auto_commit_interval_ms=50) as consumer:
        polled(consumer, 3)
        settle([consumer], lambda: consumer.committed(kp.TopicPartition(topic, 0)) == 3)


def test_a_commit_of_somebody_who_is_not_a_member(client: KafkaPython) -> None:
    topic, group = client.topic(), unique("group")
    partition = kp.TopicPartition(topic, 0)
    with client.consumer(topic, group=group) as member:
        settle([member], lambda: len(member.assignment()) == 1)
        with client.consumer(group=group) as stranger:
            stranger.assign([partition])
            with pytest.raises((kp_errors.CommitFailedError, kp_errors.UnknownMemberIdError)):
                stranger.commit({partition: kp.OffsetAndMetadata(0, "", -1)}, timeout_ms=3000)


def test_a_pattern_finds_topics_that_come_later(client: KafkaPython) -> None:
    first = client.topic()
    client.produce(first, [Sample(b"now")])
    with client.consumer(group=unique("group"), metadata_max_age_ms=200) as consumer:
        consumer.subscribe(pattern=f"^{re.escape(first)}.*")
        assert values(polled(consumer, 1)) == [b"now"]
        consumer.commit()
        client.produce(f"{first}-more", [Sample(b"later")])
        assert values(polled(consumer, 1)) == [b"later"]
