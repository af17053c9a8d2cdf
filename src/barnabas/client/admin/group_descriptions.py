"""Groups of all four kinds, as their coordinators describe them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.acls import AclOperation, authorized_operations
from barnabas.client.admin.driver import (
    MAY_PASS,
    AdminApiDriver,
    AdminApiHandler,
    Call,
    RequestSpec,
    broker_error,
    settled,
)
from barnabas.client.admin.routes import group_coordinators
from barnabas.client.core.cluster_view import Node
from barnabas.net.errors import UnsupportedRequestError
from barnabas.wire.embedded.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from barnabas.wire.message import Message, Request
from barnabas.wire.messages.consumer_group_describe import Assignment as ConsumerAssignment
from barnabas.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from barnabas.wire.messages.consumer_group_describe import Member as ConsumerMember
from barnabas.wire.messages.describe_groups import DescribedGroup as ClassicGroup
from barnabas.wire.messages.describe_groups import DescribedGroupMember as ClassicMember
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.share_group_describe import Assignment as ShareAssignment
from barnabas.wire.messages.share_group_describe import DescribedGroup as ShareGroup
from barnabas.wire.messages.share_group_describe import Member as ShareMember
from barnabas.wire.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.wire.messages.streams_group_describe import Assignment as StreamsAssignment
from barnabas.wire.messages.streams_group_describe import DescribedGroup as StreamsGroup
from barnabas.wire.messages.streams_group_describe import Member as StreamsMember
from barnabas.wire.messages.streams_group_describe import StreamsGroupDescribeRequest, TaskIds

M = TypeVar("M", bound=Message)

_CONSUMER_PROTOCOL: Final = "consumer"


class GroupState(StrEnum):
    """What a group is doing, by Kafka's names. One that a newer broker added is UNKNOWN."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    EMPTY = "Empty"
    DEAD = "Dead"
    NOT_READY = "NotReady"

    @classmethod
    def _missing_(cls, value: object) -> GroupState:
        folded = str(value).lower()
        return next((each for each in cls if each.value.lower() == folded), cls.UNKNOWN)


class GroupType(StrEnum):
    """Which protocol a group follows. Brokers before 3.8 do not tell: UNKNOWN in listings."""

    UNKNOWN = "Unknown"
    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"

    @classmethod
    def _missing_(cls, value: object) -> GroupType:
        folded = str(value).lower()
        return next((each for each in cls if each.value.lower() == folded), cls.UNKNOWN)


class StreamsTasks(NamedTuple):
    """Tasks by subtopology and partition."""

    active: tuple[tuple[str, int], ...]
    standby: tuple[tuple[str, int], ...]
    warmup: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """A member of a group. `assignment` is what it has, `target_assignment` what it shall have (new protocol only)."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str
    host: str
    rack: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    target_assignment: tuple[TopicPartition, ...] | None = None
    subscribed_topics: tuple[str, ...] = ()
    subscribed_pattern: str | None = None
    member_epoch: int | None = None
    #: Of a streams group, which shares tasks in place of partitions.
    tasks: StreamsTasks | None = None
    target_tasks: StreamsTasks | None = None
    #: Whether a member of a group of the new protocol still speaks the old one; None if that is not told.
    is_classic: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group with its members. `protocol` is the assignor in use, `protocol_type` is "consumer" for consumers."""

    group_id: str
    state: GroupState
    type: GroupType
    protocol_type: str
    protocol: str
    coordinator: Node
    members: tuple[MemberDescription, ...] = ()
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: frozenset[AclOperation] | None = None

    @property
    def is_simple(self) -> bool:
        """Whether nobody joins this group: it only keeps offsets."""
        return not self.protocol_type and self.type in (GroupType.CLASSIC, GroupType.UNKNOWN)


async def describe(
    driver: AdminApiDriver, call: Call, group_ids: list[str], with_operations: bool
) -> dict[str, GroupDescription]:
    """Each group, or its error. Who asks does not know the kinds: the most common one is asked for first."""
    asked = list(dict.fromkeys(group_ids))
    results: dict[str, GroupDescription] = {}
    errors: dict[str, Exception] = {}
    waiting = asked
    for kind in _KINDS:
        if not waiting:
            break
        found, failed = await driver.outcomes(call, waiting, _question(kind, with_operations))
        results.update(found)
        for group_id, error in failed.items():
            if _is_of_another_kind(error):
                # The first coordinator that could tell says it best.
                errors.setdefault(group_id, _not_found(group_id))
            else:
                errors[group_id] = error
        for group_id in found:
            errors.pop(group_id, None)
        waiting = [group_id for group_id, error in failed.items() if _is_of_another_kind(error)]
    return settled(asked, results, errors)


@dataclass(frozen=True, slots=True)
class _Kind:
    request: type[Request]
    read: Callable[[Any, Node], GroupDescription]
    ids_field: str = "group_ids"


def _question(kind: _Kind, with_operations: bool) -> AdminApiHandler[str, GroupDescription]:
    def build(spec: RequestSpec[str]) -> Request:
        # Brokers before 2.3 cannot tell operations; that is no reason to tell nothing.
        wants = with_operations and (kind.request is not DescribeGroupsRequest or spec.version >= 3)
        return kind.request(**{kind.ids_field: spec.keys, "include_authorized_operations": wants})

    def read(spec: RequestSpec[str], response: Any) -> Iterable[tuple[str, GroupDescription | Exception]]:
        for group in response.groups:
            message = getattr(group, "error_message", None)
            if group.error_code:
                yield group.group_id, broker_error(group.error_code, message)
            elif GroupState(group.group_state) is GroupState.DEAD and not group.members:
                # This is how brokers before 4.0 say that there is no such group.
                yield group.group_id, _not_found(group.group_id)
            else:
                yield group.group_id, kind.read(group, spec.node)

    return AdminApiHandler(group_coordinators(), kind.request, build, read, MAY_PASS)


def _classic(group: ClassicGroup, coordinator: Node) -> GroupDescription:
    is_consumer = group.protocol_type == _CONSUMER_PROTOCOL
    return GroupDescription(
        group_id=group.group_id,
        state=GroupState(group.group_state),
        type=GroupType.CLASSIC,
        protocol_type=group.protocol_type,
        protocol=group.protocol_data,
        coordinator=coordinator,
        members=tuple(_classic_member(each, is_consumer) for each in group.members),
        authorized_operations=authorized_operations(group.authorized_operations),
    )


def _classic_member(member: ClassicMember, is_consumer: bool) -> MemberDescription:
    assigned = _embedded(ConsumerProtocolAssignment, member.member_assignment) if is_consumer else None
    subscribed = _embedded(ConsumerProtocolSubscription, member.member_metadata) if is_consumer else None
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        rack=subscribed.rack_id if subscribed is not None else None,
        assignment=_sorted(
            TopicPartition(each.topic, number)
            for each in (assigned.assigned_partitions if assigned is not None else ())
            for number in each.partitions
        ),
        subscribed_topics=tuple(sorted(subscribed.topics)) if subscribed is not None else (),
    )


def _embedded(form: type[M], data: bytes) -> M | None:
    """What clients say to each other; the broker does not check it, so it may be anything."""
    if len(data) < 2:
        return None
    version = int.from_bytes(data[:2], "big", signed=True)
    try:
        return form.decode_prefix(data, min(max(version, 0), form.VERSIONS.high), 2)[0]
    except RemoteProtocolError:
        return None


def _consumer(group: ConsumerGroup, coordinator: Node) -> GroupDescription:
    return _described(
        group,
        coordinator,
        type=GroupType.CONSUMER,
        protocol_type=_CONSUMER_PROTOCOL,
        protocol=group.assignor_name,
        members=tuple(_consumer_member(each) for each in group.members),
    )


def _consumer_member(member: ConsumerMember) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        rack=member.rack_id,
        assignment=_partitions(member.assignment),
        target_assignment=_partitions(member.target_assignment),
        subscribed_topics=tuple(sorted(member.subscribed_topic_names)),
        subscribed_pattern=member.subscribed_topic_regex or None,
        member_epoch=member.member_epoch,
        is_classic=None if member.member_type < 0 else member.member_type == 0,
    )


def _share(group: ShareGroup, coordinator: Node) -> GroupDescription:
    return _described(
        group,
        coordinator,
        type=GroupType.SHARE,
        protocol_type="share",
        protocol=group.assignor_name,
        members=tuple(_share_member(each) for each in group.members),
    )


def _share_member(member: ShareMember) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.client_host,
        rack=member.rack_id,
        assignment=_partitions(member.assignment),
        subscribed_topics=tuple(sorted(member.subscribed_topic_names)),
        member_epoch=member.member_epoch,
    )


def _streams(group: StreamsGroup, coordinator: Node) -> GroupDescription:
    return _described(
        group,
        coordinator,
        type=GroupType.STREAMS,
        protocol_type="streams",
        protocol="streams",
        members=tuple(_streams_member(each) for each in group.members),
    )


def _streams_member(member: StreamsMember) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        rack=member.rack_id,
        member_epoch=member.member_epoch,
        is_classic=member.is_classic,
        tasks=_tasks(member.assignment),
        target_tasks=_tasks(member.target_assignment),
    )


def _tasks(assignment: StreamsAssignment) -> StreamsTasks:
    def flat(ids: list[TaskIds]) -> tuple[tuple[str, int], ...]:
        return tuple((each.subtopology_id, number) for each in ids for number in each.partitions)

    return StreamsTasks(flat(assignment.active_tasks), flat(assignment.standby_tasks), flat(assignment.warmup_tasks))


def _described(group: ConsumerGroup | ShareGroup | StreamsGroup, coordinator: Node, **rest: Any) -> GroupDescription:
    """What the groups of the newer protocols have in common."""
    return GroupDescription(
        group_id=group.group_id,
        state=GroupState(group.group_state),
        coordinator=coordinator,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        authorized_operations=authorized_operations(group.authorized_operations),
        **rest,
    )


def _partitions(assignment: ConsumerAssignment | ShareAssignment) -> tuple[TopicPartition, ...]:
    return _sorted(
        TopicPartition(each.topic_name, number) for each in assignment.topic_partitions for number in each.partitions
    )


def _sorted(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partitions))


def _is_of_another_kind(error: Exception) -> bool:
    if isinstance(error, BrokerError):
        return error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return isinstance(error, UnsupportedRequestError)


def _not_found(group_id: str) -> BrokerError:
    return BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")


_KINDS: Final = (
    _Kind(DescribeGroupsRequest, _classic, "groups"),
    _Kind(ConsumerGroupDescribeRequest, _consumer),
    _Kind(ShareGroupDescribeRequest, _share),
    _Kind(StreamsGroupDescribeRequest, _streams),
)
