"""Replicas talk over sockets: order, time, connections that end, and what is not understood."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.base.errors import InvariantError
from barnabas.base.ids import Uuid
from barnabas.raft.ports import Transport
from barnabas.raft.socket_client import OpenedConnection
from barnabas.raft.socket_parts import RAFT_APIS
from barnabas.raft.socket_server import AcceptedConnection
from barnabas.raft.socket_transport import SocketTransport
from barnabas.raft.types import Address
from barnabas.testing.sim.world import Host, World
from barnabas.wire import ApiKey, Request, api
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionResult,
    ReplicaState,
    TopicResult,
)
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.fetch_snapshot import FetchSnapshotRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.update_raft_voter import KRaftVersionFeature
from barnabas.wire.messages.vote import VoteRequest
from tests.raft.conftest import Run, run_simulated
from tests.raft.replicas import (
    HOST,
    RawPeer,
    Replica,
    fetch_request,
    framed,
    replicas,
    snapshot_response,
    vote_request,
    vote_response,
)
from tests.virtual_time import on_virtual_time, until, virtual_loop

MIB = 1024 * 1024


def request_of(key: ApiKey) -> Request:
    """A request with as little in it as possible."""
    if key is ApiKey.VOTE:
        return vote_request()
    kind = api(key).request
    values: dict[str, Any] = {
        "topics": [],
        "cluster_id": "c",
        "timeout_ms": 1,
        "voter_id": 1,
        "voter_directory_id": Uuid.ZERO,
        "listeners": [],
        "current_leader_epoch": 1,
        "k_raft_version_feature": KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
        "max_wait_ms": 1,
        "min_bytes": 0,
    }
    return kind(**{each.name: values[each.name] for each in kind.FIELDS if each.name in values})


def test_it_is_a_transport() -> None:
    transport: Transport = SocketTransport(None, randomness=Random(1))
    assert transport


def test_replicas_ask_each_other_all_that_there_is_in_the_newest_version(run: Run) -> None:
    async def story() -> None:
        one, other, address = await replicas()
        for key in RAFT_APIS:
            response = await one.ask(address, request_of(key))
            assert isinstance(response, api(key).response)
        assert [version for _, version in other.received] == [api(key).served.high for key in RAFT_APIS]
        assert (await other.ask(one.transport.address, vote_request(7))).topics[0].partitions[0].leader_epoch == 7
        await one.stop()
        await other.stop()

    run(story)


def test_a_transport_without_an_address_only_asks(run: Run) -> None:
    async def story() -> None:
        other, received = Replica(), Replica()
        address = await other.start()
        one = SocketTransport(None, randomness=Random(1))
        await one.start(received.receive, received.refused.append)
        with pytest.raises(InvariantError, match="does not listen"):
            assert one.address
        answer = asyncio.get_running_loop().create_future()
        one.send(address, vote_request(), answer.set_result, timeout_ms=2000)
        assert await answer is not None
        await one.stop()
        await other.stop()

    run(story)


# Order


def test_answers_leave_in_the_order_of_the_requests(run: Run) -> None:
    async def story() -> None:
        replica = Replica()
        replica.held_kinds = (VoteRequest,)
        peer = await RawPeer.connect(await replica.start())
        peer.transport.write(b"".join(framed(vote_request(each), 2, each) for each in (5, 6, 7)))
        # They are handed over as they come, whatever is not answered yet.
        await until(lambda: len(replica.held) == 3)
        for request, reply in reversed(replica.held):
            reply(vote_response(request.topics[0].partitions[0].replica_epoch))  # type: ignore[attr-defined]
        frames = await peer.until_frames(3)
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == [5, 6, 7]
        peer.transport.close()
        await replica.stop()

    run(story)


def test_a_vote_does_not_wait_for_a_fetch_that_is_kept(run: Run) -> None:
    async def story() -> None:
        one, other, address = await replicas()
        other.held_kinds = (FetchRequest, FetchSnapshotRequest)
        fetched, snapshot = one.ask(address, fetch_request()), one.ask(address, request_of(ApiKey.FETCH_SNAPSHOT))
        await until(lambda: len(other.held) == 2)
        votes = await asyncio.gather(*(one.ask(address, vote_request(epoch)) for epoch in range(10)))
        assert [each.topics[0].partitions[0].leader_epoch for each in votes] == [*range(10)]
        assert not fetched.done()
        assert not snapshot.done()
        await one.stop()
        await other.stop()

    run(story)


def test_a_request_is_answered_once(run: Run) -> None:
    async def story() -> None:
        one, other, address = await replicas()
        other.held_kinds = (VoteRequest,)
        asked = one.ask(address, vote_request())
        await until(lambda: other.held)
        ((_, reply),) = other.held
        reply(vote_response(1))
        with pytest.raises(InvariantError):
            reply(vote_response(2))
        assert (await asked).topics[0].partitions[0].leader_epoch == 1
        await one.stop()
        await until(lambda: not other.transport._around.connections)  # type: ignore[union-attr]
        await other.stop()
        reply(vote_response(3))

    run(story)


# Time


@on_virtual_time
async def test_an_answer_that_does_not_come_in_time_ends_the_connection() -> None:
    one, other, address = await replicas()
    loop = asyncio.get_running_loop()
    await one.ask(address, vote_request())
    other.held_kinds = (VoteRequest,)
    began_s = loop.time()
    patient, hasty = one.ask(address, vote_request(), 5000), one.ask(address, vote_request(), 300)
    assert await hasty is None
    assert loop.time() - began_s == pytest.approx(0.3)
    assert await patient is None
    assert loop.time() - began_s == pytest.approx(0.3)
    # It did not close of itself, so that nobody says that it is gone.
    assert one.refused == []
    other.held_kinds = ()
    assert await one.ask(address, vote_request()) is None
    await asyncio.sleep(0.1)
    assert await one.ask(address, vote_request()) is not None
    # A time that is over is not remembered.
    await asyncio.sleep(10)
    assert await one.ask(address, vote_request()) is not None
    await one.stop()
    await other.stop()


def test_whoever_waits_for_a_silent_host_waits_no_longer_than_was_said() -> None:
    with World(1) as world:
        world.network.partition(["10.0.0.1"], ["10.0.0.2"])
        one, _, address = two_hosts(world)

        async def story() -> None:
            replica = await start_replica(one)
            began_s = world.loop.time()
            assert await one.do(asked(replica, address, 700)) is None
            assert world.loop.time() - began_s == pytest.approx(0.7)
            assert await one.do(asked(replica, address, 7000)) is None
            assert world.loop.time() - began_s == pytest.approx(2.0)
            world.network.heal()
            await asyncio.sleep(2)
            other = await start_replica(world.host("10.0.0.2"))
            assert await one.do(asked(replica, address)) is not None
            assert len(other.received) == 1

        world.run(story())


# Connections that end


def two_hosts(world: World) -> tuple[Host, Host, Address]:
    one, other = world.host("10.0.0.1"), world.host("10.0.0.2")
    return one, other, Address(other.address, 9093)


async def start_replica(host: Host) -> Replica:
    host.start_process("replica")
    replica = Replica(9093, host.address)
    await host.do(replica.start())
    return replica


async def asked(replica: Replica, to: Address, timeout_ms: int = 2000, request: Request | None = None) -> Any:
    return await replica.ask(to, request or vote_request(), timeout_ms)


@on_virtual_time
async def test_tries_grow_rare_while_nobody_listens_and_what_is_asked_meanwhile_fails_at_once() -> None:
    loop: Any = asyncio.get_running_loop()
    tries: list[float] = []
    loop.network.trace = lambda kind, *_: tries.append(loop.time()) if kind == "refuse" else None
    replica, nobody = Replica(), Address(HOST, 9)
    await replica.start()
    began_s = loop.time()
    while loop.time() - began_s < 10:
        asked_s = loop.time()
        assert await replica.ask(nobody, vote_request()) is None
        assert loop.time() - asked_s < 0.01
        await asyncio.sleep(0.005)
    waits = [later - earlier for earlier, later in itertools.pairwise(tries)]
    for wait_s, exact_s in zip(waits, [0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 20], strict=False):
        assert 0.8 * exact_s <= wait_s <= 1.2 * exact_s + 0.02
    assert len(waits) > 8
    assert len(set(waits[5:])) > 1
    # Nobody was there before, so nobody has gone.
    assert replica.refused == []
    await replica.stop()


@pytest.mark.parametrize("seed", range(10))
def test_that_a_peer_is_gone_is_told_once(seed: int) -> None:
    with World(seed) as world:
        one, other, address = two_hosts(world)

        async def story() -> None:
            replica = await start_replica(one)
            for _ in range(2):
                peer = await start_replica(other)
                await asyncio.sleep(1.5)
                replica.refused.clear()
                peer.held_kinds = (FetchRequest,)
                assert await one.do(asked(replica, address)) is not None
                waiting = world.loop.create_task(one.do(asked(replica, address, 60_000, fetch_request())))
                await until(partial(getattr, peer, "held"))
                killed_s = world.loop.time()
                other.kill()
                assert await waiting is None
                await until(lambda: replica.refused)
                assert world.loop.time() - killed_s < 0.03
                # Both connections were in use, and both found out.
                await asyncio.sleep(5)
                assert replica.refused == [address]
                assert await one.do(asked(replica, address)) is None
                assert replica.refused == [address]

        world.run(story())


def test_that_it_was_stopped_is_told_too(run: Run) -> None:
    async def story() -> None:
        one, other, address = await replicas()
        await one.ask(address, vote_request())
        await other.stop()
        await until(lambda: one.refused)
        assert one.refused == [address]
        await one.stop()

    run(story)


@on_virtual_time
async def test_a_process_that_closes_its_connections_before_its_listener_is_gone_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other, address = await replicas()
    assert await one.ask(address, vote_request()) is not None
    around, server = other.transport._around, other.transport._server
    assert around is not None
    assert server is not None

    def drop(self: AcceptedConnection, transport: asyncio.Transport) -> None:
        server.close()
        transport.abort()

    # Whoever comes now is taken and dropped, and whoever comes after him is refused.
    monkeypatch.setattr(AcceptedConnection, "connection_made", drop)
    for each in list(around.connections):
        each.abort()
    await asyncio.sleep(1)
    assert one.refused == [address]
    await one.stop()


def test_a_connection_that_has_ended_before_anything_was_asked_answers_nothing() -> None:
    async def story() -> None:
        loop, options = asyncio.get_running_loop(), SimpleNamespace(max_response_bytes=1 << 20)
        around: Any = SimpleNamespace(
            loop=loop, options=options, connections={}, is_stopped=False, gone=lambda each: None
        )
        channel: Any = SimpleNamespace(lost=lambda *_, **__: None)
        connection = OpenedConnection(channel, around, "one")
        connection.connection_lost(None)
        async with asyncio.timeout(5):
            assert await connection.ask(ApiVersionsRequest(), 3) is None

    asyncio.run(story())


def test_a_seed_does_the_same_each_time() -> None:
    def digest(seed: int) -> str:
        with World(seed) as world:
            one, other, address = two_hosts(world)

            async def story() -> None:
                replica = await start_replica(one)
                for _ in range(3):
                    await start_replica(other)
                    for _ in range(5):
                        asks = [one.do(asked(replica, address, 500)) for _ in range(3)]
                        await asyncio.gather(*asks, one.do(asked(replica, address, 500, fetch_request())))
                        await asyncio.sleep(0.02)
                    other.kill()
                    await asyncio.sleep(1)

            world.run(story())
            return world.trace.hexdigest()

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


@pytest.mark.parametrize("misfortune", ["reset", "power", "pause", "restart", "unused"])
def test_what_else_ends_connections_is_not_taken_for_the_end_of_the_peer(misfortune: str) -> None:
    with World(3) as world:
        one, other, address = two_hosts(world)

        async def story() -> None:
            replica = await start_replica(one)
            await start_replica(other)
            assert await one.do(asked(replica, address)) is not None
            waiting = world.loop.create_task(one.do(asked(replica, address, 2_000)))
            await asyncio.sleep(0.00005)  # sent, and not there yet
            if misfortune == "reset":
                world.network.reset()
            elif misfortune == "power":
                other.power_off()
            elif misfortune == "pause":
                other.pause()
            elif misfortune == "restart":
                other.kill()
                await start_replica(other)
            else:
                await waiting
                await asyncio.sleep(60)
                other.kill()
            answer = await waiting
            assert (answer is None) == (misfortune != "unused")
            await asyncio.sleep(30)
            assert replica.refused == []

        world.run(story())


def test_a_connection_that_broke_in_use_is_opened_again_without_being_asked() -> None:
    with World(3) as world:
        one, other, address = two_hosts(world)

        async def story() -> None:
            replica = await start_replica(one)
            peer = await start_replica(other)
            assert await one.do(asked(replica, address)) is not None
            world.network.reset()
            await asyncio.sleep(0.05)
            assert len(peer.transport._around.connections) == 1  # type: ignore[union-attr]
            # Who asks while it is being opened waits for it.
            world.network.reset()
            await asyncio.sleep(0)
            assert await one.do(asked(replica, address)) is not None

        world.run(story())


@on_virtual_time
async def test_a_peer_that_takes_connections_and_answers_nothing_is_not_tried_without_end() -> None:
    count = 0

    class Fickle(RawPeer):
        """Tells its versions, and closes when it is asked for more."""

        def connection_made(self, transport: Any) -> None:
            nonlocal count
            count += 1
            super().connection_made(transport)

        def on_frame(self, frame: bytearray) -> None:
            if len(self.frames) == 1:
                # The api's key 52, v0-2, in the form of ApiVersions v3.
                body = frame[4:8] + b"\0\0" + b"\x02" + b"\0\x34\0\0\0\2\0" + bytes(4) + b"\0"
                self.transport.write(len(body).to_bytes(4, "big") + body)
            else:
                self.transport.close()

    server = await asyncio.get_running_loop().create_server(Fickle, HOST, 9093)
    replica = Replica()
    await replica.start()
    for _ in range(1000):
        assert await replica.ask(Address(HOST, 9093), vote_request()) is None
        await asyncio.sleep(0.01)
    assert 8 < count < 25
    assert replica.refused == []
    await replica.stop()
    server.close()


def test_stopping_lets_what_was_written_leave_and_tells_nobody(run: Run) -> None:
    async def story() -> None:
        one, other, address = await replicas()
        other.held_kinds = (FetchRequest,)
        assert await one.ask(address, vote_request()) is not None
        waiting = one.ask(address, fetch_request())
        await until(lambda: other.held)
        last_words = one.ask(address, request_of(ApiKey.END_QUORUM_EPOCH))
        failing = one.ask(Address(HOST, 9), vote_request())
        port = one.transport.address.port
        await one.stop()
        await one.stop()
        await until(lambda: other.received[-1][0].API_KEY == ApiKey.END_QUORUM_EPOCH)
        one.transport.send(address, vote_request(), last_words.set_result, timeout_ms=10)
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert not last_words.done()
        assert not failing.done()
        # And what it listened at is free.
        again = Replica(port)
        await again.start()
        await again.stop()
        await other.stop()

    run(story)


@on_virtual_time
async def test_connections_that_are_silent_for_long_are_closed() -> None:
    replica = Replica(connections_max_idle_ms=1000)
    address = await replica.start()
    peer, idler = await RawPeer.connect(address), await RawPeer.connect(address)
    for each in range(10):
        peer.transport.write(framed(vote_request(), 2, each))
        await asyncio.sleep(0.4)
    assert idler.is_lost
    assert not peer.is_lost
    assert len(peer.frames) == 10
    await replica.stop()


# What is not understood

VOTE = framed(vote_request(), 2, 1)

GARBAGE = {
    "an api that is not Raft's": framed(HeartbeatRequest(group_id="", generation_id=1, member_id=""), 0, 1),
    "an unknown api": (14).to_bytes(4, "big") + (999).to_bytes(2, "big") + bytes(12),
    "a version that is not served": VOTE[:6] + b"\0\x03" + VOTE[8:],
    "an old version": framed(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 3, 1),
    "no header": (3).to_bytes(4, "big") + b"abc",
    "a client id without end": VOTE[:12] + b"\x7f\xff" + VOTE[14:],
    "a client id before its beginning": VOTE[:12] + b"\xff\xf0" + VOTE[14:],
    "a body cut short": (len(VOTE) - 9).to_bytes(4, "big") + VOTE[4:-5],
    "bytes after the body": (len(VOTE) - 3).to_bytes(4, "big") + VOTE[4:] + b"\0",
    "a frame without bytes": bytes(4),
    "a frame of less than nothing": b"\xff\xff\xff\xff",
    "a frame too large": (8 * MIB + 65 * 1024).to_bytes(4, "big"),
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_ends_its_connection_and_no_other(garbage: bytes, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        caplog.clear()
        replica = Replica()
        address = await replica.start()
        peer, bystander = await RawPeer.connect(address), await RawPeer.connect(address)
        peer.transport.write(framed(vote_request(), 2, 77) + garbage)
        await peer.until_lost()
        assert len(replica.received) == 1
        bystander.transport.write(VOTE)
        assert len(await bystander.until_frames(1)) == 1
        (line,) = [each for each in caplog.records if each.name == "barnabas.raft"]
        assert line.getMessage().startswith(f"the connection with {HOST}:")
        bystander.transport.close()
        await replica.stop()

    run(story)


@on_virtual_time
async def test_complaints_are_few() -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("barnabas.raft").addHandler(handler)
    try:
        replica = Replica()
        address = await replica.start()
        for pause_s in (*[0.0] * 50, 60.0):
            await asyncio.sleep(pause_s)
            peer = await RawPeer.connect(address)
            peer.transport.write(bytes(4))
            await peer.until_lost()
        await replica.stop()
    finally:
        logging.getLogger("barnabas.raft").removeHandler(handler)
    assert len(lines) == 12
    assert lines[10] == "40 more connections were ended for what came on them"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frame: b"\0\0\0\x05" + b"\0\0\0\x63\0",
        lambda frame: b"\0\0\0\x02\0\0",
        lambda frame: b"\0\0\0\x06" + bytes(frame[4:8]) + b"\0\0",
        lambda frame: b"\x7f\xff\xff\xff",
    ],
    ids=["another correlation id", "too short", "cut off", "too large"],
)
def test_an_answer_that_is_none_ends_the_connection(spoil: Callable[[bytearray], bytes], run: Run) -> None:
    async def story() -> None:
        one, other, address = await replicas()
        other.held_kinds = (VoteRequest,)
        await one.ask(address, fetch_request())
        answers = [one.ask(address, vote_request(), 5000) for _ in range(2)]
        await until(lambda: len(other.held) == 2)
        for each in list(other.transport._around.connections):  # type: ignore[union-attr]
            assert isinstance(each, AcceptedConnection)
            for unanswered in each._unanswered:
                frame = bytearray(4) + unanswered.correlation_id.to_bytes(4, "big")
                each._transport.write(spoil(frame))
                break
        assert await asyncio.gather(*answers) == [None, None]
        await one.stop()
        await other.stop()

    run(story)


@on_virtual_time
async def test_an_answer_that_does_not_go_into_the_version_of_the_request_ends_the_connection_alone() -> None:
    replica = Replica()
    replica.held_kinds = (DescribeQuorumRequest,)
    address = await replica.start()
    peer, bystander = await RawPeer.connect(address), await RawPeer.connect(address)
    peer.transport.write(framed(DescribeQuorumRequest(topics=[]), 1, 1))
    await until(lambda: replica.held)
    voter = ReplicaState(replica_id=1, replica_directory_id=Uuid(bytes([1] * 16)), log_end_offset=1)
    result = PartitionResult(
        partition_index=0, leader_id=1, leader_epoch=1, high_watermark=1, current_voters=[voter], observers=[]
    )
    replica.held[0][1](DescribeQuorumResponse(topics=[TopicResult(topic_name="t", partitions=[result])]))
    await peer.until_lost()
    bystander.transport.write(VOTE)
    assert len(await bystander.until_frames(1)) == 1
    await replica.stop()


# Bytes


def test_large_answers_pass(run: Run) -> None:
    async def story() -> None:
        one, other, address = await replicas()
        other.held_kinds = (FetchSnapshotRequest,)
        # In a simulated world a byte costs much more, and many windows are as good as very many.
        data = bytes(range(256)) * ((1 if run is run_simulated else 8) * MIB // 256)
        asked = one.ask(address, request_of(ApiKey.FETCH_SNAPSHOT), 20_000)
        await until(lambda: other.held)
        other.held[0][1](snapshot_response(data))
        assert (await asked).topics[0].partitions[0].unaligned_records == data
        await one.stop()
        await other.stop()

    run(story)


def test_frames_above_the_limits_are_refused(run: Run) -> None:
    async def story() -> None:
        one, other, address = await replicas(max_response_bytes=1000, max_request_bytes=1000)
        other.held_kinds = (FetchSnapshotRequest,)
        asked = one.ask(address, request_of(ApiKey.FETCH_SNAPSHOT))
        await until(lambda: other.held)
        other.held[0][1](snapshot_response(bytes(1000)))
        assert await asked is None
        request = vote_request()
        request.cluster_id = "c" * 1000
        assert await one.ask(address, request) is None
        assert other.received[1:] == []
        await one.stop()
        await other.stop()

    run(story)


class Written:
    """A transport in the memory of the test."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False
        self._is_reading = True

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def writelines(self, parts: list[bytes]) -> None:
        self.write(b"".join(parts))

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def reads(self) -> bool:
        return self._is_reading

    def get_extra_info(self, name: str) -> None:
        return None


async def accepted(replica: Replica) -> tuple[AcceptedConnection, Written]:
    await replica.start()
    around = replica.transport._around
    assert around is not None
    connection, written = AcceptedConnection(around, replica.receive), Written()
    connection.connection_made(written)  # type: ignore[arg-type]
    return connection, written


def test_requests_may_be_cut_anywhere() -> None:
    data = (
        framed(vote_request(1), 0, 1) + framed(fetch_request(), 17, 2) + framed(request_of(ApiKey.API_VERSIONS), 0, 3)
    )

    async def story(cuts: list[int]) -> bytes:
        connection, written = await accepted(Replica())
        for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            connection.data_received(data[start:end])
        return b"".join(written.writes)

    with virtual_loop() as loop:
        whole = loop.run_until_complete(story([]))
        assert len(whole) > 50
        assert loop.run_until_complete(story([*range(1, len(data))])) == whole
        for cut in range(1, len(data)):
            assert loop.run_until_complete(story([cut])) == whole


@on_virtual_time
async def test_what_is_answered_while_requests_are_read_leaves_in_one_piece_and_all_else_at_once() -> None:
    replica = Replica(max_unanswered_requests=8)
    connection, written = await accepted(replica)
    connection.data_received(b"".join(framed(vote_request(), 2, each) for each in range(5)))
    assert len(written.writes) == 1
    replica.held_kinds = (VoteRequest,)
    connection.data_received(b"".join(framed(vote_request(), 2, each) for each in range(5)))
    for number, (_, reply) in enumerate(replica.held):
        assert len(written.writes) == 1 + number
        reply(vote_response(1))
    assert len(written.writes[0]) == sum(map(len, written.writes[1:]))


@on_virtual_time
async def test_whoever_does_not_read_or_asks_too_much_is_not_read_from() -> None:
    replica = Replica(max_unanswered_requests=3)
    replica.held_kinds = (VoteRequest,)
    connection, written = await accepted(replica)
    connection.data_received(framed(vote_request(), 2, 1) * 2)
    assert written.reads()
    connection.data_received(framed(vote_request(), 2, 1))
    assert not written.reads()
    replica.held[1][1](vote_response(1))
    assert not written.reads()
    replica.held[0][1](vote_response(1))
    assert written.reads()
    connection.pause_writing()
    assert not written.reads()
    replica.held[2][1](vote_response(1))
    assert not written.reads()
    connection.resume_writing()
    assert written.reads()


def test_small_frames_are_not_held_back(run_real: Run) -> None:
    import socket

    async def story() -> None:
        one, other, address = await replicas()
        assert await one.ask(address, vote_request()) is not None
        connections = [*one.transport._around.connections, *other.transport._around.connections]  # type: ignore[union-attr]
        assert len(connections) == 2
        for each in connections:
            found = each._transport.get_extra_info("socket")
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        await one.stop()
        await other.stop()

    run_real(story)


def test_a_name_with_several_addresses_is_refused_when_all_of_them_do(run_real: Run) -> None:
    async def story() -> None:
        one, other = Replica(), Replica()
        await one.start()
        address = Address("localhost", (await other.start()).port)
        assert await one.ask(address, vote_request()) is not None
        await other.stop()
        await until(lambda: one.refused)
        assert one.refused == [address]
        await one.stop()

    run_real(story)
