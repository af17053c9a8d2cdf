"""Ways to be a bad peer. Each takes an address and a source of randomness, does its worst, and leaves."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from random import Random
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import LocalProtocolError
from barnabas.base.ids import Uuid
from barnabas.records import BatchBuilder
from barnabas.wire import Api, ApiKey, Request, Struct, all_apis, api, decode_response, encode_request, frame_parts
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.wire.values import build

Attack = Callable[[str, Random], None]

TOPIC = "healthy"
_PATIENCE_S = 0.3
_TOGETHER = 40


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def reset(peer: socket.socket) -> None:
    """Leave without a good-bye."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def framed(request: Request, version: int, correlation_id: int = 1) -> bytes:
    return b"".join(bytes(part) for part in frame_parts(encode_request(request, version, correlation_id, "fuzz")))


def send(peer: socket.socket, data: bytes) -> None:
    """As much as the other side takes before it hangs up."""
    with contextlib.suppress(OSError):
        peer.sendall(data)


def drain(peers: Sequence[socket.socket], seconds: float) -> None:
    """Read what comes until all have hung up or answered, or time is up."""
    waiting = {peer.fileno(): peer for peer in peers}
    deadline = time.monotonic() + seconds
    while waiting and (left := deadline - time.monotonic()) > 0:
        for peer in select.select(list(waiting.values()), [], [], left)[0]:
            del waiting[peer.fileno()]
            with contextlib.suppress(OSError):
                peer.recv(1 << 20)


def one_frame_each(address: str, frames: Iterator[bytes], random: Random) -> None:
    """Every frame on a connection of its own, a few connections at a time; half of them end with a reset."""
    while group := [frame for _, frame in zip(range(_TOGETHER), frames, strict=False)]:
        peers = []
        for frame in group:
            peers.append(connect(address))
            send(peers[-1], frame)
        drain(peers, _PATIENCE_S)
        for peer in peers:
            reset(peer) if random.random() < 0.5 else peer.close()


def garbage(address: str, random: Random) -> None:
    sizes = [1, 3, 4, 5, 20, 1000, 100_000]
    one_frame_each(address, (random.randbytes(random.choice(sizes)) for _ in range(80)), random)


def garbage_in_frames(address: str, random: Random) -> None:
    """The size is right, what it announces is not."""

    def frames() -> Iterator[bytes]:
        for _ in range(80):
            body = random.randbytes(random.choice([1, 2, 7, 8, 9, 10, 11, 50, 5000]))
            yield struct.pack(">i", len(body)) + body

    one_frame_each(address, frames(), random)


def half_requests(address: str, random: Random) -> None:
    frame = framed(MetadataRequest(topics=None), 12)
    one_frame_each(address, (frame[:end] for end in range(len(frame))), random)


def wrong_lengths(address: str, random: Random) -> None:
    body = framed(MetadataRequest(topics=None), 12)[4:]
    sizes = [len(body) - 1, len(body) + 1, len(body) // 2, 0, -1, 1, 7, 2**31 - 1, -(2**31), 104_857_601, 104_857_600]
    one_frame_each(address, (struct.pack(">i", size) + body for size in sizes), random)


def unknown_apis_and_versions(address: str, random: Random) -> None:
    known = [each.value for each in ApiKey]
    keys = [-1, -(2**15), 2**15 - 1, 93, 999, *known]
    versions = [-1, 99, 2**15 - 1, -(2**15)]

    def frames() -> Iterator[bytes]:
        for key in keys:
            for version in versions:
                body = struct.pack(">hhih4s", key, version, 1, 4, b"fuzz") + random.randbytes(8)
                yield struct.pack(">i", len(body)) + body

    one_frame_each(address, frames(), random)


def served_versions() -> list[tuple[Api, int]]:
    return [(each, version) for each in all_apis() for version in each.served]


def valid(each: Api, version: int, random: Random) -> bytes:
    """A request that the version can carry, with any values."""
    message = build(each.request, version, version in each.request.FLEXIBLE, random)
    return framed(message, version)


def any_values(address: str, random: Random) -> None:
    """Requests of every kind in every version that are well-formed and make no sense."""
    one_frame_each(address, (valid(each, version, random) for each, version in served_versions()), random)


#: Names that mean something to the node, so that requests get further than "there is no such thing".
NAMES = (
    "target",
    "target",
    "group",
    "member",
    "consumer",
    "range",
    "1",
    "0",
    "",
    "__consumer_offsets",
    "__cluster_metadata",
    "retention.ms",
    "cleanup.policy",
    "compact",
    "delete",
    "86400000",
    "segment.bytes",
    "no spaces",
    "a" * 250,
)
NUMBERS = (0, 0, 0, 1, 1, 2, 3, 4, -1, -2, -3, 100, 2**31 - 1)


def pointed(message: Struct, random: Random, topic_id: Uuid) -> None:
    """Let most of what a message says be about things that exist."""
    for each in type(message).FIELDS:
        setattr(message, each.name, _pointed_value(getattr(message, each.name), random, topic_id))


def _pointed_value(value: Any, random: Random, topic_id: Uuid) -> Any:
    if isinstance(value, list):
        return [_pointed_value(each, random, topic_id) for each in value]
    if isinstance(value, Struct):
        pointed(value, random, topic_id)
        return value
    if random.random() < 0.25 or value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return random.choice(NAMES)
    if isinstance(value, int):
        # A number of more than a byte is taken for a time or a size as likely as for a partition.
        return value if not -(2**7) <= value < 2**7 and random.random() < 0.3 else random.choice(NUMBERS[:-2])
    if isinstance(value, Uuid):
        return topic_id
    return small_batch() if isinstance(value, bytes | memoryview) else value


def small_batch() -> bytes:
    builder = BatchBuilder(1 << 16)
    for number in range(5):
        builder.append(b"value" * 20, b"key", 1_700_000_000_000 + number)
    return bytes(builder.build())


def values_that_exist(address: str, random: Random) -> None:
    """Requests of every kind in every version about a topic, a group and a node that exist, in no sensible order."""
    with closing(connect(address)) as peer:
        topic_id = topic_id_of(peer, "target")

    def frames() -> Iterator[bytes]:
        for each, version in served_versions():
            for _ in range(3):
                message = build(each.request, version, version in each.request.FLEXIBLE, random)
                pointed(message, random, topic_id)
                with contextlib.suppress(LocalProtocolError):  # a value that this version cannot carry
                    yield framed(message, version)

    one_frame_each(address, frames(), random)


def topic_id_of(peer: socket.socket, topic: str) -> Uuid:
    """The topic is created when there is none."""
    request = framed(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        peer.sendall(request)
        frame = exactly(peer, struct.unpack(">i", exactly(peer, 4))[0])
        (answer,) = decode_response(MetadataResponse, 12, frame)[1].topics
        if answer.error_code == ErrorCode.NONE:
            return answer.topic_id
    raise AssertionError(f"{topic} is not created")


def exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        received = peer.recv(size - len(data))
        assert received, "the node has hung up"
        data += received
    return data


def mutated_requests(address: str, random: Random) -> None:
    """The same with bytes changed, cut out and put in; the size stays right, so that the bytes are looked at."""

    def frames() -> Iterator[bytes]:
        for each, version in served_versions():
            body = bytearray(valid(each, version, random)[4:])
            for _ in range(random.choice([1, 2, 5])):
                # The header is left alone more often than not: behind it lies most of the code.
                at = random.randrange(min(10, len(body) - 1) if random.random() < 0.8 else 0, len(body))
                change = random.randrange(4)
                if change == 0:
                    body[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
                elif change == 1:
                    body[at] ^= 1 << random.randrange(8)
                elif change == 2:
                    del body[at : at + random.choice([1, 4, 30])]
                else:
                    body[at:at] = random.randbytes(random.choice([1, 2, 30]))
                if len(body) < 2:
                    break
            yield struct.pack(">i", len(body)) + bytes(body)

    one_frame_each(address, frames(), random)


def sensible_requests_with_bad_records(address: str, random: Random) -> None:
    """Produce to a topic that exists, with batches that are damaged in one place each."""
    batch = small_batch()

    def frames() -> Iterator[bytes]:
        for version in api(ApiKey.PRODUCE).served:
            if version >= 13:
                continue  # by topic id
            for _ in range(8):
                damaged = bytearray(batch)
                damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
                records = bytes(damaged[: random.choice([len(damaged), random.randrange(len(damaged))])])
                data = [PartitionProduceData(index=random.choice([0, 0, 0, -1, 7]), records=memoryview(records))]
                topics = [TopicProduceData(name=TOPIC, topic_id=Uuid.ZERO, partition_data=data)]
                yield framed(
                    ProduceRequest(acks=random.choice([-1, 0, 1, 5]), timeout_ms=1000, topic_data=topics), version
                )

    one_frame_each(address, frames(), random)


def ten_megabytes_of_zeros(address: str, random: Random) -> None:
    peer = connect(address)
    send(peer, bytes(10_000_000))
    drain([peer], 5)
    peer.close()


def never_reading(address: str, random: Random) -> None:
    """Many ask for much and take nothing."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
    wanted = FetchTopic(topic=TOPIC, topic_id=Uuid.ZERO, partitions=[partition])
    fetch = framed(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=50_000_000, topics=[wanted]), 12)
    versions = framed(ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), 3)
    peers = []
    for number in range(50):
        peer = connect(address)
        peer.setblocking(False)
        peers.append(peer)
        requests = (fetch if number % 2 else versions) * 2000
        # What is left of it would block: the node has stopped reading.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while requests:
                requests = requests[peer.send(requests) :]
    time.sleep(1)
    for peer in peers:
        reset(peer) if random.random() < 0.5 else peer.close()


def large_announcements(address: str, random: Random) -> None:
    """200 frames of 100 MB each are announced, and a little of each is sent."""
    peers = []
    for _ in range(200):
        peers.append(connect(address))
        send(peers[-1], struct.pack(">i", 104_857_600) + bytes(random.choice([0, 10, 10_000, 60_000])))
    time.sleep(0.5)
    for peer in peers:
        reset(peer)


def byte_by_byte(address: str, random: Random) -> None:
    """Slow peers, many at a time; each gets its answer in the end."""
    frame = framed(MetadataRequest(topics=[]), 12)
    peers = [connect(address) for _ in range(50)]
    for byte in frame:
        for peer in peers:
            peer.sendall(bytes([byte]))
    for peer in peers:
        peer.settimeout(10)
        assert peer.recv(4), "a slow peer got no answer"
        peer.close()


def leaving_at_once(address: str, random: Random) -> None:
    """Connections that end before, while or after they ask."""
    frame = framed(MetadataRequest(topics=None), 12)
    for number in range(300):
        peer = connect(address)
        if number % 3:
            send(peer, frame * 5)
        reset(peer) if number % 2 else peer.close()


def pipelined_nonsense(address: str, random: Random) -> None:
    """Good requests, then a bad one, in one write: the good ones are answered first."""
    good = framed(ApiVersionsRequest(client_software_name="fuzz", client_software_version="1"), 3)
    for _ in range(20):
        peer = connect(address)
        send(peer, good * 10 + random.randbytes(200))
        peer.settimeout(5)
        received = b""
        with contextlib.suppress(OSError):
            while data := peer.recv(1 << 16):
                received += data
                if answered(received) >= 10:
                    break
        assert answered(received) >= 10, "good requests before a bad one were not answered"
        peer.close()


def answered(received: bytes) -> int:
    """How many whole frames these bytes are."""
    count = 0
    while len(received) >= 4 and len(received) >= (size := 4 + struct.unpack(">i", received[:4])[0]):
        received = received[size:]
        count += 1
    return count


ATTACKS: list[Attack] = [
    garbage,
    garbage_in_frames,
    half_requests,
    wrong_lengths,
    unknown_apis_and_versions,
    any_values,
    values_that_exist,
    mutated_requests,
    sensible_requests_with_bad_records,
    ten_megabytes_of_zeros,
    never_reading,
    large_announcements,
    byte_by_byte,
    leaving_at_once,
    pipelined_nonsense,
]
