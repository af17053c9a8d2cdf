"""Requests that wait for partitions: writers until their records are committed, readers until there is enough to read.

They know nothing of time and loops. Whoever makes one keeps its deadline and calls `stop` at the end of it; `on_ready`
is called at most once between two starts, from within whatever made the partition move, so it should do little.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.error_codes import ErrorCode
from barnabas.replication.partition import Isolation, Partition


class CommitWait:
    """A writer that waits until records are committed, in one or several partitions.

    `outcomes` has, for each partition, the error that the writer is to be told, once there is one.
    """

    __slots__ = ("_on_ready", "_pending", "outcomes")

    def __init__(self, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready
        # What must be committed before the writer hears of success: everything below this offset.
        self._pending: dict[Partition, int] = {}
        self.outcomes: dict[Partition, ErrorCode] = {}

    @property
    def is_over(self) -> bool:
        return not self._pending

    def add(self, partition: Partition, offset: int) -> None:
        """Wait for a partition too, unless its outcome is clear at once. Of several offsets the highest counts."""
        offset = max(offset, self._pending.get(partition, 0))
        outcome = partition.commit_outcome(offset)
        if outcome is None:
            self._pending[partition] = offset
            partition.watch(self)
        else:
            self._settle(partition, outcome)

    def progressed(self, partition: Partition) -> None:
        outcome = partition.commit_outcome(self._pending[partition])
        if outcome is not None:
            self._settle(partition, outcome)
            if not self._pending:
                self._on_ready()

    def interrupted(self, partition: Partition) -> None:
        # Also if it is led here again: under another epoch nobody can say whether the records are still there.
        outcome = partition.commit_outcome(self._pending[partition])
        self._settle(partition, outcome or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self._pending:
            self._on_ready()

    def _settle(self, partition: Partition, outcome: ErrorCode) -> None:
        self._pending.pop(partition, None)
        partition.unwatch(self)
        self.outcomes[partition] = outcome

    def stop(self) -> None:
        """The time is up: what is not committed by now is told to have timed out, although it is written."""
        for partition in list(self._pending):
            self._settle(partition, ErrorCode.REQUEST_TIMED_OUT)


class FetchWait:
    """A reader that waits until there may be enough to read.

    It goes by how much was appended, which is known without looking: when that makes up for what was missing,
    `on_ready` is called and the reader looks. If there is still too little, it starts to wait again.
    """

    __slots__ = ("_isolation", "_missing_bytes", "_offsets", "_on_ready", "_seen_bytes")

    def __init__(self, isolation: Isolation, on_ready: Callable[[], None]) -> None:
        self._isolation = isolation
        self._on_ready = on_ready
        self._missing_bytes = 0
        self._offsets: dict[Partition, int] = {}
        self._seen_bytes: dict[Partition, int] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._offsets)

    def start(
        self, offsets: dict[Partition, int], missing_bytes: int, seen_bytes: dict[Partition, int] | None = None
    ) -> None:
        """Wait for `missing_bytes` more, from the given offsets of partitions on.

        `seen_bytes`: what was appended to each when the reader looked, if that was some time ago. If there is enough
        more by now, `on_ready` is called at once.
        """
        self._missing_bytes = missing_bytes
        self._offsets = offsets
        for partition in offsets:
            # Where a part of the log is hidden from the reader, what was appended does not tell what will be shown:
            # there the first progress has to do.
            hidden = 0 if partition.shows_all(self._isolation) else missing_bytes
            seen = partition.appended_bytes if seen_bytes is None else seen_bytes[partition]
            self._seen_bytes[partition] = seen - hidden
            partition.watch(self)
        for partition, seen in (seen_bytes or {}).items():
            if self._offsets and partition.appended_bytes != seen:
                self.progressed(partition)

    def progressed(self, partition: Partition) -> None:
        if partition.end_offset(self._isolation) <= self._offsets[partition]:
            return
        appended_bytes = partition.appended_bytes
        self._missing_bytes -= appended_bytes - self._seen_bytes[partition]
        self._seen_bytes[partition] = appended_bytes
        if self._missing_bytes <= 0:
            self._wake()

    def interrupted(self, partition: Partition) -> None:
        self._wake()

    def _wake(self) -> None:
        self.stop()
        self._on_ready()

    def stop(self) -> None:
        for partition in self._offsets:
            partition.unwatch(self)
        self._offsets = {}
