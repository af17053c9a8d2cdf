"""Deadlines by key. Moving one into the future, which every heartbeat does, costs no place in the queue."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import TypeAlias

from barnabas.coordinator.results import Operation

Key: TypeAlias = tuple[str, ...]

_FEWEST_TO_SWEEP = 64


class _Timer:
    __slots__ = ("deadline_ms", "key", "operation", "queued_ms")

    def __init__(self, key: Key, deadline_ms: int, operation: Operation) -> None:
        self.key = key
        self.deadline_ms = deadline_ms
        #: Where it stands in the queue: at its deadline, or earlier if that was moved since.
        self.queued_ms = deadline_ms
        #: None once it was cancelled or replaced.
        self.operation: Operation | None = operation


class CoordinatorTimer:
    """All timers of a shard, which are soft state. Those that are due at the same moment fire in the order in which
    they were queued."""

    def __init__(self) -> None:
        self._timers: dict[Key, _Timer] = {}
        self._queue: list[tuple[int, int, _Timer]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: Key) -> bool:
        return key in self._timers

    def schedule(self, key: Key, deadline_ms: int, operation: Operation) -> None:
        """Let `operation` run at `deadline_ms`; replaces the timer with this key."""
        timer = self._timers.get(key)
        if timer is not None:
            if timer.queued_ms <= deadline_ms:
                timer.deadline_ms = deadline_ms
                timer.operation = operation
                return
            timer.operation = None
        timer = self._timers[key] = _Timer(key, deadline_ms, operation)
        self._enqueue(timer)

    def postpone(self, key: Key, deadline_ms: int) -> bool:
        """Move the timer with this key to `deadline_ms`; its operation stays. False if there is none."""
        timer = self._timers.get(key)
        if timer is None or timer.operation is None:
            return False
        if timer.queued_ms <= deadline_ms:
            timer.deadline_ms = deadline_ms
        else:
            self.schedule(key, deadline_ms, timer.operation)
        return True

    def cancel(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.operation = None
            if len(self._queue) > max(_FEWEST_TO_SWEEP, 2 * len(self._timers)):
                self._queue = [entry for entry in self._queue if entry[2].operation is not None]
                heapq.heapify(self._queue)

    def clear(self) -> None:
        """Nothing fires any more."""
        for timer in self._timers.values():
            timer.operation = None
        self._timers.clear()
        self._queue.clear()

    def next_deadline_ms(self) -> int | None:
        """The earliest moment at which something may be due, or None. It is never too late; it may be too early."""
        while self._queue and self._queue[0][2].operation is None:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def due(self, now_ms: int) -> Iterator[Operation]:
        """Take out what is due, one by one: what one cancels does not fire."""
        while self._queue and self._queue[0][0] <= now_ms:
            timer = heapq.heappop(self._queue)[2]
            if timer.operation is None:
                continue
            if timer.deadline_ms > now_ms:
                timer.queued_ms = timer.deadline_ms
                self._enqueue(timer)
                continue
            operation = timer.operation
            timer.operation = None
            del self._timers[timer.key]
            yield operation

    def _enqueue(self, timer: _Timer) -> None:
        heapq.heappush(self._queue, (timer.queued_ms, next(self._order), timer))
