"""What a node knows of a partition that another node leads, and how it follows: what to ask, what an answer means.

A follower asks for what comes after its log end offset, and says which epoch wrote the last record before it. If the
leader's log went another way there, the answer says where (KIP-595's diverging epoch), and the follower cuts its log at
the end of the last epoch that both have, as often as it takes; never at the high watermark, below which a leader may
not know yet what is committed. What the leader sends is appended as it is.

Guarantees:
- Nothing is appended that does not follow our log, or that the leader of another epoch wrote later.
- The high watermark is never beyond our log, and falls only when the log is cut.
- An answer to what was asked in another epoch, or at another offset, changes nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.image import PartitionImage
from barnabas.replication.roles import PartitionRole
from barnabas.storage.errors import AppendRefusedError
from barnabas.storage.log import PartitionLog
from barnabas.storage.validation import PreparedAppend, prepare_from_leader
from barnabas.wire.messages.fetch import EpochEndOffset, FetchPartition, PartitionData

if TYPE_CHECKING:
    from barnabas.replication.partition import Partition

#: How long the first wait is after an answer that says that one of us has not heard of the other's state yet.
_FIRST_WAIT_MS: Final = 20
#: Errors that pass when whoever lags behind in metadata has caught up: there the waits begin short.
_SOON_OVER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


def is_soon_over(code: ErrorCode) -> bool:
    """Whether an error says only that one of us has not heard yet what the other has."""
    return code in _SOON_OVER


class FollowerPhase(Enum):
    """What a follower does next."""

    FETCHING = "fetching"
    #: The leader does not have our offset: it must be asked where its log begins and ends.
    LOOKING_UP = "looking up offsets"
    #: For `wait_ms`.
    WAITING = "waiting"
    #: Nothing, until the metadata log says something new of the partition.
    FENCED = "fenced"


class Cut(NamedTuple):
    """The log must be cut at `offset`; or, with `is_anew`, be emptied and go on there. With `then_append` what was
    answered can be appended after that, with `append`; else the leader must be asked again."""

    offset: int
    is_anew: bool = False
    then_append: bool = False


class FollowerState(PartitionRole):
    """This node has a replica, and another node leads."""

    __slots__ = ("failures", "leader_high_watermark", "leader_id", "phase", "wait_ms")

    def __init__(self, partition: Partition, log: PartitionLog, image: PartitionImage) -> None:
        super().__init__(partition, log, image.leader_epoch)
        self.leader_id = image.leader
        self.phase = FollowerPhase.FETCHING
        #: How often the same was asked in vain, and how long to wait before it is asked again.
        self.failures = 0
        self.wait_ms = 0
        #: As the leader said last, also where that is beyond our end; -1 until it has answered.
        self.leader_high_watermark = -1

    @property
    def lag(self) -> int:
        """How many committed records we lack, as far as we have heard: Kafka's ConsumerLag of a fetcher."""
        return max(0, self.leader_high_watermark - self.log.log_end_offset)

    # Asking

    def next_fetch(self, max_bytes: int) -> FetchPartition:
        """What to ask the leader for."""
        log = self.log
        return FetchPartition(
            partition=self.partition.name.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.epochs.latest_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=max_bytes,
        )

    def is_news(self, asked: FetchPartition) -> bool:
        """Whether the leader would be asked for something else now."""
        log = self.log
        return (
            asked.fetch_offset != log.log_end_offset
            or asked.log_start_offset != log.log_start_offset
            or asked.last_fetched_epoch != log.epochs.latest_epoch
            or asked.current_leader_epoch != self.leader_epoch
        )

    def wait(self, longest_ms: int, *, is_soon_over: bool = False) -> None:
        """Ask nothing for a while, which grows from failure to failure up to `longest_ms`."""
        first_ms = _FIRST_WAIT_MS if is_soon_over else longest_ms
        self.wait_ms = min(longest_ms, 2 * self.wait_ms or first_ms)
        self.failures += 1
        self.phase = FollowerPhase.WAITING

    def go_on(self) -> None:
        """The wait is over, or what was looked up is settled."""
        if self.phase is not FollowerPhase.FENCED:
            self.phase = FollowerPhase.FETCHING

    # Answers

    def take(self, asked: FetchPartition, data: PartitionData, now_ms: int, longest_wait_ms: int) -> Cut | None:
        """Act by the leader's answer to `asked`. What it says must be cut off is for the caller to cut.

        Raises `LogError` where the answer cannot be appended.
        """
        if asked.current_leader_epoch != self.leader_epoch or asked.fetch_offset != self.log.log_end_offset:
            return None
        if data.error_code:
            self._take_error(ErrorCode.of(data.error_code), longest_wait_ms)
            return None
        self.failures = self.wait_ms = 0
        if data.diverging_epoch is not None:
            return self._where_to_cut(data.diverging_epoch)
        return self.append(data, now_ms)

    def append(self, data: PartitionData, now_ms: int) -> Cut | None:
        """Take over records, and what is said of the log as a whole."""
        if data.records and not self._has_appended(data.records, now_ms):
            cut = self._append(prepare_from_leader(data.records), now_ms)
            if cut is not None:
                return cut
        self._learn(data.high_watermark, data.log_start_offset)
        return None

    def _has_appended(self, records: bytes | bytearray | memoryview, now_ms: int) -> bool:
        """Whether it was an ordinary batch, of which nothing need be decided, and is appended."""
        log, view = self.log, memoryview(records)
        try:
            is_appended = log.append_from_leader(view, self.leader_epoch, now_ms)
        except OSError as failure:
            raise log.failed(failure) from failure
        if is_appended:
            self.appended_bytes += len(view)
            self.meter.replication_bytes_in += len(view)
        return is_appended

    def _take_error(self, code: ErrorCode, longest_wait_ms: int) -> None:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.phase = FollowerPhase.LOOKING_UP
        elif code is ErrorCode.FENCED_LEADER_EPOCH:
            # The leader knows a newer epoch than we do: we shall hear of it.
            self.phase = FollowerPhase.FENCED
        else:
            self.wait(longest_wait_ms, is_soon_over=is_soon_over(code))

    def _where_to_cut(self, leaders: EpochEndOffset) -> Cut:
        """The end of the last epoch that both logs have, as far as one answer can tell; the next one tells more."""
        log = self.log
        own = log.epochs.end_offset_for(leaders.epoch, log.log_end_offset)
        known_end = log.log_end_offset if own.end_offset < 0 else own.end_offset
        return Cut(max(0, min(known_end, leaders.end_offset)))

    def _append(self, prepared: PreparedAppend, now_ms: int) -> Cut | None:
        prepared = self._of_this_epoch(prepared)
        if not prepared.batches:
            return None
        log, first = self.log, prepared.batches[0]
        if first.base_offset < log.log_end_offset:
            if log.log_end_offset == log.log_start_offset and first.last_offset >= log.log_end_offset:
                # The leader's log starts within a batch, since records were deleted, and ours is still empty.
                return Cut(first.base_offset, is_anew=True, then_append=True)
            raise AppendRefusedError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self.partition.name}: node {self.leader_id} sent a batch with offsets {first.base_offset} to "
                f"{first.last_offset}, but the log ends at {log.log_end_offset}",
            )
        log.append_as_follower(prepared, now_ms=now_ms)
        self.appended_bytes += len(prepared.data)
        self.meter.replication_bytes_in += len(prepared.data)
        return None

    def _of_this_epoch(self, prepared: PreparedAppend) -> PreparedAppend:
        """Without what was written in later epochs than ours: while the answer was under way the leader may have lost
        its role, cut its log, and appended what is not this leader's to say."""
        size_bytes = 0
        for place, batch in enumerate(prepared.batches):
            if batch.leader_epoch > self.leader_epoch:
                kept = prepared.batches[:place]
                return PreparedAppend(
                    prepared.data[:size_bytes], kept, max((each.max_timestamp_ms for each in kept), default=-1)
                )
            size_bytes += batch.size_bytes
        return prepared

    def _learn(self, high_watermark: int, log_start_offset: int) -> None:
        """What is committed, and where the leader's log begins."""
        log = self.log
        self.leader_high_watermark = high_watermark
        if high_watermark > log.high_watermark and log.high_watermark < log.log_end_offset:
            log.set_high_watermark(high_watermark)
            if self.delayed:
                self._check_delayed()
        if log_start_offset > log.log_start_offset:
            log.advance_log_start(min(log_start_offset, log.high_watermark))

    # When the leader does not have our offset

    def take_leader_end(self, end_offset: int) -> Cut | None:
        """Where the leader's log ends. If that is before our end, a replica that was behind us was made leader, and
        what it does not have is lost; else where its log begins must be asked, too."""
        if end_offset >= self.log.log_end_offset:
            return None
        self.go_on()
        return Cut(end_offset)

    def take_leader_start(self, start_offset: int) -> Cut | None:
        """Where the leader's log begins: if that is behind our end, nothing that we have is of any use."""
        self.go_on()
        return Cut(start_offset, is_anew=True) if start_offset > self.log.log_end_offset else None
