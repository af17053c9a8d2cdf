"""How many may connect, from where, and how fast."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.base.quotas import QuotaWindow
from barnabas.base.recently_used import MOST_KEPT
from barnabas.net import ListenerLimits, ListenerSpec, ServerLimits
from barnabas.net.admission import Admission
from tests.net.hand_loop import HandLoop, StubConnection
from tests.net.worlds import Desk, Peer, Story, eventually, run_simulated, started

Run = Callable[[Story], None]


class Door:
    """An admission by itself; `come` tells what became of each new connection."""

    def __init__(self, **limits: Any) -> None:
        self.loop = HandLoop()
        self.room_made = 0
        self.admission = Admission(self.loop.as_loop, ServerLimits(**limits), self._make_room)

    def _make_room(self) -> None:
        self.room_made += 1

    def come(self, count: int = 1, **who: Any) -> list[StubConnection]:
        connections = [StubConnection(**who) for _ in range(count)]
        for connection in connections:
            refusal = self.admission.arrive(connection.as_connection)
            if refusal is not None:
                connection.log.append(f"refused: {refusal}")
        return connections

    def leave(self, connection: StubConnection) -> None:
        self.admission.leave(connection.as_connection)


def states(connections: list[StubConnection]) -> str:
    """One letter each: admitted, waiting, refused."""
    return "".join(connection.log[-1][0] if connection.log else "w" for connection in connections)


def test_a_full_node_lets_the_next_wait_for_a_place() -> None:
    door = Door(max_connections=2)
    crowd = door.come(4)
    assert states(crowd) == "aaww"
    door.leave(crowd[1])
    assert states(crowd) == "aaaw"
    door.leave(crowd[3])  # it lost patience
    door.leave(crowd[0])
    assert states(door.come(1)) == "a"


def test_a_full_listener_does_not_keep_others_out() -> None:
    door = Door(max_connections=10, listeners={"A": ListenerLimits(max_connections=1)})
    assert states(door.come(2, listener="A")) == "aw"
    assert states(door.come(2, listener="B")) == "aa"


def test_an_address_has_its_own_limit() -> None:
    door = Door(max_connections_per_ip=2, max_connections_per_ip_overrides={"9.9.9.9": 0, "8.8.8.8": 3})
    first = door.come(3)
    assert states(first) == "aar"
    assert first[2].log == ["refused: 1.1.1.1 already has the 2 connections that it may have"]
    assert states(door.come(1, host="9.9.9.9")) == "r"
    assert states(door.come(4, host="8.8.8.8")) == "aaar"
    door.leave(first[0])
    assert states(door.come(2)) == "ar"


def test_who_left_is_forgotten() -> None:
    door = Door(max_connections=1)
    for connection in door.come(3):
        door.leave(connection)
    assert (door.admission.admitted_count, door.admission.waiting_count) == (0, 0)
    assert door.admission._by_address == {}


def test_a_stopping_node_lets_nobody_in() -> None:
    door = Door(max_connections=1)
    crowd = door.come(2)
    door.admission.close()
    door.leave(crowd[0])
    assert states(crowd + door.come(1)) == "awr"


def test_refusals_are_logged_once_per_second(caplog: pytest.LogCaptureFixture) -> None:
    door = Door(max_connections_per_ip=0)
    with caplog.at_level(logging.WARNING, "barnabas.net"):
        door.come(100)
        door.loop.pass_time(1)
        door.come(1)
    assert [record.args[0] for record in caplog.records if record.args] == [1, 100]  # type: ignore[index]


def test_new_connections_come_at_a_pace() -> None:
    door = Door(max_connection_creation_rate=2)
    crowd = door.come(26)
    assert states(crowd) == 20 * "a" + 6 * "w", "after a quiet time those of ten seconds may come at once, as in Kafka"
    door.loop.pass_time(0.5)
    assert states(crowd) == 21 * "a" + 5 * "w"
    door.loop.pass_time(1.5)
    assert states(crowd) == 23 * "a" + "www", "a new sample makes the window shorter; nobody waits longer than one"


def test_the_pace_of_the_node_holds_for_all_listeners_and_that_of_one_for_it_alone() -> None:
    listeners = {"A": ListenerLimits(max_connection_creation_rate=1), "B": ListenerLimits()}
    door = Door(max_connection_creation_rate=2, listeners=listeners)
    assert states(door.come(11, listener="A")) == 10 * "a" + "w"
    assert states(door.come(11, listener="B")) == 9 * "a" + "ww", "one of A that waits counts for the node"
    door.loop.pass_time(1)
    assert states(door.come(3, listener="B")) == "www"


def test_the_pace_is_measured_over_the_window_of_quotas() -> None:
    door = Door(max_connection_creation_rate=1, quota_window=QuotaWindow(2, 5000))
    assert states(door.come(8)) == 5 * "a" + "www"


def test_an_address_that_comes_too_fast_is_closed_after_a_while() -> None:
    door = Door()
    door.admission.set_connection_rates(1.0, {"9.9.9.9": 3.0})
    crowd = door.come(12)
    assert states(crowd) == 10 * "a" + "ww"
    assert states(door.come(30, host="9.9.9.9")) == 30 * "a"
    assert states(door.come(3, host="8.8.8.8")) == "aaa", "each has its own"
    door.loop.pass_time(0.9)
    assert [each.log for each in crowd[10:]] == [[], []]
    door.loop.pass_time(0.2)
    closed = "abort: 1.1.1.1 opens connections faster than its quota allows"
    assert [each.log for each in crowd[10:]] == [[closed], [closed]]
    for each in crowd:
        door.leave(each)
    door.loop.pass_time(9.9)
    assert states(door.come(11)) == 10 * "a" + "w", "those that were closed did not count"
    assert (door.admission.over_quota_count, door.admission.over_limit_count) == (3, 0)
    door.admission.set_connection_rates(None, {})
    assert states(door.come(2)) == "aa"
    assert (door.admission.waiting_count, door.admission.admitted_count) == (0, 45)


def test_of_endless_addresses_little_is_kept() -> None:
    door = Door(max_waiting_connections=10)
    door.admission.set_connection_rates(1.0, {})
    door.come(12, host="9.9.9.9")
    for number in range(2 * MOST_KEPT):
        (one,) = door.come(1, host=f"fd00::{number:x}")
        door.leave(one)
        if number % 1000 == 0:
            assert states(door.come(1, host="9.9.9.9")) == "w", "it goes on coming too fast"
    assert len(door.admission._address_rates) == MOST_KEPT
    door.loop.pass_time(20)
    for number in range(MOST_KEPT // 2):
        (one,) = door.come(1, host=f"fd01::{number:x}")
        door.leave(one)
    assert len(door.admission._address_rates) <= MOST_KEPT // 2, "silent ones go while others come"


def test_a_rate_of_zero_lets_nobody_in_until_it_is_changed() -> None:
    door = Door(max_connection_creation_rate=0)
    crowd = door.come(2)
    door.loop.pass_time(1000)
    assert states(crowd) == "ww"
    door.admission.set_limits(ServerLimits())
    assert states(crowd) == "aa"


def test_not_more_than_a_bounded_number_wait() -> None:
    door = Door(max_connections=0, max_waiting_connections=2)
    assert states(door.come(3)) == "wwr"


def test_who_is_turned_away_keeps_no_place_of_those_who_wait() -> None:
    door = Door(max_waiting_connections=2)
    door.admission.set_connection_rates(1.0, {})
    crowd = door.come(15)
    door.loop.pass_time(0)
    closed = ["abort: 1.1.1.1 opens connections faster than its quota allows"]
    assert [each.log for each in crowd] == 10 * [["admit"]] + 2 * [[]] + 3 * [closed], "two wait until they are closed"
    others = door.come(1, host="8.8.8.8") + door.come(1, host="9.9.9.9", listener="CONTROLLER", is_privileged=True)
    assert [each.log for each in others] == 2 * [["admit"]]
    for each in crowd[10:]:
        door.leave(each)
    assert (door.admission.over_quota_count, door.admission.over_limit_count) == (5, 0)


def test_who_waits_keeps_no_node_of_the_cluster_out() -> None:
    listeners = {"CONTROLLER": ListenerLimits(max_connections=1)}
    door = Door(max_connections=0, max_waiting_connections=2, listeners=listeners)
    assert states(door.come(3)) == "wwr"
    nodes = door.come(4, listener="CONTROLLER", is_privileged=True)
    assert states(nodes) == "awwr", "they wait for each other, and so many as others may"


def test_nodes_of_the_cluster_get_in_where_clients_do_not() -> None:
    door = Door(max_connections=1, max_connection_creation_rate=1)
    assert states(door.come(2)) == "aw"
    assert states(door.come(2, listener="CONTROLLER", is_privileged=True)) == "aa"
    assert door.room_made == 2


def test_excess_connections_are_closed_and_the_others_go_on(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, max_connections_per_ip=2)
        peers = [await Peer.connect(server) for _ in range(2)]
        for peer in peers:
            await peer.ask(b"hello")
        excess = await Peer.connect(server)
        await excess.closed()
        assert await peers[0].ask(b"still here") == b"still here"
        peers[1].transport.close()
        await eventually(lambda: len(list(server.connections)) == 1)
        assert await (await Peer.connect(server)).ask(b"a place is free") == b"a place is free"
        await server.stop(100)

    run(story)


def test_who_is_refused_hears_of_it_also_if_the_reset_is_faster_than_its_own_process() -> None:
    for seed in range(2, 12):
        test_excess_connections_are_closed_and_the_others_go_on(partial(run_simulated, seed=seed))


def test_who_waits_for_a_place_is_served_when_there_is_one(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, max_connections=1)
        first, second = await Peer.connect(server), await Peer.connect(server)
        second.send(b"second")
        assert await first.ask(b"first") == b"first"
        await eventually(lambda: len(list(server.connections)) == 2)
        assert await first.ask(b"again") == b"again"
        assert desk.frames == [b"first", b"again"]
        server.set_limits(ServerLimits(max_connections=2))
        assert await second.answers(1) == [b"second"]
        await server.stop(100)

    run(story)


def test_a_node_of_the_cluster_takes_the_place_of_the_most_silent_client() -> None:
    async def story() -> None:
        desk = Desk()
        specs = ListenerSpec("PLAINTEXT", "", 0), ListenerSpec("CONTROLLER", "", 0, is_privileged=True)
        server = await started(desk, *specs, max_connections=2)
        silent, busy = await Peer.connect(server), await Peer.connect(server)
        await silent.ask(b"long ago")
        await asyncio.sleep(1)
        await busy.ask(b"now")
        node = await Peer.connect(server, "CONTROLLER")
        assert await node.ask(b"vote") == b"vote"
        await silent.closed()
        assert await busy.ask(b"me too") == b"me too"
        await server.stop(100)

    run_simulated(story)


def test_requests_beyond_the_queue_are_left_in_the_sockets(run: Run) -> None:
    """More connections than the lane takes: all are served, none is forgotten on the bench."""

    async def story() -> None:
        desk = Desk()
        server = await started(desk, queued_max_requests=2, dispatch_budget_ms=0.0)
        peers = [await Peer.connect(server) for _ in range(20)]
        for peer in peers:
            peer.send(*[b"request"] * 5)
        for peer in peers:
            await peer.answers(5)
        assert len(desk.frames) == 100
        await server.stop(100)

    run(story)
