"""Between what replicas say (`messages`) and Kafka's messages, which name a topic and a partition with everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, RemoteProtocolError, known
from barnabas.base.ids import Uuid
from barnabas.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochResult,
    FetchLog,
    FetchResult,
    FetchSnapshot,
    FetchSnapshotResult,
    RaftRequest,
    RaftResult,
    UpdateVoter,
    Vote,
    VoteResult,
)
from barnabas.raft.types import Address, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey, SnapshotId
from barnabas.wire.apis import api
from barnabas.wire.message import Request, Response
from barnabas.wire.messages import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, update_raft_voter, vote

E = TypeVar("E")


class LogName(NamedTuple):
    """What the log is called on the wire: the one partition of a topic."""

    topic: str = "__cluster_metadata"
    topic_id: Uuid = Uuid.METADATA_TOPIC


PARTITION: Final = 0
#: From which version on an answer can say where the leader listens.
_ENDPOINTS_SINCE: Final = {52: 1, 53: 1, 54: 1, 1: 17, 59: 1}
#: What answers say of topics, which is nothing if the request was not understood.
_PER_TOPIC: Final = ("responses", "topics")
#: Errors that concern the request as a whole, not the partition.
_TOP_LEVEL: Final = (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REQUEST)


# Requests


def request_to_wire(request: RaftRequest, name: LogName) -> Request:
    if isinstance(request, FetchLog):
        return _fetch_to_wire(request, name)
    if isinstance(request, Vote):
        return _vote_to_wire(request, name)
    if isinstance(request, FetchSnapshot):
        return _fetch_snapshot_to_wire(request, name)
    if isinstance(request, BeginQuorumEpoch):
        return _begin_to_wire(request, name)
    if isinstance(request, UpdateVoter):
        return _update_to_wire(request)
    return _end_to_wire(request, name)


def _vote_to_wire(request: Vote, name: LogName) -> Request:
    voter = request.voter or ReplicaKey(-1)
    partition = vote.PartitionData(
        partition_index=PARTITION,
        replica_epoch=request.epoch,
        replica_id=request.candidate.node_id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=request.last.epoch,
        last_offset=request.last.offset,
        pre_vote=request.pre_vote,
    )
    topic = vote.TopicData(topic_name=name.topic, partitions=[partition])
    return vote.VoteRequest(cluster_id=request.cluster_id, voter_id=voter.node_id, topics=[topic])


def _begin_to_wire(request: BeginQuorumEpoch, name: LogName) -> Request:
    voter = request.voter or ReplicaKey(-1)
    partition = begin_quorum_epoch.PartitionData(
        partition_index=PARTITION,
        voter_directory_id=voter.directory_id,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
    )
    return begin_quorum_epoch.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_id=voter.node_id,
        topics=[begin_quorum_epoch.TopicData(topic_name=name.topic, partitions=[partition])],
        leader_endpoints=[
            begin_quorum_epoch.LeaderEndpoint(name=listener, host=address.host, port=address.port)
            for listener, address in request.listeners.items()
        ],
    )


def _end_to_wire(request: EndQuorumEpoch, name: LogName) -> Request:
    partition = end_quorum_epoch.PartitionData(
        partition_index=PARTITION,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[each.node_id for each in request.successors],
        preferred_candidates=[
            end_quorum_epoch.ReplicaInfo(candidate_id=each.node_id, candidate_directory_id=each.directory_id)
            for each in request.successors
        ],
    )
    topic = end_quorum_epoch.TopicData(topic_name=name.topic, partitions=[partition])
    return end_quorum_epoch.EndQuorumEpochRequest(cluster_id=request.cluster_id, topics=[topic])


def _update_to_wire(request: UpdateVoter) -> Request:
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=request.voter.node_id,
        voter_directory_id=request.voter.directory_id,
        listeners=[
            update_raft_voter.Listener(name=listener, host=address.host, port=address.port)
            for listener, address in request.listeners.items()
        ],
        k_raft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=request.min_kraft_version, max_supported_version=request.max_kraft_version
        ),
    )


def _fetch_to_wire(request: FetchLog, name: LogName) -> Request:
    partition = fetch.FetchPartition(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_fetched_epoch,
        partition_max_bytes=0,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=request.cluster_id,
        replica_state=fetch.ReplicaState(replica_id=request.replica.node_id),
        max_wait_ms=request.max_wait_ms,
        min_bytes=0,
        max_bytes=request.max_bytes,
        topics=[fetch.FetchTopic(topic=name.topic, topic_id=name.topic_id, partitions=[partition])],
    )


def _fetch_snapshot_to_wire(request: FetchSnapshot, name: LogName) -> Request:
    partition = fetch_snapshot.PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=request.epoch,
        snapshot_id=fetch_snapshot.SnapshotId(
            end_offset=request.snapshot_id.end_offset, epoch=request.snapshot_id.epoch
        ),
        position=request.position,
        replica_directory_id=request.replica.directory_id,
    )
    return fetch_snapshot.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica.node_id,
        max_bytes=request.max_bytes,
        topics=[fetch_snapshot.TopicSnapshot(name=name.topic, partitions=[partition])],
    )


def request_from_wire(request: Request, name: LogName) -> RaftRequest:
    """What a peer asks. Raises `BrokerError` for a request that is not about this log."""
    if isinstance(request, fetch.FetchRequest):
        return _fetch_from_wire(request, name)
    if isinstance(request, vote.VoteRequest):
        one = _only(request.topics, name, lambda topic: topic.topic_name)
        return Vote(
            request.cluster_id,
            one.replica_epoch,
            ReplicaKey(one.replica_id, one.replica_directory_id),
            ReplicaKey(request.voter_id, one.voter_directory_id) if request.voter_id >= 0 else None,
            OffsetAndEpoch(one.last_offset, one.last_offset_epoch),
            one.pre_vote,
        )
    if isinstance(request, begin_quorum_epoch.BeginQuorumEpochRequest):
        one = _only(request.topics, name, lambda topic: topic.topic_name)
        return BeginQuorumEpoch(
            request.cluster_id,
            one.leader_epoch,
            one.leader_id,
            ReplicaKey(request.voter_id, one.voter_directory_id) if request.voter_id >= 0 else None,
            {each.name: Address(each.host, each.port) for each in request.leader_endpoints},
        )
    if isinstance(request, end_quorum_epoch.EndQuorumEpochRequest):
        one = _only(request.topics, name, lambda topic: topic.topic_name)
        by_key = tuple(ReplicaKey(each.candidate_id, each.candidate_directory_id) for each in one.preferred_candidates)
        by_id = tuple(ReplicaKey(each) for each in one.preferred_successors)
        return EndQuorumEpoch(request.cluster_id, one.leader_epoch, one.leader_id, by_key or by_id)
    if isinstance(request, fetch_snapshot.FetchSnapshotRequest):
        one = _only(request.topics, name, lambda topic: topic.name, lambda partition: partition.partition)
        return FetchSnapshot(
            request.cluster_id,
            one.current_leader_epoch,
            ReplicaKey(request.replica_id, one.replica_directory_id),
            SnapshotId(one.snapshot_id.end_offset, one.snapshot_id.epoch),
            one.position,
            request.max_bytes,
        )
    if isinstance(request, update_raft_voter.UpdateRaftVoterRequest):
        return UpdateVoter(
            request.cluster_id,
            request.current_leader_epoch,
            ReplicaKey(request.voter_id, request.voter_directory_id),
            {each.name: Address(each.host, each.port) for each in request.listeners},
            request.k_raft_version_feature.min_supported_version,
            request.k_raft_version_feature.max_supported_version,
        )
    raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"a replica does not answer {type(request).__name__}")


def _fetch_from_wire(request: fetch.FetchRequest, name: LogName) -> FetchLog:
    def named(topic: fetch.FetchTopic) -> str:
        return name.topic if topic.topic_id == name.topic_id else topic.topic

    one = _only(request.topics, name, named, lambda partition: partition.partition)
    state = request.replica_state
    return FetchLog(
        request.cluster_id,
        one.current_leader_epoch,
        ReplicaKey(request.replica_id if state is None else state.replica_id, one.replica_directory_id),
        one.fetch_offset,
        one.last_fetched_epoch,
        one.high_watermark,
        request.max_wait_ms,
        request.max_bytes,
    )


def _only(
    topics: Sequence[Any],
    name: LogName,
    topic_name: Callable[[Any], str],
    index: Callable[[Any], int] = lambda partition: int(partition.partition_index),
) -> Any:
    """The one partition that a message is about."""
    if len(topics) != 1 or topic_name(topics[0]) != name.topic or len(topics[0].partitions) != 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"the message is not about {name.topic} alone")
    partition = topics[0].partitions[0]
    if index(partition) != PARTITION:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name.topic} has partition {PARTITION} only")
    return partition


# Results


def refusal(request: Request, error: ErrorCode) -> Response:
    """The answer to a request that is not understood."""
    response_class = api(request.API_KEY).response
    lists: dict[str, list[Any]] = {each.name: [] for each in response_class.FIELDS if each.name in _PER_TOPIC}
    make: Callable[..., Response] = response_class
    return make(error_code=error, **lists)


def result_to_wire(result: RaftResult, request: Request, version: int, name: LogName) -> Response:
    if isinstance(request, update_raft_voter.UpdateRaftVoterRequest):
        return _update_result_to_wire(result)
    if result.error in _TOP_LEVEL:
        return refusal(request, result.error)
    has_endpoints = version >= _ENDPOINTS_SINCE[request.API_KEY] and result.leader_address is not None
    if isinstance(result, FetchResult):
        return _fetch_result_to_wire(result, name, has_endpoints)
    if isinstance(result, FetchSnapshotResult):
        return _snapshot_result_to_wire(result, name, has_endpoints)
    if isinstance(result, VoteResult):
        voted = vote.PartitionResult(
            partition_index=PARTITION,
            error_code=result.error,
            leader_id=result.leader.leader_id,
            leader_epoch=result.leader.epoch,
            vote_granted=result.granted,
        )
        return vote.VoteResponse(
            topics=[vote.TopicResult(topic_name=name.topic, partitions=[voted])],
            node_endpoints=_endpoints(result, vote.NodeEndpoint) if has_endpoints else [],
        )
    module = begin_quorum_epoch if isinstance(request, begin_quorum_epoch.BeginQuorumEpochRequest) else end_quorum_epoch
    partition = module.PartitionResult(
        partition_index=PARTITION,
        error_code=result.error,
        leader_id=result.leader.leader_id,
        leader_epoch=result.leader.epoch,
    )
    response_class: Callable[..., Response] = api(request.API_KEY).response
    return response_class(
        topics=[module.TopicResult(topic_name=name.topic, partitions=[partition])],
        node_endpoints=_endpoints(result, module.NodeEndpoint) if has_endpoints else [],
    )


def _update_result_to_wire(result: RaftResult) -> Response:
    address = result.leader_address or Address("", 0)
    leader = update_raft_voter.CurrentLeader(
        leader_id=result.leader.leader_id, leader_epoch=result.leader.epoch, host=address.host, port=address.port
    )
    return update_raft_voter.UpdateRaftVoterResponse(error_code=result.error, current_leader=leader)


def _endpoints(result: RaftResult, endpoint_class: type[E]) -> list[E]:
    address = known(result.leader_address, "whoever tells of endpoints knows one")
    make: Callable[..., E] = endpoint_class
    return [make(node_id=result.leader.leader_id, host=address.host, port=address.port)]


def _fetch_result_to_wire(result: FetchResult, name: LogName, has_endpoints: bool) -> Response:
    partition = fetch.PartitionData(
        partition_index=PARTITION,
        error_code=result.error,
        high_watermark=result.high_watermark,
        log_start_offset=result.log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=result.leader.leader_id, leader_epoch=result.leader.epoch),
        records=result.records,
    )
    if result.diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(
            epoch=result.diverging.epoch, end_offset=result.diverging.offset
        )
    if result.snapshot_id is not None:
        partition.snapshot_id = fetch.SnapshotId(
            end_offset=result.snapshot_id.end_offset, epoch=result.snapshot_id.epoch
        )
    return fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic=name.topic, topic_id=name.topic_id, partitions=[partition])],
        node_endpoints=_endpoints(result, fetch.NodeEndpoint) if has_endpoints else [],
    )


def _snapshot_result_to_wire(result: FetchSnapshotResult, name: LogName, has_endpoints: bool) -> Response:
    snapshot_id = result.snapshot_id or SnapshotId(-1, -1)
    partition = fetch_snapshot.PartitionSnapshotResult(
        index=PARTITION,
        error_code=result.error,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=snapshot_id.end_offset, epoch=snapshot_id.epoch),
        current_leader=fetch_snapshot.LeaderIdAndEpoch(
            leader_id=result.leader.leader_id, leader_epoch=result.leader.epoch
        ),
        size=result.size_bytes,
        position=result.position,
        unaligned_records=result.data,
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.TopicSnapshotResult(name=name.topic, partitions=[partition])],
        node_endpoints=_endpoints(result, fetch_snapshot.NodeEndpoint) if has_endpoints else [],
    )


def result_from_wire(response: Response, name: LogName) -> RaftResult:
    """What a peer answered. Raises `RemoteProtocolError` for an answer that makes no sense."""
    try:
        if isinstance(response, fetch.FetchResponse):
            return _fetch_result_from_wire(response, name)
        if isinstance(response, fetch_snapshot.FetchSnapshotResponse):
            return _snapshot_result_from_wire(response, name)
        if isinstance(response, vote.VoteResponse):
            if response.error_code:
                return VoteResult(ErrorCode.of(response.error_code), _NOBODY)
            one = _only(response.topics, name, lambda topic: topic.topic_name)
            leader = LeaderAndEpoch(one.leader_id, one.leader_epoch)
            address = _address(response.node_endpoints, leader)
            return VoteResult(ErrorCode.of(one.error_code), leader, address, one.vote_granted)
        if isinstance(response, begin_quorum_epoch.BeginQuorumEpochResponse | end_quorum_epoch.EndQuorumEpochResponse):
            if response.error_code:
                return EpochResult(ErrorCode.of(response.error_code), _NOBODY)
            one = _only(response.topics, name, lambda topic: topic.topic_name)
            leader = LeaderAndEpoch(one.leader_id, one.leader_epoch)
            return EpochResult(ErrorCode.of(one.error_code), leader, _address(response.node_endpoints, leader))
        if isinstance(response, update_raft_voter.UpdateRaftVoterResponse):
            return _update_result_from_wire(response)
    except (BrokerError, ValueError) as problem:
        raise RemoteProtocolError(f"{type(response).__name__}: {problem}") from None
    raise RemoteProtocolError(f"{type(response).__name__} is no answer of a replica")


#: An answer that names nobody is of no epoch.
_NOBODY: Final = LeaderAndEpoch(-1, -1)


def _address(endpoints: Iterable[Any], leader: LeaderAndEpoch) -> Address | None:
    for each in endpoints:
        if each.node_id == leader.leader_id:
            return Address(each.host, each.port)
    return None


def _update_result_from_wire(response: update_raft_voter.UpdateRaftVoterResponse) -> EpochResult:
    error, found = ErrorCode.of(response.error_code), response.current_leader
    if found is None:
        return EpochResult(error, _NOBODY)
    address = Address(found.host, found.port) if found.host else None
    return EpochResult(error, LeaderAndEpoch(found.leader_id, found.leader_epoch), address)


def _fetch_result_from_wire(response: fetch.FetchResponse, name: LogName) -> FetchResult:
    if response.error_code:
        return FetchResult(ErrorCode.of(response.error_code), _NOBODY)

    def named(topic: fetch.FetchableTopicResponse) -> str:
        return name.topic if topic.topic_id == name.topic_id else topic.topic

    one: fetch.PartitionData = _only(response.responses, name, named)
    current = one.current_leader
    leader = _NOBODY if current is None else LeaderAndEpoch(current.leader_id, current.leader_epoch)
    diverging, snapshot = one.diverging_epoch, one.snapshot_id
    return FetchResult(
        ErrorCode.of(one.error_code),
        leader,
        _address(response.node_endpoints, leader),
        one.high_watermark,
        one.log_start_offset,
        OffsetAndEpoch(diverging.end_offset, diverging.epoch) if diverging and diverging.epoch >= 0 else None,
        SnapshotId(snapshot.end_offset, snapshot.epoch) if snapshot and snapshot.epoch >= 0 else None,
        b"" if one.records is None else one.records,
    )


def _snapshot_result_from_wire(response: fetch_snapshot.FetchSnapshotResponse, name: LogName) -> FetchSnapshotResult:
    if response.error_code:
        return FetchSnapshotResult(ErrorCode.of(response.error_code), _NOBODY)
    one: fetch_snapshot.PartitionSnapshotResult = _only(
        response.topics, name, lambda topic: topic.name, lambda partition: partition.index
    )
    current = one.current_leader
    leader = _NOBODY if current is None else LeaderAndEpoch(current.leader_id, current.leader_epoch)
    return FetchSnapshotResult(
        ErrorCode.of(one.error_code),
        leader,
        _address(response.node_endpoints, leader),
        SnapshotId(one.snapshot_id.end_offset, one.snapshot_id.epoch),
        one.size,
        one.position,
        one.unaligned_records,
    )
