"""Small responses to requests of one turn leave at its end; whoever closes a connection meanwhile loses none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.base.errors import InvariantError
from barnabas.net import Connection
from barnabas.net.limits import JOINED_BYTES
from barnabas.net.request_channel import RequestChannel
from tests.net.hand_loop import HandLoop, StubConnection
from tests.net.worlds import Desk, Peer, Story, is_urgent, started

Run = Callable[[Story], None]


class Answering(StubConnection):
    """Notes when its answer is sent."""

    def __init__(self, name: str, events: list[str], *, fails: bool = False) -> None:
        super().__init__(name)
        self.events = events
        self.fails = fails

    def send_answer(self) -> None:
        if self.fails:
            raise ZeroDivisionError
        self.events.append(f"sent {self.name}")


def test_all_is_dispatched_before_the_first_answer_is_sent() -> None:
    loop, events = HandLoop(), list[str]()

    def dispatch(connection: Connection, frame: bytearray) -> None:
        events.append(f"took {frame.decode()}")
        assert channel.send_later(connection)

    channel = RequestChannel(loop.as_loop, is_urgent, 100, budget_s=0.002)
    for name in ("a", "b", "c"):
        connection = Answering(name, events, fails=name == "b")
        connection.dispatch = dispatch
        channel.submit(connection.as_connection, bytearray(name.encode()))
    loop.turn()
    assert events == ["took a", "took b", "took c", "sent a", "sent c"]
    assert not loop.soon


def test_between_turns_nothing_is_kept_back() -> None:
    channel = RequestChannel(HandLoop().as_loop, is_urgent, 100, budget_s=0.002)
    assert not channel.send_later(StubConnection().as_connection)


@pytest.mark.parametrize("size_bytes", [1, JOINED_BYTES - 4, JOINED_BYTES, 3 * JOINED_BYTES])
def test_answers_of_every_size_arrive_whole(run: Run, size_bytes: int) -> None:
    async def story() -> None:
        desk = Desk()
        desk.answer = lambda connection, frame: connection.respond([frame, b"x" * (size_bytes - 1)])
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.send(b"1", b"2", b"3")
        assert await peer.answers(3) == [number + b"x" * (size_bytes - 1) for number in (b"1", b"2", b"3")]
        await server.stop(100)

    run(story)


def test_who_answers_and_closes_is_heard_first(run: Run) -> None:
    async def story() -> None:
        def answer(connection: Connection, frame: bytes) -> None:
            connection.respond([frame])
            connection.close("it was the last one")

        desk = Desk()
        desk.answer = answer
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.send(b"last", b"too late")
        assert await peer.answers(1) == [b"last"]
        await peer.closed()
        assert desk.frames == [b"last"]
        await server.stop(100)

    run(story)


def test_an_aborted_connection_sends_nothing_and_is_done_with_its_request(run: Run) -> None:
    async def story() -> None:
        def answer(connection: Connection, frame: bytes) -> None:
            connection.respond([frame])
            connection.abort("at once")

        desk = Desk()
        desk.answer = answer
        server = await started(desk)
        peer = await Peer.connect(server)
        peer.send(b"never answered")
        await peer.closed()
        connection, _ = desk.requests[0]
        assert not connection.is_in_process
        assert server.reserved_bytes == 0
        await server.stop(100)

    run(story)


def test_a_request_is_answered_once_also_before_the_answer_has_left(run: Run) -> None:
    async def story() -> None:
        failures: list[Exception] = []

        def answer(connection: Connection, frame: bytes) -> None:
            connection.respond([frame])
            try:
                connection.respond([b"again"])
            except InvariantError as failure:
                failures.append(failure)

        desk = Desk()
        desk.answer = answer
        server = await started(desk)
        peer = await Peer.connect(server)
        assert await peer.ask(b"once") == b"once"
        assert len(failures) == 1
        await server.stop(100)

    run(story)
