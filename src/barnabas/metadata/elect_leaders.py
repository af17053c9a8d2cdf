"""Somebody asks for elections: the preferred leader back, or any leader at the price of data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.metadata.controller_result import ControllerResult
from barnabas.metadata.elections import PartitionChanges
from barnabas.metadata.image import NO_LEADER, ClusterImage, PlacedPartition
from barnabas.metadata.options import MAX_RECORDS_PER_REQUEST, ControllerOptions
from barnabas.metadata.partition_changes import Election
from barnabas.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from barnabas.wire.stored.cluster_metadata import MetadataRecord

#: What may be asked for, by the protocol's numbers.
_KINDS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}


def elect_leaders(
    image: ClusterImage, options: ControllerOptions, request: ElectLeadersRequest
) -> ControllerResult[ElectLeadersResponse]:
    """Each partition by itself. Asked for all, those that need no election are left out of the answer."""
    kind = _KINDS.get(request.election_type)
    if kind is None:
        return ControllerResult(_unknown_kind(request))
    changes = PartitionChanges(image, options)
    records: list[MetadataRecord] = []
    results = []
    for name, numbers in _asked(image, request):
        result = ReplicaElectionResult(topic=name, partition_result=[])
        results.append(result)
        for number in numbers:
            try:
                _elect(image, changes, kind, name, number, records)
            except BrokerError as refusal:
                if request.topic_partitions is None and refusal.code is ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                result.partition_result.append(_refused(number, refusal))
            else:
                result.partition_result.append(PartitionResult(partition_id=number, error_message=None))
    return ControllerResult(ElectLeadersResponse(replica_election_results=results), records)


def _asked(image: ClusterImage, request: ElectLeadersRequest) -> Iterator[tuple[str, Iterable[int]]]:
    if request.topic_partitions is None:
        return ((name, range(len(topic.partitions))) for name, topic in image.topics.items())
    return ((each.topic, each.partitions) for each in request.topic_partitions)


def _unknown_kind(request: ElectLeadersRequest) -> ElectLeadersResponse:
    # The first version knows no types.
    return elections_refused(request, 1, ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")


def elections_refused(
    request: ElectLeadersRequest, version: int, code: ErrorCode, message: str = ""
) -> ElectLeadersResponse:
    """The answer says it at every place, as Kafka's does."""
    refusal = BrokerError(code, message or code.text)
    results = [
        ReplicaElectionResult(
            topic=each.topic, partition_result=[_refused(number, refusal) for number in each.partitions]
        )
        for each in request.topic_partitions or ()
    ]
    # The first version has room for it nowhere else.
    return ElectLeadersResponse(error_code=refusal.code if version else 0, replica_election_results=results)


def _refused(number: int, refusal: BrokerError) -> PartitionResult:
    return PartitionResult(
        partition_id=number, error_code=refusal.code, error_message=refusal.message or refusal.code.text
    )


def _elect(
    image: ClusterImage,
    changes: PartitionChanges,
    kind: Election,
    name: str,
    number: int,
    records: list[MetadataRecord],
) -> None:
    topic = image.topics.get(name)
    if topic is None or not 0 <= number < len(topic.partitions):
        what = f"topic as {name}" if topic is None else f"partition as {name}-{number}"
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {what}")
    state = topic.partitions[number]
    has_wanted = state.leader == state.replicas[0] if kind is Election.PREFERRED else state.leader != NO_LEADER
    if has_wanted:
        raise BrokerError(ErrorCode.ELECTION_NOT_NEEDED)
    change = changes.elected(PlacedPartition(topic, number, state), kind)
    if change is None:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if kind is Election.PREFERRED:
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        raise BrokerError(code)
    if len(records) >= MAX_RECORDS_PER_REQUEST:
        raise BrokerError(
            ErrorCode.POLICY_VIOLATION,
            f"one request may elect at most {MAX_RECORDS_PER_REQUEST} leaders: ask in smaller steps",
        )
    records.append(change)
