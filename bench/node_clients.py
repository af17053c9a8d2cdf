"""The clients that load a broker: librdkafka as everybody uses it, and bare sockets with requests encoded beforehand.

A bare socket costs a few microseconds per request, so that what is measured is the broker. librdkafka is what people
have; its Python binding makes messages in batches here, because making them one by one costs more than any broker does.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.records import BatchBuilder, iter_batches
from barnabas.wire import Request, Response, decode_response, encode_request, frame_parts
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from bench import load

R = TypeVar("R", bound=Response)

CLIENT_ID = "bench"
PRODUCE_VERSION = 9
FETCH_VERSION = 11
COMMIT_VERSION = 7
_TIMEOUT_S = 60
CHUNK = 5_000


# librdkafka


def produce(
    bootstrap: str, topic: str, partitions: int, count: int, size: int, security: Mapping[str, str] | None = None
) -> float:
    """Seconds until the last of `count` records is acknowledged by all replicas."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "delivery.report.only.error": True,
            "statistics.interval.ms": 0,
            **(security or {}),
        }
    )
    producer.list_topics(topic, timeout=_TIMEOUT_S)
    value = b"x" * size
    messages = [{"value": value, "partition": number % partitions} for number in range(CHUNK)]
    start = time.perf_counter()
    for _ in range(count // CHUNK):
        queued = producer.produce_batch(topic, messages)
        assert queued == CHUNK, queued
        producer.poll(0)
    assert producer.flush(_TIMEOUT_S) == 0
    return time.perf_counter() - start


def consume(
    bootstrap: str, topic: str, partitions: int, count: int, security: Mapping[str, str] | None = None
) -> float:
    """Seconds from the first request to the last of `count` records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "check.crcs": False,
            "fetch.wait.max.ms": 100,
            # Room for all, or librdkafka pauses for a second whenever its queue is full.
            "queued.min.messages": 10_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            "fetch.queue.backoff.ms": 1,
            **(security or {}),
        }
    )
    try:
        consumer.list_topics(topic, timeout=_TIMEOUT_S)
        seen = 0
        start = time.perf_counter()
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while seen < count:
            found = consumer.consume(CHUNK, timeout=1.0)
            seen += len(found)
            assert found or time.perf_counter() - start < _TIMEOUT_S, f"{seen} of {count} records"
        return time.perf_counter() - start
    finally:
        consumer.close()


def produce_one_by_one(bootstrap: str, topic: str, seconds: float) -> list[float]:
    """The times that single records took, each sent when the one before it was acknowledged; librdkafka, no linger."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.list_topics(topic, timeout=_TIMEOUT_S)
    times = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        producer.produce(topic, b"x" * 100)
        assert producer.flush(_TIMEOUT_S) == 0
        times.append(time.perf_counter() - start)
    return times


# Bare sockets


class Peer:
    """A connection with one request at a time."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request: Request, response: type[R], version: int) -> R:
        frame = self.exchange(framed(request, version))
        return decode_response(response, version, frame)[1]

    def exchange(self, frame: bytes) -> bytearray:
        """Send a frame, return the one that comes back, without its size."""
        self.socket.sendall(frame)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            received = self.socket.recv_into(view)
            if not received:
                raise ConnectionError("the broker has closed the connection")
            view = view[received:]
        return buffer

    def close(self) -> None:
        self.socket.close()


@contextmanager
def connected(bootstrap: str) -> Iterator[Peer]:
    peer = Peer(bootstrap)
    try:
        yield peer
    finally:
        peer.close()


def framed(request: Request, version: int) -> bytes:
    return b"".join(bytes(part) for part in frame_parts(encode_request(request, version, 1, CLIENT_ID)))


def create_topic(peer: Peer, topic: str, partitions: int) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
    (answer,) = peer.call(request, CreateTopicsResponse, 5).topics
    if answer.error_code != ErrorCode.NONE:
        raise RuntimeError(f"creating {topic}: error {answer.error_code}, {answer.error_message}")
    # Created is not yet led: the first request may come before the broker has heard of it.
    deadline = time.monotonic() + _TIMEOUT_S
    request_bytes = produce_frame(topic, range(partitions), records=1, size=1)
    while any(code != ErrorCode.NONE for code in error_codes(peer.exchange(request_bytes))):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} has no leader")


def delete_topic(peer: Peer, topic: str) -> None:
    request = DeleteTopicsRequest(topics=[], topic_names=[topic], timeout_ms=30_000)
    peer.call(request, DeleteTopicsResponse, 5)


def produce_frame(topic: str, partitions: Sequence[int], records: int, size: int) -> bytes:
    """A request with a batch for each of the partitions."""
    now_ms = int(time.time() * 1000)
    builder = BatchBuilder(1 << 20)
    for _ in range(records):
        builder.append(b"x" * size, None, now_ms)
    batch = bytes(builder.build())
    data = [PartitionProduceData(index=index, records=memoryview(batch)) for index in partitions]
    topic_data = [TopicProduceData(name=topic, partition_data=data)]
    return framed(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data), PRODUCE_VERSION)


def error_codes(frame: bytearray) -> list[int]:
    answer = decode_response(ProduceResponse, PRODUCE_VERSION, frame)[1]
    return [each.error_code for topic in answer.responses for each in topic.partition_responses]


def exchange(bootstrap: str, frames: Sequence[bytes], seconds: float) -> load.Exchange:
    """Produce requests, again and again, on a connection each; that they are taken is looked at before and after."""
    with connected(bootstrap) as peer:
        _check_all(peer, frames, patience_s=10.0)  # of a new topic this broker may not have heard yet
        found = load.exchange(bootstrap, frames, seconds)
        _check_all(peer, frames)
    return found


def _check_all(peer: Peer, frames: Sequence[bytes], patience_s: float = 0.0) -> None:
    until_s = time.monotonic() + patience_s
    for frame in frames:
        while refused := [ErrorCode.of(code).name for code in error_codes(peer.exchange(frame)) if code]:
            if time.monotonic() >= until_s:
                raise RuntimeError(f"records were refused: {', '.join(refused)}")
            time.sleep(0.1)


def fill(bootstrap: str, topic: str, partitions: int, count: int, size: int) -> None:
    """Write `count` records in batches of about 64 KiB, the same ones to whichever broker: what a client reads depends
    on how the records are batched, and a producer batches as the broker lets it.
    """
    records = max(1, 65_536 // (size + 8))
    frames = [produce_frame(topic, [index], records, size) for index in range(partitions)]
    with connected(bootstrap) as peer:
        for number in range(-(-count // records)):
            assert not any(error_codes(peer.exchange(frames[number % partitions])))


def fetch_frame(topic: str, offset: int, limit_bytes: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit_bytes)
    wanted = [FetchTopic(topic=topic, topic_id=Uuid.ZERO, partitions=[partition])]
    return framed(FetchRequest(max_wait_ms=100, min_bytes=1, topics=wanted), FETCH_VERSION)


def fetch_template(topic: str, partitions: Sequence[int]) -> load.Template:
    """A Fetch of all of them, in which the offsets are left open."""

    def framed_at(offset: int) -> bytes:
        asked = [
            FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index in partitions
        ]
        wanted = [FetchTopic(topic=topic, topic_id=Uuid.ZERO, partitions=asked)]
        return framed(FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=wanted), FETCH_VERSION)

    return _template(framed_at)


def commit_template(group: str, topic: str, partitions: Sequence[int]) -> load.Template:
    """An OffsetCommit of all of them by a group without members, in which the offsets are left open."""

    def framed_at(offset: int) -> bytes:
        committed = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index in partitions
        ]
        topics = [OffsetCommitRequestTopic(name=topic, partitions=committed)]
        return framed(OffsetCommitRequest(group_id=group, topics=topics), COMMIT_VERSION)

    return _template(framed_at)


def _template(framed_at: Callable[[int], bytes]) -> load.Template:
    """The places are those where a number stands that stands nowhere else."""
    sign = 0x0123456789ABCDEF
    frame, wanted = framed_at(sign), sign.to_bytes(8, "big")
    places: list[int] = []
    while (place := frame.find(wanted, places[-1] + 8 if places else 0)) >= 0:
        places.append(place)
    return load.Template(frame, tuple(places))


def fetch(bootstrap: str, topic: str, seconds: float) -> float:
    """Bytes per second that one bare connection gets, a MiB at a time, from a partition that fits the page cache."""
    limit_bytes = 1 << 20
    frames = []
    with connected(bootstrap) as peer:
        offset, received = 0, limit_bytes
        # Where each request begins is found out beforehand; then nothing is decoded any more.
        while received >= limit_bytes:
            frames.append(fetch_frame(topic, offset, limit_bytes))
            answer = decode_response(FetchResponse, FETCH_VERSION, peer.exchange(frames[-1]))[1]
            records = answer.responses[0].partitions[0].records or b""
            received = len(records)
            for batch in iter_batches(records):
                offset = batch.last_offset + 1
        total, number, start = 0, 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            total += len(peer.exchange(frames[number % (len(frames) - 1)]))
            number += 1
        return total / elapsed
