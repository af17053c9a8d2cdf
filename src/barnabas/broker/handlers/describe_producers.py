"""DescribeProducers (61): the producers that partitions know, each with its last sequence and its open transaction."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.context import RequestContext
from barnabas.broker.services import Services
from barnabas.broker.turns import Room, Steps
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.metadata.topic_names import what_is_wrong_with_name
from barnabas.storage.errors import LogError
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.wire.stored.producer_snapshot import ProducerEntry

API_KEY = ApiKey.DESCRIBE_PRODUCERS
#: It asks for room itself.
ANSWER_BYTES_PER_ELEMENT: Final = 0

#: Of memory for a producer, or an error, in the answer.
_PRODUCER_BYTES: Final = 256


class _Refusal(NamedTuple):
    code: ErrorCode
    message: str


def handle(
    services: Services, context: RequestContext, request: DescribeProducersRequest
) -> Steps[DescribeProducersResponse]:
    # What is named twice is answered once: a partition may have many producers.
    wanted: dict[str, dict[int, None]] = {}
    room_bytes = 0
    # What was taken over is let go of bit by bit: to free very much of it at once takes as long as to make it.
    topics, request.topics = request.topics, []
    topics.reverse()
    while topics:
        topic = topics.pop()
        yield None
        numbers = wanted.setdefault(topic.name, {})
        for number in topic.partition_indexes:
            yield None
            if number not in numbers:
                numbers[number] = None
                partition = services.replica_manager.index.get((topic.name, number))
                log = partition.log if partition is not None else None
                room_bytes += _PRODUCER_BYTES * (1 + (len(log.producers) if log is not None else 0))
    yield Room(room_bytes)
    response = DescribeProducersResponse(topics=[])
    for name, numbers in wanted.items():
        yield None
        refusal = _refusal(services, context, name)
        told = TopicResponse(name=name, partitions=[])
        response.topics.append(told)
        for number in numbers:
            yield None
            told.partitions.append((yield from _partition(services, name, number, refusal)))
    return response


def _refusal(services: Services, context: RequestContext, topic: str) -> _Refusal | None:
    """Why nothing is told of a topic."""
    problem = what_is_wrong_with_name(topic)
    if problem is not None:
        return _Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if not services.authorizer.is_allowed(context, AclOperation.READ, Resource.TOPIC, topic):
        return _Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.text)
    if topic not in services.metadata.image.topics:
        return _Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
    return None


def _partition(services: Services, topic: str, number: int, refusal: _Refusal | None) -> Steps[PartitionResponse]:
    if refusal is not None:
        return _error(number, refusal.code, refusal.message)
    key = (topic, number)
    partition = services.replica_manager.index.get(key)
    if partition is None:
        return _error(number, services.replica_manager.why_missing(services.metadata.image, key))
    try:
        producers = partition.led_log().producers
    except LogError as failure:
        return _error(number, failure.code, str(failure))
    # Others go on meanwhile: each producer is told as it is when its turn comes, and left out if it is gone by then.
    told: list[ProducerState] = []
    for producer_id in producers.ids():
        entry = producers.entry(producer_id)
        if entry is not None:
            told.append(_state(entry))
        yield None
    return PartitionResponse(partition_index=number, active_producers=told)


def _error(number: int, code: ErrorCode, message: str | None = None) -> PartitionResponse:
    return PartitionResponse(partition_index=number, error_code=code, error_message=message, active_producers=[])


def _state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )
