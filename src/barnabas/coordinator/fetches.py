"""OffsetFetch: how far a group has read.

Answers have the shape of version 8 and later, topics by name; the handler puts them into that of older versions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.effects import Awaited, Token
from barnabas.coordinator.offsets import NO_OFFSET, CommittedOffset
from barnabas.coordinator.state import ShardState
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

#: Of memory for an offset in an answer, beside what is said with it.
OFFSET_BYTES: Final = 256


def fetch(
    shard: ShardState, group_id: str, topics: list[OffsetFetchRequestTopics] | None
) -> Generator[None, None, OffsetFetchResponseGroup]:
    """What is committed, for the topics or for all, a partition a step.

    A group that does not exist has simply committed nothing.
    """
    return (yield from _answer(shard, group_id, topics, shard.offsets.committed(group_id), require_stable=False))


def fetch_stable(
    shard: ShardState, group_id: str, topics: list[OffsetFetchRequestTopics] | None, token: Token
) -> Generator[None, None, None]:
    """The latest offsets, once they are committed. Where a transaction is open, the client must ask again."""
    response = yield from _answer(shard, group_id, topics, shard.offsets.latest(group_id), require_stable=True)
    shard.reply_after_writes(Awaited(token, response, lambda error: fetch_failed(group_id, _fetch_error(error))))


def fetched_bytes(shard: ShardState, group_id: str) -> Generator[None, None, int]:
    """About how much memory all offsets of a group take in an answer."""
    size_bytes = 0
    for offsets in (shard.offsets.committed(group_id), shard.offsets.latest(group_id)):
        of_group = 0
        for value in list(offsets.values()):
            of_group += OFFSET_BYTES + len(value.metadata)
            yield
        size_bytes = max(size_bytes, of_group)
    return size_bytes


def fetch_failed(group_id: str, error: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error)


def _fetch_error(error: ErrorCode) -> ErrorCode:
    # Old consumers would take COORDINATOR_NOT_AVAILABLE for the end; this one lets them look for the coordinator.
    return ErrorCode.NOT_COORDINATOR if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else error


def _answer(
    shard: ShardState,
    group_id: str,
    topics: list[OffsetFetchRequestTopics] | None,
    offsets: dict[TopicPartition, CommittedOffset],
    *,
    require_stable: bool,
) -> Generator[None, None, OffsetFetchResponseGroup]:
    asked = _all_of(offsets) if topics is None else ((each.name, each.partition_indexes) for each in topics)
    check_transactions = require_stable and shard.offsets.has_transaction(group_id)
    answers = []
    for name, indexes in asked:
        partitions = []
        told: set[int] = set()
        for index in indexes:
            yield
            if index in told:
                continue
            told.add(index)
            partition = TopicPartition(name, index)
            if check_transactions and shard.offsets.has_transaction(group_id, partition):
                partitions.append(_nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            value = offsets.get(partition)
            partitions.append(_nothing(index, ErrorCode.NONE) if value is None else _something(index, value))
        answers.append(OffsetFetchResponseTopics(name=name, partitions=partitions))
        yield
    return OffsetFetchResponseGroup(group_id=group_id, topics=answers)


def _all_of(offsets: dict[TopicPartition, CommittedOffset]) -> Iterable[tuple[str, list[int]]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in offsets:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic.items()


def _something(index: int, value: CommittedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _nothing(index: int, error: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error
    )
