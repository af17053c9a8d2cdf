"""One partition on this node: who leads it, what is committed, and what that means for writers and readers.

Guarantees:
- Only the leader of the present epoch appends, and with acks=all only while enough replicas are in sync.
- Readers see what is committed; of transactions, if they ask for that, only what is decided.
- The high watermark falls only when the log is cut.
- Whoever waits hears of every change that may end the waiting, and pays only for the partitions that it waits for.

Nothing here waits or touches the world: the log is handed in, time is an argument, waiters are called back.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.metadata.image import NO_LEADER, PartitionImage
from barnabas.replication.high_watermark import advanced_high_watermark
from barnabas.storage.aborted import AbortedTransaction
from barnabas.storage.errors import LogError
from barnabas.storage.leader_epochs import NO_EPOCH_END, EpochEnd
from barnabas.storage.log import Appended, PartitionLog, TimestampAndOffset
from barnabas.storage.searching import Search, run_here
from barnabas.storage.segment import FileRange
from barnabas.storage.validation import PreparedAppend

NO_EPOCH: Final = -1
NO_OFFSET: Final = -1
NO_TIMESTAMP_MS: Final = -1

#: What a lookup by time may ask for instead of a time.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_NOWHERE: Final = TimestampAndOffset(NO_TIMESTAMP_MS, NO_OFFSET, NO_EPOCH)


class Isolation(IntEnum):
    """How far a reader may look: up to the high watermark, the last stable offset, or (replicas) the end."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    LOG_END = 2


class PartitionError(LogError):
    """A partition on this node cannot do what it was asked for."""


class Watcher(Protocol):
    """Somebody who waits for a partition."""

    def progressed(self, partition: Partition) -> None:
        """More may be seen than before."""
        ...

    def interrupted(self, partition: Partition) -> None:
        """Waiting has no point any more: another leader or epoch, deleted, offline."""
        ...


class PartitionRead(NamedTuple):
    """What a reader gets. `diverging` says instead of data where its log left ours."""

    range: FileRange | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    #: None unless the reader asked for committed data.
    aborted: list[AbortedTransaction] | None = None
    diverging: EpochEnd | None = None


class Partition:
    """The state of a partition of which this node is a replica."""

    __slots__ = (
        "_end_offsets",
        "_watchers",
        "appended_bytes",
        "epoch_start_offset",
        "failure",
        "is_alone",
        "is_deleted",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "maximal_isr",
        "name",
        "node_id",
        "partition_epoch",
        "replicas",
        "topic_id",
    )

    def __init__(self, name: TopicPartition, topic_id: Uuid, node_id: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.node_id = node_id
        #: None while there is no log that can be used.
        self.log: PartitionLog | None = None
        self.failure: BarnabasError | None = None
        self.is_deleted = False
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = NO_EPOCH
        self.is_leader = False
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.maximal_isr: tuple[int, ...] = ()
        #: Whether this node is the only replica, so that what is written is committed.
        self.is_alone = False
        #: Where the log ended when this node began to lead in the present epoch.
        self.epoch_start_offset = NO_OFFSET
        # How far each follower has fetched in this epoch.
        self._end_offsets: dict[int, int] = {}
        #: How many bytes were appended while this node leads; waiting readers estimate by it.
        self.appended_bytes = 0
        # An ordered set: callbacks come in the order of arrival.
        self._watchers: dict[Watcher, None] = {}

    def __repr__(self) -> str:
        return f"<partition {self.name}, leader {self.leader} in epoch {self.leader_epoch}, in sync {self.isr}>"

    # What the cluster says

    def update(self, image: PartitionImage) -> None:
        """Take over what the metadata log says of the partition."""
        is_new_epoch = image.leader_epoch != self.leader_epoch or image.leader != self.leader
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.replicas = image.replicas
        self.isr = self.maximal_isr = image.isr
        self.is_leader = image.leader == self.node_id
        self.is_alone = self.is_leader and image.replicas == image.isr == (self.node_id,)
        if is_new_epoch:
            if self.is_leader and self.log is not None:
                self._begin_epoch(self.log)
            self._interrupt()
        self._advance()

    def attach(self, log: PartitionLog) -> None:
        """Use a log; before `update`."""
        self.log = log
        self.failure = None
        if self.is_leader:
            self._begin_epoch(log)
            self._advance()

    def _begin_epoch(self, log: PartitionLog) -> None:
        self.epoch_start_offset = log.log_end_offset
        # Until they fetch, nothing is known of the followers: what they had may not be what we have.
        self._end_offsets = dict.fromkeys((each for each in self.replicas if each != self.node_id), NO_OFFSET)
        log.epochs.assign(self.leader_epoch, log.log_end_offset)

    def take_offline(self, failure: BarnabasError) -> None:
        """The log cannot be used any more."""
        self.log = None
        self.failure = failure
        self._interrupt()

    def delete(self) -> None:
        """The partition does not exist any more, or not here."""
        self.log = None
        self.is_deleted = True
        self._interrupt()

    @property
    def min_isr(self) -> int:
        """How many replicas must be in sync; never more than there are replicas."""
        log = self.log
        wanted = 1 if log is None else log.settings.min_insync_replicas
        return min(wanted, len(self.replicas))

    def follower_fetched(self, replica: int, offset: int) -> None:
        """A follower asks for `offset`: it has everything before."""
        if replica not in self._end_offsets:
            raise PartitionError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name}: node {replica} is none of the replicas {self.replicas}"
            )
        self._end_offsets[replica] = offset
        self._advance()

    def settings_changed(self) -> None:
        """The topic may ask for fewer replicas in sync than before."""
        self._advance()

    def _advance(self) -> bool:
        """Move the high watermark as far as it may go; whether it moved."""
        log = self.log
        if log is None or not self.is_leader:
            return False
        reached = advanced_high_watermark(
            log.high_watermark, log.log_end_offset, self._end_offsets, self.isr, self.maximal_isr, self.min_isr
        )
        if reached <= log.high_watermark:
            return False
        log.set_high_watermark(reached)
        if self._watchers:
            self._tell_progress()
        return True

    # Waiting

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    @property
    def watcher_count(self) -> int:
        return len(self._watchers)

    def _tell_progress(self) -> None:
        for watcher in list(self._watchers):
            watcher.progressed(self)

    def _interrupt(self) -> None:
        for watcher in list(self._watchers):
            watcher.interrupted(self)

    # Checks

    def unusable(self) -> PartitionError:
        """Why the partition cannot be used here as its leader uses it."""
        if self.is_deleted:
            return PartitionError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} does not exist here any more")
        if self.failure is not None:
            return PartitionError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline: {self.failure}")
        return PartitionError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{self.name} is led by node {self.leader} in epoch {self.leader_epoch}, not by node {self.node_id}",
        )

    def led_log(self, leader_epoch: int = NO_EPOCH) -> PartitionLog:
        """The log, if this node leads, and does so in the epoch that the client knows (-1 for any)."""
        log = self.log
        if log is None or not self.is_leader:
            raise self.unusable()
        if leader_epoch >= 0 and leader_epoch != self.leader_epoch:
            raise self._other_epoch(leader_epoch)
        return log

    def _other_epoch(self, leader_epoch: int) -> PartitionError:
        if leader_epoch < self.leader_epoch:
            code, relation = ErrorCode.FENCED_LEADER_EPOCH, "older"
        else:
            code, relation = ErrorCode.UNKNOWN_LEADER_EPOCH, "newer"
        return PartitionError(
            code, f"{self.name}: the epoch {leader_epoch} in the request is {relation} than {self.leader_epoch}"
        )

    # Writing

    def append(self, prepared: PreparedAppend, *, acks_all: bool, now_ms: int) -> Appended:
        """As the leader. With `acks_all` only if enough replicas are in sync to commit it."""
        log = self.log
        if log is None or not self.is_leader:
            raise self.unusable()
        if self.is_alone:
            appended = log.append(prepared, leader_epoch=self.leader_epoch, now_ms=now_ms)
            self.appended_bytes += len(prepared.data)
            log.commit_all()
            if self._watchers:
                self._tell_progress()
            return appended
        if acks_all and len(self.isr) < self.min_isr:
            raise PartitionError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name}: {len(self.isr)} replicas are in sync, {self.min_isr} are needed; nothing was written",
            )
        appended = log.append(prepared, leader_epoch=self.leader_epoch, now_ms=now_ms)
        self.appended_bytes += len(prepared.data)
        if not self._advance() and self._watchers:
            self._tell_progress()  # for followers, who see the end of the log
        return appended

    def commit_outcome(self, offset: int) -> ErrorCode | None:
        """What to tell a writer who waits until everything below `offset` is committed; None while that is open."""
        log = self.log
        if log is None or not self.is_leader:
            return self.unusable().code
        if log.high_watermark < offset:
            return None
        return ErrorCode.NONE if len(self.isr) >= self.min_isr else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def delete_records(self, offset: int) -> int:
        """Let the log begin at `offset`, or at the high watermark for -1; returns where it begins now."""
        log = self.led_log()
        if "delete" not in log.settings.cleanup_policy:
            raise PartitionError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.name}: records are deleted only from topics whose cleanup.policy includes delete",
            )
        target = log.high_watermark if offset == NO_OFFSET else offset
        if target < 0:
            raise PartitionError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name}: there is no offset {offset}")
        log.advance_log_start(target)
        return log.log_start_offset

    # Reading

    def end_offset(self, isolation: Isolation) -> int:
        """The first offset that a reader may not see."""
        log = self.led_log()
        if isolation is Isolation.READ_UNCOMMITTED:
            return log.high_watermark
        return log.last_stable_offset if isolation is Isolation.READ_COMMITTED else log.log_end_offset

    def shows_all(self, isolation: Isolation) -> bool:
        """Whether such a reader may see the log to its end."""
        log = self.led_log()
        return self.end_offset(isolation) == log.log_end_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        *,
        leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        at_least_one: bool = True,
    ) -> PartitionRead:
        """What a reader at `offset` may see. The bytes stay in the file."""
        log = self.led_log(leader_epoch)
        high_watermark, stable = log.high_watermark, log.last_stable_offset
        if last_fetched_epoch >= 0:
            diverging = self._divergence(log, last_fetched_epoch, offset)
            if diverging is not None:
                return PartitionRead(None, high_watermark, stable, log.log_start_offset, None, diverging)
        bound = high_watermark
        if isolation is not Isolation.READ_UNCOMMITTED:
            bound = stable if isolation is Isolation.READ_COMMITTED else log.log_end_offset
        found = log.read(offset, max_bytes, end_offset=bound, at_least_one=at_least_one).range
        aborted: list[AbortedTransaction] | None = None
        if isolation is Isolation.READ_COMMITTED:
            aborted = [] if found is None else log.aborted_transactions(offset, found)
        return PartitionRead(found, high_watermark, stable, log.log_start_offset, aborted)

    def _divergence(self, log: PartitionLog, last_fetched_epoch: int, offset: int) -> EpochEnd | None:
        """Where the log of a reader that has records of `last_fetched_epoch` up to `offset` left ours, if it did."""
        end = log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
        if end == NO_EPOCH_END:
            raise PartitionError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: nothing is known of the epoch {last_fetched_epoch} at offset {offset}",
            )
        return end if end.epoch < last_fetched_epoch or end.end_offset < offset else None

    def end_of_epoch(self, epoch: int, leader_epoch: int = NO_EPOCH) -> EpochEnd:
        """The largest epoch that is not above `epoch`, and where its records end."""
        log = self.led_log(leader_epoch)
        return log.epochs.end_offset_for(epoch, log.log_end_offset)

    def offset_for_timestamp(
        self, timestamp_ms: int, isolation: Isolation, leader_epoch: int = NO_EPOCH
    ) -> TimestampAndOffset:
        """The first record that is not older than `timestamp_ms`, or what one of the special values stands for.

        All fields are -1 if there is no such record that the reader may see.
        """
        return run_here(self.search_timestamp(timestamp_ms, isolation, leader_epoch))

    def search_timestamp(
        self, timestamp_ms: int, isolation: Isolation, leader_epoch: int = NO_EPOCH
    ) -> Search[TimestampAndOffset]:
        """The same for those who have what is costly done elsewhere."""
        log = self.led_log(leader_epoch)
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            epoch = log.epochs.epoch_for_offset(log.log_start_offset)
            return TimestampAndOffset(NO_TIMESTAMP_MS, log.log_start_offset, NO_EPOCH if epoch is None else epoch)
        if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return _NOWHERE  # nothing is ever tiered
        bound = self.end_offset(isolation)
        # A new leader does not know yet what its predecessor has committed, so "the end" might go back.
        is_behind = isolation is not Isolation.LOG_END and log.high_watermark < self.epoch_start_offset
        if timestamp_ms == LATEST:
            if is_behind:
                raise self._not_available(log)
            return TimestampAndOffset(NO_TIMESTAMP_MS, bound, self.leader_epoch)
        is_max = timestamp_ms == MAX_TIMESTAMP
        found = yield from log.search_max_timestamp() if is_max else log.search_timestamp(timestamp_ms)
        if found is None or found.offset < bound:
            return found or _NOWHERE
        if is_behind:
            raise self._not_available(log)
        return _NOWHERE

    def _not_available(self, log: PartitionLog) -> PartitionError:
        return PartitionError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{self.name}: the high watermark {log.high_watermark} is below {self.epoch_start_offset}, "
            f"where the leader's epoch {self.leader_epoch} begins",
        )
