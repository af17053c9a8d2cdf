"""What a shard wants done: answers to send, records to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from barnabas.base.error_codes import ErrorCode
from barnabas.wire.schema import Struct

if TYPE_CHECKING:
    from barnabas.coordinator.offsets import StagedOffset

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


class Awaited(NamedTuple):
    """A reply that holds once the records are committed, and what is said instead if they are not."""

    token: Token
    response: Struct
    if_failed: Callable[[ErrorCode], Struct]


class Record(NamedTuple):
    """A key and a value as they lie in the log. No value deletes the key."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        # Lengths, deltas and attributes of a record take at most so much.
        return len(self.key) + len(self.value or b"") + 24


class Write:
    """The records of one operation: all of them reach the log in one batch, or none."""

    __slots__ = ("awaited", "offsets", "on_commit", "on_failure", "records")

    def __init__(
        self,
        records: list[Record],
        *,
        on_commit: Callable[[Now], None] | None = None,
        on_failure: Callable[[ErrorCode, bool, Now], None] | None = None,
    ) -> None:
        self.records = records
        self.awaited: list[Awaited] = []
        #: The offsets that these records change, in their order; readers see them once they are committed.
        self.offsets: list[StagedOffset] = []
        self.on_commit = on_commit
        #: Told the error for clients, and whether the records are in the log in spite of it.
        self.on_failure = on_failure


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
