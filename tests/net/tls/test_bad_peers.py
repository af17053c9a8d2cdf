"""Peers that do not speak TLS, stop half way, send too much or send noise: each is ended in bounded time and memory,
and the listener serves the next one."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from random import Random

import pytest

from barnabas.net import ConnectionPhase, Server
from tests.net.tls.test_connections import dialled
from tests.net.tls.worlds import RawPeer, listener, python_context
from tests.net.worlds import KIB, MIB, Desk, Peer, Story, eventually, framed, started
from tests.sweeps import IS_FULL

Run = Callable[[Story], None]


def client_hello() -> bytes:
    """The first flight of a client of Python's."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = python_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    "bytes_sent",
    [framed(b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01c"), b"GET / HTTP/1.1\r\n\r\n", bytes(1000), b"\xff" * 1000],
    ids=["kafka", "http", "zeros", "ones"],
)
def test_who_does_not_speak_tls_is_ended(run: Run, bytes_sent: bytes) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, listener())
        peer = await RawPeer.connect(server, "SSL")
        peer.transport.write(bytes_sent)
        await peer.closed()
        assert not desk.requests
        assert server.authentications.failed_count == 1
        await server.stop(100)

    run(story)


def test_who_speaks_tls_to_a_plaintext_port_is_ended(run: Run) -> None:
    """The first four bytes of a ClientHello are the size of a frame that nobody may send."""

    async def story() -> None:
        desk = Desk()
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.transport.write(client_hello())
        await peer.closed()
        assert not desk.requests
        assert server.request_bytes == 0
        await server.stop(100)

    run(story)


@pytest.mark.parametrize("sent", [0, 3, 100])
def test_who_stops_half_way_is_ended_in_time(run: Run, sent: int) -> None:
    async def story() -> None:
        server = await started(Desk(), listener(), handshake_timeout_ms=300)
        peer = await RawPeer.connect(server, "SSL")
        peer.transport.write(client_hello()[:sent])
        began_s = asyncio.get_running_loop().time()
        await peer.closed()
        assert 0.25 < asyncio.get_running_loop().time() - began_s < 5
        assert server.authentications.failed_count == 1
        assert not list(server.connections)
        await server.stop(100)

    run(story)


def test_a_handshake_in_single_bytes_is_done(run_real: Run) -> None:
    async def story() -> None:
        server = await started(Desk(), listener())
        raw = await RawPeer.connect(server, "SSL")
        for byte in client_hello():
            raw.transport.write(bytes([byte]))
            await asyncio.sleep(0)
        await eventually(lambda: raw.received_bytes > 500 or raw.is_closed)
        assert not raw.is_closed
        raw.transport.abort()
        await server.stop(100)

    run_real(story)


def test_a_handshake_without_end_is_ended_by_its_size(run: Run) -> None:
    """Records of the handshake that never make a message whole."""

    async def story() -> None:
        server = await started(Desk(), listener())
        peer = await RawPeer.connect(server, "SSL")
        # A ClientHello that says it has 16 MB, and brings them.
        record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(0x4000 - 4)
        more = b"\x16\x03\x01\x40\x00" + bytes(0x4000)
        for piece in (record, *[more] * 64):
            if peer.is_closed:
                break
            peer.transport.write(piece)
            await asyncio.sleep(0)
        await peer.closed()
        assert server.authentications.failed_count == 1
        await server.stop(100)

    run(story)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_older_versions_are_refused(run_real: Run, version: ssl.TLSVersion) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, listener())
        context = python_context()
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await dialled(server, context)
        assert not desk.requests
        await server.stop(100)

    with pytest.warns(DeprecationWarning, match="TLSv1"):
        run_real(story)


@pytest.mark.parametrize("size", [512 * KIB + 1, 100 * MIB])
def test_before_a_peer_has_shown_who_it_is_its_frames_are_small(run_real: Run, size: int) -> None:
    """CVE-2022-34917: TLS alone shows nothing where the listener has SASL as well."""

    async def story() -> None:
        desk = Desk()
        server = await started(desk, listener(spec={"first_phase": ConnectionPhase.AUTHENTICATING}))
        peer = await dialled(server)
        assert await peer.ask(b"small") == b"small"
        assert desk.requests[0][0].phase is ConnectionPhase.AUTHENTICATING
        peer.transport.write(size.to_bytes(4, "big") + bytes(70_000))
        await peer.closed()
        assert server.request_bytes == 0
        await server.stop(100)

    run_real(story)


def test_before_there_is_a_place_nobody_shakes_hands(run_real: Run) -> None:
    async def story() -> None:
        server = await started(Desk(), listener(), max_connections=1)
        first = await dialled(server)
        second = await RawPeer.connect(server, "SSL")
        second.transport.write(client_hello())
        await asyncio.sleep(0.1)
        assert not second.received_bytes
        first.transport.close()
        await eventually(lambda: second.received_bytes > 0)
        second.transport.abort()
        await server.stop(100)

    run_real(story)


def test_renegotiation_is_refused(run_real: Run) -> None:
    """In TLS 1.2 a client could ask for handshake after handshake, each of which costs the server most."""
    context = listener().tls.contexts.server  # type: ignore[union-attr]
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def _noise(server: Server, randomness: Random, hello: bytes) -> None:
    """One peer: what it sends is a handshake with a few bytes changed, cut or repeated, or noise behind a good one."""
    peer = await RawPeer.connect(server, "SSL")
    data = bytearray(hello)
    for _ in range(randomness.randrange(1, 8)):
        kind, place = randomness.randrange(4), randomness.randrange(len(data))
        if kind == 0:
            data[place] = randomness.randrange(256)
        elif kind == 1:
            data[place:place] = randomness.randbytes(randomness.randrange(64))
        elif kind == 2:
            del data[place : place + randomness.randrange(64)]
            data = data or bytearray(b"\x16")
        else:
            data += data[: randomness.randrange(len(data))]
    peer.transport.write(bytes(data))
    if randomness.random() < 0.5:
        peer.transport.write_eof()
    await peer.closed()


def test_noise_in_the_handshake_harms_nobody(run: Run) -> None:
    async def story() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        desk = Desk()
        server = await started(desk, listener(client_auth="requested"), handshake_timeout_ms=200)
        randomness, hello = Random(21), client_hello()
        # Most of them are silent in the end, and are waited for together.
        rounds, at_a_time = (20, 50) if IS_FULL else (12, 5)
        for _ in range(rounds):
            await asyncio.gather(*(_noise(server, randomness, hello) for _ in range(at_a_time)))
        assert not failures
        assert not desk.requests
        await eventually(lambda: not list(server.connections))
        assert server.request_bytes == 0
        await server.stop(100)

    run(story)


def test_noise_behind_the_handshake_ends_the_connection(run_real: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, listener())
        randomness = Random(3)
        for _ in range(20):
            peer = await dialled(server)
            assert await peer.ask(b"hello") == b"hello"
            # Under the peer's own TLS, so that it is no record.
            noise = randomness.randbytes(randomness.randrange(1, 400))
            os.write(peer.transport.get_extra_info("socket").fileno(), noise)
            peer.transport.write(b"\0\0\0\1x")
            await peer.closed()
        assert len(desk.requests) == 20
        await server.stop(100)

    run_real(story)
