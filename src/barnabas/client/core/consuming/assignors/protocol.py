"""Subscriptions and assignments as they travel: opaque to the broker, read by the assignor of the leader.

Each begins with its version. What is newer than we know only adds fields at the end, so we read what we know of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, TypeVar

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors.interface import Assignment, MemberSubscription
from barnabas.wire.embedded.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from barnabas.wire.embedded.consumer_protocol import TopicPartition as TopicPartitions
from barnabas.wire.message import Message

_VERSION: Final = struct.Struct(">h")

M = TypeVar("M", bound=Message)


def encode_subscription(subscription: MemberSubscription, version: int | None = None) -> bytes:
    # In order, so that the same subscription is the same bytes: a difference makes the broker rebalance.
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=_by_topic(sorted(subscription.owned)),
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return _encode(message, version)


def decode_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """Read what another member sent. Raises `RemoteProtocolError`."""
    message = _decode(ConsumerProtocolSubscription, data)
    user_data = message.user_data
    return MemberSubscription(
        topics=tuple(dict.fromkeys(message.topics)),
        user_data=None if user_data is None else bytes(user_data),
        owned=_flat(message.owned_partitions),
        generation=message.generation_id,
        rack=message.rack_id or None,
        instance_id=instance_id,
    )


def encode_assignment(assignment: Assignment, version: int | None = None) -> bytes:
    message = ConsumerProtocolAssignment(
        assigned_partitions=_by_topic(assignment.partitions), user_data=assignment.user_data
    )
    return _encode(message, version)


def decode_assignment(data: bytes) -> Assignment:
    """Read what the leader sent. Nothing at all is what a member gets that the leader did not know of."""
    if not data:
        return Assignment()
    message = _decode(ConsumerProtocolAssignment, data)
    user_data = message.user_data
    return Assignment(_flat(message.assigned_partitions), None if user_data is None else bytes(user_data))


def _encode(message: Message, version: int | None) -> bytes:
    version = message.VERSIONS.high if version is None else version
    return _VERSION.pack(version) + message.encode(version)


def _decode(kind: type[M], data: bytes) -> M:
    if len(data) < _VERSION.size:
        raise RemoteProtocolError(f"{kind.__name__}: {len(data)} bytes cannot hold its version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise RemoteProtocolError(f"{kind.__name__}: there is no version {version}")
    message, _ = kind.decode_prefix(data, min(version, kind.VERSIONS.high), _VERSION.size)
    return message


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in found.items()]


def _flat(topics: Iterable[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(each.topic, number) for each in topics for number in each.partitions)
