"""aiokafka's producer and consumer: records of every shape, offsets, groups, and the errors they are told."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any

import pytest

from tests.compat.aiokafka_client import AioKafka, ak, ak_errors, as_sample, eventually, on_a_loop, received, values
from tests.compat.brokers import unique
from tests.compat.samples import BIG_BYTES, CODECS, RECORDS, TIME_MS, TOO_BIG_BYTES, Sample


@pytest.fixture
def client(node: str) -> AioKafka:
    return AioKafka(node)


def numbered(count: int) -> list[Sample]:
    return [Sample(str(number).encode(), timestamp_ms=TIME_MS + number) for number in range(count)]


# Producing


@pytest.mark.parametrize("codec", CODECS)
@on_a_loop
async def test_records_of_every_shape_come_back_as_they_were(client: AioKafka, codec: str) -> None:
    topic = await client.topic()
    sent = await client.produce(topic, RECORDS, compression_type=None if codec == "none" else codec)
    assert [each.offset for each in sent] == list(range(len(RECORDS)))
    records = await client.consume(topic, len(RECORDS), check_crcs=True)
    assert tuple(as_sample(each) for each in records) == RECORDS
    assert {each.timestamp_type for each in records} == {0}


@on_a_loop
async def test_a_topic_stamps_records_when_they_are_appended(client: AioKafka) -> None:
    topic = await client.topic(config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    (sent,) = await client.produce(topic, [Sample(b"x")])
    (record,) = await client.consume(topic, 1)
    assert record.timestamp_type == sent.timestamp_type == 1
    assert before_ms <= record.timestamp == sent.timestamp <= time.time() * 1000


@on_a_loop
async def test_big_records(client: AioKafka) -> None:
    topic = await client.topic()
    await client.produce(topic, [Sample(b"v" * BIG_BYTES)])
    assert values(await client.consume(topic, 1)) == [b"v" * BIG_BYTES]
    with pytest.raises(ak_errors.MessageSizeTooLargeError):
        await client.produce(topic, [Sample(b"v" * TOO_BIG_BYTES)], max_request_size=2 * TOO_BIG_BYTES)


@pytest.mark.parametrize("acks", [0, 1, "all"])
@on_a_loop
async def test_acks(client: AioKafka, acks: int | str) -> None:
    topic = await client.topic()
    sent = await client.produce(topic, numbered(50), acks=acks)
    if acks != 0:
        assert [each.offset for each in sent] == list(range(50))
    assert values(await client.consume(topic, 50)) == [each.value for each in numbered(50)]


@on_a_loop
async def test_an_idempotent_producer_keeps_the_order(client: AioKafka) -> None:
    topic = await client.topic()
    sent = await client.produce(topic, numbered(300), enable_idempotence=True, max_batch_size=200)
    assert [each.offset for each in sent] == list(range(300))
    assert values(await client.consume(topic, 300)) == [each.value for each in numbered(300)]


@on_a_loop
async def test_many_partitions(client: AioKafka) -> None:
    topic = await client.topic(20)
    async with client.producer() as producer:
        sent = [await producer.send(topic, b"%d" % number, partition=number % 20) for number in range(100)]
        where = [(each.partition, each.offset) for each in await asyncio.gather(*sent)]
    assert where == [(number % 20, number // 20) for number in range(100)]
    async with client.consumer() as consumer:
        consumer.assign([ak.TopicPartition(topic, number) for number in range(20)])
        assert sorted(int(each.value) for each in await received(consumer, 100)) == list(range(100))


@on_a_loop
async def test_a_timestamp_far_in_the_future_is_refused(client: AioKafka) -> None:
    strict = await client.topic(config={"message.timestamp.after.max.ms": "1000"})
    with pytest.raises(ak_errors.InvalidTimestampError):
        await client.produce(strict, [Sample(b"x", timestamp_ms=int(time.time() * 1000) + 3_600_000)])


# Consuming by partition


@on_a_loop
async def test_positions_and_seeking(client: AioKafka) -> None:
    topic = await client.topic()
    await client.produce(topic, numbered(20))
    partition = ak.TopicPartition(topic, 0)
    async with client.consumer() as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 15)
        assert values(await received(consumer, 5)) == [b"15", b"16", b"17", b"18", b"19"]
        assert (await consumer.position(partition), consumer.highwater(partition)) == (20, 20)
        assert consumer.last_stable_offset(partition) in (20, -1)
        await consumer.seek_to_beginning(partition)
        assert values(await received(consumer, 1)) == [b"0"]
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 20


@on_a_loop
async def test_offsets_by_time_and_at_both_ends(client: AioKafka) -> None:
    topic = await client.topic(2)
    await client.produce(topic, numbered(10), partition=0)
    full, empty = ak.TopicPartition(topic, 0), ak.TopicPartition(topic, 1)
    async with client.consumer() as consumer:
        found = await consumer.offsets_for_times({full: TIME_MS + 4, empty: TIME_MS})
        assert found == {full: ak.structs.OffsetAndTimestamp(4, TIME_MS + 4), empty: None}
        assert await consumer.beginning_offsets([full, empty]) == {full: 0, empty: 0}
        assert await consumer.end_offsets([full, empty]) == {full: 10, empty: 0}


@on_a_loop
async def test_a_paused_partition_is_silent_until_it_is_resumed(client: AioKafka) -> None:
    topic = await client.topic(2)
    await client.produce(topic, [Sample(b"paused")], partition=0)
    await client.produce(topic, [Sample(b"heard")], partition=1)
    first, second = ak.TopicPartition(topic, 0), ak.TopicPartition(topic, 1)
    async with client.consumer() as consumer:
        consumer.assign([first, second])
        consumer.pause(first)
        assert values(await received(consumer, 1)) == [b"heard"]
        assert await consumer.getmany(timeout_ms=300) == {}
        consumer.resume(first)
        assert values(await received(consumer, 1)) == [b"paused"]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"0"), ("latest", b"new")])
@on_a_loop
async def test_an_offset_out_of_range_is_reset(client: AioKafka, reset: str, expected: bytes) -> None:
    topic = await client.topic()
    await client.produce(topic, numbered(3))
    partition = ak.TopicPartition(topic, 0)
    async with client.consumer(auto_offset_reset=reset) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        if reset == "latest":
            while await consumer.position(partition) != 3:
                assert await consumer.getmany(timeout_ms=20) == {}
            await client.produce(topic, [Sample(b"new")])
        assert values(await received(consumer, 1)) == [expected]


@on_a_loop
async def test_an_offset_out_of_range_is_an_error_where_nobody_resets(client: AioKafka) -> None:
    topic = await client.topic()
    async with client.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([ak.TopicPartition(topic, 0)])
        consumer.seek(ak.TopicPartition(topic, 0), 5)
        with pytest.raises(ak_errors.OffsetOutOfRangeError):
            await received(consumer, 1)


@on_a_loop
async def test_max_poll_records_bounds_what_a_poll_gives(client: AioKafka) -> None:
    topic = await client.topic()
    await client.produce(topic, numbered(25))
    async with client.consumer(max_poll_records=7) as consumer:
        consumer.assign([ak.TopicPartition(topic, 0)])
        sizes: list[int] = []
        while sum(sizes) < 25:
            sizes += [len(each) for each in (await consumer.getmany(timeout_ms=500)).values()]
        assert max(sizes) == 7


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@on_a_loop
async def test_both_isolation_levels_see_records_outside_of_transactions(client: AioKafka, isolation: str) -> None:
    topic = await client.topic()
    await client.produce(topic, numbered(10))
    assert len(await client.consume(topic, 10, isolation_level=isolation)) == 10


# Groups


def shared_out(consumers: list[Any], partitions: int) -> bool:
    """Whether each has its share and nobody has what another has."""
    shares = [{each.partition for each in consumer.assignment()} for consumer in consumers]
    return all(shares) and sorted(number for share in shares for number in share) == list(range(partitions))


@pytest.mark.parametrize(
    "assignor",
    [
        "range.RangePartitionAssignor",
        "roundrobin.RoundRobinPartitionAssignor",
        "sticky.sticky_assignor.StickyPartitionAssignor",
    ],
)
@on_a_loop
async def test_members_come_and_go(client: AioKafka, assignor: str) -> None:
    module, _, name = assignor.rpartition(".")
    strategy = getattr(import_module(f"aiokafka.coordinator.assignors.{module}"), name)
    topic, group = await client.topic(6), unique("group")

    async def join(stack: AsyncExitStack) -> Any:
        return await stack.enter_async_context(
            client.consumer(topic, group=group, partition_assignment_strategy=[strategy])
        )

    async with AsyncExitStack() as one:
        first = await join(one)
        async with AsyncExitStack() as others:
            second = await join(others)
            await eventually(lambda: shared_out([first, second], 6))
            third = await join(others)
            await eventually(lambda: shared_out([first, second, third], 6))
        await eventually(lambda: shared_out([first], 6))
        await client.produce(topic, [Sample(b"for the last one")], partition=5)
        assert values(await received(first, 1)) == [b"for the last one"]


@on_a_loop
async def test_a_static_member_comes_back_to_what_it_had(client: AioKafka) -> None:
    topic, group = await client.topic(4), unique("group")
    async with client.consumer(topic, group=group, group_instance_id="stays") as stays:
        async with client.consumer(topic, group=group, group_instance_id="returns") as leaves:
            await eventually(lambda: shared_out([stays, leaves], 4))
            before = leaves.assignment()
        async with client.consumer(topic, group=group, group_instance_id="returns") as returns:
            await eventually(lambda: shared_out([stays, returns], 4))
            assert returns.assignment() == before


@on_a_loop
async def test_a_group_resumes_where_it_committed(client: AioKafka) -> None:
    topic, group = await client.topic(), unique("group")
    await client.produce(topic, numbered(10))
    partition = ak.TopicPartition(topic, 0)
    async with client.consumer(topic, group=group) as consumer:
        assert await consumer.committed(partition) is None
        await received(consumer, 4)
        await consumer.commit()
        await received(consumer, 3)
    async with client.consumer(topic, group=group) as consumer:
        assert values(await received(consumer, 2)) == [b"4", b"5"]
        await consumer.commit({partition: (8, "a note")})
        await consumer.seek_to_committed()
        assert values(await received(consumer, 1)) == [b"8"]


@on_a_loop
async def test_offsets_are_committed_in_the_background(client: AioKafka) -> None:
    topic, group = await client.topic(), unique("group")
    await client.produce(topic, numbered(3))
    async with client.consumer(topic, group=group, enable_auto_commit=True, auto_commit_interval_ms=50) as consumer:
        await received(consumer, 3)
        while await consumer.committed(ak.TopicPartition(topic, 0)) != 3:
            await consumer.getmany(timeout_ms=20)


@on_a_loop
async def test_a_commit_of_somebody_who_is_not_a_member(client: AioKafka) -> None:
    topic, group = await client.topic(), unique("group")
    partition = ak.TopicPartition(topic, 0)
    async with client.consumer(topic, group=group) as member:
        await eventually(lambda: shared_out([member], 1))
        async with client.consumer(group=group) as stranger:
            stranger.assign([partition])
            with pytest.raises((ak_errors.CommitFailedError, ak_errors.UnknownMemberIdError)):
                await stranger.commit({partition: 0})


@on_a_loop
async def test_a_pattern_finds_topics_that_come_later(client: AioKafka) -> None:
    first = await client.topic()
    await client.produce(first, [Sample(b"now")])
    async with client.consumer(group=unique("group"), metadata_max_age_ms=200) as consumer:
        consumer.subscribe(pattern=f"^{re.escape(first)}.*")
        assert values(await received(consumer, 1)) == [b"now"]
        await consumer.commit()
        await client.produce(f"{first}-more", [Sample(b"later")])
        assert values(await received(consumer, 1)) == [b"later"]
