"""One partition on this node: what this node is to it, what is committed, and what that means for readers.

Guarantees:
- Only the leader of the present epoch appends, and with acks=all only while enough replicas are in sync.
- Readers see what is committed; of transactions, if they ask for that, only what is decided.
- The high watermark falls only when the log is cut. It is the log's, and outlives every role.
- Whoever waits hears of every change that may end the waiting, and pays only for the partitions that it waits for.

Nothing here waits or touches the world: the log is handed in, time is an argument, delayed operations are called back.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.metadata.image import NO_LEADER, PartitionImage
from barnabas.replication._kernel.following import TopicMeter
from barnabas.replication.follower_state import FollowerState
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.ports import LeaderPorts, NobodyElse
from barnabas.replication.roles import NO_EPOCH, NO_OFFSET, Isolation, PartitionError
from barnabas.storage.leader_epochs import EpochEnd
from barnabas.storage.log import PartitionLog
from barnabas.storage.searching import Search, run_here
from barnabas.storage.timestamp_search import TimestampAndOffset

NO_TIMESTAMP_MS: Final = -1

#: What a lookup by time may ask for instead of a time.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_NOWHERE: Final = TimestampAndOffset(NO_TIMESTAMP_MS, NO_OFFSET, NO_EPOCH)
#: Before the metadata log has said anything.
_UNKNOWN: Final = PartitionImage((), (), NO_LEADER, NO_EPOCH, NO_EPOCH)


class Partition:
    """The state of a partition of which this node is a replica."""

    __slots__ = ("_image", "failure", "is_deleted", "log", "meter", "name", "node_id", "ports", "role", "topic_id")

    def __init__(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        node_id: int,
        ports: LeaderPorts | None = None,
        meter: TopicMeter | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.node_id = node_id
        #: What is written and read, of all partitions of the topic together.
        self.meter = TopicMeter() if meter is None else meter
        #: The node around it; without, it knows of no other broker.
        self.ports: LeaderPorts = NobodyElse() if ports is None else ports
        #: None while there is no log that can be used.
        self.log: PartitionLog | None = None
        self.failure: BarnabasError | None = None
        self.is_deleted = False
        #: None where the log cannot be used, and while nobody leads.
        self.role: LeaderState | FollowerState | None = None
        self._image = _UNKNOWN

    def __repr__(self) -> str:
        image = self._image
        return f"<partition {self.name}, leader {image.leader} in epoch {image.leader_epoch}, in sync {image.isr}>"

    @property
    def leader_id(self) -> int:
        return self._image.leader

    @property
    def leader_epoch(self) -> int:
        return self._image.leader_epoch

    @property
    def partition_epoch(self) -> int:
        role = self.role
        return role.partition_epoch if isinstance(role, LeaderState) else self._image.partition_epoch

    # Roles

    def update(self, image: PartitionImage) -> None:
        """Take over what the metadata log says of the partition: lead, follow, or neither."""
        old, self._image = self._image, image
        if image.leader_epoch != old.leader_epoch or image.leader != old.leader:
            self._replace_role()
        elif isinstance(self.role, LeaderState):
            self.role.update(image)

    def attach(self, log: PartitionLog) -> None:
        """Use a log; before `update`."""
        self.log = log
        self.failure = None
        self._replace_role()

    def take_offline(self, failure: BarnabasError) -> None:
        """The log cannot be used any more."""
        self.log = None
        self.failure = failure
        self._replace_role()

    def delete(self) -> None:
        """The partition does not exist any more, or not here."""
        self.log = None
        self.is_deleted = True
        self._replace_role()

    def _replace_role(self) -> None:
        """Begin what the metadata log and the state of the log ask for, then tell those who wait at the old role."""
        old, self.role = self.role, self._role()
        if old is not None:
            old.end()

    def _role(self) -> LeaderState | FollowerState | None:
        image, log = self._image, self.log
        if log is None or image.leader == NO_LEADER:
            return None
        if image.leader != self.node_id:
            return FollowerState(self, log, image)
        old = self.role
        # Only then nobody else has led in between, in whose log followers may have gone on.
        is_next = isinstance(old, LeaderState) and image.leader_epoch == old.leader_epoch + 1 and old.log is log
        return LeaderState(self, log, image, old if isinstance(old, LeaderState) and is_next else None)

    def settings_changed(self) -> None:
        """The topic may ask for fewer replicas in sync than before."""
        if isinstance(self.role, LeaderState):
            self.role.advance_high_watermark()

    # Checks

    def unusable(self) -> PartitionError:
        """Why the partition cannot be used here as its leader uses it, or not any more in that epoch."""
        if self.is_deleted:
            return PartitionError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} does not exist here any more")
        if self.failure is not None:
            return PartitionError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is offline: {self.failure}")
        return PartitionError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"{self.name} is led by node {self.leader_id} in epoch {self.leader_epoch}, not by node {self.node_id}",
        )

    def leading(self, leader_epoch: int = NO_EPOCH) -> LeaderState:
        """The leader's state, if this node leads, and does so in the epoch that the client knows (-1 for any)."""
        role = self.role
        if not isinstance(role, LeaderState):
            is_usable = not self.is_deleted and self.failure is None
            if is_usable and leader_epoch >= 0 and leader_epoch != self.leader_epoch:
                raise self._other_epoch(leader_epoch)
            raise self.unusable()
        if leader_epoch >= 0 and leader_epoch != role.leader_epoch:
            raise self._other_epoch(leader_epoch)
        return role

    def led_log(self, leader_epoch: int = NO_EPOCH) -> PartitionLog:
        """The log, if this node leads."""
        return self.leading(leader_epoch).log

    def _other_epoch(self, leader_epoch: int) -> PartitionError:
        if leader_epoch < self.leader_epoch:
            code, relation = ErrorCode.FENCED_LEADER_EPOCH, "older"
        else:
            code, relation = ErrorCode.UNKNOWN_LEADER_EPOCH, "newer"
        return PartitionError(
            code, f"{self.name}: the epoch {leader_epoch} in the request is {relation} than {self.leader_epoch}"
        )

    # As the leader

    def delete_records(self, offset: int) -> int:
        """Let the log begin at `offset`, or at the high watermark for -1; returns where it begins now."""
        leader = self.leading()
        log = leader.log
        if "delete" not in log.settings.cleanup_policy:
            raise PartitionError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.name}: records are deleted only from topics whose cleanup.policy includes delete",
            )
        target = log.high_watermark if offset == NO_OFFSET else offset
        if target < 0:
            raise PartitionError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name}: there is no offset {offset}")
        log.advance_log_start(target)
        leader.log_start_advanced()
        return log.log_start_offset

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
        leader = self.leading(leader_epoch)
        log = leader.log
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            epoch = log.epochs.epoch_for_offset(log.log_start_offset)
            return TimestampAndOffset(NO_TIMESTAMP_MS, log.log_start_offset, NO_EPOCH if epoch is None else epoch)
        if timestamp_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return _NOWHERE  # nothing is ever tiered
        bound = leader.end_offset(isolation)
        # A new leader does not know yet what its predecessor has committed, so "the end" might go back.
        is_behind = isolation is not Isolation.LOG_END and log.high_watermark < leader.leader_epoch_start_offset
        if timestamp_ms == LATEST:
            if is_behind:
                raise self._not_available(leader)
            return TimestampAndOffset(NO_TIMESTAMP_MS, bound, leader.leader_epoch)
        is_max = timestamp_ms == MAX_TIMESTAMP
        found = yield from log.search_max_timestamp() if is_max else log.search_timestamp(timestamp_ms)
        if found is None or found.offset < bound:
            return found or _NOWHERE
        if is_behind:
            raise self._not_available(leader)
        return _NOWHERE

    def _not_available(self, leader: LeaderState) -> PartitionError:
        return PartitionError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{self.name}: the high watermark {leader.log.high_watermark} is below {leader.leader_epoch_start_offset}, "
            f"where the leader's epoch {leader.leader_epoch} begins",
        )
