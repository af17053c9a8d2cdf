"""Batches of a producer whose batch.size nobody gave: they take more as long as they have not left."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.sending import SendFuture
from barnabas.client.core.producing.accumulator import ANY_PARTITION, Accumulator
from barnabas.client.core.producing.batch import ProducerBatch
from barnabas.client.core.producing.buffer_pool import BufferPool, MemoryWaiter
from barnabas.records import Codec
from tests.client.core.producing.append_world import (
    TOPIC,
    SyncPath,
    accumulator,
    by_partition,
    cluster,
    drained,
    put,
    records_of,
)
from tests.client.core.producing.test_appends_that_are_interrupted import Interruption, check_nothing_is_lost

ONE = cluster({TOPIC: [1]})
TWO = cluster({TOPIC: [1, 2]})
HERE = TopicPartition(TOPIC, 0)
MUCH = 20_000


def growing(**options: Any) -> Accumulator:
    return accumulator(**{"batch_bytes": 1000, "largest_batch_bytes": MUCH, "linger_ms": 5, **options})


def fill(target: Accumulator, count: int, *, now_ms: int = 0, partition: int = 0) -> list[SendFuture]:
    return [put(target, partition, b"%04d" % number * 25, view=TWO, now_ms=now_ms) for number in range(count)]


def finish(target: Accumulator, batches: list[ProducerBatch]) -> None:
    for batch in batches:
        batch.delivery.succeed(0)
        target.release(batch)


# How large they get


def test_a_size_that_was_given_is_obeyed() -> None:
    target = accumulator(batch_bytes=1000)
    fill(target, 100)
    sizes = [batch.size_bytes for batch in drained(target, TWO)]
    assert len(sizes) == 13
    assert max(sizes) <= 1000


def test_what_has_not_left_takes_more_up_to_the_limit() -> None:
    target = growing()
    fill(target, 300)
    batches = drained(target, TWO)
    assert [batch.size_bytes <= MUCH < 1.1 * batch.size_bytes for batch in batches] == [True, False]
    values = [record.value for batch in batches for record in records_of(batch)]
    assert values == [b"%04d" % number * 25 for number in range(300)]


def test_the_next_batch_begins_small_again() -> None:
    target = growing()
    fill(target, 100)
    drained(target, TWO)
    put(target, 0, view=TWO)
    [batch] = target.queued(HERE)
    assert batch.reserved_bytes == batch.builder.limit_bytes == 1000


def test_no_batch_exceeds_a_request() -> None:
    target = growing(max_request_bytes=3000)
    fill(target, 100)
    assert 2500 < max(batch.size_bytes for batch in drained(target, TWO)) <= 3000


def test_no_batch_has_so_much_memory_that_others_wait_for_it() -> None:
    target = growing(memory_bytes=16_000)
    fill(target, 120)
    assert 3500 < max(batch.reserved_bytes for batch in drained(target, TWO)) <= 4000


def test_a_batch_of_long_ago_takes_no_more_than_batch_size() -> None:
    target = growing()
    put(target, 0, b"x" * 900, view=TWO, now_ms=0)
    put(target, 0, b"y" * 900, view=TWO, now_ms=500)
    assert [batch.reserved_bytes for batch in target.queued(HERE)] == [1000, 1000]


def test_compressed_batches_grow_too() -> None:
    target = growing(codec=Codec.GZIP)
    fill(target, 150)
    [batch] = drained(target, TWO)
    assert len(records_of(batch)) == 150
    assert batch.size_bytes < batch.uncompressed_bytes


def test_the_compiled_send_fills_the_room_that_was_made() -> None:
    target = growing()
    path = SyncPath(target, ONE)
    futures = [path.send(TOPIC, b"%04d" % number * 25, partition=0) for number in range(150)]
    # One opens the batch, and each step makes room for many.
    assert len(path.slow_appends) == 6
    [batch] = drained(target, ONE)
    batch.delivery.succeed(70)
    assert [future.result(0).offset for future in futures] == list(range(70, 220))


# When they leave


@pytest.mark.parametrize("asked", [(), (1,)])
def test_a_lone_record_leaves_when_it_always_did(asked: tuple[int, ...]) -> None:
    target = growing(linger_ms=0)
    put(target, 0, view=ONE)
    assert target.ready(ONE, 0, asked).nodes == [1]
    target = growing(linger_ms=5)
    put(target, 0, view=ONE)
    assert target.ready(ONE, 4, asked).nodes == []
    assert target.ready(ONE, 4, asked).next_check_ms == 1
    assert target.ready(ONE, 5, asked).nodes == [1]


def test_past_batch_size_it_is_to_be_sent_at_once() -> None:
    target = growing(linger_ms=10**6)
    fill(target, 5)
    assert target.ready(ONE, 0).nodes == []
    fill(target, 10)
    assert len(target.queued(HERE)) == 1
    assert target.ready(ONE, 0).nodes == [1]


def test_while_the_broker_has_yet_to_answer_it_may_linger() -> None:
    target = growing(linger_ms=5)
    fill(target, 15)
    assert target.ready(TWO, 2, {1}).nodes == []
    assert target.ready(TWO, 2, {1}).next_check_ms == 3
    assert target.ready(TWO, 2, {2}).nodes == [1], "it is another broker that has not answered"
    assert target.ready(TWO, 5, {1}).nodes == [1]


def test_without_linger_it_does_not_wait_for_answers() -> None:
    target = growing(linger_ms=0)
    fill(target, 15)
    assert target.ready(TWO, 0, {1}).nodes == [1]


def test_what_can_grow_no_further_does_not_wait_for_answers() -> None:
    target = growing(linger_ms=10**6)
    fill(target, 300)
    assert target.ready(TWO, 0, {1}).nodes == [1]


def test_a_flush_does_not_wait_for_answers() -> None:
    target = growing(linger_ms=10**6)
    fill(target, 15)
    target.begin_flush()
    assert target.ready(TWO, 0, {1}).nodes == [1]


def test_a_size_that_was_given_does_not_wait_for_answers() -> None:
    target = accumulator(linger_ms=10**6, batch_bytes=1000)
    fill(target, 15)
    assert target.ready(TWO, 0, {1}).nodes == [1]


def test_the_sender_is_told_once_that_a_batch_is_to_be_sent() -> None:
    target, wakes = growing(), list[int]()
    target.on_work = partial(wakes.append, 1)
    fill(target, 8)
    assert len(wakes) == 1
    fill(target, 100)
    assert len(wakes) == 2


# Memory


def test_nobody_grows_while_somebody_waits_for_memory() -> None:
    target = growing(memory_bytes=8000)
    fill(target, 5)
    waiter = MemoryWaiter(7500)
    assert not target.pool.ask(waiter)
    lane = target.lane(TOPIC, TWO)
    assert lane is not None
    second = target.append(lane, 0, b"x" * 500, None, None, 1, None, 0)
    assert isinstance(second, MemoryWaiter)
    assert target.queued(HERE)[0].reserved_bytes == 1000
    target.give_up(second)
    target.give_up(waiter)
    assert target.pool.available_bytes == 7000


@pytest.mark.parametrize("partition", [0, ANY_PARTITION])
def test_an_interruption_while_a_batch_grows_loses_no_memory(partition: int) -> None:
    for place in range(1000):
        target, wakes = growing(), list[int]()
        target.on_work = partial(wakes.append, 1)
        lane = target.lane(TOPIC, ONE)
        assert lane is not None
        put(target, partition, b"x" * 900, view=ONE)
        interruption = Interruption(place)
        interruption.during(partial(target.append, lane, partition, b"y" * 900, None, None, 1, None, 0))
        check_nothing_is_lost(target, wakes, 0)
        [batch] = target.queued(HERE)
        assert batch.builder.limit_bytes <= batch.reserved_bytes
        if not interruption.is_over:
            assert batch.record_count == 2
            assert place > 10
            return
    pytest.fail("it never ends")


def test_a_send_in_the_midst_of_growing_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a signal handler, which finds the lock open for its thread."""
    target = growing()
    put(target, 0, b"x" * 900, view=ONE)
    plain = BufferPool.take_at_once

    def interrupted(pool: BufferPool, waiter: MemoryWaiter) -> bool:
        monkeypatch.undo()
        put(target, 0, b"handler" * 500, view=ONE)
        return plain(pool, waiter)

    monkeypatch.setattr(BufferPool, "take_at_once", interrupted)
    put(target, 0, b"y" * 900, view=ONE)
    batches = drained(target, ONE)
    values = [record.value for batch in batches for record in records_of(batch)]
    assert values == [b"x" * 900, b"handler" * 500, b"y" * 900]
    assert sum(batch.reserved_bytes for batch in batches) + target.pool.available_bytes == target.pool.total_bytes
    finish(target, batches)
    assert target.pool.available_bytes == target.pool.total_bytes


# Refusals


def test_a_partition_remembers_that_a_batch_was_too_large() -> None:
    target = growing()
    fill(target, 150)
    fill(target, 150, partition=1)
    refused, other = sorted(drained(target, TWO), key=lambda batch: batch.partition)
    parts = target.split_and_reenqueue(refused, 0)
    target.release(refused)
    assert max(part.size_bytes for part in parts) <= 1000, "batch.size is what brokers took all along"
    assert drained(target, TWO) == parts
    finish(target, [*parts, other])
    for partition, largest_bytes in ((0, refused.size_bytes // 2), (1, MUCH)):
        fill(target, 300, partition=partition)
        sizes = [batch.size_bytes for batch in drained(target, TWO) if not batch.is_done]
        assert 0.9 * largest_bytes < max(sizes) <= largest_bytes


# All of it


class GrowingMachine(RuleBasedStateMachine):
    """Records of any size come; batches leave, are answered, refused, or sent again; memory is short."""

    MEMORY_BYTES = 12_000

    def __init__(self) -> None:
        super().__init__()
        self.target = growing(memory_bytes=self.MEMORY_BYTES, max_request_bytes=4000, linger_ms=5)
        self.now_ms = 0
        self.sent: dict[TopicPartition, list[bytes]] = {}
        self.received: dict[TopicPartition, list[bytes]] = {}
        self.in_flight: list[ProducerBatch] = []
        self.refused_bytes: dict[TopicPartition, int] = {}

    @rule(partition=st.integers(0, 1), size=st.sampled_from([0, 10, 100, 100, 700, 2000]), count=st.integers(1, 20))
    def send(self, partition: int, size: int, count: int) -> None:
        lane = self.target.lane(TOPIC, TWO)
        assert lane is not None
        for _ in range(count):
            values = self.sent.setdefault(TopicPartition(TOPIC, partition), [])
            value = b"%d:" % len(values) + b"x" * size
            outcome = self.target.append(lane, partition, value, None, None, 1, None, self.now_ms)
            if isinstance(outcome, MemoryWaiter):
                self.target.give_up(outcome)
                return
            values.append(value)

    @rule(wait_ms=st.sampled_from([1, 5, 200]))
    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms

    @rule()
    def leave(self) -> None:
        taken = self.target.drain(TWO, [1, 2], 4000, self.now_ms)
        for batches in taken.values():
            assert sum(batch.size_bytes for batch in batches) <= 4000
            self.in_flight += batches

    @precondition(lambda self: self.in_flight)
    @rule(took_ms=st.sampled_from([1, 2_000, 10_000]))
    def answer(self, took_ms: int) -> None:
        batch = self.in_flight.pop(0)
        self.target.answered(batch, took_ms)
        values = [record.value or b"" for record in records_of(batch)]
        self.received.setdefault(batch.partition, []).extend(values)
        finish(self.target, [batch])

    @precondition(lambda self: len(self.in_flight) == 1 and self.in_flight[0].record_count > 1)
    @rule()
    def refuse(self) -> None:
        batch = self.in_flight.pop(0)
        if not batch.is_split:
            before = self.refused_bytes.get(batch.partition, batch.uncompressed_bytes)
            self.refused_bytes[batch.partition] = min(before, batch.uncompressed_bytes)
        self.target.split_and_reenqueue(batch, self.now_ms)
        self.target.release(batch)

    @precondition(lambda self: len(self.in_flight) == 1)
    @rule()
    def lose(self) -> None:
        batch = self.in_flight.pop(0)
        self.target.unanswered(batch)
        self.target.reenqueue(batch, self.now_ms)

    @invariant()
    def memory_is_counted_exactly(self) -> None:
        held = list(self.target._incomplete)
        assert self.target.pool.available_bytes + sum(each.reserved_bytes for each in held) == self.MEMORY_BYTES
        for each in held:
            if not each.is_split:
                assert each.uncompressed_bytes <= each.builder.limit_bytes == each.reserved_bytes <= 4000

    @invariant()
    def what_was_refused_is_remembered(self) -> None:
        for partition, size_bytes in self.refused_bytes.items():
            assert self.target._sizes.largest_bytes(partition) <= max(1000, size_bytes // 2)

    @invariant()
    def only_the_last_batch_is_open(self) -> None:
        for partition in self.target.busy_partitions:
            assert all(batch.is_closed for batch in self.target.queued(partition)[:-1])

    def teardown(self) -> None:
        for _ in range(1000):
            self.now_ms += 10_000
            self.leave()
            while self.in_flight:
                self.answer(1)
            if not self.target.has_queued:
                break
        assert self.received == {partition: values for partition, values in self.sent.items() if values}
        assert self.target.pool.available_bytes == self.MEMORY_BYTES


GrowingMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestGrowing = GrowingMachine.TestCase


def test_records_of_both_kinds_of_partitions_are_all_there() -> None:
    target = growing(memory_bytes=1 << 20)
    path = SyncPath(target, TWO)
    values = [b"%05d" % number for number in range(5_000)]
    for value in values:
        path.send(TOPIC, value)
    found = by_partition(drained(target, TWO))
    assert sorted(value for each in found.values() for value in each if value is not None) == values
    assert len(found) == 2
