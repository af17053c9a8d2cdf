"""Committing and looking up offsets: the requests in every version, and what their answers mean.

Topics go by their ids where the client knows them and the broker takes them (v10), else by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.core.consuming.membership_steps import GroupMetadata
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.errors import CommitFailedError
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

#: From this version on of both requests, topics go by id.
IDS_SINCE: Final = 10
GROUPS_SINCE: Final = 8
STABLE_SINCE: Final = 7

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_Answers = list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]

_COORDINATOR_LOST: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT}
)
#: What is wrong with the member as such, not with the offsets.
_MEMBER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
_UNKNOWN_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class TopicIds(Protocol):
    """The part of a `ClusterView` that is needed here."""

    def topic_id(self, topic: str) -> Uuid: ...
    def topic_name(self, topic_id: Uuid) -> str | None: ...


@dataclass(frozen=True, slots=True)
class CommitVerdict:
    """What an answer means. At most one of the fields says something; none if all is well."""

    #: Trying again may help.
    retry: ErrorCode | None = None
    #: The member is not what it takes itself for.
    member: ErrorCode | None = None
    error: Exception | None = None
    #: With `retry`: from another coordinator.
    coordinator_lost: bool = False
    #: With `retry`: after new metadata.
    topics_unknown: bool = False


FINE: Final = CommitVerdict()


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """What an OffsetFetch was answered with; None for a partition without an offset."""

    verdict: CommitVerdict = FINE
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)


def newest_version(topics: Iterable[str], ids: TopicIds, offered: int) -> int:
    """The newest version of either request that can be sent to a broker that offers `offered`."""
    if offered >= IDS_SINCE and any(ids.topic_id(topic) == Uuid.ZERO for topic in topics):
        return IDS_SINCE - 1
    return offered


def commit_request(member: GroupMetadata, offsets: Offsets, ids: TopicIds) -> OffsetCommitRequest:
    """For any version: encoding leaves out what a version does not have."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, number), offset in offsets.items():
        epoch = -1 if offset.leader_epoch is None else offset.leader_epoch
        by_topic.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset.offset,
                committed_leader_epoch=epoch,
                committed_metadata=offset.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=[
            OffsetCommitRequestTopic(name=topic, topic_id=ids.topic_id(topic), partitions=partitions)
            for topic, partitions in by_topic.items()
        ],
    )


def commit_verdict(response: OffsetCommitResponse, ids: TopicIds, group_id: str) -> CommitVerdict:
    """What the answer to a commit means as a whole: the gravest of what it says of its partitions."""
    failed: dict[ErrorCode, list[str]] = {}
    for topic in response.topics:
        name = topic.name or ids.topic_name(topic.topic_id) or str(topic.topic_id)
        for each in topic.partitions:
            if each.error_code:
                failed.setdefault(ErrorCode.of(each.error_code), []).append(f"{name}-{each.partition_index}")
    if not failed:
        return FINE
    for code, partitions in failed.items():
        if code in _MEMBER:
            return CommitVerdict(member=code)
        if not code.retriable:
            return CommitVerdict(error=_refused(code, partitions, group_id))
    code = next(iter(failed))
    return CommitVerdict(
        retry=code,
        coordinator_lost=any(each in _COORDINATOR_LOST for each in failed),
        topics_unknown=any(each in _UNKNOWN_TOPIC for each in failed),
    )


def _refused(code: ErrorCode, partitions: Sequence[str], group_id: str) -> BrokerError:
    which = ", ".join(partitions)
    match code:
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return BrokerError(code, f"not allowed to commit offsets of group {group_id}: READ on the group is needed")
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return BrokerError(code, f"not allowed to commit offsets of {which}: READ on the topic is needed")
        case ErrorCode.OFFSET_METADATA_TOO_LARGE:
            return BrokerError(
                code, f"the metadata committed with {which} is longer than offset.metadata.max.bytes of the broker"
            )
        case _:
            return BrokerError(code, f"offsets of {which} were not committed: {code.text}")


def fetch_request(
    group_id: str, partitions: Iterable[TopicPartition], ids: TopicIds, version: int, *, require_stable: bool
) -> OffsetFetchRequest:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    require_stable = require_stable and version >= STABLE_SINCE
    if version < GROUPS_SINCE:
        topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=some) for topic, some in by_topic.items()]
        return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopics(name=topic, topic_id=ids.topic_id(topic), partition_indexes=numbers)
            for topic, numbers in by_topic.items()
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=require_stable)


def fetch_found(response: OffsetFetchResponse, version: int, ids: TopicIds, group_id: str) -> FetchedOffsets:
    """The offsets of an answer, or what went wrong."""
    if version < GROUPS_SINCE:
        group_code = response.error_code
        answers: list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]] = [
            (topic.name, each) for topic in response.topics for each in topic.partitions
        ]
    else:
        group = response.groups[0]
        group_code = group.error_code
        answers = [
            (topic.name or ids.topic_name(topic.topic_id) or str(topic.topic_id), each)
            for topic in group.topics
            for each in topic.partitions
        ]
    if group_code:
        return FetchedOffsets(_fetch_verdict(ErrorCode.of(group_code), "", group_id))
    found: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic, each in answers:
        if each.error_code:
            return FetchedOffsets(
                _fetch_verdict(ErrorCode.of(each.error_code), f"{topic}-{each.partition_index}", group_id)
            )
        epoch = None if each.committed_leader_epoch < 0 else each.committed_leader_epoch
        found[TopicPartition(topic, each.partition_index)] = (
            OffsetAndMetadata(each.committed_offset, each.metadata or "", epoch) if each.committed_offset >= 0 else None
        )
    return FetchedOffsets(FINE, found)


def _fetch_verdict(code: ErrorCode, partition: str, group_id: str) -> CommitVerdict:
    if code.retriable:
        return CommitVerdict(
            retry=code, coordinator_lost=code in _COORDINATOR_LOST, topics_unknown=code in _UNKNOWN_TOPIC
        )
    if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        text = f"not allowed to read offsets of group {group_id}: DESCRIBE on the group is needed"
    elif code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        text = f"not allowed to read offsets of {partition}: DESCRIBE on the topic is needed"
    else:
        text = f"the committed offset of {partition or group_id} could not be had: {code.text}"
    return CommitVerdict(error=BrokerError(code, text))


# What the program is told when the group has moved on


def still_rebalancing(group_id: str) -> CommitFailedError:
    return CommitFailedError(
        f"offsets were not committed: group {group_id} is rebalancing; poll, so that it can go on, and then commit "
        "what is still assigned"
    )


def not_of_this_group(group_id: str) -> CommitFailedError:
    return CommitFailedError(
        f"offsets were not committed: group {group_id} has members that share its partitions among themselves; a "
        "consumer that assigns partitions by hand needs a group.id of its own"
    )


def no_member_any_more(group_id: str, max_poll_interval_ms: int, *, is_polled_late: bool) -> CommitFailedError:
    if is_polled_late:
        why = (
            f"More than max.poll.interval.ms = {max_poll_interval_ms} passed between two polls: poll more often, take "
            "fewer records at a time (max.poll.records), or raise max.poll.interval.ms"
        )
    else:
        why = (
            "That comes of too long a time between polls (max.poll.interval.ms) or of heartbeats that did not arrive "
            "(session.timeout.ms); it joins again at the next poll"
        )
    return CommitFailedError(
        f"offsets were not committed: this consumer is not in group {group_id} at present, and others may have its "
        f"partitions. {why}"
    )
