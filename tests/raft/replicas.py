"""Two ends of a connection for tests of the transport: replicas that answer when told to, and a peer of any bytes."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from barnabas.raft.ports import Reply
from barnabas.raft.replica_fetch import ReplicaFetch
from barnabas.raft.socket_transport import SocketOptions, SocketTransport
from barnabas.raft.types import Address
from barnabas.wire import FrameSplitter, Request, Response, api, frame_parts
from barnabas.wire.headers import encode_request
from barnabas.wire.messages import fetch, fetch_snapshot, vote

HOST = "127.0.0.1"


def vote_request(epoch: int = 1, *, pre_vote: bool = False) -> vote.VoteRequest:
    partition = vote.PartitionData(
        partition_index=0, replica_epoch=epoch, replica_id=1, last_offset_epoch=0, last_offset=0, pre_vote=pre_vote
    )
    topic = vote.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    return vote.VoteRequest(cluster_id="c", voter_id=2, topics=[topic])


def vote_response(epoch: int) -> vote.VoteResponse:
    result = vote.PartitionResult(partition_index=0, leader_id=-1, leader_epoch=epoch, vote_granted=True)
    return vote.VoteResponse(topics=[vote.TopicResult(topic_name="__cluster_metadata", partitions=[result])])


def fetch_request() -> fetch.FetchRequest:
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=0, topics=[], replica_state=fetch.ReplicaState(replica_id=1))


def snapshot_response(data: bytes) -> fetch_snapshot.FetchSnapshotResponse:
    result = fetch_snapshot.PartitionSnapshotResult(
        index=0,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=10, epoch=1),
        size=len(data),
        position=0,
        unaligned_records=data,
    )
    return fetch_snapshot.FetchSnapshotResponse(
        topics=[fetch_snapshot.TopicSnapshotResult(name="__cluster_metadata", partitions=[result])]
    )


def default_answer(request: Request) -> Response:
    if isinstance(request, vote.VoteRequest):
        return vote_response(request.topics[0].partitions[0].replica_epoch)
    if isinstance(request, fetch.FetchRequest | ReplicaFetch):
        return fetch.FetchResponse(responses=[])
    if isinstance(request, fetch_snapshot.FetchSnapshotRequest):
        return snapshot_response(b"")
    response: type[Any] = api(request.API_KEY).response
    answer: Response = response(topics=[]) if any(each.name == "topics" for each in response.FIELDS) else response()
    return answer


class Replica:
    """A transport, and what came through it. It answers at once, unless requests of that kind are to be `held`."""

    def __init__(self, port: int = 0, host: str = HOST, **options: Any) -> None:
        self.transport = SocketTransport(
            Address(host, port), randomness=Random(1), client_id="tester", options=SocketOptions(**options)
        )
        self.received: list[tuple[Request, int]] = []
        self.held: list[tuple[Request, Reply]] = []
        self.held_kinds: tuple[type[Request], ...] = ()
        self.refused: list[Address] = []

    async def start(self) -> Address:
        await self.transport.start(self.receive, self.refused.append)
        return self.transport.address

    def receive(self, request: Request, version: int, reply: Reply, listener: str | None = None) -> None:
        self.received.append((request, version))
        if isinstance(request, self.held_kinds):
            self.held.append((request, reply))
        else:
            reply(default_answer(request))

    def ask(self, to: Address, request: Request, timeout_ms: int = 2000) -> asyncio.Future[Any]:
        """The response, or None."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.transport.send(to, request, answer.set_result, timeout_ms=timeout_ms)
        assert not answer.done(), "nobody is told before `send` has returned"
        return answer

    async def stop(self) -> None:
        await self.transport.stop()


async def replicas(**options: Any) -> tuple[Replica, Replica, Address]:
    """One who asks, one who answers, and where."""
    one, other = Replica(**options), Replica(**options)
    await one.start()
    return one, other, await other.start()


def framed(request: Request, version: int, correlation_id: int) -> bytes:
    return b"".join(frame_parts(encode_request(request, version, correlation_id, "tester")))


class RawPeer(asyncio.Protocol):
    """Any bytes in, whole frames out. As a server it calls `on_frame`, if there is one."""

    def __init__(self) -> None:
        self.frames: list[bytearray] = []
        self.splitter = FrameSplitter()
        self.transport: Any = None
        self.is_lost = False
        self.news = asyncio.Event()

    @classmethod
    async def connect(cls, to: Address) -> RawPeer:
        _, peer = await asyncio.get_running_loop().create_connection(cls, to.host, to.port)
        return peer

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for frame in self.splitter.feed(data):
            self.frames.append(frame)
            self.on_frame(frame)
        self.news.set()

    def on_frame(self, frame: bytearray) -> None:
        """For those who answer."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.news.set()

    async def until_frames(self, count: int) -> list[bytearray]:
        while len(self.frames) < count and not self.is_lost:
            self.news.clear()
            await self.news.wait()
        return self.frames

    async def until_lost(self) -> None:
        while not self.is_lost:
            self.news.clear()
            await self.news.wait()
