"""Fetch as replicas send it all day: one topic, one partition, and only a few numbers that change. Pure.

Kafka's general form of such an exchange takes most of the time of a commit. But in v18 the bytes of two fetches of one
replica differ in five numbers, and those of two answers in two numbers and the records. So what stays the same is made
(and understood) once by the general codec, and then a message is one `pack` or `unpack`. Whatever does not look like
that goes the general way, so the bytes are the same either way.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error
from typing import Any, Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, LocalProtocolError, RemoteProtocolError
from barnabas.raft.messages import FetchLog, FetchResult
from barnabas.raft.types import Address, LeaderAndEpoch, ReplicaKey
from barnabas.raft.wire_form import LogName, request_from_wire, request_to_wire, result_from_wire, result_to_wire
from barnabas.wire.compiler import Buffer
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.fetch import FetchRequest, FetchResponse
from barnabas.wire.varint import encode_uvarint

#: The one version that is laid out here.
VERSION: Final = 18
#: max_wait_ms, …, current_leader_epoch, fetch_offset, last_fetched_epoch, …, high_watermark; then to the end.
_REQUEST: Final = Struct(">i39siqi33sq")
#: …, high_watermark, …, log_start_offset, …; then the length of the records, the records, and to the end.
_ANSWER: Final = Struct(">34sq8sq5s")
#: The default of a high watermark in a request, with which the field is left out.
_UNSAID: Final = 2**63 - 1
#: Of how many replicas and leaders the rest is remembered.
_REMEMBERED: Final = 256
#: What is longer than this behind the numbers of a message is no everyday one, and is not remembered.
_MAX_AFTER_BYTES: Final = 1024
#: Bytes do not say what a log is called, only its id; this is what it is called nearly everywhere.
USUAL_NAME: Final = LogName()


class _SameInRequests(NamedTuple):
    """The bytes that are the same in all fetches of a replica, and what they say."""

    before: bytes
    between: bytes
    after: bytes
    cluster_id: str | None
    replica: ReplicaKey
    max_bytes: int

    def unpacked(self, epoch: int, offset: int, last_fetched_epoch: int, hw: int, max_wait_ms: int) -> FetchLog:
        return FetchLog(
            self.cluster_id, epoch, self.replica, offset, last_fetched_epoch, hw, max_wait_ms, self.max_bytes
        )


class ReplicaFetch(Request, api_key=FetchRequest.API_KEY, versions="0-18", flexible="12+", served="4-18"):
    """A Fetch of a replica, sent as a `FetchRequest` is. What is no such thing is read as a `FetchRequest`."""

    __slots__ = ("fetch", "name")

    def __init__(self, fetch: FetchLog, name: LogName) -> None:
        self.fetch = fetch
        self.name = name

    def encode_parts(self, version: int) -> list[Buffer]:
        fetch = self.fetch
        cluster_id, epoch, replica, offset, last_fetched_epoch, high_watermark, max_wait_ms, max_bytes = fetch
        same = _same_in_requests(cluster_id, replica, max_bytes, self.name) if version == VERSION else None
        if same is None or high_watermark == _UNSAID:
            return request_to_wire(fetch, self.name).encode_parts(version)
        try:
            packed = _REQUEST.pack(
                max_wait_ms, same.before, epoch, offset, last_fetched_epoch, same.between, high_watermark
            )
        except error as problem:
            raise LocalProtocolError(f"FetchRequest v{version}: {problem}") from None
        return [packed + same.after]

    @classmethod
    def decode_prefix(cls, data: Buffer, version: int, start: int = 0) -> tuple[Any, int]:
        if version == VERSION and 0 < len(data) - start - _REQUEST.size <= _MAX_AFTER_BYTES:
            max_wait_ms, before, epoch, offset, last_epoch, between, hw = _REQUEST.unpack_from(data, start)
            same = _understood_request(before, between, bytes(data[start + _REQUEST.size :]))
            if same is not None and hw != _UNSAID:
                return cls(same.unpacked(epoch, offset, last_epoch, hw, max_wait_ms), USUAL_NAME), len(data)
        return FetchRequest.decode_prefix(data, version, start)


@lru_cache(_REMEMBERED)
def _same_in_requests(
    cluster_id: str | None, replica: ReplicaKey, max_bytes: int, name: LogName
) -> _SameInRequests | None:
    fetch = FetchLog(cluster_id, 0, replica, 0, 0, 0, 0, max_bytes)
    data = request_to_wire(fetch, name).encode(VERSION)
    if len(data) <= _REQUEST.size:
        return None
    _, before, *_, between, _ = _REQUEST.unpack_from(data)
    same = _SameInRequests(before, between, data[_REQUEST.size :], cluster_id, replica, max_bytes)
    # A replica without a directory leaves that field out, and nothing is where it is expected.
    telling = FetchLog(cluster_id, 1, replica, 2, 3, 4, 5, max_bytes)
    packed = _REQUEST.pack(5, before, 1, 2, 3, between, 4) + same.after
    return same if packed == request_to_wire(telling, name).encode(VERSION) else None


@lru_cache(_REMEMBERED)
def _understood_request(before: bytes, between: bytes, after: bytes) -> _SameInRequests | None:
    """What the rest of a fetch says, if it is one of a replica, of the log that is called by the usual name."""
    data = _REQUEST.pack(0, before, 0, 0, 0, between, 0) + after
    try:
        fetch = request_from_wire(FetchRequest.decode(data, VERSION), USUAL_NAME)
    except (BrokerError, RemoteProtocolError):
        return None
    if not isinstance(fetch, FetchLog):
        return None
    same = _same_in_requests(fetch.cluster_id, fetch.replica, fetch.max_bytes, USUAL_NAME)
    return same if same is not None and (same.before, same.between, same.after) == (before, between, after) else None


class _SameInAnswers(NamedTuple):
    """The bytes that are the same in all answers with records of a leader, and what they say."""

    first: bytes
    second: bytes
    third: bytes
    after: bytes
    leader: LeaderAndEpoch
    address: Address | None


class ReplicaFetchAnswer(Response, api_key=FetchResponse.API_KEY, versions="0-18", flexible="12+"):
    """The answer to a `ReplicaFetch`, sent as a `FetchResponse` is. What is no such thing is read as that."""

    __slots__ = ("_parts", "name", "result")

    def __init__(self, result: FetchResult, name: LogName) -> None:
        self.result = result
        self.name = name
        # As it was sent in the everyday version: the same answer may go to several followers.
        self._parts: list[Buffer] | None = None

    @staticmethod
    def fits(result: FetchResult, version: int) -> bool:
        """Whether a result is an everyday one."""
        return (
            version == VERSION
            and result.error is ErrorCode.NONE
            and result.diverging is None
            and result.snapshot_id is None
        )

    def encode_parts(self, version: int) -> list[Buffer]:
        if self._parts is not None and version == VERSION:
            return self._parts
        result = self.result
        records = result.records
        same = _same_in_answers(result.leader, result.leader_address, self.name) if version == VERSION else None
        if same is None or not self.fits(result, version):
            request = request_to_wire(FetchLog(None, 0, ReplicaKey(-1), 0, 0, 0, 0, 0), self.name)
            return result_to_wire(result, request, version, self.name).encode_parts(version)
        try:
            packed = _ANSWER.pack(same.first, result.high_watermark, same.second, result.log_start_offset, same.third)
        except error as problem:
            raise LocalProtocolError(f"FetchResponse v{version}: {problem}") from None
        self._parts = [packed + encode_uvarint(len(records) + 1), records, same.after]
        return self._parts

    @classmethod
    def decode_prefix(cls, data: Buffer, version: int, start: int = 0) -> tuple[Any, int]:
        records_at = start + _ANSWER.size
        if version == VERSION and len(data) > records_at + 4:
            first, high_watermark, second, log_start_offset, third = _ANSWER.unpack_from(data, start)
            size, shift, byte = 0, 0, 0x80
            while byte & 0x80 and shift < 28:
                byte = data[records_at]
                size |= (byte & 0x7F) << shift
                shift, records_at = shift + 7, records_at + 1
            end = records_at + size - 1
            if size and not byte & 0x80 and 0 < len(data) - end <= _MAX_AFTER_BYTES:
                same = _understood_answer(first, second, third, bytes(data[end:]))
                if same is not None:
                    records = memoryview(data)[records_at:end]
                    result = FetchResult(
                        ErrorCode.NONE, same.leader, same.address, high_watermark, log_start_offset, None, None, records
                    )
                    return cls(result, USUAL_NAME), len(data)
        return FetchResponse.decode_prefix(data, version, start)


@lru_cache(_REMEMBERED)
def _same_in_answers(leader: LeaderAndEpoch, address: Address | None, name: LogName) -> _SameInAnswers | None:
    request = request_to_wire(FetchLog(None, 0, ReplicaKey(-1), 0, 0, 0, 0, 0), name)
    result = FetchResult(ErrorCode.NONE, leader, address, 0, 0)
    data = result_to_wire(result, request, VERSION, name).encode(VERSION)
    first, _, second, _, third = _ANSWER.unpack_from(data)
    return _SameInAnswers(first, second, third, data[_ANSWER.size + 1 :], leader, address)


@lru_cache(_REMEMBERED)
def _understood_answer(first: bytes, second: bytes, third: bytes, after: bytes) -> _SameInAnswers | None:
    """What the rest of an answer says, if it is a leader's of the log that is called by the usual name."""
    data = _ANSWER.pack(first, 0, second, 0, third) + b"\1" + after
    try:
        result = result_from_wire(FetchResponse.decode(data, VERSION), USUAL_NAME)
    except RemoteProtocolError:
        return None
    if not isinstance(result, FetchResult) or not ReplicaFetchAnswer.fits(result, VERSION):
        return None
    same = _same_in_answers(result.leader, result.leader_address, USUAL_NAME)
    is_same = same is not None and (same.first, same.second, same.third, same.after) == (first, second, third, after)
    return same if is_same else None
