"""What operations on a shard come to: records, an answer, and what follows once the records are in the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from barnabas.base.error_codes import ErrorCode
from barnabas.records.control import TransactionMarker
from barnabas.wire.schema import Struct

#: Whoever runs a shard names each request by a token of their own; to the shard it means nothing.
Token: TypeAlias = object


class Now(NamedTuple):
    """Both clocks: timeouts must not follow a clock that somebody sets, timestamps must."""

    monotonic_ms: int
    wall_ms: int


class Reply(NamedTuple):
    token: Token
    #: A response, or the part of one that concerns one group.
    response: Struct


class Record(NamedTuple):
    """A key and a value as they lie in the log. No value deletes the key."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        # Lengths, deltas and attributes of a record take at most so much.
        return len(self.key) + len(self.value or b"") + 24


class CoordinatorRecord(NamedTuple):
    """A record as the shard replays it, and as it is appended: the second, decoded, is the first."""

    key: Struct
    value: Struct | None
    data: Record


Records: TypeAlias = Sequence[CoordinatorRecord]
NO_RECORDS: Records = ()


class WriteCallback:
    """What follows for soft state from what became of an operation's records. What it returns is written next."""

    __slots__ = ()

    def appended(self, now: Now) -> Records:
        """They are in the log and replayed."""
        return NO_RECORDS

    def committed(self, now: Now) -> Records:
        """They cannot get lost any more."""
        return NO_RECORDS

    def failed(self, error: ErrorCode, now: Now) -> Records:
        """They are not in the log, or were not committed in time; in the second case they still may be. `error` is what
        clients are told."""
        return NO_RECORDS


@dataclass(frozen=True, slots=True)
class ProducerWrite:
    """Records that belong to a producer's transaction, or the marker that ends it: they are a batch of their own."""

    producer_id: int
    producer_epoch: int
    #: What the append is verified with. It means nothing to the shard.
    guard: object = None
    #: The end of the transaction, which has no other records.
    marker: TransactionMarker | None = None
    #: The feature level under which the marker was sent.
    transaction_version: int = 0


@dataclass(slots=True)
class CoordinatorResult:
    """What an operation comes to. It has changed nothing of what is in records: replaying its own records will."""

    #: All of them reach the log in one batch, or none.
    records: Records = NO_RECORDS
    #: What the request is told once the records are committed. None if it was answered, or is parked in soft state.
    response: Struct | None = None
    callback: WriteCallback | None = None
    #: Without records: answer only when all that was written before is committed.
    after_writes: bool = False
    #: Whose transaction the records belong to.
    producer: ProducerWrite | None = None
    #: What follows for other subjects, to be run next.
    then: Sequence[Operation] = ()


class Operation(NamedTuple):
    """Something to do with one group, or whatever the subjects of a shard are; None looks at all of them."""

    subject: str | None
    run: Callable[[Now], CoordinatorResult]
    token: Token = None
    #: What the request is told if the records are not written, or not committed in time.
    if_failed: Callable[[ErrorCode], Struct] | None = None
    #: What it does, and its answer, do not depend on records that other blind operations on the subject write.
    is_blind: bool = False


def append_error(code: ErrorCode) -> ErrorCode:
    """What a client of the coordinator is told when a write to its partition failed with `code`."""
    match code:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR | ErrorCode.FENCED_LEADER_EPOCH:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
    return code
