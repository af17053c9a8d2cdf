"""Answers take a bounded memory over all connections, from before they are made until peers have taken them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from barnabas.base.errors import InvariantError
from barnabas.net import AnswerTooLargeError, Connection
from barnabas.net.answer_room import AnswerRoom
from tests.net.hand_loop import HandLoop, StubConnection
from tests.net.worlds import KIB, MIB, Desk, Peer, Story, all_of, eventually, run_simulated, started

Run = Callable[[Story], None]


def asked(room: AnswerRoom, connection: StubConnection, size_bytes: int) -> bool:
    return room.ask(connection.as_connection, size_bytes, partial(connection.log.append, "granted"))


def test_who_asked_first_is_served_first_and_never_beyond_the_limit() -> None:
    loop, random = HandLoop(), Random(3)
    room = AnswerRoom(loop.as_loop, 100, 3)
    open_now: list[StubConnection] = []
    line: list[StubConnection] = []
    for number in range(500):
        if open_now and random.random() < 0.4:
            done = open_now.pop(random.randrange(len(open_now)))
            room.made(done.as_connection)
        else:
            connection = StubConnection(str(number))
            (open_now if asked(room, connection, random.randint(1, 75)) else line).append(connection)
        loop.turn()
        while line and line[0].log == ["granted"]:
            open_now.append(line.pop(0))
        assert not any(connection.log for connection in line)
        assert 0 <= room.asked_bytes == room.held_bytes <= 75
    assert line


def test_what_can_never_fit_is_refused() -> None:
    room = AnswerRoom(HandLoop().as_loop, 100, 3)
    with pytest.raises(AnswerTooLargeError, match=r"76 bytes .* at most 75"):
        asked(room, StubConnection(), 76)
    assert room.held_bytes == 0
    assert asked(room, StubConnection(), 75)


def test_fetches_find_what_the_line_leaves_them_and_the_line_leaves_them_something() -> None:
    room = AnswerRoom(HandLoop().as_loop, 1000, 3)
    fetch, first, second = StubConnection(), StubConnection(), StubConnection()
    assert room.left_bytes() == 1000
    room.expect(fetch.as_connection, 500)
    assert room.left_bytes() == 500
    assert not asked(room, first, 600)
    assert room.left_bytes() == 0, "500 that are held and 600 that wait"
    room.made(fetch.as_connection)
    assert not asked(room, second, 700)
    assert (room.held_bytes, room.left_bytes()) == (600, 250), "what is asked for takes three quarters at most"
    room.expect(fetch.as_connection, 240)
    assert room.left_bytes() == 0, "the last bit is nothing: a first batch comes whole"


def test_an_answer_that_was_sent_counts_as_what_its_peer_has_not_taken() -> None:
    room = AnswerRoom(HandLoop().as_loop, 1000, 3)
    connection = StubConnection()
    assert asked(room, connection, 500)
    room.sent(connection.as_connection, 300)
    assert (room.held_bytes, room.asked_bytes) == (300, 300)
    room.made(connection.as_connection)
    assert room.held_bytes == 300
    room.taken(connection.as_connection)
    room.taken(connection.as_connection)
    assert (room.held_bytes, room.asked_bytes) == (0, 0)


def test_who_takes_answers_slowly_is_cut_off_when_there_is_no_room_and_not_before() -> None:
    loop = HandLoop()
    room = AnswerRoom(loop.as_loop, 40 * MIB, 3)
    slow, steady = StubConnection(), StubConnection()
    slow.on_abort = lambda: room.taken(slow.as_connection)
    slow.unsent_bytes, steady.unsent_bytes = 4 * MIB, 36 * MIB
    room.sent(slow.as_connection, 4 * MIB)
    loop.pass_time(100)
    assert slow.log == [], "there is room enough"
    room.sent(steady.as_connection, 36 * MIB)
    for _ in range(5):
        loop.pass_time(1)
        steady.unsent_bytes -= 2 * MIB
    assert slow.log == ["abort: too slow in taking its answer while others wait for memory"]
    assert steady.log == []
    assert room.held_bytes == 36 * MIB


@pytest.fixture
def highest(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The most that answers ever held, by looking at each change."""
    highest = [0]
    count = AnswerRoom._count

    def counted(self: AnswerRoom, answer: Any, more_bytes: int) -> None:
        count(self, answer, more_bytes)
        highest[0] = max(highest[0], self.held_bytes)

    monkeypatch.setattr(AnswerRoom, "_count", counted)
    return highest


class BigAnswers:
    """Answers each request with so many bytes as it says, after asking for room."""

    def __init__(self) -> None:
        self.granted: list[Connection] = []

    def __call__(self, connection: Connection, frame: bytes) -> None:
        size_bytes = int(frame)

        def go_on() -> None:
            self.granted.append(connection)
            if connection.is_closed:
                connection.finish_without_response()
            else:
                connection.respond([bytes(size_bytes)])

        if connection.ask_room(size_bytes, go_on):
            go_on()


def test_six_that_never_read_sixty_megabytes_stay_below_the_limit_and_make_way(highest: list[int]) -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        desk = Desk()
        desk.answer = BigAnswers()
        server = await started(desk)
        lazy = [await Peer.connect(server) for _ in range(6)]
        for peer in lazy:
            peer.stop_reading()
            peer.send(b"60000000")
        await desk.arrived(6)
        others = [await Peer.connect(server) for _ in range(5)]
        began_s = loop.time()
        for peer in others:
            peer.send(b"1000000")
        await all_of([peer.answers(1) for peer in others])
        assert loop.time() - began_s < 12
        assert 180_000_000 <= highest[0] <= 256 * MIB
        assert sum(peer.is_closed for peer in lazy) == 3, "nobody waits for what the others hold"
        await server.stop(100)

    run_simulated(story)


def test_answers_larger_than_the_room_come_one_after_the_other(run: Run, highest: list[int]) -> None:
    async def story() -> None:
        desk = Desk()
        desk.answer = BigAnswers()
        server = await started(desk, outgoing_max_bytes=4 * MIB)
        peers = [await Peer.connect(server) for _ in range(8)]
        for peer in peers:
            peer.send(b"2500000", b"100")
        await all_of([peer.answers(2) for peer in peers])
        assert [[len(frame) for frame in peer.frames] for peer in peers] == [[2_500_000, 100]] * 8
        assert 2_500_000 <= highest[0] <= 4 * MIB
        assert server.outgoing_bytes == 0
        await server.stop(100)

    run(story)


def test_room_is_given_back_however_a_request_ends(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, outgoing_max_bytes=4 * MIB)
        endings: list[Callable[[Connection], None]] = [
            lambda connection: connection.respond([b"small"]),
            lambda connection: connection.finish_without_response(),
            lambda connection: connection.close("it makes no sense"),
        ]
        for end in endings:
            peer = await Peer.connect(server)
            peer.send(b"ask")
            await desk.arrived(len(desk.requests) + 1)
            (connection, _) = desk.open.pop()
            assert connection.ask_room(3 * MIB, lambda: None)
            with pytest.raises(InvariantError, match="once per answer"):
                connection.ask_room(1, lambda: None)
            assert server.outgoing_bytes == 3 * MIB
            end(connection)
            await eventually(lambda: server.outgoing_bytes == 0)
        await server.stop(100)

    run(story)


def test_a_connection_that_ends_gives_its_room_back_when_its_request_is_done_with(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, outgoing_max_bytes=4 * MIB)
        holder, waiter = await Peer.connect(server), await Peer.connect(server)
        holder.send(b"ask")
        await desk.arrived(1)
        waiter.send(b"ask")
        await desk.arrived(2)
        (holding_one, _), (waiting_one, _) = desk.open
        granted: list[bool] = []
        assert holding_one.ask_room(3 * MIB, lambda: None)
        assert not waiting_one.ask_room(2 * MIB, lambda: granted.append(waiting_one.is_closed))
        waiting_one.abort("as if it broke")
        await waiter.closed()
        await eventually(lambda: granted == [True])
        waiting_one.finish_without_response()
        holding_one.abort("as if it broke")
        await holder.closed()
        assert server.outgoing_bytes == 3 * MIB, "somebody still makes the answer"
        holding_one.respond([bytes(3 * MIB)])
        assert server.outgoing_bytes == 0
        assert not holding_one.ask_room(1, lambda: granted.append(holding_one.is_closed))
        await eventually(lambda: granted == [True, True])
        assert server.outgoing_bytes == 0
        await server.stop(100)

    run(story)


def test_peers_that_never_read_are_cut_off_when_they_hold_too_much() -> None:
    async def story() -> None:
        desk = Desk()
        desk.answer = lambda connection, frame: connection.respond([bytes(MIB)])
        server = await started(desk, outgoing_max_bytes=4 * MIB)
        lazy = [await Peer.connect(server) for _ in range(6)]
        for peer in lazy:
            peer.stop_reading()
            peer.send(b"fetch")
        await desk.arrived(6)
        assert server.room_for_responses() == 0
        await eventually(lambda: not list(server.connections))
        assert server.outgoing_bytes == 0
        await server.stop(100)

    run_simulated(story)


def test_a_response_counts_from_the_moment_that_it_is_being_made(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, outgoing_max_bytes=MIB)
        answered, gone = await Peer.connect(server), await Peer.connect(server)
        answered.send(b"fetch")
        await desk.arrived(1)
        gone.send(b"fetch")
        await desk.arrived(2)
        for connection, _ in desk.requests:
            connection.expect_response(700 * KIB)
        assert (server.outgoing_bytes, server.room_for_responses()) == (1400 * KIB, 0)
        desk.requests[1][0].abort("as if it broke")
        await gone.closed()
        desk.answer_next()
        await answered.answers(1)
        assert server.outgoing_bytes == 700 * KIB, "the other one is still being read"
        desk.answer_next()
        assert server.outgoing_bytes == 0
        await server.stop(100)

    run(story)
