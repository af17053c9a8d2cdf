"""The mock cluster inside librdkafka, a broker that is not ours, and a plain connection to it over our wire layer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.wire import ApiKey, FrameSplitter, Request, Response, decode_response, encode_request, frame_parts
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

R = TypeVar("R", bound=Response)

TIMEOUT_S = 20


class Connection:
    """One request at a time, each answered before the next."""

    def __init__(self, host: str, port: int, source: str | None = None) -> None:
        """`source` is the address that the broker sees."""
        where = None if source is None else (source, 0)
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S, source_address=where)
        self._splitter = FrameSplitter()
        self._correlation_id = 0

    def call(self, request: Request, response: type[R], version: int, surplus_bytes: int = 0) -> R:
        """The answer. `surplus_bytes` is what the broker is known to send too much, in zeros."""
        self._correlation_id += 1
        # In one piece: the second of two small ones would wait for the first to be acknowledged.
        self._socket.sendall(b"".join(frame_parts(encode_request(request, version, self._correlation_id, "barnabas"))))
        frames: list[bytearray] = []
        while not frames:
            received = self._socket.recv(1 << 16)
            assert received, "the broker has closed the connection"
            frames += self._splitter.feed(received)
        (frame,) = frames
        if surplus_bytes:
            assert not any(frame[-surplus_bytes:])
            del frame[-surplus_bytes:]
        correlation_id, answer = decode_response(response, version, frame)
        assert correlation_id == self._correlation_id
        return answer

    def close(self) -> None:
        self._socket.close()


class MockCluster:
    """A cluster of one node, in this process. It ends with the producer that owns it."""

    def __init__(self) -> None:
        confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
        settings = {"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0}
        self._owner = confluent_kafka.Producer(settings)
        broker = next(iter(self._owner.list_topics(timeout=TIMEOUT_S).brokers.values()))
        self.host, self.port = broker.host, broker.port
        self.connection = Connection(self.host, self.port)
        offered = self.connection.call(ApiVersionsRequest(), ApiVersionsResponse, 0).api_keys
        self.versions = {ApiKey(each.api_key): (each.min_version, each.max_version) for each in offered}

    def settings(self, **others: Any) -> dict[str, Any]:
        """For a client of librdkafka."""
        given = {name.replace("_", "."): value for name, value in others.items()}
        return {"bootstrap.servers": f"{self.host}:{self.port}", "log_level": 0} | given

    def versions_of(self, request: type[Request], lowest: int = 0) -> list[int]:
        """Those that both sides know."""
        first, last = self.versions[ApiKey(request.API_KEY)]
        return [version for version in range(max(first, lowest), last + 1) if version in request.VERSIONS]

    def create_topic(self, name: str) -> Any:
        """Asking for its metadata makes a topic; what is told of it."""
        (topic,) = self.metadata(name, 12).topics
        assert topic.error_code == ErrorCode.NONE
        return topic

    def metadata(self, topic: str, version: int) -> MetadataResponse:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        # The mock ends this one message with two sections of tags where there is one.
        return self.connection.call(request, MetadataResponse, version, surplus_bytes=version >= 9)

    def produce(self, topic: Any, records: bytes | bytearray, version: int = 9) -> int:
        """Append one batch to partition 0; its first offset."""
        data = TopicProduceData(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_data=[PartitionProduceData(index=0, records=memoryview(records))],
        )
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
        (answer,) = self.connection.call(request, ProduceResponse, version).responses
        (partition,) = answer.partition_responses
        assert partition.error_code == ErrorCode.NONE
        return int(partition.base_offset)

    def fetch(self, topic: Any, offset: int = 0, version: int = 12) -> bytes:
        """What partition 0 holds from an offset on, as the mock gives it: one batch at a time."""
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        wanted = FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[partition])
        request = FetchRequest(max_wait_ms=1000, min_bytes=1, topics=[wanted])
        (answer,) = self.connection.call(request, FetchResponse, version).responses
        (data,) = answer.partitions
        assert data.error_code == ErrorCode.NONE
        return bytes(data.records or b"")

    def close(self) -> None:
        self.connection.close()
        self._owner.flush(TIMEOUT_S)
        del self._owner


@contextmanager
def running_mock_cluster() -> Iterator[MockCluster]:
    cluster = MockCluster()
    try:
        yield cluster
    finally:
        cluster.close()
