"""Work on requests, slice by slice: who goes on when, and what it must have first."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.runtime import ManualClock
from barnabas.base.steps import at_once
from barnabas.broker.turns import (
    CROWDS,
    STEPS_PER_TURN,
    Crowd,
    Room,
    Steps,
    Turns,
    awaited,
    chunks,
    crowd_of,
    once_each,
    parts_for_the_controller,
    settled,
    spent,
)
from barnabas.net import AnswerTooLargeError, Connection, RequestMeter
from tests.broker.connections import FakeConnection


class Peer(FakeConnection):
    """A connection whose later slices are done by hand, and whose room is given by hand."""

    def __init__(self, room_bytes: int = 1000) -> None:
        super().__init__()
        self.later: deque[Callable[[], None]] = deque()
        self.room_bytes = room_bytes
        self.granted: Callable[[], None] | None = None

    @property
    def as_connection(self) -> Connection:
        return cast(Connection, self)

    def go_on_later(self, slice_of_work: Callable[[], None]) -> None:
        self.later.append(slice_of_work)

    def ask_room(self, size_bytes: int, granted: Callable[[], None]) -> bool:
        if size_bytes > 1000:
            raise AnswerTooLargeError(size_bytes, 1000)
        self.granted = granted
        return size_bytes <= self.room_bytes

    def turn(self) -> None:
        self.later.popleft()()


class Outcome:
    """What came of the work."""

    def __init__(self, turns: Turns, peer: Peer, steps: Steps[Any]) -> None:
        self.told: list[object] = []
        turns.start(
            peer.as_connection,
            steps,
            lambda result, was_long: self.told.append((result, was_long)),
            self.told.append,
        )


def counting(count: int, done: list[int]) -> Steps[str]:
    for number in range(count):
        done.append(number)
        yield None
    return "counted"


def heavy(done: list[str], name: str) -> Steps[str]:
    yield CROWDS[-1]
    done.append(name)
    yield from spent(STEPS_PER_TURN)
    return name


def test_little_work_is_done_at_once() -> None:
    done: list[int] = []
    peer = Peer()
    assert Outcome(Turns(), peer, counting(STEPS_PER_TURN - 1, done)).told == [("counted", False)]
    assert not peer.later


def test_a_turn_does_a_fixed_number_of_steps() -> None:
    done: list[int] = []
    peer = Peer()
    outcome = Outcome(Turns(), peer, counting(3 * STEPS_PER_TURN - 1, done))
    for turn in (1, 2):
        assert len(done) == turn * STEPS_PER_TURN
        assert not outcome.told
        peer.turn()
    assert outcome.told == [("counted", True)]
    assert len(done) == 3 * STEPS_PER_TURN - 1


def test_the_work_of_somebody_who_left_is_left_undone() -> None:
    done: list[int] = []
    peer = Peer()
    outcome = Outcome(Turns(), peer, counting(10 * STEPS_PER_TURN, done))
    peer.closed = "gone"
    peer.turn()
    assert len(done) == STEPS_PER_TURN
    assert not outcome.told
    assert not peer.later
    assert peer.unanswered == 1, "what it held is given back"


def test_a_failure_is_told() -> None:
    def failing() -> Steps[None]:
        yield None
        raise ValueError("no")

    (failure,) = Outcome(Turns(), Peer(), failing()).told
    assert isinstance(failure, ValueError)


def test_only_one_heavy_request_is_worked_on() -> None:
    turns, done = Turns(), list[str]()
    peers = [Peer() for _ in range(3)]
    outcomes = [Outcome(turns, peer, heavy(done, name)) for peer, name in zip(peers, "abc", strict=True)]
    assert done == ["a"]
    peers[0].turn()
    assert outcomes[0].told == [("a", True)]
    assert not any(peer.later for peer in peers), "its answer has not left yet"
    turns.finished(peers[0].as_connection)
    peers[1].turn()
    assert done == ["a", "b"]
    peers[1].close("gone")
    peers[2].turn()
    assert done == ["a", "b", "c"], "whoever leaves makes room for the next"


def times_ms(peer: Peer) -> tuple[float, float]:
    """The local and the remote time of the request in process, which is answered now."""
    peer.response_is_ready(10)
    peer.response_has_left()
    return peer.local_time_ns / 1e6, peer.remote_time_ns / 1e6


def begun(meter: RequestMeter, peer: Peer) -> None:
    meter.arrived(peer)
    meter.turn_begins(0)
    meter.begins(peer, bytearray(20))


def test_to_wait_for_a_turn_or_a_place_or_room_is_no_work() -> None:
    clock = ManualClock()
    clock.advance(1000)
    meter = RequestMeter(lambda: clock.monotonic_ms() / 1000)
    turns, first, second, third = Turns(), Peer(), Peer(), Peer(room_bytes=50)
    for peer in (first, second, third):
        begun(meter, peer)
    Outcome(turns, first, heavy([], "a"))
    Outcome(turns, second, heavy([], "b"))
    Outcome(turns, third, with_room(100))
    clock.advance(300)
    turns.finished(first.as_connection)
    assert third.granted is not None
    third.granted()
    for peer in (first, second, third):
        clock.advance(40)
        peer.turn()
    clock.advance(5)
    assert times_ms(first) == (85, 340), "it has made its answer since its turn"
    second.turn()
    clock.advance(6)
    assert times_ms(second) == (6, 425), "it had a turn of no time before"
    assert times_ms(third) == (11, 420)


def with_room(size_bytes: int) -> Steps[None]:
    yield Room(size_bytes)


def test_a_heavy_request_whose_sender_left_while_it_waited_is_passed_over() -> None:
    turns, done = Turns(), list[str]()
    peers = [Peer() for _ in range(3)]
    for peer, name in zip(peers, "abc", strict=True):
        Outcome(turns, peer, heavy(done, name))
    peers[1].close("gone")
    turns.finished(peers[0].as_connection)
    peers[2].turn()
    assert done == ["a", "c"]
    assert peers[1].unanswered == 1


def test_a_crowd_has_its_places_and_its_line() -> None:
    turns, done = Turns(), list[str]()
    few, many = CROWDS[0], CROWDS[-1]

    def steps(name: str, *crowds: Crowd) -> Steps[None]:
        for crowd in crowds:
            yield crowd
            done.append(f"{name} {crowd.more_than}")
        yield from spent(STEPS_PER_TURN)

    peers = [Peer() for _ in range(few.places + 2)]
    for peer in peers:
        Outcome(turns, peer, steps("few", few))
    assert len(done) == few.places
    large = [Peer(), Peer()]
    for peer in large:
        Outcome(turns, peer, steps("many", many))
    assert done[few.places :] == ["many 10000"], "the crowds do not wait for each other"
    turns.finished(peers[0].as_connection)
    assert [len(peer.later) for peer in peers[-2:]] == [1, 0]


def test_who_waits_for_a_larger_crowd_leaves_the_smaller() -> None:
    turns, done = Turns(), list[str]()
    few, many = CROWDS[0], CROWDS[-1]

    def growing() -> Steps[None]:
        yield few
        yield many
        done.append("grown")
        yield from spent(STEPS_PER_TURN)

    peers = [Peer() for _ in range(few.places + 5)]
    for peer in peers:
        Outcome(turns, peer, growing())
    assert done == ["grown"]
    assert turns.has_place(few)
    assert not turns.has_place(many)
    for peer in peers:
        peer.close("gone")
    assert turns.has_place(many), "nobody is left who holds or wants a place"


def test_crowds_by_number() -> None:
    assert crowd_of(128) is None
    assert [crowd_of(count) for count in (129, 1001, 10_001)] == list(CROWDS)


def test_room_that_is_there_is_not_waited_for() -> None:
    def steps() -> Steps[str]:
        yield Room(10)
        return "built"

    assert Outcome(Turns(), Peer(), steps()).told == [("built", False)]


def test_an_answer_waits_for_room_before_it_is_built() -> None:
    built: list[str] = []

    def steps() -> Steps[str]:
        yield Room(10)
        built.append("built")
        return "built"

    peer = Peer(room_bytes=5)
    outcome = Outcome(Turns(), peer, steps())
    assert not built
    assert peer.granted is not None
    peer.granted()
    peer.turn()
    assert outcome.told == [("built", True)]


def test_an_answer_that_never_fits_is_refused_with_an_error() -> None:
    def steps() -> Steps[None]:
        yield Room(5000)

    (failure,) = Outcome(Turns(), Peer(), steps()).told
    assert isinstance(failure, BrokerError)
    assert failure.code is ErrorCode.INVALID_REQUEST
    assert "ask for less at a time" in str(failure)


def test_work_goes_on_when_what_it_waits_for_is_there() -> None:
    async def story() -> None:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def steps() -> Steps[int]:
            return (yield from settled(answer)) + (yield from settled(1)) + (yield from awaited(asyncio.sleep(0, 10)))

        peer = FakeConnection()
        waiting = Turns().future(cast(Connection, peer), steps())
        await asyncio.sleep(0)
        assert not waiting.done()
        answer.set_result(100)
        assert await waiting == 111

    asyncio.run(story())


def test_work_that_waits_for_something_given_up_fails() -> None:
    async def story() -> None:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = Turns().future(cast(Connection, FakeConnection()), settled(answer))
        answer.cancel()
        with pytest.raises(BrokerError):
            await waiting

    asyncio.run(story())


def test_helpers() -> None:
    assert at_once(once_each(["b", "a", "b"])) == ["b", "a"]
    assert list(chunks([1, 2, 3], 2)) == [[1, 2], [3]]
    assert sum(1 for _ in spent(5)) == 5


def test_few_things_are_decided_as_one_even_if_they_are_too_much() -> None:
    for cost in (1, 20_000):
        assert at_once(parts_for_the_controller(["a", "b", "a", "a"], str, lambda _, cost=cost: cost)) == [  # type: ignore[misc]
            ["a", "b", "a", "a"]
        ]


def test_many_things_are_decided_in_parts_and_equal_ones_together() -> None:
    items = [f"{number % 150}" for number in range(600)]
    parts = at_once(parts_for_the_controller(items, str, lambda _: 1))
    assert sorted(item for part in parts for item in part) == sorted([f"{number}" for number in range(150)] * 2)
    assert all(len(part) <= 66 for part in parts)
    for number in range(150):
        assert sum(f"{number}" in part for part in parts) == 1


def test_costly_things_are_in_parts_of_their_own() -> None:
    parts = at_once(parts_for_the_controller(["a", "b", "c"], str, lambda item: {"b": 600}.get(item, 1)))
    assert parts == [["a"], ["b"], ["c"]]


def test_things_that_cost_nothing_are_decided_too() -> None:
    items = [f"{number}" for number in range(100)]
    assert [len(part) for part in at_once(parts_for_the_controller(items, str, lambda _: 0))] == [64, 36]
