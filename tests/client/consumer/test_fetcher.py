"""Fetching from a broker, in fair weather and foul."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.base.metrics.registry import MetricsRegistry
from barnabas.client.admin.admin import Admin
from barnabas.client.consumer.arrow_batches import empty_batch
from barnabas.client.core.consuming.offsets import EARLIEST, LATEST, OffsetAndMetadata, OffsetAndTimestamp
from barnabas.client.core.consuming.partition_state import Position
from barnabas.client.core.metrics.consumer import FetchMetrics
from barnabas.client.errors import (
    ClientClosedError,
    ClientTimeoutError,
    NoOffsetError,
    OffsetOutOfRangeError,
    SerializationError,
    WrongUseError,
)
from barnabas.records import Codec
from barnabas.wire.apis import ApiKey
from tests.client.consumer.reading_world import A, B, World, world
from tests.client.core.consuming.logs import TIME_MS
from tests.virtual_time import on_virtual_time


def numbers(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]


@on_virtual_time
async def test_records_come_in_order_and_new_ones_follow() -> None:
    async with world() as it, it.reader(A) as reader:
        await it.produce(A, numbers(0, 10))
        assert await reader.values(10) == numbers(0, 10)
        await reader.nothing()
        await it.produce(A, numbers(10, 12), codec=Codec.ZSTD)
        assert await reader.values(2) == numbers(10, 12)
        assert reader.subscription.position(A) == Position(12, 0)
        assert reader.fetcher.current_lag(A) == 0


@on_virtual_time
async def test_a_session_sends_only_changes_and_ends_with_the_reader() -> None:
    async with world(partitions=2) as it:
        async with it.reader(A, B) as reader:
            await it.produce(A, [b"a"])
            await it.produce(B, [b"b"])
            assert sorted(await reader.values(2)) == [b"a", b"b"]
            sessions = it.broker.node.services.fetch_sessions
            assert len(sessions) == 1
            # Behind a fetch that the broker still holds, no goodbye would be heard.
            reader.subscription.pause([A, B])
            while reader.fetcher._flights:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert len(sessions) == 0


@on_virtual_time
async def test_several_partitions_are_read_ahead_within_bounds() -> None:
    async with world(partitions=2) as it:
        for _ in range(20):
            await it.produce(A, [b"a" * 1000] * 10)
            await it.produce(B, [b"b" * 1000] * 10)
        async with it.reader(A, B, max_partition_fetch_bytes=30_000, fetch_max_bytes=50_000) as reader:
            states = reader.subscription.states().values()
            await reader.fetcher.wait_for_data(5)
            largest, count = 0, 0
            while count < 400:
                largest = max(largest, sum(state.queued_bytes for state in states))
                count += len(await reader.poll(7))
            assert 0 < largest <= 100_000  # one answer beyond the bound at most
            assert await reader.poll(timeout_s=0.1) == []


@on_virtual_time
async def test_seeking_pausing_and_resuming() -> None:
    async with world(partitions=2) as it, it.reader(A, B) as reader:
        await it.produce(A, numbers(0, 10))
        assert await reader.values(3) == numbers(0, 3)
        reader.subscription.seek(A, 8)
        assert await reader.values(2) == numbers(8, 10)
        reader.subscription.seek(A, 0)
        reader.subscription.pause([A])
        await it.produce(B, [b"other"])
        assert await reader.values(1) == [b"other"]
        await reader.nothing()
        reader.subscription.resume([A])
        assert await reader.values(10) == numbers(0, 10)


@on_virtual_time
async def test_pausing_in_the_middle_of_a_chunk_keeps_the_rest() -> None:
    async with world() as it, it.reader(A) as reader:
        await it.produce(A, numbers(0, 10))
        await reader.fetcher.wait_for_data(5)
        chunk = reader.fetcher.take_chunk()
        assert chunk is not None
        assert next(chunk).value == b"0"
        fetches = it.broker.faults.seen[ApiKey.FETCH]
        reader.subscription.pause([A])
        assert list(chunk) == []
        reader.subscription.resume([A])
        again = reader.fetcher.take_chunk()
        assert again is chunk
        assert [record.value for record in again] == numbers(1, 10)
        assert fetches <= it.broker.faults.seen[ApiKey.FETCH] <= fetches + 2


@on_virtual_time
async def test_reading_starts_at_the_committed_offset_or_where_the_setting_says() -> None:
    asked: list[list[TopicPartition]] = []

    async def committed(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        asked.append(list(partitions))
        if len(asked) == 1:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return {A: OffsetAndMetadata(4, "", 0), B: None}

    async with world(partitions=2) as it:
        await it.produce(A, numbers(0, 5))
        await it.produce(B, numbers(0, 2))
        async with it.reader(A, B, committed=committed, auto_offset_reset="latest") as reader:
            assert await reader.fetcher.ensure_positions(5000)
            assert reader.subscription.position(A) == Position(4, 0)
            assert reader.subscription.position(B) == Position(2, 0)
            assert await reader.values(1) == [b"4"]
            assert asked == [[A, B], [A, B]]


@on_virtual_time
async def test_without_a_committed_offset_and_a_reset_the_program_is_told_until_it_seeks() -> None:
    async with world() as it, it.reader(A, auto_offset_reset="none") as reader:
        await it.produce(A, numbers(0, 2))
        for _ in range(2):
            with pytest.raises(NoOffsetError, match="clicks-0"):
                await reader.poll()
        with pytest.raises(NoOffsetError):
            await reader.fetcher.ensure_positions(1000, [A])
        reader.subscription.seek(A, 1)
        assert await reader.values(1) == [b"1"]


@on_virtual_time
async def test_a_failure_to_learn_committed_offsets_that_retries_do_not_cure_is_raised() -> None:
    async def committed(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    async with world() as it, it.reader(A, committed=committed) as reader:
        with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
            await reader.poll()


@on_virtual_time
async def test_records_that_were_deleted_under_the_position_reset_it() -> None:
    async with world() as it:
        await it.produce(A, numbers(0, 10))
        await it.delete_records(A, 6)
        async with it.reader(A) as reader:
            reader.subscription.seek(A, 2)
            assert await reader.values(4) == numbers(6, 10)
        async with it.reader(A, auto_offset_reset="none") as reader:
            reader.subscription.seek(A, 2)
            for _ in range(2):
                with pytest.raises(OffsetOutOfRangeError, match="clicks-0 at 2"):
                    await reader.poll()
            reader.subscription.seek(A, 9)
            assert await reader.values(1) == [b"9"]


@on_virtual_time
async def test_resets_by_strategy_and_duration() -> None:
    async with world() as it:
        await it.produce(A, numbers(0, 5))
        await asyncio.sleep(2 * 3600)
        async with it.reader(A, auto_offset_reset="by_duration:PT1H") as reader:
            assert await reader.fetcher.ensure_positions(5000)
            assert reader.subscription.position(A) == Position(5, 0)  # none is that young: the end
            reader.subscription.request_reset(A, EARLIEST)
            assert await reader.values(5) == numbers(0, 5)
            reader.subscription.request_reset(A, LATEST)
            assert await reader.fetcher.ensure_positions(5000)
            assert reader.subscription.position(A) == Position(5, 0)


@on_virtual_time
async def test_offsets_first_last_and_by_time() -> None:
    async with world(partitions=2) as it, it.reader(A, B) as reader:
        await it.produce(A, numbers(0, 5))
        await it.delete_records(A, 1)
        fetcher = reader.fetcher
        assert await fetcher.lookup.beginning_offsets([A, B], 5000) == {A: 1, B: 0}
        assert await fetcher.lookup.end_offsets([A, B], 5000) == {A: 5, B: 0}
        found = await fetcher.lookup.offsets_for_times({A: TIME_MS + 3, B: 0}, 5000)
        assert found == {A: OffsetAndTimestamp(3, TIME_MS + 3, 0), B: None}
        assert await fetcher.lookup.offsets_for_times({A: TIME_MS + 99}, 5000) == {A: None}
        with pytest.raises(ValueError, match="0 or more"):
            await fetcher.lookup.offsets_for_times({A: -1}, 5000)
        with pytest.raises(BrokerError, match="partitions 0 to 1"):
            await fetcher.lookup.end_offsets([TopicPartition("clicks", 7)], 5000)


@on_virtual_time
async def test_offsets_of_a_partition_that_the_topic_just_got() -> None:
    async with world() as it, it.reader(A) as reader:
        assert await reader.fetcher.lookup.end_offsets([A], 5000) == {A: 0}
        async with Admin(bootstrap_servers=it.broker.bootstrap_servers) as admin:
            await admin.create_partitions({A.topic: 2})
        assert reader.network.view.partition_count(A.topic) == 1
        assert await reader.fetcher.lookup.end_offsets([A, B], 5000) == {A: 0, B: 0}


@on_virtual_time
async def test_offsets_are_asked_for_again_until_the_time_is_up() -> None:
    async with world() as it, it.reader(A) as reader:
        await it.produce(A, numbers(0, 5))
        await reader.values(5)
        it.broker.faults.fail_next(ApiKey.LIST_OFFSETS, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
        it.broker.faults.fail_next(ApiKey.LIST_OFFSETS, close=True)
        assert await reader.fetcher.lookup.end_offsets([A], 5000) == {A: 5}
        it.broker.faults.fail_next(ApiKey.LIST_OFFSETS, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError, match="clicks-0"):
            await reader.fetcher.lookup.end_offsets([A], 5000)
        it.broker.faults.fail_next(ApiKey.LIST_OFFSETS, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1000)
        with pytest.raises(ClientTimeoutError, match=r"clicks-0 \(NOT_LEADER_OR_FOLLOWER\)"):
            await reader.fetcher.lookup.end_offsets([A], 200)


@on_virtual_time
async def test_nothing_is_lost_or_doubled_through_broken_fetches_and_lost_sessions() -> None:
    async with world(partitions=2) as it, it.reader(A, B, max_partition_fetch_bytes=500) as reader:
        faults = it.broker.faults
        expected = {A: numbers(0, 60), B: numbers(100, 160)}
        for begin in range(0, 60, 10):
            await it.produce(A, expected[A][begin : begin + 10])
            await it.produce(B, expected[B][begin : begin + 10])
        for fault in (
            {"close": True},
            {"error": ErrorCode.FETCH_SESSION_ID_NOT_FOUND},
            {"error": ErrorCode.INVALID_FETCH_SESSION_EPOCH},
            {"error": ErrorCode.UNKNOWN_SERVER_ERROR},
            {"close": True},
        ):
            faults.fail_next(ApiKey.FETCH, delay_ms=5)
            faults.fail_next(ApiKey.FETCH, **fault)
        found: dict[TopicPartition, list[bytes]] = {A: [], B: []}
        while sum(map(len, found.values())) < 120:
            records = await reader.poll(7)
            assert records
            for record in records:
                found[TopicPartition(record.topic, record.partition)].append(record.value)
        assert found == expected
        await reader.nothing()


@on_virtual_time
async def test_reading_goes_on_after_the_broker_was_restarted_and_the_position_is_validated() -> None:
    async with world() as it, it.reader(A) as reader:
        await it.produce(A, numbers(0, 5))
        assert await reader.values(5) == numbers(0, 5)
        await it.broker.restart()
        await it.produce(A, numbers(5, 8))
        assert await reader.values(3) == numbers(5, 8)
        epoch = reader.network.view.leader_epoch(A)
        assert epoch > 0
        assert it.broker.faults.seen[ApiKey.OFFSET_FOR_LEADER_EPOCH] >= 1


@on_virtual_time
async def test_committed_offsets_of_a_former_leader_are_validated() -> None:
    async with world() as it:
        await it.produce(A, numbers(0, 5))
        await it.broker.restart()

        async def committed(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
            return {A: OffsetAndMetadata(3, "", 0)}

        it.broker.faults.fail_next(ApiKey.OFFSET_FOR_LEADER_EPOCH, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        async with it.reader(A, committed=committed) as reader:
            assert await reader.values(2) == numbers(3, 5)
            assert it.broker.faults.pending == 0


@on_virtual_time
async def test_a_value_that_cannot_be_read_stays_until_the_program_seeks_past_it() -> None:
    def read(topic: str, headers: object, data: bytes) -> int:
        return int(data)

    async with world() as it, it.reader(A, value_deserializer=read) as reader:
        await it.produce(A, [b"1", b"x", b"3"])
        assert await reader.values(1) == [1]
        for _ in range(2):
            with pytest.raises(SerializationError, match="offset 1"):
                await reader.poll()
            assert reader.subscription.position(A) == Position(1, 0)
        reader.subscription.seek(A, 2)
        assert await reader.values(1) == [3]


@on_virtual_time
async def test_an_error_never_swallows_records_that_were_taken_before_it() -> None:
    def read(topic: str, headers: object, data: bytes) -> int:
        return int(data)

    async with world(partitions=2) as it:
        await it.produce(A, [b"1", b"2"])
        await it.produce(B, [b"x"])
        await check_errors_and_records(it, read)


async def check_errors_and_records(it: World, read: Callable[..., int]) -> None:
    async with it.reader(A, B, value_deserializer=read) as reader:
        assert await reader.fetcher.wait_for_data(10)
        reader.subscription.state(A).error = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError):
            await reader.poll()
        outcomes: list[object] = []
        for _ in range(3):
            try:
                outcomes.append([record.value for record in await reader.poll(timeout_s=0.1)])
            except SerializationError as error:
                outcomes.append(type(error))
                # Others are read while it lasts, only behind it nothing is.
                reader.subscription.pause([B])
        assert outcomes.count(SerializationError) == 1
        assert [1, 2] in outcomes


@on_virtual_time
async def test_columns_of_several_partitions_in_one_batch() -> None:
    async with world(partitions=2) as it, it.reader(A, B) as reader:
        await it.produce(A, numbers(0, 6), key=b"k", headers=[("h", None)])
        await it.produce(B, numbers(10, 13))
        assert await reader.fetcher.ensure_positions(5000)
        rows: list[dict[str, object]] = []
        sizes = []
        while len(rows) < 9:
            assert await reader.fetcher.wait_for_data(5)
            reader.subscription.begin_poll()
            while (taken := reader.fetcher.take_arrow(4)) is not None:
                sizes.append(taken.num_rows)
                taken.validate(full=True)
                taken_schema = taken.schema
                rows += taken.to_pylist()
                assert taken.schema.names == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
        assert max(sizes) == 4
        by_partition = {number: [row["value"] for row in rows if row["partition"] == number] for number in (0, 1)}
        assert by_partition == {0: numbers(0, 6), 1: numbers(10, 13)}
        first = next(row for row in rows if row["partition"] == 0)
        assert (first["topic"], first["offset"], first["key"]) == ("clicks", 0, b"k")
        assert first["headers"] == [{"key": "h", "value": None}]
        assert reader.subscription.positions()[A].offset == 6
        reader.subscription.begin_poll()
        assert reader.subscription.consumed()[A].offset == 6
        assert empty_batch().schema == taken_schema
        with pytest.raises(ValueError, match="max_rows"):
            reader.fetcher.take_arrow(0)


@on_virtual_time
async def test_a_topic_that_does_not_exist_yet_is_read_once_it_does() -> None:
    later = TopicPartition("later", 0)
    async with world() as it, it.reader(A, later, allow_auto_create_topics=False) as reader:
        await it.produce(A, [b"a"])
        assert await reader.values(1) == [b"a"]
        assert not await reader.fetcher.ensure_positions(100, [later])
        await it.broker.create_topic("later")
        await it.produce(later, [b"b"])
        assert await reader.values(1) == [b"b"]


@on_virtual_time
async def test_metrics_tell_what_was_fetched_and_read() -> None:
    registry = MetricsRegistry(lambda: 0)
    async with world() as it, it.reader(A, metrics=FetchMetrics(registry)) as reader:
        await it.produce(A, numbers(0, 10))
        assert len(await reader.values(10)) == 10
        await reader.nothing(0.05)
        told = {(each.name, dict(each.tags).get("topic")): value for each, value in registry.values().items()}
        assert told["records-consumed-total", None] == told["records-consumed-total", "clicks"] == 10
        assert told["fetch-total", None] >= 1
        assert told["records-lag", "clicks"] == 0
        assert told["records-lead", "clicks"] == 10


@on_virtual_time
async def test_waiting_ends_with_data_time_wake_or_close() -> None:
    async with world() as it, it.reader(A) as reader:
        fetcher = reader.fetcher
        assert await fetcher.ensure_positions(5000)
        assert not await fetcher.wait_for_data(0.01)
        asyncio.get_running_loop().call_later(0.01, fetcher.wake)
        assert not await fetcher.wait_for_data(5)
        waiting = asyncio.ensure_future(fetcher.wait_for_data(None))
        await it.produce(A, [b"a"])
        assert await waiting
        reader.subscription.seek(A, 1)
        waiting = asyncio.ensure_future(fetcher.wait_for_data(None))
        await asyncio.sleep(0)
        await fetcher.close()
        with pytest.raises(ClientClosedError):
            await waiting
        with pytest.raises(ClientClosedError):
            fetcher.take_chunk()


@on_virtual_time
async def test_positions_of_others_are_not_ours_to_tell() -> None:
    async with world() as it, it.reader(A) as reader:
        with pytest.raises(WrongUseError, match="clicks-1 is not assigned"):
            await reader.fetcher.ensure_positions(100, [B])
