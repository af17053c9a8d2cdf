"""ListTransactions and DescribeTransactions: what a shard tells of its transactional ids, as far as it is committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.transactions.metadata import TransactionMetadata
from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard
from barnabas.coordinator.transactions.states import TransactionState
from barnabas.wire.messages import describe_transactions, list_transactions

#: Of memory for one transaction that is described, and for each of its partitions.
_TRANSACTION_BYTES: Final = 512
_PARTITION_BYTES: Final = 128
_STATES: Final = {state.value: state for state in TransactionState}


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Which transactions are wanted. An empty collection passes all."""

    #: As clients name them; an unknown one passes none.
    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    #: How long it must have been open; less than 0 passes all.
    duration_ms: int = -1
    #: What its whole id must match.
    matches: Callable[[str], bool] | None = None

    def passes(self, transactional_id: str, metadata: TransactionMetadata, now_ms: int) -> bool:
        return (
            metadata.state is not TransactionState.DEAD
            and (not self.producer_ids or metadata.producer_id in self.producer_ids)
            and (not self.states or metadata.state.value in self.states)
            and (self.duration_ms < 0 or now_ms - metadata.start_ms > self.duration_ms)
            and (self.matches is None or self.matches(transactional_id))
        )


def unknown_states(names: Collection[str]) -> list[str]:
    return [name for name in names if name not in _STATES]


def list_ids(
    shard: TransactionCoordinatorShard, wanted: ListFilter, now_ms: int
) -> Iterator[list_transactions.TransactionState | None]:
    """One after the other, None for each that is passed over."""
    for transactional_id in list(shard.stored.committed):
        metadata = shard.stored.committed.get(transactional_id)
        if metadata is None or not wanted.passes(transactional_id, metadata, now_ms):
            yield None
        else:
            yield list_transactions.TransactionState(
                transactional_id=transactional_id,
                producer_id=metadata.producer_id,
                transaction_state=metadata.state.value,
            )


def described_bytes(shard: TransactionCoordinatorShard | None, transactional_id: str) -> int:
    """About how much memory a description takes while it is sent; also one that says only why there is none."""
    metadata = None if shard is None else shard.stored.committed.get(transactional_id)
    partitions = 0 if metadata is None else len(metadata.partitions)
    return _TRANSACTION_BYTES + len(transactional_id) + partitions * _PARTITION_BYTES


def describe(
    shard: TransactionCoordinatorShard, transactional_id: str
) -> Generator[None, None, describe_transactions.TransactionState]:
    """One transactional id, a partition a step."""
    metadata = shard.stored.committed.get(transactional_id)
    if metadata is None or metadata.state is TransactionState.DEAD:
        return describe_failed(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    topics: dict[str, describe_transactions.TopicData] = {}
    for topic, index in metadata.partitions:
        data = topics.get(topic)
        if data is None:
            data = topics[topic] = describe_transactions.TopicData(topic=topic, partitions=[])
        data.partitions.append(index)
        yield
    for data in topics.values():
        data.partitions.sort()
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.value,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[topics[name] for name in sorted(topics)],
    )


def describe_failed(transactional_id: str, error: ErrorCode) -> describe_transactions.TransactionState:
    return describe_transactions.TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
