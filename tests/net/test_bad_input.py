"""Whatever one peer sends, the others go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.net import ConnectionPhase, ListenerSpec
from tests.net.worlds import KIB, MIB, Desk, Peer, Story, framed, run_simulated, started

Run = Callable[[Story], None]


@pytest.mark.parametrize("size", [0, -1, -(2**31), 1001, 2**31 - 1])
def test_a_size_outside_the_limits_closes_that_connection(run: Run, size: int) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, socket_request_max_bytes=1000)
        bad, good = await Peer.connect(server), await Peer.connect(server)
        bad.transport.write(size.to_bytes(4, "big", signed=True))
        await bad.closed()
        assert await good.ask(b"x" * 1000) == b"x" * 1000
        await server.stop(100)

    run(story)


def test_ten_megabytes_of_zeros_end_the_connection(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk)
        bad, good = await Peer.connect(server), await Peer.connect(server)
        bad.transport.write(bytes(10 * MIB))
        await bad.closed()
        assert await good.ask(b"hello") == b"hello"
        assert desk.frames == [b"hello"]
        await server.stop(100)

    run(story)


def test_what_came_before_the_garbage_is_answered(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.transport.write(framed(b"first", b"second") + bytes(4))
        await desk.arrived(1)
        desk.answer_next()
        await desk.arrived(2)
        desk.answer_next()
        await peer.closed()
        assert peer.frames == [b"first", b"second"]
        await server.stop(100)

    run(story)


def test_half_a_request_is_never_dispatched(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk)
        peer, other = await Peer.connect(server), await Peer.connect(server)
        peer.transport.write(framed(b"x" * 1000)[:500])
        assert await other.ask(b"hello") == b"hello"
        peer.transport.write_eof()
        await peer.closed()
        assert desk.frames == [b"hello"]
        await server.stop(100)

    run(story)


def test_before_authentication_frames_are_small(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        spec = ListenerSpec("PLAINTEXT", "127.0.0.1", 0, first_phase=ConnectionPhase.AUTHENTICATING)
        server = await started(desk, spec, sasl_server_max_receive_size=10, socket_request_max_bytes=1000)
        peer, liar = await Peer.connect(server), await Peer.connect(server)
        await peer.ask(b"token")
        connection = desk.requests[0][0]
        assert (connection.phase, connection.principal) == (ConnectionPhase.AUTHENTICATING, "User:ANONYMOUS")
        connection.become_ready("User:alice")
        assert await peer.ask(b"x" * 1000) == b"x" * 1000
        assert (connection.phase, connection.principal) == (ConnectionPhase.READY, "User:alice")
        liar.send(b"x" * 11)
        await liar.closed()
        await server.stop(100)

    run(story)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    junk=st.lists(
        st.one_of(
            st.binary(max_size=300),
            st.integers(-(2**31), 2**31 - 1).map(lambda size: size.to_bytes(4, "big", signed=True)),
            st.binary(min_size=1, max_size=300).map(framed),
            st.integers(1, 300 * KIB).map(lambda size: framed(bytes(size))),
        ),
        max_size=6,
    ),
)
def test_junk_harms_only_its_sender(seed: int, junk: list[bytes]) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, queued_max_request_bytes=MIB, connections_max_idle_ms=60_000)
        bad, good = await Peer.connect(server), await Peer.connect(server)
        for each in junk:
            bad.transport.write(each)
        assert await good.ask(b"hello") == b"hello"
        bad.transport.write_eof()
        await bad.closed()
        assert await good.ask(b"still there") == b"still there"
        assert server.reserved_bytes == server.outgoing_bytes == 0
        await server.stop(100)

    run_simulated(story, seed)
