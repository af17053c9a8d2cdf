"""How far groups have read: asking, changing and forgetting it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.driver import (
    MAY_PASS,
    NOT_DONE,
    AdminApiDriver,
    Call,
    RequestSpec,
    broker_error,
    raise_if_error,
    settled,
)
from barnabas.client.admin.offsets import by_topic
from barnabas.client.admin.routes import group_coordinator, group_coordinators
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

T = TypeVar("T")

Offsets = dict[TopicPartition, OffsetAndMetadata]
_Topics: TypeAlias = Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]

#: The last versions in which topics go by name.
_LAST_BY_NAME: Final = 9
_SEVERAL_GROUPS: Final = 8
#: Who may not touch the offsets of a group with members is told by a code that is meant for members.
_HAS_MEMBERS: Final = "the group has members that commit for themselves; stop them first"


async def fetch_offsets(
    driver: AdminApiDriver, call: Call, wanted: Mapping[str, Iterable[TopicPartition] | None], require_stable: bool
) -> dict[str, Offsets]:
    return await _fetch(driver, call, wanted, require_stable, _offsets)


async def fetch_pending(
    driver: AdminApiDriver, call: Call, group_id: str, partitions: Iterable[TopicPartition]
) -> set[TopicPartition]:
    return (await _fetch(driver, call, {group_id: partitions}, True, _pending))[group_id]


async def _fetch(
    driver: AdminApiDriver,
    call: Call,
    wanted: Mapping[str, Iterable[TopicPartition] | None],
    require_stable: bool,
    found: Callable[[_Topics], T],
) -> dict[str, T]:
    partitions = {group: None if each is None else _normal(each) for group, each in wanted.items()}

    def build(spec: RequestSpec[str]) -> OffsetFetchRequest:
        if spec.version >= _SEVERAL_GROUPS:
            groups = [
                OffsetFetchRequestGroup(group_id=group_id, topics=_topics(partitions[group_id]))
                for group_id in spec.keys
            ]
            return OffsetFetchRequest(groups=groups, require_stable=require_stable)
        (group_id,) = spec.keys
        return OffsetFetchRequest(
            group_id=group_id, topics=_old_topics(partitions[group_id]), require_stable=require_stable
        )

    def read(spec: RequestSpec[str], response: OffsetFetchResponse) -> Iterable[tuple[str, T | Exception]]:
        if spec.version < _SEVERAL_GROUPS:
            raise_if_error(response.error_code)
            yield spec.keys[0], found(response.topics)
        for group in response.groups:
            if group.error_code:
                yield group.group_id, broker_error(group.error_code)
            else:
                yield group.group_id, found(group.topics)

    return await driver.ask_each(
        call,
        partitions,
        group_coordinators(),
        OffsetFetchRequest,
        build,
        read,
        max_version=_LAST_BY_NAME,
        one_by_one_below=_SEVERAL_GROUPS,
    )


async def store_offsets(
    driver: AdminApiDriver, call: Call, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
) -> None:
    wanted = {TopicPartition(*partition): _full(each) for partition, each in offsets.items()}

    def build(spec: RequestSpec[TopicPartition]) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=group_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=each.partition,
                            committed_offset=wanted[each].offset,
                            committed_leader_epoch=_number(wanted[each].leader_epoch),
                            committed_metadata=wanted[each].metadata,
                        )
                        for each in partitions
                    ],
                )
                for topic, partitions in by_topic(spec.keys).items()
            ],
        )

    def read(
        spec: RequestSpec[TopicPartition], response: OffsetCommitResponse
    ) -> Iterable[tuple[TopicPartition, Exception | None]]:
        for topic in response.topics:
            for each in topic.partitions:
                yield TopicPartition(topic.name, each.partition_index), _commit_error(each.error_code)

    await driver.ask_each(
        call,
        wanted,
        group_coordinator(group_id),
        OffsetCommitRequest,
        build,
        read,
        may_pass=NOT_DONE | {ErrorCode.REBALANCE_IN_PROGRESS},
        max_version=_LAST_BY_NAME,
    )


async def delete_offsets(
    driver: AdminApiDriver, call: Call, group_id: str, partitions: Iterable[TopicPartition]
) -> None:
    def build(spec: RequestSpec[TopicPartition]) -> OffsetDeleteRequest:
        return OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequestPartition(partition_index=each.partition) for each in those],
                )
                for topic, those in by_topic(spec.keys).items()
            ],
        )

    def read(
        spec: RequestSpec[TopicPartition], response: OffsetDeleteResponse
    ) -> Iterable[tuple[TopicPartition, Exception | None]]:
        raise_if_error(response.error_code)
        for topic in response.topics:
            for each in topic.partitions:
                error = broker_error(each.error_code) if each.error_code else None
                yield TopicPartition(topic.name, each.partition_index), error

    await driver.ask_each(
        call,
        _normal(partitions),
        group_coordinator(group_id),
        OffsetDeleteRequest,
        build,
        read,
        may_pass=NOT_DONE,
    )


def _normal(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    return [TopicPartition(*each) for each in partitions]


def _full(each: OffsetAndMetadata | int) -> OffsetAndMetadata:
    return OffsetAndMetadata(each) if isinstance(each, int) else each


def _number(epoch: int | None) -> int:
    return -1 if epoch is None else epoch


def _commit_error(code: int) -> Exception | None:
    if not code:
        return None
    return broker_error(code, _HAS_MEMBERS if code == ErrorCode.UNKNOWN_MEMBER_ID else None)


def _topics(partitions: list[TopicPartition] | None) -> list[OffsetFetchRequestTopics] | None:
    if partitions is None:
        return None
    return [
        OffsetFetchRequestTopics(name=topic, partition_indexes=[each.partition for each in those])
        for topic, those in by_topic(partitions).items()
    ]


def _old_topics(partitions: list[TopicPartition] | None) -> list[OffsetFetchRequestTopic] | None:
    if partitions is None:
        return None
    return [
        OffsetFetchRequestTopic(name=topic, partition_indexes=[each.partition for each in those])
        for topic, those in by_topic(partitions).items()
    ]


def _offsets(topics: _Topics) -> Offsets:
    """What is committed, without the partitions that nothing is committed for."""
    results: Offsets = {}
    errors: dict[TopicPartition, Exception] = {}
    for topic in topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                errors[partition] = broker_error(each.error_code)
                if ErrorCode.of(each.error_code) in MAY_PASS:
                    raise errors[partition]
            elif each.committed_offset >= 0:
                epoch = each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None
                results[partition] = OffsetAndMetadata(each.committed_offset, each.metadata or "", epoch)
    return settled([*errors, *results], results, errors) if errors else dict(sorted(results.items()))


def _pending(topics: _Topics) -> set[TopicPartition]:
    """Those of which a transaction that has not ended holds offsets."""
    found = set()
    for topic in topics:
        for each in topic.partitions:
            if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                found.add(TopicPartition(topic.name, each.partition_index))
            else:
                raise_if_error(each.error_code)
    return found
