"""OffsetFetch: how far a group has read.

Answers have the shape of version 8 and later, topics by name; the handler puts them into that of older versions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.offsets.manager import NO_OFFSET, CommittedOffset, OffsetMetadataManager, Offsets
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

#: Of memory for an offset in an answer, beside what is said with it.
OFFSET_BYTES: Final = 256


def fetch(
    manager: OffsetMetadataManager, group_id: str, topics: list[OffsetFetchRequestTopics] | None
) -> Generator[None, None, OffsetFetchResponseGroup]:
    """What is committed, for the topics or for all, a partition a step.

    A group that does not exist has simply committed nothing.
    """
    return (yield from _answer(manager, group_id, topics, manager.committed(group_id), require_stable=False))


def fetch_stable(
    manager: OffsetMetadataManager, group_id: str, topics: list[OffsetFetchRequestTopics] | None
) -> Generator[None, None, OffsetFetchResponseGroup]:
    """The latest offsets, which hold once they are committed. Where a transaction is open, the client asks again."""
    return (yield from _answer(manager, group_id, topics, manager.latest(group_id), require_stable=True))


def fetched_bytes(manager: OffsetMetadataManager, group_id: str) -> Generator[None, None, int]:
    """About how much memory all offsets of a group take in an answer."""
    size_bytes = 0
    for offsets in (manager.committed(group_id), manager.latest(group_id)):
        of_group = 0
        for value in list(offsets.values()):
            of_group += OFFSET_BYTES + len(value.metadata)
            yield
        size_bytes = max(size_bytes, of_group)
    return size_bytes


def fetch_failed(group_id: str, error: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error)


def stable_fetch_failed(group_id: str, error: ErrorCode) -> OffsetFetchResponseGroup:
    # Old consumers would take COORDINATOR_NOT_AVAILABLE for the end; this one lets them look for the coordinator.
    is_final = error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    return fetch_failed(group_id, ErrorCode.NOT_COORDINATOR if is_final else error)


def _answer(
    manager: OffsetMetadataManager,
    group_id: str,
    topics: list[OffsetFetchRequestTopics] | None,
    offsets: Offsets,
    *,
    require_stable: bool,
) -> Generator[None, None, OffsetFetchResponseGroup]:
    asked = _all_of(offsets) if topics is None else ((each.name, each.partition_indexes) for each in topics)
    # Taken with the offsets: if such a transaction ends while this goes on, the offsets here are those before it.
    pending = manager.pending(group_id) if require_stable else frozenset()
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
            if partition in pending:
                partitions.append(_nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            value = offsets.get(partition)
            partitions.append(_nothing(index, ErrorCode.NONE) if value is None else _something(index, value))
        answers.append(OffsetFetchResponseTopics(name=name, partitions=partitions))
        yield
    return OffsetFetchResponseGroup(group_id=group_id, topics=answers)


def _all_of(offsets: Offsets) -> Iterable[tuple[str, list[int]]]:
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
