"""`send` itself: what goes the fast way, what the slow one, and that no record is lost or torn in between."""

from __future__ import annotations

import asyncio
import os
import threading
from enum import StrEnum
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.sending import Home, SendFuture, record_bound_bytes
from barnabas.client.core.producing.partitioners import partition_for_key
from barnabas.client.errors import RecordTooLargeError, SerializationError
from tests.client.core.producing.append_world import (
    TOPIC,
    AsyncPath,
    SyncPath,
    accumulator,
    by_partition,
    cluster,
    drained,
    records_of,
)

SIX = cluster({TOPIC: [1] * 6})
ONE = cluster({TOPIC: [1]})

parts = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3)


@given(st.lists(st.tuples(parts, parts, headers, st.none() | st.integers(0, 5), st.integers(0, 2**42)), max_size=40))
@settings(deadline=None, max_examples=60)
def test_what_is_sent_comes_out_whole_and_in_order(records: list[Any]) -> None:
    path = SyncPath(accumulator(), SIX)
    futures = [
        path.send(TOPIC, value, key, headers=head, partition=partition, timestamp_ms=timestamp)
        for value, key, head, partition, timestamp in records
    ]
    batches = drained(path.target, SIX)
    offsets = dict.fromkeys(range(6), 0)
    for batch in batches:
        number = batch.partition.partition
        batch.delivery.succeed(offsets[number])
        offsets[number] += batch.record_count
        path.target.release(batch)
    found = {
        (batch.partition.partition, first + record.offset): record
        for number in range(6)
        for batch, first in _with_first_offsets([each for each in batches if each.partition.partition == number])
        for record in records_of(batch)
    }
    for future, (value, key, head, partition, timestamp) in zip(futures, records, strict=True):
        metadata = future.result(0)
        record = found[metadata.partition, metadata.offset]
        assert (record.value, record.key, list(record.headers), record.timestamp_ms) == (value, key, head, timestamp)
        if partition is not None:
            assert metadata.partition == partition
        elif key is not None:
            assert metadata.partition == partition_for_key(key, 6)
    assert len(found) == len(records)
    assert path.target.pool.available_bytes == path.target.pool.total_bytes


def _with_first_offsets(batches: list[Any]) -> list[tuple[Any, int]]:
    found, offset = [], 0
    for batch in batches:
        found.append((batch, offset))
        offset += batch.record_count
    return found


def test_the_slow_way_is_gone_once_per_batch() -> None:
    path = SyncPath(accumulator(batch_bytes=16_384), ONE)
    for _ in range(1000):
        path.send(TOPIC, b"x" * 100, partition=0)
    assert path.slow_sends == [TOPIC]
    assert len(path.slow_appends) == len(drained(path.target, ONE)) == 7


def test_records_without_a_key_stick_to_a_partition_until_two_batches_worth() -> None:
    path = SyncPath(accumulator(batch_bytes=1000), SIX)
    partitions = [path.send(TOPIC, b"x" * 90).partition for _ in range(60)]
    runs = [1]
    for before, after in pairwise(partitions):
        if before == after:
            runs[-1] += 1
        else:
            runs.append(1)
    # Nine of them fill a batch to less than batch.size, so the next batch goes to the same partition still.
    assert all(run % 18 == 0 for run in runs[:-1])
    assert len(runs) > 1


def test_the_sticky_partition_changes_in_any_case_after_twice_a_batch() -> None:
    path = SyncPath(accumulator(batch_bytes=1000), SIX)
    lane = path.target.lane(TOPIC, SIX)
    assert lane is not None
    path.send(TOPIC, b"x")
    first = lane.sticky_partition
    lane.sticky_bytes = 1990
    path.send(TOPIC, b"x" * 20)
    assert lane.sticky_partition == -1
    path.send(TOPIC, b"x")
    assert lane.sticky_partition >= 0
    assert first >= 0


def test_keys_can_be_ignored() -> None:
    path = SyncPath(accumulator(batch_bytes=10_000), SIX, ignores_keys=True)
    assert len({path.send(TOPIC, b"v", b"%d" % number).partition for number in range(30)}) == 1


def test_serializers_are_called_with_topic_headers_and_object() -> None:
    def key(topic: str, headers: list[Any], data: Any) -> bytes:
        headers.append(("kind", b"key"))
        return f"{topic}:{data}".encode()

    path = SyncPath(
        accumulator(),
        ONE,
        key_serializer=key,
        value_serializer=lambda _, headers, data: b"%d,%d" % (data, len(headers)),
    )
    path.send(TOPIC, 1, "a", headers=[("h", None)])
    path.send(TOPIC, 2, "b")
    [batch] = drained(path.target, ONE)
    assert [(record.key, record.value, record.headers) for record in records_of(batch)] == [
        (b"castle:a", b"1,2", (("h", None), ("kind", b"key"))),
        (b"castle:b", b"2,1", (("kind", b"key"),)),
    ]


def test_what_a_serializer_raises_comes_out_and_nothing_is_sent() -> None:
    def failing(*_: Any) -> bytes:
        raise LookupError("no schema")

    path = SyncPath(accumulator(), ONE, value_serializer=failing)
    with pytest.raises(LookupError):
        path.send(TOPIC, 1)
    assert not path.target.has_queued


@pytest.mark.parametrize(("value", "key", "what"), [("text", None, "value"), (b"", 3, "key")])
def test_what_is_no_bytes_needs_a_serializer(value: Any, key: Any, what: str) -> None:
    path = SyncPath(accumulator(), ONE)
    with pytest.raises(SerializationError, match=f"{what}_serializer"):
        path.send(TOPIC, value, key)
    assert not path.target.has_queued


def test_other_kinds_of_bytes_are_as_good() -> None:
    path = SyncPath(accumulator(), ONE)
    path.send(TOPIC, bytearray(b"a"), memoryview(b"b"), headers=iter([("h", b"1")]))
    [batch] = drained(path.target, ONE)
    [record] = records_of(batch)
    assert (record.value, record.key, record.headers) == (b"a", b"b", (("h", b"1"),))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"timestamp_ms": -1}, ValueError),
        ({"headers": [("h", "text")]}, TypeError),
        ({"headers": [(1, b"")]}, TypeError),
        ({"headers": [b"no pair"]}, TypeError),
        ({"partition": "0"}, TypeError),
        ({"partition": 7}, LookupError),
        ({"value": b"x" * (1 << 20)}, RecordTooLargeError),
    ],
)
def test_what_cannot_be_sent_is_refused_without_a_trace(arguments: dict[str, Any], error: type[Exception]) -> None:
    path = SyncPath(accumulator(memory_bytes=1 << 22), ONE)
    path.send(TOPIC, b"before")
    with pytest.raises(error):
        path.send(TOPIC, **arguments)
    assert by_partition(drained(path.target, ONE)) == {TopicPartition(TOPIC, 0): [b"before"]}


def test_the_bound_of_a_record_is_never_too_low() -> None:
    path = SyncPath(accumulator(batch_bytes=1), ONE)
    for value, key, head in ((None, None, None), (b"x" * 70, b"", [("h", None)]), (b"x" * 9000, b"k" * 200, None)):
        path.send(TOPIC, value, key, headers=head, timestamp_ms=2**40)
        [batch] = drained(path.target, ONE)
        assert batch.size_bytes <= record_bound_bytes(value, key, head) <= batch.size_bytes + 21


@pytest.mark.parametrize("size_bytes", [2**32 + 10, 2**31 + 5])
@pytest.mark.parametrize("part", ["value", "key"])
def test_more_than_a_size_can_tell_is_too_large(size_bytes: int, part: str) -> None:
    try:
        huge = bytes(size_bytes)  # never read: pages that are not touched take no memory
    except MemoryError:
        pytest.skip("this machine does not even lend so much")
    arguments: dict[str, Any] = {part: huge}
    path = SyncPath(accumulator(batch_bytes=16_384, memory_bytes=1 << 24), SIX)
    path.send(TOPIC, b"before", partition=0)
    for partition in (0, None):
        with pytest.raises(RecordTooLargeError, match=str(size_bytes)[:-3]):
            path.send(TOPIC, **arguments, partition=partition)
    path.send(TOPIC, b"after", partition=0)
    assert by_partition(drained(path.target, SIX)) == {TopicPartition(TOPIC, 0): [b"before", b"after"]}


class Index:
    """As numbers of numpy are: no int, and as good as one."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


def test_whatever_is_an_index_names_a_partition_or_a_time() -> None:
    path = SyncPath(accumulator(), SIX)
    for _ in range(2):
        path.send(TOPIC, b"v", partition=Index(3), timestamp_ms=Index(5))
    [batch] = drained(path.target, SIX)
    assert batch.partition == TopicPartition(TOPIC, 3)
    assert [record.timestamp_ms for record in records_of(batch)] == [5, 5]


@pytest.mark.parametrize("name", ["partition", "timestamp_ms"])
@pytest.mark.parametrize("wrong", [True, 1.0, "1", b"1", -1, 2**63, 2**80, -(2**80)])
def test_what_is_no_number_of_a_partition_or_a_time_is_refused(name: str, wrong: Any) -> None:
    path = SyncPath(accumulator(), SIX)
    path.send(TOPIC, b"before", partition=0)
    wanted: Any = TypeError if not isinstance(wrong, int) or isinstance(wrong, bool) else (ValueError, LookupError)
    with pytest.raises(wanted):
        path.send(TOPIC, b"v", **{name: wrong})
    assert by_partition(drained(path.target, SIX)) == {TopicPartition(TOPIC, 0): [b"before"]}


def test_a_topic_may_be_a_member_of_an_enumeration() -> None:
    class Topic(StrEnum):
        CASTLE = TOPIC

    path = SyncPath(accumulator(), ONE)
    for _ in range(2):
        assert type(path.send(Topic.CASTLE, b"v").topic) is str
    assert len(records_of(drained(path.target, ONE)[0])) == 2


@pytest.mark.parametrize(("topic", "error"), [(None, TypeError), (b"castle", TypeError), ("", LookupError)])
def test_what_is_no_topic_is_refused(topic: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        SyncPath(accumulator(), ONE).send(topic, b"v")


def test_the_clock_is_the_one_that_was_handed_in() -> None:
    path = SyncPath(accumulator(), ONE, now_ms=lambda: 12_345)
    path.send(TOPIC, b"v")
    assert records_of(drained(path.target, ONE)[0])[0].timestamp_ms == 12_345


def test_when_memory_is_short_the_slow_way_says_so() -> None:
    path = SyncPath(accumulator(memory_bytes=1500), SIX)
    path.send(TOPIC, b"v", partition=0)
    with pytest.raises(MemoryError):
        path.send(TOPIC, b"v", partition=1)
    path.send(TOPIC, b"v", partition=0)
    assert path.target.pool.available_bytes == 500


def test_a_closed_lane_and_a_closed_producer_are_not_sent_to() -> None:
    path = SyncPath(accumulator(), ONE)
    path.send(TOPIC, b"v")
    path.target.metadata_updated(cluster({}, version=2))
    path.view = cluster({}, version=2)
    with pytest.raises(LookupError):
        path.send(TOPIC, b"v")
    path.is_direct = False
    with pytest.raises(LookupError):
        path.send(TOPIC, b"v")


def test_a_fork_goes_the_slow_way() -> None:
    path = SyncPath(accumulator(home=Home()), ONE)
    path.send(TOPIC, b"v")
    before = len(path.slow_sends)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        path.view = cluster({})
        try:
            path.send(TOPIC, b"v")
        except (LookupError, RecursionError):
            os.write(writer, b"slow" if len(path.slow_sends) > before else b"fast")
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"slow"
    os.close(reader)


@pytest.mark.parametrize("largest_bytes", [0, 100_000])
def test_many_threads_and_a_sender_lose_nothing(largest_bytes: int) -> None:
    target = accumulator(batch_bytes=2000, memory_bytes=1 << 24, largest_batch_bytes=largest_bytes)
    path = SyncPath(target, SIX)
    per_thread, thread_count = 4000, 4
    told = [0] * thread_count
    received: dict[TopicPartition, list[bytes | None]] = {}
    is_over = threading.Event()

    def send(name: int) -> None:
        def note(metadata: Any, error: Any) -> None:
            told[name] += 1

        for number in range(per_thread):
            path.send(TOPIC, b"%d:%d" % (name, number), b"%d" % name, on_delivery=note if number % 10 == 0 else None)

    def drain() -> None:
        while True:
            last = is_over.is_set()
            batches = drained(path.target, SIX)
            for partition, values in by_partition(batches).items():
                received.setdefault(partition, []).extend(values)
            for batch in batches:
                batch.delivery.succeed(0)
                path.target.release(batch)
            if last and not batches:
                return

    senders = [threading.Thread(target=send, args=(name,)) for name in range(thread_count)]
    drainer = threading.Thread(target=drain)
    for thread in (*senders, drainer):
        thread.start()
    for thread in senders:
        thread.join(60)
    is_over.set()
    drainer.join(60)
    for name in range(thread_count):
        [mine] = [
            [value for value in values if value is not None and value.startswith(b"%d:" % name)]
            for partition, values in received.items()
            if partition.partition == partition_for_key(b"%d" % name, 6)
        ]
        assert mine == [b"%d:%d" % (name, number) for number in range(per_thread)]
    assert told == [per_thread // 10] * thread_count
    assert path.target.pool.available_bytes == path.target.pool.total_bytes


def test_awaiting_send_does_not_suspend_where_there_is_room() -> None:
    async def story() -> None:
        path = AsyncPath(accumulator(batch_bytes=16_384), ONE)
        await path.send(TOPIC, b"first")
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1

        asyncio.get_running_loop().call_soon(turn)
        futures = [await path.send(TOPIC, b"x" * 10) for _ in range(100)]
        assert turns == 0
        assert path.slow_count == 1
        assert all(type(future) is SendFuture for future in futures)
        [batch] = drained(path.target, ONE)
        batch.delivery.succeed(0)
        assert (await futures[-1]).offset == 100

    asyncio.run(story())


def test_what_send_gives_can_be_gathered_and_waited_for() -> None:
    async def story() -> list[int]:
        path = AsyncPath(accumulator(batch_bytes=16_384), ONE)
        await path.send(TOPIC, b"first")
        futures = await asyncio.gather(*(path.send(TOPIC, b"x") for _ in range(3)))
        futures.append(await asyncio.wait_for(path.send(TOPIC, b"y"), 1))
        [batch] = drained(path.target, ONE)
        batch.delivery.succeed(0)
        return [(await future).offset for future in futures]

    assert asyncio.run(story()) == [1, 2, 3, 4]
