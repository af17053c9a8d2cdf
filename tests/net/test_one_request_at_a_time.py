"""A connection hands over one request at a time, and answers keep the order of the questions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import InvariantError
from barnabas.net import Connection
from tests.net.worlds import KIB, MIB, Desk, Peer, Story, eventually, framed, run_simulated, started

Run = Callable[[Story], None]


def test_pipelined_requests_are_answered_in_order(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk)
        peer = await Peer.connect(server)
        wanted = [b"request %d" % number for number in range(1000)]
        peer.send(*wanted)
        assert await peer.answers(1000) == wanted == desk.frames
        await server.stop(100)

    run(story)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    plan=st.lists(
        st.tuples(st.integers(1, 200_000), st.sampled_from(["now", "later", "silent", "throttled"])), max_size=8
    ),
)
def test_whatever_the_pieces_and_delays_order_is_kept(seed: int, plan: list[tuple[int, str]]) -> None:
    """Requests of any size, answered at once, later, never or with throttling, on a network that cuts as it likes."""
    frames = [bytes([number]) * size for number, (size, _) in enumerate(plan)]
    in_process: list[int] = []

    async def story() -> None:
        desk = Desk()
        loop = asyncio.get_running_loop()

        def finish(connection: Connection, number: int, manner: str) -> None:
            assert in_process.pop() == number
            if manner == "silent":
                connection.finish_without_response()
                return
            if manner == "throttled":
                connection.mute_for(20)
            connection.respond([bytes([number]), b"!"])

        def answer(connection: Connection, frame: bytes) -> None:
            assert not in_process
            number = frame[0]
            in_process.append(number)
            manner = plan[number][1]
            if manner == "later":
                loop.call_later(0.05, finish, connection, number, manner)
            else:
                finish(connection, number, manner)

        desk.answer = answer
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.send(*frames)
        await desk.arrived(len(frames))
        assert desk.frames == frames
        wanted = [bytes([number]) + b"!" for number, (_, manner) in enumerate(plan) if manner != "silent"]
        assert await peer.answers(len(wanted)) == wanted
        assert server.reserved_bytes == 0
        await server.stop(100)

    run_simulated(story, seed)


def test_the_next_request_waits_until_the_response_was_taken(run_real: Run) -> None:
    async def story() -> None:
        desk = Desk()
        desk.answer = lambda connection, frame: connection.respond([frame, bytes(20 * MIB)])
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.stop_reading()
        peer.send(b"first", b"second")
        await desk.arrived(1)
        await eventually(lambda: server.outgoing_bytes > 0)
        other = await Peer.connect(server)
        other.send(b"other")
        await other.answers(1)
        assert desk.frames == [b"first", b"other"]
        peer.read_on()
        await peer.answers(2)
        assert desk.frames == [b"first", b"other", b"second"]
        assert server.outgoing_bytes == 0
        await server.stop(100)

    run_real(story)


def test_little_is_read_while_a_request_is_in_process(run_real: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.send(b"first")
        await desk.arrived(1)
        (connection,) = server.connections
        peer.transport.write(framed(b"x" * 1000) * 30_000)
        await eventually(lambda: bool(connection._pauses))
        kept = connection.received_bytes + sum(map(len, connection._ahead))
        assert 0 < kept <= 80 * KIB
        assert peer.transport.get_write_buffer_size() > 0
        desk.is_patient = False
        desk.answer_next()
        await peer.answers(30_001)
        await server.stop(100)

    run_real(story)


def test_a_large_request_gets_its_memory_when_its_turn_has_come(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.send(b"first")
        await desk.arrived(1)
        (connection,) = server.connections
        peer.send(b"x" * (2 * MIB))
        await eventually(lambda: bool(connection._pauses))
        assert connection.received_bytes <= 64 * KIB
        assert server.reserved_bytes == 0
        desk.answer_next()
        await desk.arrived(2)
        assert server.reserved_bytes == 2 * MIB
        desk.answer_next()
        assert server.reserved_bytes == 0
        await server.stop(100)

    run(story)


def test_a_request_without_response_makes_way_for_the_next(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        desk.answer = lambda connection, frame: (
            connection.respond([frame]) if frame == b"ask" else connection.finish_without_response()
        )
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.send(b"tell", b"tell", b"ask")
        assert await peer.answers(1) == [b"ask"]
        assert desk.frames == [b"tell", b"tell", b"ask"]
        await server.stop(100)

    run(story)


def test_after_a_throttled_response_the_connection_stays_muted() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        desk = Desk()
        times: list[float] = []

        def answer(connection: Connection, frame: bytes) -> None:
            times.append(loop.time())
            if frame == b"greedy":
                connection.mute_for(200)
                connection.mute_for(3000)
                connection.mute_for(100)
            connection.respond([frame])

        desk.answer = answer
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.send(b"greedy", b"next")
        await peer.answers(1)
        assert loop.time() - times[0] < 0.1, "the response itself is not delayed"
        await peer.answers(2)
        assert times[1] - times[0] == pytest.approx(3.0)
        await server.stop(100)

    run_simulated(story)


def test_who_shuts_down_its_side_still_gets_its_answers(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.send(b"first", b"second")
        peer.transport.write_eof()
        await desk.arrived(1)
        desk.answer_next()
        await desk.arrived(2)
        desk.answer_next()
        await peer.closed()
        assert peer.frames == [b"first", b"second"]
        await server.stop(100)

    run(story)


def test_nobody_answers_what_was_not_asked(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk)
        peer = await Peer.connect(server)
        await peer.ask(b"hello")
        (connection,) = server.connections
        with pytest.raises(InvariantError, match="a response without a request"):
            connection.respond([b"again"])
        with pytest.raises(InvariantError, match="not in process"):
            connection.finish_without_response()
        await server.stop(100)

    run(story)


def test_a_dispatch_that_fails_ends_its_connection_only(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        desk = Desk()

        def answer(connection: Connection, frame: bytes) -> None:
            if frame == b"poison":
                raise ZeroDivisionError
            connection.respond([frame])

        desk.answer = answer
        server = await started(desk)
        victim, other = await Peer.connect(server), await Peer.connect(server)
        other.send(b"before")
        victim.send(b"poison", b"never seen")
        await victim.closed()
        other.send(b"after")
        assert await other.answers(2) == [b"before", b"after"]
        assert b"never seen" not in desk.frames
        await server.stop(100)

    run(story)
    assert "could not be dispatched" in caplog.text


def test_the_end_is_told_once_to_all_who_asked(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    async def story() -> None:
        desk = Desk()
        server = await started(desk)
        peer = await Peer.connect(server)
        await peer.ask(b"hello")
        (connection,) = server.connections
        connection.on_close(partial(told.append, "first"))
        connection.on_close(lambda: 1 // 0)
        forget = connection.on_close(partial(told.append, "never"))
        connection.on_close(partial(told.append, "last"))
        forget()
        forget()
        peer.transport.close()
        await eventually(lambda: bool(told))
        connection.close("again")
        connection.abort("and again")
        connection.respond([b"too late"])
        connection.on_close(partial(told.append, "late"))
        await eventually(lambda: len(told) == 3)
        await server.stop(100)

    run(story)
    assert told == ["first", "last", "late"]
    assert "failed" in caplog.text


def test_a_response_leaves_before_the_connection_is_closed(run: Run) -> None:
    async def story() -> None:
        desk = Desk()

        def answer(connection: Connection, frame: bytes) -> None:
            connection.respond([bytes(10 * MIB)])
            connection.close("it is done")

        desk.answer = answer
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.stop_reading()
        peer.send(b"first", b"never taken up")
        await desk.arrived(1)
        peer.read_on()
        await peer.closed()
        assert [len(frame) for frame in peer.frames] == [10 * MIB]
        assert desk.frames == [b"first"]
        await server.stop(100)

    run(story)


def test_who_shuts_down_its_side_while_it_waits_for_others_is_gone(run: Run) -> None:
    async def story() -> None:
        gone: list[str] = []
        desk = Desk(is_patient=True)
        server = await started(desk)
        early, late = await Peer.connect(server), await Peer.connect(server)
        early.send(b"wait")
        await desk.arrived(1)
        desk.requests[0][0].park(partial(gone.append, "early"))
        early.transport.write_eof()
        await early.closed()
        late.send(b"ready", b"wait")
        late.transport.write_eof()
        await desk.arrived(2)
        desk.requests[1][0].respond([b"ready"])
        await desk.arrived(3)
        desk.requests[2][0].park(partial(gone.append, "late"))
        await late.closed()
        assert late.frames == [b"ready"]
        await eventually(lambda: gone == ["early", "late"])
        await server.stop(100)

    run(story)


def test_a_wait_that_is_over_is_not_given_up(run: Run) -> None:
    async def story() -> None:
        gone: list[str] = []
        desk = Desk(is_patient=True)
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.send(b"wait")
        await desk.arrived(1)
        (connection,) = server.connections
        go_on = connection.park(partial(gone.append, "gone"))
        go_on()
        peer.transport.write_eof()
        await eventually(lambda: connection._is_half_closed)
        desk.answer_next()
        await peer.closed()
        assert (peer.frames, gone) == ([b"wait"], [])
        await server.stop(100)

    run(story)
