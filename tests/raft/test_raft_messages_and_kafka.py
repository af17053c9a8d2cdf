"""What replicas say is, byte for byte, what Apache Kafka's own Raft says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.base.error_codes import ErrorCode
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
from barnabas.raft.wire_form import (
    LogName,
    refusal,
    request_from_wire,
    request_to_wire,
    result_from_wire,
    result_to_wire,
)
from barnabas.wire import Request, Response, api
from tests.oracles import needs_kafka, run_java

pytestmark = needs_kafka()

NAME = LogName()
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
ONE, TWO, THREE = (ReplicaKey(each, Uuid(bytes([each]) * 16)) for each in (1, 2, 3))
#: From where on each message says all that ours can.
COMPLETE = {Vote: 2, BeginQuorumEpoch: 1, EndQuorumEpoch: 1, FetchLog: 18, FetchSnapshot: 1, UpdateVoter: 0}
#: From here on a Fetch says which replica asks as ours do.
OLDEST_FETCH = 15

REQUESTS: list[RaftRequest] = [
    Vote(CLUSTER, 5, ONE, TWO, OffsetAndEpoch(1234, 4)),
    Vote(CLUSTER, 5, ONE, TWO, OffsetAndEpoch(1234, 4), pre_vote=True),
    Vote(None, 1, ReplicaKey(1), ReplicaKey(2), OffsetAndEpoch(0, 0)),
    BeginQuorumEpoch(CLUSTER, 7, 1, TWO, {"CONTROLLER": Address("h1", 9093), "SSL": Address("::1", 65535)}),
    EndQuorumEpoch(CLUSTER, 7, 1, (THREE, TWO)),
    EndQuorumEpoch(CLUSTER, 7, 1, ()),
    FetchLog(CLUSTER, 7, TWO, 4321, 6, 4000, 500, 8 * 1024 * 1024),
    FetchLog(None, 0, ReplicaKey(2), 0, 0, -1, 0, 1),
    FetchSnapshot(CLUSTER, 7, TWO, SnapshotId(1000, 5), 17, 1024),
    UpdateVoter(CLUSTER, 7, TWO, {"CONTROLLER": Address("h2", 9093)}, 0, 1),
]

LEADER, ADDRESS = LeaderAndEpoch(1, 7), Address("h1", 9093)
NOBODY = LeaderAndEpoch(-1, 7)
RESULTS: list[tuple[type[RaftRequest], RaftResult]] = [
    (Vote, VoteResult(ErrorCode.NONE, NOBODY, None, True)),
    (Vote, VoteResult(ErrorCode.FENCED_LEADER_EPOCH, LEADER, ADDRESS)),
    (BeginQuorumEpoch, EpochResult(ErrorCode.NONE, LEADER, ADDRESS)),
    (BeginQuorumEpoch, EpochResult(ErrorCode.INVALID_VOTER_KEY, NOBODY)),
    (EndQuorumEpoch, EpochResult(ErrorCode.NONE, NOBODY)),
    (EndQuorumEpoch, EpochResult(ErrorCode.FENCED_LEADER_EPOCH, LEADER, ADDRESS)),
    (FetchLog, FetchResult(ErrorCode.NONE, LEADER, ADDRESS, 100, 10, None, None, b"abc")),
    (FetchLog, FetchResult(ErrorCode.NONE, LEADER, ADDRESS, -1, 0)),
    (FetchLog, FetchResult(ErrorCode.NONE, LEADER, ADDRESS, 100, 10, OffsetAndEpoch(55, 6))),
    (FetchLog, FetchResult(ErrorCode.NONE, LEADER, ADDRESS, 100, 10, None, SnapshotId(90, 6))),
    (FetchLog, FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, LEADER, ADDRESS)),
    (FetchLog, FetchResult(ErrorCode.UNKNOWN_LEADER_EPOCH, NOBODY)),
    (FetchSnapshot, FetchSnapshotResult(ErrorCode.NONE, LEADER, ADDRESS, SnapshotId(90, 6), 500, 17, b"\0\1piece")),
    (FetchSnapshot, FetchSnapshotResult(ErrorCode.SNAPSHOT_NOT_FOUND, LEADER, ADDRESS, SnapshotId(90, 6))),
    (FetchSnapshot, FetchSnapshotResult(ErrorCode.POSITION_OUT_OF_RANGE, NOBODY, None, SnapshotId(90, 6))),
    (UpdateVoter, EpochResult(ErrorCode.NONE, LEADER, ADDRESS)),
    (UpdateVoter, EpochResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOBODY)),
]


def _name(kind: type) -> str:
    """Under which name Kafka's side knows it."""
    return "Fetch" if kind is FetchLog else kind.__name__


def plain(value: Any) -> Any:
    """As the Java program takes it."""
    if isinstance(value, Uuid | ErrorCode):
        return str(value) if isinstance(value, Uuid) else value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value


def fields(message: RaftRequest | RaftResult) -> dict[str, Any]:
    names = message._fields if isinstance(message, tuple) else [each.name for each in dataclasses.fields(message)]
    return {name: plain(getattr(message, name)) for name in names}


def asked(request: RaftRequest, version: int) -> dict[str, Any]:
    return fields(request) | {"request": _name(type(request)), "version": version}


def answered(kind: type[RaftRequest], result: RaftResult, version: int) -> dict[str, Any]:
    at = {} if result.leader_address is None else {"CONTROLLER": list(result.leader_address)}
    leader = {"leader_id": result.leader.leader_id, "epoch": result.leader.epoch, "listeners": at}
    return fields(result) | leader | {"result": _name(kind), "version": version}


def built_by_kafka(messages: Iterable[dict[str, Any]]) -> list[bytes]:
    lines = run_java("RaftMessages.java", "".join(json.dumps(each) + "\n" for each in messages))
    return [bytes.fromhex(line) for line in lines.splitlines()]


def versions_of(request: Request) -> range:
    low = OLDEST_FETCH if request.API_KEY == 1 else request.VERSIONS.low
    return range(low, request.VERSIONS.high + 1)


def test_requests_are_those_of_kafka() -> None:
    cases: list[tuple[RaftRequest, Request, int]] = []
    for request in REQUESTS:
        wire = request_to_wire(request, NAME)
        # A pre-vote cannot be asked for before version 2.
        low = 2 if isinstance(request, Vote) and request.pre_vote else 0
        cases += [(request, wire, version) for version in versions_of(wire) if version >= low]
    found = built_by_kafka(asked(request, version) for request, _, version in cases)
    assert len(found) == len(cases) > 20
    for (request, wire, version), data in zip(cases, found, strict=True):
        assert wire.encode(version) == data, (request, version)
        read = request_from_wire(type(wire).decode(data, version), NAME)
        if version >= COMPLETE[type(request)]:
            assert read == request
        assert type(read) is type(request)


def test_results_are_those_of_kafka() -> None:
    wires = {type(each): request_to_wire(each, NAME) for each in REQUESTS}
    cases = [(kind, result, version) for kind, result in RESULTS for version in versions_of(wires[kind])]
    found = built_by_kafka(answered(*case) for case in cases)
    assert len(found) == len(cases) > 20
    for (kind, result, version), data in zip(cases, found, strict=True):
        response = result_to_wire(result, wires[kind], version, NAME)
        assert response.encode(version) == data, (kind, result, version)
        read = result_from_wire(type(response).decode(data, version), NAME)
        if version >= COMPLETE[kind]:
            assert read == result
        assert (read.error, read.leader) == (result.error, result.leader)


def test_refusals_are_those_of_kafka() -> None:
    error = ErrorCode.INCONSISTENT_CLUSTER_ID
    wires = {each.API_KEY: each for each in (request_to_wire(each, NAME) for each in REQUESTS)}
    cases = [(key, version) for key, wire in wires.items() for version in versions_of(wire)]
    found = built_by_kafka({"refusal": key, "version": version, "error": error.name} for key, version in cases)
    for (key, version), data in zip(cases, found, strict=True):
        response_class: type[Response] = api(key).response
        assert refusal(wires[key], error).encode(version) == data, (key, version)
        assert result_from_wire(response_class.decode(data, version), NAME).error is error
