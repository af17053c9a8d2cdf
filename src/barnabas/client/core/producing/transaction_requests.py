"""The requests of transactions: their order, what they say, and what each error that is answered to them means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from barnabas.client.core.producing.transaction_states import TransactionResult
    from barnabas.wire.message import Request

#: Newer ones are for brokers among themselves.
_MAX_ADD_PARTITIONS: Final = 3
#: The next one is for two-phase commits.
_MAX_INIT: Final = 5
#: The last ones without transactions v2.
_MAX_END_V1: Final = 4
_MAX_TXN_OFFSET_COMMIT_V1: Final = 4
_NEWEST: Final = 2**15 - 1


class SentOffset(Protocol):
    """What is committed for a partition; see `OffsetAndMetadata`."""

    @property
    def offset(self) -> int: ...

    @property
    def metadata(self) -> str: ...

    @property
    def leader_epoch(self) -> int | None: ...


class OffsetsOwner(Protocol):
    """For whom it is committed; see `GroupMetadata`."""

    @property
    def group_id(self) -> str: ...

    @property
    def generation(self) -> int: ...

    @property
    def member_id(self) -> str: ...

    @property
    def instance_id(self) -> str | None: ...


Offsets = Mapping[TopicPartition, SentOffset]


class Kind(IntEnum):
    """What a request is for. The smallest goes first, and among equals the one that came first."""

    FIND_COORDINATOR = 0
    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS = 2
    ADD_OFFSETS = 3
    TXN_OFFSET_COMMIT = 4
    END = 5
    #: InitProducerId again, after a transaction that left numbers behind which nobody may trust.
    BUMP_EPOCH = 6


class CoordinatorKey(IntEnum):
    """Who is asked, by its number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class TransactionRequest:
    """One request on its way through the queue. Compares by identity."""

    __slots__ = (
        "attempts",
        "coordinator",
        "key",
        "kind",
        "max_version",
        "message",
        "node_id",
        "not_before_ms",
        "result",
        "subject",
    )

    def __init__(
        self,
        kind: Kind,
        result: TransactionResult,
        message: Request | None,
        *,
        key: str,
        coordinator: CoordinatorKey = CoordinatorKey.TRANSACTION,
        max_version: int = _NEWEST,
        subject: Any = None,
    ) -> None:
        self.kind = kind
        self.result = result
        #: None for FindCoordinator: how that is asked is the network's affair.
        self.message = message
        #: Which coordinator it goes to, or is looked for.
        self.coordinator = coordinator
        self.key = key
        self.max_version = max_version
        #: What an answer needs to know: partitions, or offsets and their group.
        self.subject = subject
        self.node_id = -1
        self.attempts = 0
        self.not_before_ms = 0.0

    def __repr__(self) -> str:
        return f"<{self.kind.name} for {self.result.operation}, attempts {self.attempts}>"


class Consequence(Enum):
    """What an error that was answered means."""

    DONE = "done"
    TRY_AGAIN = "try again"
    #: Another broker is the coordinator now.
    LOOK_UP = "look up"
    ABORT = "abort"
    #: Nor are the numbers to be trusted: the epoch must change.
    ABORT_AND_BUMP = "abort and bump"
    #: Fatal, as another producer has taken over.
    FENCED = "fenced"
    FATAL = "fatal"
    #: Not allowed, before anything was begun. The program may ask again when it is.
    REFUSED = "refused"


_COMMON: Final = {
    ErrorCode.NONE: Consequence.DONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Consequence.LOOK_UP,
    ErrorCode.NOT_COORDINATOR: Consequence.LOOK_UP,
    ErrorCode.INVALID_PRODUCER_EPOCH: Consequence.FENCED,
    ErrorCode.PRODUCER_FENCED: Consequence.FENCED,
    ErrorCode.TRANSACTION_ABORTABLE: Consequence.ABORT,
}
_IN_TRANSACTION: Final = _COMMON | {ErrorCode.UNKNOWN_PRODUCER_ID: Consequence.ABORT_AND_BUMP}
#: What is not here is tried again if it can pass, and fatal if not; when partitions are added, it can be aborted.
_VERDICTS: Final[Mapping[Kind, Mapping[ErrorCode, Consequence]]] = {
    Kind.FIND_COORDINATOR: {
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Consequence.ABORT,
        ErrorCode.TRANSACTION_ABORTABLE: Consequence.ABORT,
    },
    Kind.INIT_PRODUCER_ID: _COMMON
    | {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Consequence.REFUSED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Consequence.REFUSED,
        ErrorCode.TRANSACTION_ABORTABLE: Consequence.REFUSED,
    },
    Kind.ADD_PARTITIONS: _IN_TRANSACTION
    | {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Consequence.FATAL,
        ErrorCode.INVALID_TXN_STATE: Consequence.FATAL,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: Consequence.FATAL,
    },
    Kind.ADD_OFFSETS: _IN_TRANSACTION | {ErrorCode.GROUP_AUTHORIZATION_FAILED: Consequence.ABORT},
    Kind.TXN_OFFSET_COMMIT: _COMMON
    | {
        ErrorCode.REQUEST_TIMED_OUT: Consequence.LOOK_UP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Consequence.ABORT,
        ErrorCode.FENCED_INSTANCE_ID: Consequence.ABORT,
        ErrorCode.UNKNOWN_MEMBER_ID: Consequence.ABORT,
        ErrorCode.ILLEGAL_GENERATION: Consequence.ABORT,
    },
    Kind.END: _IN_TRANSACTION,
    Kind.BUMP_EPOCH: _COMMON | {ErrorCode.TRANSACTION_ABORTABLE: Consequence.FATAL},
}


def verdict(kind: Kind, code: ErrorCode) -> Consequence:
    """What Java's client 4.3 makes of an error, with one exception: a group that has moved on is the same in the new
    protocol (STALE_MEMBER_EPOCH) as in the old."""
    found = _VERDICTS[kind].get(code)
    if found is not None:
        return found
    if code.retriable:
        return Consequence.TRY_AGAIN
    if kind is Kind.TXN_OFFSET_COMMIT and code is ErrorCode.STALE_MEMBER_EPOCH:
        return Consequence.ABORT
    return Consequence.ABORT if kind is Kind.ADD_PARTITIONS else Consequence.FATAL


def init_request(
    result: TransactionResult,
    transactional_id: str,
    timeout_ms: int,
    *,
    bumped: tuple[int, int] | None = None,
) -> TransactionRequest:
    """Ask for an id and an epoch; with `bumped`, the id and epoch so far, for the next epoch."""
    producer_id, epoch = (-1, -1) if bumped is None else bumped
    message = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    kind = Kind.INIT_PRODUCER_ID if bumped is None else Kind.BUMP_EPOCH
    return TransactionRequest(kind, result, message, key=transactional_id, max_version=_MAX_INIT)


def add_partitions_request(
    result: TransactionResult, transactional_id: str, producer: tuple[int, int], partitions: Iterable[TopicPartition]
) -> TransactionRequest:
    wanted = sorted(partitions)
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, number in wanted:
        topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic, partitions=[])).partitions.append(number)
    message = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=list(topics.values()),
    )
    return TransactionRequest(
        Kind.ADD_PARTITIONS,
        result,
        message,
        key=transactional_id,
        max_version=_MAX_ADD_PARTITIONS,
        subject=frozenset(wanted),
    )


def add_offsets_request(
    result: TransactionResult,
    transactional_id: str,
    producer: tuple[int, int],
    offsets: Offsets,
    group: OffsetsOwner,
) -> TransactionRequest:
    message = AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id=group.group_id
    )
    return TransactionRequest(Kind.ADD_OFFSETS, result, message, key=transactional_id, subject=(offsets, group))


def txn_offset_commit_request(
    result: TransactionResult,
    transactional_id: str,
    producer: tuple[int, int],
    offsets: Offsets,
    group: OffsetsOwner,
    is_v2: bool,
) -> TransactionRequest:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, number), each in offsets.items():
        topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic, partitions=[])).partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=each.offset,
                committed_leader_epoch=-1 if each.leader_epoch is None else each.leader_epoch,
                committed_metadata=each.metadata,
            )
        )
    message = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id=group.generation,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=list(topics.values()),
    )
    return TransactionRequest(
        Kind.TXN_OFFSET_COMMIT,
        result,
        message,
        coordinator=CoordinatorKey.GROUP,
        key=group.group_id,
        max_version=_NEWEST if is_v2 else _MAX_TXN_OFFSET_COMMIT_V1,
        subject=(offsets, group),
    )


def end_request(
    result: TransactionResult, transactional_id: str, producer: tuple[int, int], is_commit: bool, is_v2: bool
) -> TransactionRequest:
    message = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=is_commit
    )
    return TransactionRequest(
        Kind.END, result, message, key=transactional_id, max_version=end_version(2 if is_v2 else 1)
    )


def end_version(transaction_version: int) -> int:
    """The newest EndTxn that ends a transaction of this kind: newer ones change the epoch."""
    return _NEWEST if transaction_version >= 2 else _MAX_END_V1
