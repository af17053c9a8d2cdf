"""The quick way of a Fetch and of its answer, against the general one: the same bytes, read as the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, LocalProtocolError
from barnabas.base.ids import Uuid
from barnabas.raft.messages import FetchLog, FetchResult
from barnabas.raft.replica_fetch import VERSION, ReplicaFetch, ReplicaFetchAnswer
from barnabas.raft.types import Address, LeaderAndEpoch, OffsetAndEpoch, ReplicaKey, SnapshotId
from barnabas.raft.wire_form import LogName, request_from_wire, request_to_wire, result_from_wire, result_to_wire
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse

NAME = LogName()
OTHER_NAME = LogName("another", Uuid(bytes(range(16))))

int32 = st.integers(0, 2**31 - 1) | st.integers(-1, 5)
int64 = st.integers(0, 2**63 - 1) | st.integers(-1, 5)
uuids = st.sampled_from([Uuid.ZERO]) | st.binary(min_size=16, max_size=16).map(Uuid)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)

fetches = st.builds(
    FetchLog,
    cluster_id=st.none() | texts,
    epoch=int32,
    replica=st.builds(ReplicaKey, int32, uuids),
    offset=int64,
    last_fetched_epoch=int32,
    high_watermark=int64,
    max_wait_ms=int32,
    max_bytes=int32,
)

results = st.builds(
    FetchResult,
    error=st.sampled_from([ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH]),
    leader=st.builds(LeaderAndEpoch, int32, int32),
    leader_address=st.none() | st.builds(Address, texts, st.integers(1, 65535)),
    high_watermark=int64,
    log_start_offset=int64,
    diverging=st.none() | st.builds(OffsetAndEpoch, int64, st.integers(0, 9)),
    snapshot_id=st.none() | st.builds(SnapshotId, int64, st.integers(0, 9)),
    records=st.binary(max_size=300) | st.sampled_from([bytes(126), bytes(127), bytes(16_382), bytes(16_383)]),
)


def read_request(data: bytes, version: int, start: int = 0) -> Any:
    request, end = ReplicaFetch.decode_prefix(data, version, start)
    assert end == len(data)
    return request.fetch if isinstance(request, ReplicaFetch) else request_from_wire(request, NAME)


def read_answer(data: bytes, version: int, start: int = 0) -> Any:
    response, end = ReplicaFetchAnswer.decode_prefix(data, version, start)
    assert end == len(data)
    return response.result if isinstance(response, ReplicaFetchAnswer) else result_from_wire(response, NAME)


@given(fetches, st.sampled_from([NAME, OTHER_NAME]), st.sampled_from([15, 17, VERSION]))
def test_a_fetch_is_sent_as_kafkas(fetch: FetchLog, name: LogName, version: int) -> None:
    assert ReplicaFetch(fetch, name).encode(version) == request_to_wire(fetch, name).encode(version)


@given(fetches, st.binary(max_size=9))
def test_a_fetch_is_read_as_kafkas(fetch: FetchLog, before: bytes) -> None:
    data = request_to_wire(fetch, NAME).encode(VERSION)
    assert read_request(before + data, VERSION, len(before)) == request_from_wire(
        FetchRequest.decode(data, VERSION), NAME
    )


@given(results, st.sampled_from([NAME, OTHER_NAME]), st.sampled_from([13, 17, VERSION]))
def test_an_answer_is_sent_as_kafkas(result: FetchResult, name: LogName, version: int) -> None:
    request = request_to_wire(FetchLog("c", 1, ReplicaKey(1), 0, 0, 0, 0, 1), name)
    expected = result_to_wire(result, request, version, name).encode(version)
    assert ReplicaFetchAnswer(result, name).encode(version) == expected


@given(results, st.lists(st.sampled_from([13, 17, VERSION]), min_size=2, max_size=4))
def test_an_answer_may_go_to_several_also_in_several_versions(result: FetchResult, versions: list[int]) -> None:
    answer = ReplicaFetchAnswer(result, NAME)
    for version in versions:
        assert answer.encode(version) == ReplicaFetchAnswer(result, NAME).encode(version)


@given(results, st.binary(max_size=9))
def test_an_answer_is_read_as_kafkas(result: FetchResult, before: bytes) -> None:
    data = ReplicaFetchAnswer(result, NAME).encode(VERSION)
    expected = result_from_wire(FetchResponse.decode(data, VERSION), NAME)
    assert read_answer(before + data, VERSION, len(before)) == expected


@given(st.data(), st.booleans())
def test_whatever_comes_is_read_as_by_the_general_codec(drawn: st.DataObject, is_request: bool) -> None:
    """Bytes cut off, added or changed: the same is understood, or the same refused."""
    if is_request:
        whole = ReplicaFetch(drawn.draw(fetches), NAME).encode(VERSION)
    else:
        whole = ReplicaFetchAnswer(drawn.draw(results), NAME).encode(VERSION)
    data = bytearray(whole)
    place = drawn.draw(st.integers(0, len(data) - 1))
    kind = drawn.draw(st.sampled_from(["cut", "add", "change"]))
    if kind == "cut":
        del data[place:]
    elif kind == "add":
        data += drawn.draw(st.binary(min_size=1, max_size=4))
    else:
        data[place] ^= 1 << drawn.draw(st.integers(0, 7))
    quick, general = _outcomes(bytes(data), is_request=is_request)
    assert quick == general


def _outcomes(data: bytes, *, is_request: bool) -> tuple[Any, Any]:
    found: list[tuple[object, int]] = []
    for is_quick in (True, False):
        message: Any
        read: object
        try:
            if is_request:
                message, end = (ReplicaFetch if is_quick else FetchRequest).decode_prefix(data, VERSION)
                read = message.fetch if isinstance(message, ReplicaFetch) else request_from_wire(message, NAME)
            else:
                message, end = (ReplicaFetchAnswer if is_quick else FetchResponse).decode_prefix(data, VERSION)
                read = message.result if isinstance(message, ReplicaFetchAnswer) else result_from_wire(message, NAME)
            found.append((read, end))
        except BarnabasError as problem:
            found.append((str(problem), -1))
    return found[0], found[1]


def test_the_quick_way_is_taken() -> None:
    """What is compared above is worth nothing if all of it went the general way."""
    replica = ReplicaKey(3, Uuid(bytes(range(16))))
    request, _ = ReplicaFetch.decode_prefix(
        request_to_wire(FetchLog("c", 1, replica, 2, 3, 4, 500, 1 << 20), NAME).encode(VERSION), VERSION
    )
    assert isinstance(request, ReplicaFetch)
    result = FetchResult(ErrorCode.NONE, LeaderAndEpoch(3, 7), Address("there", 9093), 10, 0, records=b"records")
    answer, _ = ReplicaFetchAnswer.decode_prefix(ReplicaFetchAnswer(result, NAME).encode(VERSION), VERSION)
    assert isinstance(answer, ReplicaFetchAnswer)
    assert answer.result == result


def test_a_number_that_does_not_fit_is_refused_by_name() -> None:
    replica = ReplicaKey(3, Uuid(bytes(range(16))))
    with pytest.raises(LocalProtocolError, match="FetchRequest v18"):
        ReplicaFetch(FetchLog("c", 1 << 31, replica, 2, 3, 4, 500, 1 << 20), NAME).encode(VERSION)
    result = FetchResult(ErrorCode.NONE, LeaderAndEpoch(3, 7), None, 1 << 63)
    with pytest.raises(LocalProtocolError, match="FetchResponse v18"):
        ReplicaFetchAnswer(result, NAME).encode(VERSION)
