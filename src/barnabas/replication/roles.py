"""What this node is to a partition: its leader, a follower, or (no object at all) neither.

A role lasts for one leader epoch. Another leader, another epoch, a failed log or a deletion replaces the object, and
whoever waits at the old one is told once. What outlives that, the log with its high watermark above all, is the
partition's; so whoever holds on to a role can see that it is over, and cannot take one epoch for another.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.image import PartitionImage
from barnabas.replication.high_watermark import advanced_high_watermark
from barnabas.storage.aborted import AbortedTransaction
from barnabas.storage.errors import LogError
from barnabas.storage.leader_epochs import NO_EPOCH_END, EpochEnd
from barnabas.storage.log import Appended, PartitionLog
from barnabas.storage.segment import FileRange
from barnabas.storage.validation import PreparedAppend

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


class PartitionRole:
    """What leading and following have in common: the log, the epoch, and who waits."""

    __slots__ = ("_delayed", "appended_bytes", "is_over", "leader_epoch", "log", "partition")

    def __init__(self, partition: Partition, log: PartitionLog, leader_epoch: int) -> None:
        self.partition = partition
        self.log = log
        self.leader_epoch = leader_epoch
        #: How many bytes were appended under it; waiting readers estimate by it.
        self.appended_bytes = 0
        #: Whether something else has taken its place.
        self.is_over = False
        # An ordered set: callbacks come in the order of arrival.
        self._delayed: dict[DelayedOperation, None] = {}

    def end_offset(self, isolation: Isolation) -> int:
        """The first offset that a reader may not see."""
        log = self.log
        if isolation is Isolation.READ_UNCOMMITTED:
            return log.high_watermark
        return log.last_stable_offset if isolation is Isolation.READ_COMMITTED else log.log_end_offset

    def shows_all(self, isolation: Isolation) -> bool:
        """Whether such a reader may see the log to its end."""
        return self.end_offset(isolation) == self.log.log_end_offset

    def watch(self, delayed: DelayedOperation) -> None:
        self._delayed[delayed] = None

    def unwatch(self, delayed: DelayedOperation) -> None:
        self._delayed.pop(delayed, None)

    @property
    def delayed_count(self) -> int:
        return len(self._delayed)

    def _check_delayed(self) -> None:
        for delayed in list(self._delayed):
            delayed.try_complete(self)

    def end(self) -> None:
        """Something else has taken its place: `Partition.role` says what."""
        self.is_over = True
        delayed_operations, self._delayed = self._delayed, {}
        for delayed in delayed_operations:
            delayed.role_ended(self)


class FollowerState(PartitionRole):
    """This node has a replica, and another node leads."""

    __slots__ = ("leader_id",)

    def __init__(self, partition: Partition, log: PartitionLog, image: PartitionImage) -> None:
        super().__init__(partition, log, image.leader_epoch)
        self.leader_id = image.leader


class LeaderState(PartitionRole):
    """This node leads. It knows who is in sync and how far each follower is, and so what is committed."""

    __slots__ = (
        "_follower_log_end_offsets",
        "is_alone",
        "isr",
        "leader_epoch_start_offset",
        "maximal_isr",
        "replicas",
    )

    def __init__(self, partition: Partition, log: PartitionLog, image: PartitionImage) -> None:
        super().__init__(partition, log, image.leader_epoch)
        #: Where the log ended when this node began to lead in this epoch.
        self.leader_epoch_start_offset = log.log_end_offset
        # Until they fetch, nothing is known of the followers: what they had may not be what we have.
        self._follower_log_end_offsets: dict[int, int] = {}
        log.epochs.assign(image.leader_epoch, log.log_end_offset)
        self.update(image)

    def update(self, image: PartitionImage) -> None:
        """Take over what the metadata log says within the epoch: replicas, and those of them that are in sync."""
        node_id = self.partition.node_id
        known = self._follower_log_end_offsets
        self.replicas = image.replicas
        self.isr = self.maximal_isr = image.isr
        #: Whether this node is the only replica, so that what is written is committed.
        self.is_alone = image.replicas == image.isr == (node_id,)
        self._follower_log_end_offsets = {
            each: known.get(each, NO_OFFSET) for each in image.replicas if each != node_id
        }
        self.advance_high_watermark()

    @property
    def effective_min_isr(self) -> int:
        """How many replicas must be in sync; never more than there are replicas."""
        return min(self.log.settings.min_insync_replicas, len(self.replicas))

    # What is committed

    def update_follower_fetch_state(self, replica: int, log_end_offset: int) -> None:
        """A follower asks for `log_end_offset`: it has everything before."""
        if replica not in self._follower_log_end_offsets:
            raise PartitionError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.partition.name}: node {replica} is none of the replicas {self.replicas}",
            )
        self._follower_log_end_offsets[replica] = log_end_offset
        self.advance_high_watermark()

    def advance_high_watermark(self) -> bool:
        """Move the high watermark as far as it may go; whether it moved."""
        log = self.log
        reached = advanced_high_watermark(
            log.high_watermark,
            log.log_end_offset,
            self._follower_log_end_offsets,
            self.isr,
            self.maximal_isr,
            self.effective_min_isr,
        )
        if reached <= log.high_watermark:
            return False
        log.set_high_watermark(reached)
        if self._delayed:
            self._check_delayed()
        return True

    def check_enough_replicas_reach_offset(self, offset: int) -> ErrorCode | None:
        """What to tell a writer who waits until everything below `offset` is committed; None while that is open.

        Once the role is over that is an error, also if this node leads again: nobody can say then whether the records
        are still there.
        """
        if self.is_over:
            return self.partition.unusable().code
        if self.log.high_watermark < offset:
            return None
        is_enough = len(self.isr) >= self.effective_min_isr
        return ErrorCode.NONE if is_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # Writing

    def append(self, prepared: PreparedAppend, *, acks_all: bool, now_ms: int) -> Appended:
        """With `acks_all` only if enough replicas are in sync to commit it."""
        log = self.log
        if self.is_alone:
            appended = log.append(prepared, leader_epoch=self.leader_epoch, now_ms=now_ms)
            self.appended_bytes += len(prepared.data)
            log.commit_all()
            if self._delayed:
                self._check_delayed()
            return appended
        if acks_all and len(self.isr) < self.effective_min_isr:
            raise PartitionError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.partition.name}: {len(self.isr)} replicas are in sync, {self.effective_min_isr} are needed; "
                "nothing was written",
            )
        appended = log.append(prepared, leader_epoch=self.leader_epoch, now_ms=now_ms)
        self.appended_bytes += len(prepared.data)
        if not self.advance_high_watermark() and self._delayed:
            self._check_delayed()  # for followers, who see the log to its end
        return appended

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        *,
        last_fetched_epoch: int = NO_EPOCH,
        at_least_one: bool = True,
        replica: int = NO_REPLICA,
    ) -> PartitionRead:
        """What a reader at `offset` may see. The bytes stay in the file.

        A `replica` that asks for an offset has all before it, so more may be committed by that; but only if its log is
        ours up to there.
        """
        log = self.log
        high_watermark, stable = log.high_watermark, log.last_stable_offset
        if last_fetched_epoch >= 0:
            diverging = self._divergence(last_fetched_epoch, offset)
            if diverging is not None:
                return PartitionRead(None, high_watermark, stable, log.log_start_offset, None, diverging)
        bound = high_watermark
        if isolation is not Isolation.READ_UNCOMMITTED:
            bound = stable if isolation is Isolation.READ_COMMITTED else log.log_end_offset
        found = log.read(offset, max_bytes, end_offset=bound, at_least_one=at_least_one).range
        if replica >= 0:
            self.update_follower_fetch_state(replica, offset)
            high_watermark, stable = log.high_watermark, log.last_stable_offset
        aborted: list[AbortedTransaction] | None = None
        if isolation is Isolation.READ_COMMITTED:
            aborted = [] if found is None else log.aborted_transactions(offset, found)
        return PartitionRead(found, high_watermark, stable, log.log_start_offset, aborted)

    def _divergence(self, last_fetched_epoch: int, offset: int) -> EpochEnd | None:
        """Where the log of a reader that has records of `last_fetched_epoch` up to `offset` left ours, if it did."""
        end = self.log.epochs.end_offset_for(last_fetched_epoch, self.log.log_end_offset)
        if end == NO_EPOCH_END:
            raise PartitionError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition.name}: nothing is known of the epoch {last_fetched_epoch} at offset {offset}",
            )
        return end if end.epoch < last_fetched_epoch or end.end_offset < offset else None
