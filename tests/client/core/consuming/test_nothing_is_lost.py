"""Whatever goes wrong between a fetch and the program's own code: no record is passed over, and none counts as done
before the program has come back from it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas import Consumer, Producer, TopicPartition
from barnabas.client._kernel.receiving import Chunk, ConsumerRecord
from barnabas.client.core.consuming.fetch_buffer import FetchBuffer
from barnabas.client.core.consuming.offsets import EARLIEST, OffsetAndMetadata
from barnabas.client.core.consuming.partition_state import Position
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.errors import WrongUseError
from barnabas.records import BatchView, Codec
from barnabas.records._kernel.collect import RecordColumns
from barnabas.testing import EmbeddedBroker
from tests.client.core.consuming.logs import T0, T1, batch, chunk, fetched
from tests.client.faults.reading import wait_until

PATIENCE_S = 10.0
_numbers = count(1)


class Once:
    """Does what it is told the first time only."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error

    def __call__(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error


def offsets(records: list[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


# A chunk


@pytest.mark.parametrize("error", [MemoryError("no room just now"), KeyboardInterrupt()])
def test_a_batch_that_could_not_be_unpacked_is_met_again(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = chunk(*(batch(base, [b"x" * 100] * 5, codec=Codec.GZIP) for base in (0, 5, 10)))
    assert offsets(reading.take(5)) == [0, 1, 2, 3, 4]
    real, interrupt = BatchView.payload, Once(error)

    def payload(self: BatchView, *arguments: Any) -> Any:
        interrupt()
        return real(self, *arguments)

    monkeypatch.setattr(BatchView, "payload", payload)
    with pytest.raises(type(error)):
        reading.has_more()
    assert reading.next_offset == 5
    assert offsets(list(reading)) == [*range(5, 15)]


def test_a_deserializer_that_is_interrupted_is_called_again_with_the_same_bytes() -> None:
    interrupt = Once(KeyboardInterrupt())

    def read(topic: str, headers: object, data: bytes) -> bytes:
        if data == b"2":
            interrupt()
        return data

    values = [b"0", b"1", b"2", b"3"]
    reading = chunk(batch(0, values, headers=[("h", b"1")]), value_deserializer=read)
    assert [next(reading).value, next(reading).value] == values[:2]
    with pytest.raises(KeyboardInterrupt):
        next(reading)
    assert [record.value for record in reading] == values[2:]


def test_nobody_else_can_read_a_chunk_while_a_deserializer_runs() -> None:
    reading: Chunk
    refused: list[str] = []

    def read(topic: str, headers: object, data: bytes) -> bytes:
        columns = RecordColumns()
        for attempt in (
            reading.has_more,
            reading.__next__,
            lambda: reading.take(1),
            lambda: reading.add_to(columns, 1),
        ):
            with pytest.raises(WrongUseError, match="one thread at a time") as told:
                attempt()
            refused.append(str(told.value))
        return data

    reading = chunk(batch(0, [b"a", b"b"]), value_deserializer=read)
    assert offsets(reading.take(5)) == [0, 1]
    assert len(refused) == 8


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("nta"), st.integers(1, 4)), max_size=30), st.integers(0, 6))
def test_records_lists_and_columns_mix_and_no_record_is_read_twice(steps: list[tuple[str, int]], begin: int) -> None:
    reading = chunk(*(batch(base, [b"v" * base] * 8, headers=[("h", None)]) for base in (0, 8, 16)), at=begin)
    seen: list[int] = []
    for what, limit in [*steps, ("t", 99)]:
        if what == "n":
            seen += offsets([record for record in [next(reading, None)] if record is not None])
        elif what == "t":
            seen += offsets(reading.take(limit))
        else:
            columns = RecordColumns()
            if reading.add_to(columns, limit):
                # Going on in a batch costs what is left of it: nothing before is walked over again.
                assert columns.read_count == columns.row_count or seen == []
                seen += memoryview(columns.take().offset).cast("q").tolist()
    assert seen == [*range(begin, 24)]


# The buffer


def buffered(*chunks: Chunk) -> tuple[Subscription, FetchBuffer]:
    subscription = Subscription(EARLIEST)
    subscription.assign([T0])
    subscription.seek(T0, 0)
    buffer = FetchBuffer(subscription)
    for each in chunks:
        buffer.add(T0, subscription.state(T0), each)
    return subscription, buffer


def test_a_gap_between_two_answers_is_fetched_again() -> None:
    subscription, buffer = buffered(
        chunk(batch(0, [b"x"] * 3)), chunk(batch(6, [b"x"] * 3), at=6), chunk(batch(9, [b"x"]), at=9)
    )
    state = subscription.state(T0)
    state.fetch = Position(10)
    taken = buffer.next_chunk()
    assert taken is not None
    assert offsets(taken.take(10)) == [0, 1, 2]
    assert buffer.next_chunk() is None
    assert state.fetch.offset == 3
    assert state.queued_bytes == 0
    buffer.add(T0, state, chunk(batch(3, [b"x"] * 3), at=3))
    again = buffer.next_chunk()
    assert again is not None
    assert offsets(again.take(10)) == [3, 4, 5]


def test_what_was_interrupted_before_its_batch_was_known_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = [batch(base, [b"x" * 100] * 3, codec=Codec.GZIP) for base in (0, 3, 6)]
    source = fetched(*data)
    subscription, buffer = buffered(Chunk(T0.topic, T0.partition, source, 1000))
    state = subscription.state(T0)
    state.fetch = Position(9)
    taken = buffer.next_chunk()
    assert taken is not None
    assert offsets(taken.take(3)) == [0, 1, 2]
    real, interrupt = BatchView.check_crc, Once(KeyboardInterrupt())

    def check_crc(self: BatchView) -> None:
        interrupt()
        real(self)

    monkeypatch.setattr(BatchView, "check_crc", check_crc)
    with pytest.raises(KeyboardInterrupt):
        next(taken)
    assert list(taken) == []
    assert buffer.next_chunk() is None
    assert state.fetch.offset == 3


def test_what_waits_behind_a_pause_is_kept_whatever_interrupts() -> None:
    subscription, buffer = buffered(chunk(batch(0, [b"x"] * 3)))
    subscription.assign([T0, T1])
    subscription.seek(T1, 0)
    interrupt = Once(KeyboardInterrupt())

    class Interrupted:
        size_bytes, next_offset, is_exhausted = 1, 0, False

        def resume(self) -> None:
            interrupt()

        def has_more(self) -> bool:
            return False

    subscription.pause([T0])
    buffer.add(T1, subscription.state(T1), cast(Chunk, Interrupted()))
    with pytest.raises(KeyboardInterrupt):
        buffer.next_chunk()
    subscription.resume([T0])
    taken = buffer.next_chunk()
    assert taken is not None
    assert offsets(taken.take(10)) == [0, 1, 2]


def test_the_program_is_done_with_what_it_commits_and_was_given() -> None:
    subscription, buffer = buffered(chunk(batch(0, [b"x"] * 6)))
    taken = buffer.next_chunk()
    assert taken is not None
    taken.take(4)
    for committed_, expected in ((2, 2), (1, 2), (9, 4)):
        subscription.done_up_to({T0: OffsetAndMetadata(committed_), T1: OffsetAndMetadata(1)})
        assert subscription.consumed()[T0].offset == expected
    taken.take(1)
    subscription.state(T0).retire()
    assert subscription.consumed()[T0].offset == 4
    subscription.done_up_to({T0: OffsetAndMetadata(5)})
    assert subscription.consumed()[T0].offset == 5


# A consumer


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0) as made:
        made.create_topic("pages")
        with Producer(bootstrap_servers=made.bootstrap_servers, batch_size=2000) as producer:
            for number in range(600):
                producer.send("pages", b"%0100d" % number, partition=0)
        yield made


PAGES = TopicPartition("pages", 0)


def reader(broker: EmbeddedBroker, group: str | None = None, **given_: Any) -> Consumer:
    return Consumer(
        "pages",
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group or f"group-{next(_numbers)}",
        auto_offset_reset="earliest",
        **given_,
    )


def committed(broker: EmbeddedBroker, group: str) -> int | None:
    with reader(broker, group) as consumer:
        found = consumer.committed([PAGES])[PAGES]
    return None if found is None else found.offset


@pytest.mark.parametrize(
    "take", [lambda consumer: consumer.poll(5).__len__(), lambda consumer: consumer.poll_arrow(5).num_rows]
)
def test_what_came_in_several_answers_is_not_committed_before_the_program_comes_back(
    broker: EmbeddedBroker, take: Callable[[Consumer], int]
) -> None:
    group = f"group-{next(_numbers)}"
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        reader(broker, group, max_partition_fetch_bytes=4000, max_poll_records=600) as consumer,
    ):
        first = len(consumer.poll(PATIENCE_S, max_records=1))
        state = consumer._consumer._subscription.state(PAGES)
        wait_until(lambda: state.queued_bytes >= 4000, "a second answer lies behind the first")
        assert take(consumer) > 40
        raise ZeroDivisionError
    assert committed(broker, group) == first == 1


class Watcher:
    """An interceptor that leaves out every tenth record."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [record for record in records if record.offset % 10]

    def on_commit(self, offsets: object) -> None: ...


def test_who_leaves_a_loop_with_interceptors_goes_on_where_it_left(broker: EmbeddedBroker) -> None:
    seen: list[int] = []
    group = f"group-{next(_numbers)}"
    with reader(broker, group, interceptor_classes=[Watcher]) as consumer:
        for _ in range(12):
            for record in consumer:
                seen.append(record.offset)
                break
        consumer.commit()
        assert consumer.position(PAGES) == 14
        seen += offsets(consumer.poll(PATIENCE_S, max_records=3))
    assert seen == [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16]


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Ctrl-C, from any thread; returns when the main thread has got it."""
    came, main = threading.Event(), threading.get_ident()

    def on_signal(number: int, frame: object) -> None:
        came.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, on_signal)

    def send() -> None:
        if not came.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            assert came.wait(PATIENCE_S)

    yield send
    signal.signal(signal.SIGINT, before)


def test_a_poll_that_is_interrupted_has_given_nothing(broker: EmbeddedBroker, interrupt: Callable[[], None]) -> None:
    def read(data: bytes) -> int:
        if int(data) == 70:
            interrupt()
        return int(data)

    with reader(broker, value_deserializer=read, max_poll_records=50) as consumer:
        assert [record.value for record in consumer.poll(PATIENCE_S)] == [*range(50)]
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(PATIENCE_S)
        assert consumer.position(PAGES) == 50
        assert [record.value for record in consumer.poll(PATIENCE_S)] == [*range(50, 100)]


def test_an_empty_poll_that_is_interrupted_gives_nothing_again(broker: EmbeddedBroker) -> None:
    with reader(broker, max_poll_records=600) as consumer:
        count = 0
        while count < 600:
            count += len(consumer.poll(PATIENCE_S))
        assert consumer.poll(0) == []
        consumer._do(consumer._consumer._put_back)  # as if nobody had got the empty list
        assert consumer.position(PAGES) == 600
        assert consumer.poll(0.2) == []


def test_what_was_committed_is_not_put_back(broker: EmbeddedBroker) -> None:
    with reader(broker, max_poll_records=50) as consumer:
        assert len(consumer.poll(PATIENCE_S)) == 50
        consumer.commit({PAGES: 50})
        consumer._do(consumer._consumer._put_back)
        assert consumer.position(PAGES) == 50


def test_columns_that_are_interrupted_were_not_given(broker: EmbeddedBroker, interrupt: Callable[[], None]) -> None:
    with reader(broker) as consumer:
        assert consumer.poll_arrow(PATIENCE_S, max_rows=50).num_rows == 50
        fetcher = consumer._consumer._parts.fetcher
        real = fetcher.take_arrow

        def take_arrow(max_rows: int) -> Any:
            batch = real(max_rows)
            interrupt()
            return batch

        fetcher.take_arrow = take_arrow  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            consumer.poll_arrow(PATIENCE_S, max_rows=50)
        assert consumer.poll_arrow(PATIENCE_S, max_rows=50)["offset"].to_pylist() == [*range(50, 100)]


def test_two_threads_in_one_consumer_are_told_so(broker: EmbeddedBroker) -> None:
    """One iterates and is in its deserializer when another polls: it reads on undisturbed."""
    told: list[object] = []

    def poll() -> None:
        try:
            told.append(consumer.poll(PATIENCE_S))
        except WrongUseError as error:
            told.append(str(error))

    def read(data: bytes) -> int:
        if int(data) == 3:
            other = threading.Thread(target=poll)
            other.start()
            other.join()
        return int(data)

    with reader(broker, value_deserializer=read) as consumer:
        assert [record.value for record, _ in zip(consumer, range(6), strict=False)] == [*range(6)]
    assert told == [
        "records of pages-0 are being read already: a consumer is for one thread at a time, and deserializers must not "
        "poll it"
    ]
