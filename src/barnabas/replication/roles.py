"""What this node is to a partition: its leader, a follower, or (no object at all) neither.

A role lasts for one leader epoch. Another leader, another epoch, a failed log or a deletion replaces the object, and
whoever waits at the old one is told once. What outlives that, the log with its high watermark above all, is the
partition's; so whoever holds on to a role can see that it is over, and cannot take one epoch for another.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.replication._kernel.following import RoleFields
from barnabas.storage.aborted import AbortedTransaction
from barnabas.storage.errors import LogError
from barnabas.storage.leader_epochs import EpochEnd
from barnabas.storage.log import PartitionLog
from barnabas.storage.segment import FileRange

if TYPE_CHECKING:
    from barnabas.replication.partition import Partition

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
NO_REPLICA: Final = -1


class Isolation(IntEnum):
    """How far a reader may look: up to the high watermark, the last stable offset, or (replicas) the log end offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    LOG_END = 2


class PartitionError(LogError):
    """A partition on this node cannot do what it was asked for."""


class PartitionRead(NamedTuple):
    """What a reader gets. `diverging` says instead of data where its log left ours."""

    range: FileRange | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    #: None unless the reader asked for committed data.
    aborted: list[AbortedTransaction] | None = None
    diverging: EpochEnd | None = None


class DelayedOperation(Protocol):
    """Somebody who waits for a partition."""

    def try_complete(self, role: PartitionRole) -> None:
        """More may be seen, or committed, than before."""
        ...

    def role_ended(self, role: PartitionRole) -> None:
        """Waiting has no point any more: another leader or epoch, deleted, offline."""
        ...


class PartitionRole(RoleFields):
    """What leading and following have in common: the log, the epoch, and who waits."""

    __slots__ = ()

    partition: Partition
    log: PartitionLog
    #: Who waits. An ordered set: callbacks come in the order of arrival.
    delayed: dict[DelayedOperation, None]

    def __init__(self, partition: Partition, log: PartitionLog, leader_epoch: int) -> None:
        self.meter = partition.meter
        self.partition = partition
        self.log = log
        self.leader_epoch = leader_epoch
        #: How many bytes were appended under it; waiting readers estimate by it.
        self.appended_bytes = 0
        #: Whether something else has taken its place.
        self.is_over = False
        self.delayed = {}

    def end_offset(self, isolation: Isolation) -> int:
        """The first offset that a reader may not see."""
        log = self.log
        if isolation is Isolation.READ_UNCOMMITTED:
            return log.high_watermark
        return log.last_stable_offset if isolation is Isolation.READ_COMMITTED else log.log_end_offset

    def watch(self, delayed: DelayedOperation) -> None:
        self.delayed[delayed] = None

    def unwatch(self, delayed: DelayedOperation) -> None:
        self.delayed.pop(delayed, None)

    @property
    def delayed_count(self) -> int:
        return len(self.delayed)

    def _check_delayed(self) -> None:
        for delayed in list(self.delayed):
            delayed.try_complete(self)

    def end(self) -> None:
        """Something else has taken its place: `Partition.role` says what."""
        self.is_over = True
        delayed_operations, self.delayed = self.delayed, {}
        for delayed in delayed_operations:
            delayed.role_ended(self)
