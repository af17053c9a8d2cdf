"""Opening and closing listeners."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.net import ListenError, ListenerSpec
from tests.net.worlds import MIB, Desk, Peer, Story, eventually, run_asyncio, run_simulated, started

Run = Callable[[Story], None]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def test_a_taken_port_is_told_in_one_line(run: Run) -> None:
    async def story() -> None:
        first = await started(Desk())
        port = first.endpoints["PLAINTEXT"][1]
        with pytest.raises(ListenError) as caught:
            await started(Desk(), ListenerSpec("PLAINTEXT", "127.0.0.1", port))
        assert str(caught.value) == (
            f"127.0.0.1:{port} is already in use by another process; choose another with --listen or listeners=..."
        )
        await first.stop(100)

    run(story)


def test_all_listeners_are_opened_or_none(run: Run) -> None:
    async def story() -> None:
        first = await started(Desk(), ListenerSpec("A", "127.0.0.1", 0))
        taken = first.endpoints["A"][1]
        free = await started(Desk(), ListenerSpec("A", "127.0.0.1", 0))
        port = free.endpoints["A"][1]
        await free.stop(100)
        with pytest.raises(ListenError):
            await started(Desk(), ListenerSpec("A", "127.0.0.1", port), ListenerSpec("B", "127.0.0.1", taken))
        again = await started(Desk(), ListenerSpec("A", "127.0.0.1", port))
        await again.stop(100)
        await first.stop(100)

    run(story)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("203.0.113.7", "this machine does not have the address"),
        ("no-such-host.invalid", "choose another with --listen or listeners=..."),
    ],
)
def test_an_address_that_is_not_ours_is_told(run: Run, host: str, said: str) -> None:
    async def story() -> None:
        with pytest.raises(ListenError, match=f"{host}:0 cannot be listened on") as caught:
            await started(Desk(), ListenerSpec("A", host, 0))
        assert said in str(caught.value)

    run(story)


def test_several_listeners_are_told_apart(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, ListenerSpec("A", "127.0.0.1", 0), ListenerSpec("B", "127.0.0.1", 0))
        for name in "ABA":
            peer = await Peer.connect(server, name)
            await peer.ask(name.encode())
        assert [(connection.listener, frame) for connection, frame in desk.requests] == [
            ("A", b"A"),
            ("B", b"B"),
            ("A", b"A"),
        ]
        assert [connection.id for connection, _ in desk.requests] == [1, 2, 3]
        assert {connection.peer_host for connection, _ in desk.requests} == {"127.0.0.1"}
        assert desk.requests[2][0].peer_port == peer.transport.get_extra_info("sockname")[1]
        await server.stop(100)

    run(story)


@needs_ipv6
def test_an_empty_host_means_all_addresses_on_one_port(run_real: Run) -> None:
    async def story() -> None:
        server = await started(Desk(), ListenerSpec("A", "", 0))
        host, port = server.endpoints["A"]
        assert host == ""
        for address in ("127.0.0.1", "::1"):
            _, peer = await asyncio.get_running_loop().create_connection(Peer, address, port)
            assert await peer.ask(b"hello") == b"hello"
        assert sorted(connection.peer_host for connection in server.connections) == ["127.0.0.1", "::1"]
        await server.stop(100)

    run_real(story)


def test_a_free_port_must_be_free_on_all_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        create = loop.create_server
        asked: list[tuple[str, int]] = []

        async def create_server(make: Any, host: str, port: int, **options: Any) -> asyncio.Server:
            asked.append((host, port))
            if host == "::":
                if len(asked) <= 2:
                    raise OSError(errno.EADDRINUSE, "taken")
                raise OSError(errno.EAFNOSUPPORT, "no IPv6 here")
            return await create(make, host, port, **options)

        monkeypatch.setattr(loop, "create_server", create_server)
        server = await started(Desk(), ListenerSpec("PLAINTEXT", "", 0))
        assert [host for host, _ in asked] == ["0.0.0.0", "::", "0.0.0.0", "::"]
        assert asked[2][1] == 0, "another port is looked for"
        assert await (await Peer.connect(server)).ask(b"hello") == b"hello"
        await server.stop(100)

    run_asyncio(story)


@needs_ipv6
def test_an_ipv6_address_is_written_in_brackets(run_real: Run) -> None:
    async def story() -> None:
        first = await started(Desk(), ListenerSpec("A", "::1", 0))
        port = first.endpoints["A"][1]
        with pytest.raises(ListenError, match=rf"\[::1\]:{port} is already in use"):
            await started(Desk(), ListenerSpec("A", "::1", port))
        await first.stop(100)

    run_real(story)


def test_small_answers_leave_at_once_and_dead_peers_are_noticed(run_real: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk)
        await (await Peer.connect(server)).ask(b"hello")
        found = desk.requests[0][0]._transport.get_extra_info("socket")
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 20
        await server.stop(100)

    run_real(story)


def test_a_stop_lets_requests_in_process_be_answered(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk)
        busy, idle = await Peer.connect(server), await Peer.connect(server)
        busy.send(b"in process", b"never taken up")
        await desk.arrived(1)
        stopping = asyncio.ensure_future(server.stop(10_000))
        await idle.closed()
        with pytest.raises(OSError):  # noqa: PT011 (each loop words it differently)
            await Peer.connect(server)
        assert not busy.is_closed
        desk.answer_next()
        await busy.closed()
        await stopping
        assert busy.frames == [b"in process"]
        assert desk.frames == [b"in process"]
        assert not list(server.connections)

    run(story)


def test_a_stop_does_not_wait_for_ever() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        desk = Desk()
        desk.answer = lambda connection, frame: connection.respond([bytes(MIB)]) if frame == b"big" else None
        server = await started(desk)
        never_answered, never_reads = await Peer.connect(server), await Peer.connect(server)
        never_reads.stop_reading()
        never_answered.send(b"no answer")
        never_reads.send(b"big")
        await desk.arrived(2)
        began_s = loop.time()
        await server.stop(3000)
        assert loop.time() - began_s == pytest.approx(3, abs=0.1)
        await never_answered.closed()
        await eventually(lambda: not list(server.connections))
        desk.requests[0][0].respond([b"too late, and harmless"])
        assert server.outgoing_bytes == server.reserved_bytes == 0

    run_simulated(story)


def test_a_stop_also_ends_those_who_wait_for_a_place() -> None:
    async def story() -> None:
        server = await started(Desk(), max_connection_creation_rate=1)
        peers = [await Peer.connect(server) for _ in range(5)]
        await peers[0].ask(b"hello")
        await server.stop(100)
        for peer in peers:
            await peer.closed()

    run_simulated(story)
