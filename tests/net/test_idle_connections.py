"""Connections on which nothing happens are closed; those that wait for us are not."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.net import Connection, ServerLimits
from tests.net.worlds import KIB, MIB, Desk, Peer, run_simulated, started


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_each_silent_connection_is_closed_in_its_turn() -> None:
    async def story() -> None:
        server = await started(Desk(), connections_max_idle_ms=60_000)
        began_s = now_s()
        first = await Peer.connect(server)
        await asyncio.sleep(10)
        second = await Peer.connect(server)
        await asyncio.sleep(10)
        await first.ask(b"still there")
        await second.closed()
        assert now_s() - began_s == pytest.approx(70, abs=0.1)
        await first.closed()
        assert now_s() - began_s == pytest.approx(80, abs=0.1)
        await server.stop(100)

    run_simulated(story)


def test_half_a_request_does_not_keep_a_connection() -> None:
    async def story() -> None:
        server = await started(Desk(), connections_max_idle_ms=60_000)
        peer = await Peer.connect(server)
        await asyncio.sleep(30)
        peer.transport.write(b"\0\0\1\0 and no more")
        began_s = now_s()
        await peer.closed()
        assert now_s() - began_s == pytest.approx(60, abs=0.1)
        await server.stop(100)

    run_simulated(story)


def test_a_request_in_process_is_not_idle_and_silence_counts_from_its_answer() -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, connections_max_idle_ms=60_000)
        peer = await Peer.connect(server)
        peer.send(b"long poll")
        await asyncio.sleep(1000)
        assert not peer.is_closed
        desk.answer_next()
        began_s = now_s()
        await peer.answers(1)
        await peer.closed()
        assert now_s() - began_s == pytest.approx(60, abs=0.1)
        await server.stop(100)

    run_simulated(story)


def test_who_does_not_take_its_response_is_idle_and_who_takes_it_slowly_is_not() -> None:
    async def story() -> None:
        desk = Desk()
        desk.answer = lambda connection, frame: connection.respond([bytes(2 * MIB)])
        server = await started(desk, connections_max_idle_ms=60_000)
        lazy, slow = await Peer.connect(server), await Peer.connect(server)
        lazy.stop_reading()
        slow.stop_reading()
        lazy.send(b"fetch")
        slow.send(b"fetch")
        began_s = now_s()
        for _ in range(8):
            await asyncio.sleep(50)
            taken_bytes = slow.received_bytes + 200 * KIB
            slow.read_on()
            await slow.until(lambda taken_bytes=taken_bytes: slow.received_bytes >= taken_bytes)  # type: ignore[misc]
            slow.stop_reading()
        assert not slow.is_closed
        assert [connection.peer_port for connection in server.connections] == [
            slow.transport.get_extra_info("sockname")[1]
        ]
        slow.read_on()
        await slow.answers(1)
        assert now_s() - began_s > 300
        await server.stop(100)

    run_simulated(story)


def test_throttling_counts_as_silence_unless_requests_wait() -> None:
    async def story() -> None:
        desk = Desk()

        def answer(connection: Connection, frame: bytes) -> None:
            connection.mute_for(100_000)
            connection.respond([frame])

        desk.answer = answer
        server = await started(desk, connections_max_idle_ms=60_000)
        quiet, eager = await Peer.connect(server), await Peer.connect(server)
        quiet.send(b"one")
        eager.send(b"one", b"two")
        began_s = now_s()
        await quiet.closed()
        assert now_s() - began_s == pytest.approx(60, abs=0.1)
        await eager.answers(2)
        assert now_s() - began_s == pytest.approx(100, abs=0.1)
        await server.stop(100)

    run_simulated(story)


def test_the_limit_can_change_and_a_negative_one_means_never() -> None:
    async def story() -> None:
        server = await started(Desk(), connections_max_idle_ms=-1)
        peer = await Peer.connect(server)
        await asyncio.sleep(50_000)
        assert await peer.ask(b"hello") == b"hello"
        server.set_limits(ServerLimits(connections_max_idle_ms=5_000))
        began_s = now_s()
        await peer.closed()
        assert now_s() - began_s == pytest.approx(5, abs=0.1)
        await server.stop(100)

    run_simulated(story)


def test_waiting_for_others_is_silence_from_the_request_on() -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, connections_max_idle_ms=60_000)
        peer = await Peer.connect(server)
        await asyncio.sleep(50)
        began_s = now_s()
        peer.send(b"long poll")
        await desk.arrived(1)
        desk.requests[0][0].park(lambda: None)
        await peer.closed()
        assert now_s() - began_s == pytest.approx(60, abs=0.1)
        await server.stop(100)

    run_simulated(story)
