"""Requests that wait for partitions: writers until their records are committed, readers until there is enough to read.

They know nothing of time and loops. Whoever makes one keeps its deadline and calls `expire` or `stop` at the end of it;
`on_ready` is called at most once between two starts, from within whatever made the partition move, so it should do
little. They wait at the role that the partition had when they looked at it, and hold offsets, never records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.replication._kernel.following import moved, unwatch, watch_to_the_end
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.roles import NO_OFFSET, Isolation, PartitionRole


class Parked(Protocol):
    """A request in a purgatory."""

    def complete_now(self) -> None:
        """Answer with what is there: the node stops."""
        ...


P = TypeVar("P", bound=Parked)


class Purgatory(Generic[P]):
    """The requests of one kind that wait. A node that stops answers them, rather than wait for them."""

    __slots__ = ("_parked", "expired_count", "is_closed")

    def __init__(self) -> None:
        #: How many were answered because their time was up.
        self.expired_count = 0
        # In the order of their beginning, which a set would not keep.
        self._parked: dict[P, None] = {}
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._parked)

    def __iter__(self) -> Iterator[P]:
        """As they are now: answering one takes it out."""
        return iter(list(self._parked))

    def add(self, request: P) -> None:
        self._parked[request] = None

    def discard(self, request: P) -> None:
        self._parked.pop(request, None)

    def close(self) -> None:
        """From now on nobody waits: whoever would is to answer at once."""
        self.is_closed = True
        for request in list(self._parked):
            request.complete_now()


class DelayedProduce:
    """A writer that waits until records are committed, in one or several partitions.

    `outcomes` has, for each partition, the error that the writer is to be told, once there is one.
    """

    __slots__ = ("_on_ready", "_required_offsets", "outcomes")

    def __init__(self, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready
        # What must be committed before the writer hears of success: everything below this offset.
        self._required_offsets: dict[LeaderState, int] = {}
        self.outcomes: dict[LeaderState, ErrorCode] = {}

    @property
    def is_over(self) -> bool:
        return not self._required_offsets

    def add(self, leader: LeaderState, required_offset: int) -> None:
        """Wait for a partition too, unless its outcome is clear at once. Of several offsets the highest counts.

        `leader` is the role under which the records were appended: if it is over by now, that is the outcome.
        """
        required_offset = max(required_offset, self._required_offsets.get(leader, 0))
        outcome = leader.check_enough_replicas_reach_offset(required_offset)
        if outcome is None:
            self._required_offsets[leader] = required_offset
            leader.watch(self)
        else:
            self._settle(leader, outcome)

    def try_complete(self, role: PartitionRole) -> None:
        assert isinstance(role, LeaderState)
        outcome = role.check_enough_replicas_reach_offset(self._required_offsets[role])
        if outcome is not None:
            self._settle(role, outcome)
            if not self._required_offsets:
                self._on_ready()

    def role_ended(self, role: PartitionRole) -> None:
        self.try_complete(role)

    def _settle(self, leader: LeaderState, outcome: ErrorCode) -> None:
        self._required_offsets.pop(leader, None)
        leader.unwatch(self)
        self.outcomes[leader] = outcome

    def expire(self, outcome: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """Wait no longer: what is not committed by now is told to have timed out, although it is written."""
        for leader in list(self._required_offsets):
            self._settle(leader, outcome)


class DelayedDeleteRecords:
    """Somebody who waits until records are gone from all live replicas, in one or several partitions.

    `outcomes` has, for each partition, an error or none, and where the logs begin at the earliest.
    """

    __slots__ = ("_on_ready", "_required_offsets", "outcomes")

    def __init__(self, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready
        # Where the logs must begin, or later.
        self._required_offsets: dict[LeaderState, int] = {}
        self.outcomes: dict[LeaderState, tuple[ErrorCode, int]] = {}

    @property
    def is_over(self) -> bool:
        return not self._required_offsets

    def add(self, leader: LeaderState, required_offset: int) -> None:
        """Wait for a partition too, unless its records are gone already. Of several offsets the highest counts."""
        self._required_offsets[leader] = max(required_offset, self._required_offsets.get(leader, 0))
        leader.watch(self)
        self._look_at(leader)

    def try_complete(self, role: PartitionRole) -> None:
        assert isinstance(role, LeaderState)
        self._look_at(role)
        if not self._required_offsets:
            self._on_ready()

    def role_ended(self, role: PartitionRole) -> None:
        self.try_complete(role)

    def _look_at(self, leader: LeaderState) -> None:
        if leader.is_over:
            self._settle(leader, leader.partition.unusable().code, NO_OFFSET)
        elif leader.low_watermark >= self._required_offsets[leader]:
            self._settle(leader, ErrorCode.NONE, leader.low_watermark)

    def _settle(self, leader: LeaderState, code: ErrorCode, low_watermark: int) -> None:
        del self._required_offsets[leader]
        leader.unwatch(self)
        self.outcomes[leader] = code, low_watermark

    def expire(self, code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """Wait no longer: what is gone from here is not gone everywhere."""
        for leader in list(self._required_offsets):
            self._settle(leader, code, leader.low_watermark)


class DelayedFetch:
    """A reader that waits until there may be enough to read.

    It goes by how much was appended, which is known without looking: when that makes up for what was missing,
    `on_ready` is called and the reader looks. If there is still too little, it starts to wait again. `on_news` is
    called, any number of times, when a partition has changed otherwise: followers are to hear of its high watermark.
    """

    __slots__ = ("_isolation", "_missing_bytes", "_offsets", "_on_news", "_on_ready", "_seen_bytes", "has_changed")

    def __init__(
        self, isolation: Isolation, on_ready: Callable[[], None], on_news: Callable[[], None] | None = None
    ) -> None:
        self._isolation = isolation
        self._on_ready = on_ready
        self._on_news = on_news
        #: Whether anything has happened in the partitions since it started to wait.
        self.has_changed = False
        self._missing_bytes = 0
        self._offsets: dict[PartitionRole, int] = {}
        self._seen_bytes: dict[PartitionRole, int] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._offsets)

    def start(
        self, offsets: dict[PartitionRole, int], missing_bytes: int, seen_bytes: dict[PartitionRole, int] | None = None
    ) -> None:
        """Wait for `missing_bytes` more, from the given offsets of partitions on.

        `seen_bytes`: what was appended to each when the reader looked, if that was some time ago. If there is enough
        more by now, or a partition has another role, `on_ready` is called at once.
        """
        self.has_changed = False
        self._missing_bytes = missing_bytes
        self._offsets = offsets
        if self._isolation is Isolation.LOG_END:
            self._seen_bytes = watch_to_the_end(self, offsets, seen_bytes)
        else:
            self._watch_below_the_end(seen_bytes)
        for role in moved(seen_bytes) if seen_bytes else ():
            if self._offsets and role.is_over:
                self._wake()
            elif self._offsets:
                self.try_complete(role)

    def _watch_below_the_end(self, seen_bytes: dict[PartitionRole, int] | None) -> None:
        missing_bytes, offsets = self._missing_bytes, self._offsets
        own_seen_bytes = self._seen_bytes = {}
        sees_committed = self._isolation is Isolation.READ_UNCOMMITTED
        for role in offsets:
            log = role.log
            seen = role.appended_bytes if seen_bytes is None else seen_bytes[role]
            # Where a part of the log is hidden from the reader, what was appended does not tell what will be shown:
            # there the first progress has to do.
            end_offset = log.high_watermark if sees_committed else role.end_offset(self._isolation)
            own_seen_bytes[role] = seen if end_offset == log.log_end_offset else seen - missing_bytes
            role.delayed[self] = None

    def try_complete(self, role: PartitionRole) -> None:
        self.has_changed = True
        if role.end_offset(self._isolation) <= self._offsets[role]:
            if self._on_news is not None:
                self._on_news()
            return
        appended_bytes = role.appended_bytes
        self._missing_bytes -= appended_bytes - self._seen_bytes[role]
        self._seen_bytes[role] = appended_bytes
        if self._missing_bytes <= 0:
            self._wake()

    def role_ended(self, role: PartitionRole) -> None:
        self._wake()

    def _wake(self) -> None:
        self.has_changed = True
        self.stop()
        self._on_ready()

    def stop(self) -> None:
        unwatch(self, self._offsets)
        self._offsets = {}
