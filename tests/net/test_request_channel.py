"""The order in which requests get their turn."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.net import Connection
from barnabas.net.request_channel import RequestChannel
from tests.net.hand_loop import HandLoop, StubConnection
from tests.net.worlds import is_urgent


class Clerk:
    """Dispatches, each request in `cost_s`."""

    def __init__(self, max_waiting: int = 100, cost_s: float = 0.0) -> None:
        self.loop = HandLoop()
        self.cost_s = cost_s
        self.done: list[str] = []
        self.channel = RequestChannel(self.loop.as_loop, is_urgent, max_waiting, budget_s=0.002)

    def dispatch(self, connection: Connection, frame: bytearray) -> None:
        self.loop.now_s += self.cost_s
        if frame == b"poison":
            raise ZeroDivisionError
        self.done.append(frame.decode())

    def submit(self, *names: str) -> list[StubConnection]:
        connections = [StubConnection(name) for name in names]
        for connection in connections:
            connection.dispatch = self.dispatch
            self.channel.submit(connection.as_connection, bytearray(connection.name.encode()))
        return connections


def test_urgent_requests_overtake_and_each_lane_keeps_its_order() -> None:
    clerk = Clerk()
    clerk.submit("a", "b", "!1", "c", "!2")
    assert clerk.done == []
    clerk.loop.turn()
    assert clerk.done == ["!1", "!2", "a", "b", "c"]
    assert not clerk.loop.soon, "an idle scheduler asks for nothing"


def test_all_requests_on_a_privileged_listener_are_urgent() -> None:
    clerk = Clerk()
    clerk.submit("a")
    controller = StubConnection(is_privileged=True)
    controller.dispatch = clerk.dispatch
    clerk.channel.submit(controller.as_connection, bytearray(b"controller"))
    clerk.loop.turn()
    assert clerk.done == ["controller", "a"]


def test_the_loop_gets_its_turn_after_the_budget() -> None:
    clerk = Clerk(cost_s=0.0015)
    clerk.submit(*"abcde")
    clerk.loop.turn()
    assert clerk.done == ["a", "b"]
    clerk.submit("!")
    clerk.loop.turn()
    assert clerk.done == ["a", "b", "!", "c"], "what the sockets brought meanwhile overtakes"
    clerk.loop.turn()
    assert clerk.done == ["a", "b", "!", "c", "d", "e"]


def test_a_single_long_request_is_followed_by_a_look_at_the_sockets() -> None:
    clerk = Clerk(cost_s=1.0)
    clerk.submit("a", "b")
    clerk.loop.turn()
    assert clerk.done == ["a"]


def test_requests_of_closed_connections_are_dropped() -> None:
    clerk = Clerk()
    connections = clerk.submit("a", "!b", "c")
    connections[0].close()
    connections[1].close()
    clerk.loop.turn()
    assert clerk.done == ["c"]


def test_a_failing_dispatch_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    clerk = Clerk()
    connections = clerk.submit("a", "poison", "b")
    clerk.loop.turn()
    assert clerk.done == ["a", "b"]
    assert connections[1].log == ["close: its request could not be dispatched"]
    assert "ZeroDivisionError" in caplog.text


def test_above_the_limit_connections_stop_reading_until_half_is_done() -> None:
    clerk = Clerk(max_waiting=4, cost_s=0.0007)
    connections = clerk.submit(*"abcdef")
    assert [connection.log for connection in connections] == [[], [], [], [], ["hold_back"], ["hold_back"]]
    clerk.channel.forget(connections[4].as_connection)
    clerk.loop.turn()
    assert clerk.done == ["a", "b", "c"]
    assert connections[5].log == ["hold_back"]
    clerk.loop.turn()
    assert [connections[4].log, connections[5].log] == [["hold_back"], ["hold_back", "read_on"]]


def test_urgent_requests_are_not_held_back() -> None:
    clerk = Clerk(max_waiting=1)
    urgent = clerk.submit("a", "!1", "!2", "!3")[1:]
    assert [connection.log for connection in urgent] == [[], [], []]


def test_each_turn_ends_with_one_slice_of_long_work_and_what_arrived_comes_first() -> None:
    clerk = Clerk()
    connection = StubConnection().as_connection

    def work(name: str, left: int) -> None:
        clerk.done.append(f"{name}{left}")
        if left:
            clerk.channel.go_on_later(connection, lambda: work(name, left - 1))

    clerk.channel.go_on_later(connection, lambda: work("x", 2))
    clerk.channel.go_on_later(connection, lambda: work("y", 1))
    clerk.submit("a", "b")
    clerk.loop.turn()
    assert clerk.done == ["a", "b", "x2"]
    clerk.submit("c", "!")
    clerk.loop.turn()
    assert clerk.done[3:] == ["!", "c", "y1"]
    for _ in range(3):
        clerk.loop.turn()
    assert clerk.done[6:] == ["x1", "y0", "x0"]
    assert not clerk.loop.soon, "an idle scheduler asks for nothing"


def test_long_work_goes_on_while_the_lanes_are_always_full() -> None:
    clerk = Clerk(cost_s=0.0015)
    connection = StubConnection().as_connection
    clerk.channel.go_on_later(connection, lambda: clerk.done.append("work"))
    clerk.submit(*"abcdef")
    clerk.loop.turn()
    assert clerk.done == ["a", "b", "work"]


def test_long_work_that_fails_closes_its_connection_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    clerk = Clerk()
    connection = StubConnection()
    clerk.channel.go_on_later(connection.as_connection, lambda: 1 // 0)  # type: ignore[arg-type]
    clerk.submit("a")
    clerk.loop.turn()
    assert clerk.done == ["a"]
    assert connection.log == ["close: its request could not be worked on"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.0007, 0.005])), max_size=15), st.data())
def test_nothing_is_lost_and_lanes_keep_their_order(plan: list[tuple[bool, float]], data: st.DataObject) -> None:
    clerk = Clerk(max_waiting=3)
    names = [f"{'!' if urgent else ''}{number}" for number, (urgent, _) in enumerate(plan)]
    waiting = list(zip(names, plan, strict=True))
    while waiting or clerk.channel.waiting_count:
        for _ in range(data.draw(st.integers(1, len(waiting))) if waiting else 0):
            name, (_, clerk.cost_s) = waiting.pop(0)
            clerk.submit(name)
        clerk.loop.turn()
    assert [name for name in clerk.done if "!" in name] == [name for name in names if "!" in name]
    assert [name for name in clerk.done if "!" not in name] == [name for name in names if "!" not in name]
