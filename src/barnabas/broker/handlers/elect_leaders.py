"""ElectLeaders (43): the preferred leader is wanted back, or any leader at all. The controller decides.

It is asked for some partitions at a time, so that it decides each time without a break; what is named twice is answered
once.
"""

from __future__ import annotations

from copy import copy
from typing import Final, cast

from barnabas.broker.context import RequestContext
from barnabas.broker.controller.forwarding import forwarded
from barnabas.broker.services import CommonServices
from barnabas.broker.turns import Steps, awaited, parts_for_the_controller
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
    TopicPartitions,
)

API_KEY = ApiKey.ELECT_LEADERS
#: Several times as many as one request may elect leaders for.
MAX_ELEMENTS: Final = 100_000

_PARTITIONS_PER_PIECE: Final = 32


def handle(
    services: CommonServices, context: RequestContext, request: ElectLeadersRequest
) -> Steps[ElectLeadersResponse]:
    if request.topic_partitions is None:
        return cast(ElectLeadersResponse, (yield from forwarded(services, context, request)))
    pieces = yield from _pieces(request.topic_partitions)
    merged = ElectLeadersResponse(replica_election_results=[])
    by_topic: dict[str, ReplicaElectionResult] = {}
    parts = yield from parts_for_the_controller(pieces, id, lambda piece: 1 + len(piece.partitions))
    for part in parts:
        asked = copy(request)
        asked.topic_partitions = part
        submitted = services.controller.submit(asked, context.version, context)
        answer = cast(ElectLeadersResponse, (yield from awaited(submitted)))
        merged.error_code = answer.error_code
        for result in answer.replica_election_results:
            known = by_topic.setdefault(result.topic, result)
            if known is result:
                merged.replica_election_results.append(result)
            else:
                known.partition_result += result.partition_result
    return merged


def _pieces(asked: list[TopicPartitions]) -> Steps[list[TopicPartitions]]:
    """The partitions that are asked for, once each, in pieces of one topic."""
    by_topic: dict[str, dict[int, None]] = {}
    for topic in asked:
        numbers = by_topic.setdefault(topic.topic, {})
        yield None
        for number in topic.partitions:
            numbers[number] = None
            yield None
    pieces = []
    for name, numbers in by_topic.items():
        ordered = list(numbers)
        yield None
        for first in range(0, max(1, len(ordered)), _PARTITIONS_PER_PIECE):
            pieces.append(TopicPartitions(topic=name, partitions=ordered[first : first + _PARTITIONS_PER_PIECE]))
            yield None
    return pieces
