"""Tables go out row for row as records would, with one future for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.sending import Home, OffsetRange
from barnabas.client.core.producing.accumulator import Accumulator
from barnabas.client.core.producing.batch import ProducerBatch
from barnabas.client.core.producing.buffer_pool import MemoryWaiter
from barnabas.client.core.producing.partitioners import partition_for_key
from barnabas.client.errors import (
    ClientTimeoutError,
    RecordTooLargeError,
    SerializationError,
    UnknownPartitionError,
    WrongUseError,
)
from tests.client.core.producing.append_world import TOPIC, accumulator, by_partition, cluster, drained, put, records_of

pa = pytest.importorskip("pyarrow")
arrow_rows = pytest.importorskip("barnabas.client.core.producing.arrow_rows")

ONE = cluster({TOPIC: [1]})
THREE = cluster({TOPIC: [1, 2, 1]})


def rows_into(target: Accumulator, data: Any, view: Any = THREE, **options: Any) -> Any:
    lane = target.lane(TOPIC, view)
    assert lane is not None
    return arrow_rows.ArrowRows(target, lane, data, default_timestamp_ms=77, **options)


def table(values: Sequence[bytes | None], **columns: Any) -> Any:
    return pa.table({"value": pa.array(values, pa.binary()), **columns})


def headers_of(*rows: list[tuple[str | None, bytes]]) -> Any:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.array([[{"key": key, "value": value} for key, value in row] for row in rows], kind)


def test_a_header_without_a_key_is_refused_before_anything_is_sent() -> None:
    target = accumulator()
    headers = headers_of([("a", b"1")], [("b", b"2"), (None, b"3")])
    with pytest.raises(SerializationError, match=r"row 1.*'headers'"):
        rows_into(target, table([b"first", b"second"], headers=headers))
    assert not target.has_incomplete
    stream = pa.RecordBatchReader.from_batches(
        pa.table({"value": [b"v"], "headers": headers[:1]}).schema,
        [
            pa.record_batch({"value": [b"first"], "headers": headers[:1]}),
            pa.record_batch({"value": [b"second"], "headers": headers[1:]}),
        ],
    )
    rows = rows_into(target, stream)
    with pytest.raises(SerializationError, match="row 1"):
        rows.advance(0)


def test_a_request_s_limit_is_one_of_batches_too() -> None:
    target = accumulator(largest_batch_bytes=50_000, max_request_bytes=5000)
    rows = rows_into(target, table([b"x" * 100] * 400), ONE, partition=0)
    assert rows.advance(0) is None
    sizes = [batch.size_bytes for batch in drained(target, ONE)]
    assert max(sizes) <= 5000 < 2 * max(sizes)


def test_rows_know_their_place_whoever_sends_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    target = accumulator()
    put(target, 0, b"opens a batch", view=ONE)
    plain = ProducerBatch.uncompressed_bytes

    def interrupted(batch: ProducerBatch) -> int:
        # `send` of another thread takes no lock.
        monkeypatch.undo()
        assert batch.append(b"another thread's", None, 1) is not None
        return batch.uncompressed_bytes

    monkeypatch.setattr(ProducerBatch, "uncompressed_bytes", property(interrupted))
    rows = rows_into(target, table([b"row"]), ONE, partition=0)
    assert rows.advance(0) is None
    assert ProducerBatch.uncompressed_bytes is plain
    [batch] = drained(target, ONE)
    batch.delivery.succeed(100)
    assert [record.value for record in records_of(batch)] == [b"opens a batch", b"another thread's", b"row"]
    assert rows.delivery.result(0) == (OffsetRange(0, 102, 1),)


def test_who_gives_up_waiting_for_a_table_is_told_its_topic() -> None:
    target = accumulator()
    rows = rows_into(target, table([b"row"]), ONE)
    assert rows.advance(0) is None
    with pytest.raises(ClientTimeoutError, match=rf"from {TOPIC} within"):
        rows.delivery.result(0)


def test_rows_without_a_key_go_out_in_whole_batches() -> None:
    target = accumulator()
    values = [b"%03d" % number * 20 for number in range(100)]
    rows = rows_into(target, table(values))
    assert rows.advance(0) is None
    assert rows.is_done
    batches = drained(target, THREE)
    assert sorted(value for batch in batches for record in records_of(batch) if (value := record.value)) == values
    assert len({batch.partition for batch in batches}) > 1
    assert {record.timestamp_ms for batch in batches for record in records_of(batch)} == {77}


@given(
    st.lists(
        st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=5), st.none() | st.integers(0, 2)),
        max_size=60,
    ),
    st.integers(1, 20),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_rows_go_where_their_partition_or_key_says_in_order(records: list[Any], chunk: int, named: bool) -> None:
    target = accumulator(batch_bytes=300, largest_batch_bytes=600)
    values, keys, partitions = ([record[i] for record in records] for i in range(3))
    columns = {"key": pa.array(keys, pa.binary())}
    if named:
        columns["partition"] = pa.array(partitions, pa.int32())
    whole = table([b"%d:" % number + value for number, value in enumerate(values)], **columns)
    pieces = pa.Table.from_batches(whole.to_batches(max_chunksize=chunk), whole.schema)
    rows = rows_into(target, pieces)
    assert rows.advance(0) is None
    offsets: dict[int, int] = {}
    sent: dict[int, list[bytes | None]] = {}
    for batch in drained(target, THREE):
        number = batch.partition.partition
        sent.setdefault(number, []).extend(record.value for record in records_of(batch))
        batch.delivery.succeed(offsets.get(number, 0))
        offsets[number] = offsets.get(number, 0) + batch.record_count
        target.release(batch)
    free = []
    for number, (key, partition) in enumerate(zip(keys, partitions, strict=True)):
        wanted = partition if named and partition is not None else None
        if wanted is None and key is not None:
            wanted = partition_for_key(key, 3)
        value = b"%d:" % number + values[number]
        if wanted is None:
            free.append(value)
        else:
            assert value in sent[wanted]
    for found in sent.values():
        numbers = [int(value.partition(b":")[0]) for value in found if value is not None and value not in free]
        assert numbers == sorted(numbers)
    assert sum(map(len, sent.values())) == len(records)
    assert rows.delivery.row_count == len(records)
    assert rows.delivery.result(0) == tuple(
        OffsetRange(number, 0, count) for number, count in sorted(offsets.items()) if count
    )
    assert target.pool.available_bytes == target.pool.total_bytes


def test_rows_follow_records_that_were_sent_before_into_the_same_batch() -> None:
    target = accumulator()
    future = put(target, 0, b"before", view=ONE)
    rows = rows_into(target, table([b"a", b"b"]), ONE, partition=0)
    assert rows.advance(0) is None
    [batch] = drained(target, ONE)
    assert [record.value for record in records_of(batch)] == [b"before", b"a", b"b"]
    batch.delivery.succeed(10)
    assert future.result(0).offset == 10
    assert rows.delivery.result(0) == (OffsetRange(0, 11, 2),)


def test_headers_and_timestamps_come_from_their_columns() -> None:
    target = accumulator()
    data = table(
        [b"a", None],
        timestamp=pa.array([5, None], pa.int64()),
        headers=pa.array(
            [[{"key": "h", "value": b"1"}], None], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
        ),
    )
    rows_into(target, data, ONE).advance(0)
    [batch] = drained(target, ONE)
    assert [(record.value, record.timestamp_ms, record.headers) for record in records_of(batch)] == [
        (b"a", 5, (("h", b"1"),)),
        (None, 77, ()),
    ]


def test_when_memory_is_short_it_goes_on_where_it_was() -> None:
    target = accumulator(memory_bytes=2500)
    values = [b"%03d" % number * 30 for number in range(60)]
    rows = rows_into(target, table(values), ONE)
    received: list[bytes | None] = []
    waiter: MemoryWaiter | None = None
    rounds = 0
    while (waiter := rows.advance(0, waiter)) is not None:
        rounds += 1
        batches = drained(target, ONE)
        received.extend(by_partition(batches)[TopicPartition(TOPIC, 0)])
        for batch in batches:
            batch.delivery.succeed(len(received))
            target.release(batch)
        assert waiter.is_ready
    last = drained(target, ONE)
    received.extend(by_partition(last)[TopicPartition(TOPIC, 0)])
    assert rounds > 1
    assert received == values
    assert not rows.delivery.done()
    for batch in last:
        batch.delivery.succeed(0)
        target.release(batch)
    assert rows.delivery.done()
    assert target.pool.available_bytes == 2500


def test_it_can_be_done_a_few_batches_at_a_time() -> None:
    target = accumulator()
    rows = rows_into(target, table([b"x" * 100] * 50), ONE)
    steps = 0
    while not rows.is_done:
        assert rows.advance(0, batch_limit=2) is None
        steps += 1
    assert steps == 4


def test_an_empty_table_is_done_at_once() -> None:
    rows = rows_into(accumulator(), table([]))
    assert rows.is_done
    assert rows.delivery.result(0) == ()


def test_nothing_is_sent_of_a_table_with_a_row_that_is_too_large() -> None:
    target = accumulator(max_request_bytes=2000)
    data = pa.Table.from_batches([table([b"a"] * 4).to_batches()[0], table([b"a", b"x" * 2000]).to_batches()[0]])
    with pytest.raises(RecordTooLargeError, match="row 5 takes"):
        rows_into(target, data)
    assert not target.has_queued


def test_rows_for_a_partition_that_is_not_there_are_refused() -> None:
    with pytest.raises(UnknownPartitionError, match="row 1 names partition 3"):
        rows_into(accumulator(), table([b"a", b"b"], partition=[0, 3]))


def test_columns_of_other_types_are_refused() -> None:
    with pytest.raises(SerializationError, match="value"):
        rows_into(accumulator(), pa.table({"key": [b"a"]}))
    with pytest.raises(SerializationError, match="partition"):
        rows_into(accumulator(), table([b"a"], partition=["zero"]))


def test_a_failure_of_some_rows_is_the_failure_of_the_table_and_the_rest_is_told() -> None:
    target = accumulator()
    rows = rows_into(target, table([b"a", b"b"], partition=[0, 1]))
    rows.advance(0)
    first, second = sorted(drained(target, THREE), key=lambda batch: batch.partition)
    error = BrokerError(ErrorCode.MESSAGE_TOO_LARGE)
    first.delivery.fail(error)
    second.delivery.succeed(9)
    assert rows.delivery.exception(0) is error
    with pytest.raises(BrokerError):
        rows.delivery.result(0)
    assert rows.delivery.ranges() == (OffsetRange(1, 9, 1),)


def test_rows_of_a_batch_that_is_split_are_told_part_by_part() -> None:
    target = accumulator(batch_bytes=20_000)
    rows = rows_into(target, table([b"x" * 100] * 10), ONE)
    rows.advance(0)
    [batch] = drained(target, ONE)
    first, second = target.split_and_reenqueue(batch, 0)
    first.delivery.succeed(0)
    assert not rows.delivery.done()
    second.delivery.succeed(50)
    assert rows.delivery.result(0) == (
        OffsetRange(0, 0, first.record_count),
        OffsetRange(0, 50, 10 - first.record_count),
    )


def test_a_table_that_is_abandoned_fails_though_its_first_rows_are_sent() -> None:
    target = accumulator(memory_bytes=1200)
    rows = rows_into(target, table([b"x" * 100] * 50), ONE)
    waiter = rows.advance(0)
    assert waiter is not None
    target.give_up(waiter)
    error = TimeoutError("max.block.ms")
    rows.abandon(error)
    for batch in drained(target, ONE):
        batch.delivery.succeed(0)
    assert rows.delivery.exception(0) is error
    assert rows.delivery.ranges() == (OffsetRange(0, 0, 8),)


def test_a_stream_is_read_as_memory_allows() -> None:
    target = accumulator(memory_bytes=1500)
    whole = table([b"x" * 100] * 40)
    read = []

    def batches() -> Any:
        for batch in whole.to_batches(max_chunksize=4):
            read.append(batch.num_rows)
            yield batch

    rows = rows_into(target, pa.RecordBatchReader.from_batches(whole.schema, batches()), ONE)
    assert isinstance(rows.advance(0), MemoryWaiter)
    assert 0 < sum(read) < 40


def test_the_future_of_a_table_can_be_awaited_and_refuses_to_block_its_own_loop() -> None:
    async def story() -> Any:
        home = Home()
        home.settle()
        target = accumulator(home=home)
        rows = rows_into(target, table([b"a"]), ONE)
        rows.advance(0)
        with pytest.raises(WrongUseError):
            rows.delivery.result()
        [batch] = drained(target, ONE)
        called: list[Any] = []
        rows.delivery.add_done_callback(called.append)
        asyncio.get_running_loop().call_soon(batch.delivery.succeed, 4)
        ranges = await rows.delivery
        assert called == [rows.delivery]
        return ranges

    assert asyncio.run(story()) == ((0, 4, 1),)
