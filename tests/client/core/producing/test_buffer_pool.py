"""The pool counts memory: nothing is lost, nobody overtakes, everybody is served or told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.base.errors import InvariantError
from barnabas.client.core.producing.buffer_pool import BufferPool, MemoryWaiter
from barnabas.client.errors import ClientClosedError, RecordTooLargeError

TOTAL_BYTES = 100
BATCH_BYTES = 10


def wait(pool: BufferPool, size_bytes: int) -> MemoryWaiter:
    waiter = MemoryWaiter(size_bytes)
    pool.ask(waiter)
    return waiter


def allocate(pool: BufferPool, size_bytes: int) -> bool:
    """Take so much for good, or leave the line at once."""
    waiter = MemoryWaiter(size_bytes)
    if pool.ask(waiter):
        waiter.is_spent = True
        return True
    pool.give_up(waiter)
    return False


def test_pieces_of_one_batch_are_kept_and_given_up_for_other_sizes() -> None:
    pool = BufferPool(TOTAL_BYTES, BATCH_BYTES)
    assert allocate(pool, BATCH_BYTES)
    assert (pool.available_bytes, pool.unpooled_bytes) == (90, 90)
    pool.free(BATCH_BYTES)
    assert (pool.available_bytes, pool.unpooled_bytes) == (100, 90)
    assert allocate(pool, BATCH_BYTES)
    assert pool.unpooled_bytes == 90
    pool.free(BATCH_BYTES)
    assert allocate(pool, 95)
    assert (pool.available_bytes, pool.unpooled_bytes) == (5, 5)


def test_memory_gathers_for_the_first_in_the_line() -> None:
    pool = BufferPool(TOTAL_BYTES, BATCH_BYTES)
    for _ in range(10):
        assert allocate(pool, BATCH_BYTES)
    large, small = wait(pool, 25), wait(pool, BATCH_BYTES)
    told: list[str] = []
    large.watch(lambda: told.append("large"))
    small.watch(lambda: told.append("small"))
    for _ in range(2):
        pool.free(BATCH_BYTES)
    assert (large.gathered_bytes, small.gathered_bytes, told) == (20, 0, [])
    assert not allocate(pool, 1), "a newcomer waits behind those who wait"
    pool.free(BATCH_BYTES)
    assert told == ["large"]
    assert small.gathered_bytes == 5
    pool.free(BATCH_BYTES)
    assert told == ["large", "small"]
    assert pool.available_bytes == 5


def test_who_gives_up_gives_back_what_was_gathered() -> None:
    pool = BufferPool(TOTAL_BYTES, BATCH_BYTES)
    assert allocate(pool, 95)
    first, second = wait(pool, 20), wait(pool, 5)
    assert (first.gathered_bytes, second.is_ready) == (5, False)
    pool.give_up(first)
    assert second.is_ready
    pool.give_up(first)  # a second time does nothing
    pool.give_up(second)
    assert pool.available_bytes == 5


def test_memory_that_was_got_and_not_used_goes_back() -> None:
    pool = BufferPool(TOTAL_BYTES, BATCH_BYTES)
    waiter = wait(pool, 30)
    assert waiter.is_ready
    pool.give_up(waiter)
    assert pool.available_bytes == TOTAL_BYTES


def test_closing_tells_everybody_who_waits() -> None:
    pool = BufferPool(TOTAL_BYTES, BATCH_BYTES)
    assert allocate(pool, 95)
    waiter = wait(pool, 20)
    told: list[bool] = []
    waiter.watch(lambda: told.append(waiter.is_closed))
    pool.close()
    assert told == [True]
    assert pool.available_bytes == 5
    with pytest.raises(ClientClosedError):
        allocate(pool, 1)
    pool.free(95)
    assert pool.available_bytes == TOTAL_BYTES


def test_what_can_never_fit_is_refused_at_once() -> None:
    with pytest.raises(RecordTooLargeError, match=r"buffer\.memory = 100"):
        allocate(BufferPool(TOTAL_BYTES, BATCH_BYTES), 101)


def test_giving_back_too_much_is_noticed() -> None:
    with pytest.raises(InvariantError):
        BufferPool(TOTAL_BYTES, BATCH_BYTES).free(1)


class PoolMachine(RuleBasedStateMachine):
    """Against a model that knows one number, and who stands in line."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(TOTAL_BYTES, BATCH_BYTES)
        self.free_bytes = TOTAL_BYTES
        self.out: list[int] = []
        self.line: list[list[Any]] = []  # waiter, bytes still missing
        self.ready: list[MemoryWaiter] = []
        self.told: list[MemoryWaiter] = []
        self.is_closed = False

    def serve(self) -> None:
        while self.line and self.free_bytes:
            given = min(self.free_bytes, self.line[0][1])
            self.free_bytes -= given
            self.line[0][1] -= given
            if not self.line[0][1]:
                self.ready.append(self.line.pop(0)[0])

    sizes = st.sampled_from([1, 7, BATCH_BYTES, BATCH_BYTES, 33, TOTAL_BYTES])

    @rule(size=sizes)
    def allocate(self, size: int) -> None:
        if self.is_closed:
            with pytest.raises(ClientClosedError):
                allocate(self.pool, size)
            return
        expected = not self.line and size <= self.free_bytes
        assert allocate(self.pool, size) is expected
        if expected:
            self.free_bytes -= size
            self.out.append(size)
            return
        waiter = wait(self.pool, size)
        waiter.watch(lambda: self.told.append(waiter))
        self.line.append([waiter, size])
        self.serve()

    @rule(size=sizes)
    def take_at_once(self, size: int) -> None:
        waiter = MemoryWaiter(size)
        expected = not self.is_closed and not self.line and size <= self.free_bytes
        assert self.pool.take_at_once(waiter) is expected
        if expected:
            waiter.is_spent = True
            self.free_bytes -= size
            self.out.append(size)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        size = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        self.pool.free(size)
        self.free_bytes += size
        self.serve()

    @precondition(lambda self: self.ready)
    @rule(use=st.booleans())
    def end_waiting(self, use: bool) -> None:
        waiter = self.ready.pop(0)
        if use:
            waiter.is_spent = True
            self.out.append(waiter.size_bytes)
        else:
            self.pool.give_up(waiter)
            self.free_bytes += waiter.size_bytes
            self.serve()

    @precondition(lambda self: self.line)
    @rule(data=st.data())
    def time_out(self, data: st.DataObject) -> None:
        waiter, missing = self.line.pop(data.draw(st.integers(0, len(self.line) - 1)))
        self.pool.give_up(waiter)
        self.free_bytes += waiter.size_bytes - missing
        self.serve()

    @precondition(lambda self: not self.is_closed and len(self.out) > 3)
    @rule()
    def close(self) -> None:
        self.pool.close()
        self.is_closed = True
        self.free_bytes += sum(waiter.size_bytes - missing for waiter, missing in self.line)
        assert all(waiter.is_closed and waiter in self.told for waiter, _ in self.line)
        self.line.clear()

    @invariant()
    def counts_agree(self) -> None:
        assert self.pool.available_bytes == self.free_bytes
        assert self.pool.waiter_count == len(self.line)
        gathered = sum(waiter.size_bytes - missing for waiter, missing in self.line)
        held = sum(self.out) + sum(waiter.size_bytes for waiter in self.ready)
        assert self.free_bytes + gathered + held == TOTAL_BYTES
        assert all(waiter in self.told for waiter in self.ready)


PoolMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPool = PoolMachine.TestCase
