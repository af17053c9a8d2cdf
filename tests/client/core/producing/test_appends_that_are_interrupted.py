"""Ctrl-C, signal handlers and finalizers come in the midst of things. Memory, queues and wakes survive it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.core.cluster_view import ClusterView, Node
from barnabas.client.core.producing.accumulator import ANY_PARTITION, Accumulator
from barnabas.client.core.producing.batch import ProducerBatch
from barnabas.client.core.producing.buffer_pool import MemoryWaiter
from tests.client.core.producing.append_world import TOPIC, accumulator, by_partition, cluster, drained, put

SIX = cluster({TOPIC: [1, 2, 1, 2, 1, 2]})
ONE = cluster({TOPIC: [1]})


class Interruption:
    """Raises KeyboardInterrupt at the n-th place where the interpreter looks for signals: where a function of Python
    begins, and where one of C has returned."""

    def __init__(self, place: int) -> None:
        self.left = place
        self.is_over = False
        self.is_paused = False

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if (
            not (self.is_over or self.is_paused)
            and event in ("call", "c_return")
            and "client" in frame.f_code.co_filename
        ):
            if not self.left:
                self.is_over = True
                raise KeyboardInterrupt
            self.left -= 1

    def during(self, work: Callable[[], Any]) -> Any:
        before = sys.getprofile()
        try:
            sys.setprofile(self)
            return work()
        except KeyboardInterrupt:
            return None
        finally:
            self.is_paused = True
            sys.setprofile(before)


def check_nothing_is_lost(target: Accumulator, wakes: list[int], wakes_before: int) -> None:
    held_bytes = sum(batch.reserved_bytes for batch in target._incomplete)
    assert target.pool.available_bytes + held_bytes == target.pool.total_bytes
    assert target.pool.waiter_count == 0
    open_batches = [batch for batch in target._incomplete if not batch.is_closed]
    assert all(batch.record_count for batch in target._incomplete)
    assert len(wakes) > wakes_before or not open_batches, "a batch is open, and nobody was told"
    assert all(batch in target.queued(batch.partition) for batch in target._incomplete)


@pytest.mark.parametrize("partition", [0, ANY_PARTITION])
@pytest.mark.parametrize("size_bytes", [10, 5000])
def test_a_record_that_is_interrupted_anywhere_loses_no_memory(partition: int, size_bytes: int) -> None:
    for place in range(1000):
        target, wakes = accumulator(), list[int]()
        lane = target.lane(TOPIC, SIX)
        assert lane is not None
        target.on_work = partial(wakes.append, 1)
        interruption = Interruption(place)
        interruption.during(partial(target.append, lane, partition, b"v" * size_bytes, None, None, 1, None, 0))
        check_nothing_is_lost(target, wakes, 0)
        if not interruption.is_over:
            assert place > 10
            return
    pytest.fail("it never ends")


def test_a_wait_that_is_interrupted_anywhere_loses_no_memory() -> None:
    for place in range(1000):
        target, wakes = accumulator(memory_bytes=1500), list[int]()
        lane = target.lane(TOPIC, SIX)
        assert lane is not None
        target.on_work = partial(wakes.append, 1)
        put(target, 0, view=SIX)
        [first] = drained(target, SIX)
        before = len(wakes)

        interruption = Interruption(place)

        def waited(
            target: Accumulator = target,
            lane: Any = lane,
            first: ProducerBatch = first,
            interruption: Interruption = interruption,
        ) -> None:
            outcome: Any = None
            try:
                outcome = target.append(lane, 1, b"v", None, None, 1, None, 0)
                assert isinstance(outcome, MemoryWaiter)
                interruption.is_paused = True  # this is what the sender does, on its own thread
                target.release(first)
                interruption.is_paused = False
                outcome = target.append(lane, 1, b"v", None, None, 1, None, 0, outcome)
            except BaseException:
                # As producers do.
                if isinstance(outcome, MemoryWaiter):
                    target.give_up(outcome)
                raise

        interruption.during(waited)
        target._incomplete.pop(first, None)
        if not first.is_released:
            target.pool.free(first.reserved_bytes)
        check_nothing_is_lost(target, wakes, before)
        if not interruption.is_over:
            assert place > 20
            return
    pytest.fail("it never ends")


def test_a_new_batch_is_shown_with_its_first_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `send` of another thread could fill it up before."""
    target = accumulator()
    lane = target.lane(TOPIC, ONE)
    assert lane is not None
    shown: list[int] = []
    plain = type(lane).set_room

    def set_room(self: Any, number: int, batch: Any) -> None:
        shown.append(batch.record_count)
        plain(self, number, batch)

    monkeypatch.setattr(type(lane), "set_room", set_room)
    put(target, 0, view=ONE)
    assert shown == [1]


def test_a_batch_that_cannot_take_its_first_record_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    target, wakes = accumulator(), list[int]()
    target.on_work = lambda: wakes.append(1)

    def failing(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(ProducerBatch, "append", failing)
    with pytest.raises(MemoryError):
        put(target, 0, view=ONE)
    monkeypatch.undo()
    assert not target.has_incomplete
    assert not target.has_queued
    assert target.pool.available_bytes == target.pool.total_bytes
    put(target, 0, view=ONE)
    assert wakes


class ReentrantView:
    """A view that sends when it is asked, as a finalizer or a signal handler could at any moment."""

    def __init__(self, view: ClusterView, send: Callable[[], object]) -> None:
        self._view = view
        self._send = send

    def leader_of(self, partition: TopicPartition) -> Node | None:
        self._send()
        return self._view.leader_of(partition)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


@pytest.mark.parametrize("what", ["ready", "drain"])
def test_a_send_in_the_midst_of_a_walk_through_the_queues_is_let_in(what: str) -> None:
    target = accumulator(linger_ms=0)
    put(target, 0, b"first", view=SIX)
    numbers = iter(range(1, 6))
    view: Any = ReentrantView(
        SIX, lambda: put(target, number, b"late", view=SIX) if (number := next(numbers, 0)) else 0
    )
    if what == "ready":
        assert target.ready(view, 0).nodes
    else:
        assert target.drain(view, [1, 2], 1 << 20, 0)
    late = {TopicPartition(TOPIC, 1): [b"late"]}
    assert by_partition(drained(target, SIX)).items() >= late.items()


def test_the_open_batch_of_the_next_sticky_partition_is_used() -> None:
    two = cluster({TOPIC: [1, -1]})
    target = accumulator(batch_bytes=1000)
    lane = target.lane(TOPIC, two)
    assert lane is not None
    put(target, 0, b"open already", view=two)
    # The turn of partition 1 is over: its leader is gone, and what went there is a batch's worth.
    put(target, 1, b"x" * 900, view=two)
    lane.sticky_partition, lane.sticky_bytes = 1, 1000
    future = put(target, ANY_PARTITION, b"y" * 200, view=two)
    assert future.partition == 0
    assert [len(target.queued(TopicPartition(TOPIC, number))) for number in (0, 1)] == [1, 1]


def test_every_request_begins_where_the_one_before_had_no_room() -> None:
    """A broker with more partitions than fit into a request serves all of them in turn."""
    many = cluster({TOPIC: [1] * 5})
    target = accumulator(batch_bytes=200, linger_ms=0)
    taken: list[list[int]] = []
    for _ in range(5):
        for number in range(5):
            while len(target.queued(TopicPartition(TOPIC, number))) < 2:
                put(target, number, b"x" * 100, view=many)
        batches = target.drain(many, [1], 400, 0)[1]
        taken.append([batch.partition.partition for batch in batches])
    assert taken == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


def test_a_request_with_room_for_all_begins_with_the_next_partition() -> None:
    three = cluster({TOPIC: [1] * 3})
    target = accumulator(linger_ms=0)
    firsts = []
    for _ in range(4):
        for number in range(3):
            put(target, number, view=three)
        firsts.append(target.drain(three, [1], 1 << 20, 0)[1][0].partition.partition)
    assert firsts == [0, 1, 2, 0]
