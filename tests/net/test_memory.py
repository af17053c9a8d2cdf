"""Memory is bounded over all connections, by not reading, and nobody holds it for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.net import Connection, ListenerSpec
from barnabas.net.memory import MemoryBudget
from tests.net.hand_loop import HandLoop, StubConnection
from tests.net.worlds import KIB, MIB, Desk, Peer, Story, all_of, eventually, run_simulated, started

Run = Callable[[Story], None]

LIMIT_BYTES = 100


class ReservationsInOrder(RuleBasedStateMachine):
    """Against a list: who asked first is served first, and what is out never exceeds the limit."""

    def __init__(self) -> None:
        super().__init__()
        self.budget = MemoryBudget(HandLoop().as_loop, LIMIT_BYTES, LIMIT_BYTES)
        self.asked: list[tuple[StubConnection, int]] = []
        self.granted_at_once: set[StubConnection] = set()

    @rule(size=st.integers(1, 150))
    def ask(self, size: int) -> None:
        connection = StubConnection(str(len(self.asked)))
        if self.budget.reserve(connection.as_connection, size):
            self.granted_at_once.add(connection)
        self.asked.append((connection, size))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        connection, _ = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        self.budget.release(connection.as_connection)
        self.budget.release(connection.as_connection)

    @precondition(lambda self: self.asked)
    @rule(limit=st.integers(1, 300))
    def change_the_limit(self, limit: int) -> None:
        self.budget.limit_bytes = limit
        self.budget.grant_waiting()

    def has(self, connection: StubConnection) -> bool:
        assert connection.log in ([], ["memory_granted"])
        return connection in self.granted_at_once or bool(connection.log)

    @invariant()
    def first_come_first_served(self) -> None:
        have = [self.has(connection) for connection, _ in self.asked]
        assert have == sorted(have, reverse=True), "nobody is served before one who asked earlier"
        sizes = [size for (_, size), has in zip(self.asked, have, strict=True) if has]
        assert self.budget.reserved_bytes == sum(sizes)
        if False in have:
            next_size = self.asked[have.index(False)][1]
            assert sizes, "nobody waits alone"
            assert sum(sizes) + next_size > self.budget.limit_bytes, "nobody waits for what is there"
        assert self.budget.waiter_count == have.count(False)


ReservationsInOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_reservations_in_order = ReservationsInOrder.TestCase


def test_a_frame_larger_than_the_limit_waits_until_it_is_alone() -> None:
    budget = MemoryBudget(HandLoop().as_loop, 10, 10)
    small, large = StubConnection(), StubConnection()
    assert budget.reserve(small.as_connection, 5)
    assert not budget.reserve(large.as_connection, 50)
    budget.release(small.as_connection)
    assert large.log == ["memory_granted"]


def stalled_budget() -> tuple[HandLoop, MemoryBudget, StubConnection, StubConnection]:
    loop = HandLoop()
    budget = MemoryBudget(loop.as_loop, 10 * MIB, 10 * MIB)
    holder, waiter = StubConnection("holder"), StubConnection("waiter")
    holder.on_abort = lambda: budget.release(holder.as_connection)
    assert budget.reserve(holder.as_connection, 8 * MIB)
    return loop, budget, holder, waiter


def test_who_makes_no_progress_while_others_wait_is_cut_off() -> None:
    loop, budget, holder, waiter = stalled_budget()
    loop.pass_time(20)
    assert not budget.reserve(waiter.as_connection, 8 * MIB)
    loop.pass_time(9)
    assert holder.log == []
    loop.pass_time(6)
    assert holder.log == ["abort: no progress in 30 s while others wait for memory"]
    assert waiter.log == ["memory_granted"]


def test_who_holds_memory_that_nobody_needs_keeps_it() -> None:
    loop, _, holder, _ = stalled_budget()
    loop.pass_time(10_000)
    assert holder.log == []


def test_a_trickle_is_no_progress_and_a_steady_stream_is() -> None:
    for bytes_per_s, is_cut_off in [(100, True), (10 * KIB, False)]:
        loop, budget, holder, waiter = stalled_budget()
        assert not budget.reserve(waiter.as_connection, 8 * MIB)
        for _ in range(100):
            loop.pass_time(1)
            holder.received_bytes += bytes_per_s
        assert bool(holder.log) is is_cut_off


def test_a_request_in_process_is_not_its_peers_fault() -> None:
    loop, budget, holder, waiter = stalled_budget()
    assert not budget.reserve(waiter.as_connection, 8 * MIB)
    holder.is_in_process = True
    loop.pass_time(1000)
    assert holder.log == []


def test_who_does_not_take_responses_is_cut_off_once_they_fill_the_room() -> None:
    loop = HandLoop()
    budget = MemoryBudget(loop.as_loop, 10 * MIB, 10 * MIB)
    slow, steady = StubConnection(), StubConnection()
    slow.on_abort = lambda: budget.outgoing_ended(slow.as_connection)
    slow.unsent_bytes, steady.unsent_bytes = 4 * MIB, 8 * MIB
    budget.outgoing_began(slow.as_connection, 4 * MIB)
    assert (budget.outgoing_bytes, budget.room_for_responses()) == (4 * MIB, 6 * MIB)
    loop.pass_time(100)
    assert slow.log == [], "there is room enough"
    budget.outgoing_began(steady.as_connection, 8 * MIB)
    assert budget.room_for_responses() == 0
    for _ in range(40):
        loop.pass_time(1)
        steady.unsent_bytes -= 100 * KIB
    assert slow.log == ["abort: no progress in 30 s while others wait for memory"]
    assert steady.log == []
    budget.outgoing_ended(slow.as_connection)
    assert budget.outgoing_bytes == 8 * MIB


def test_many_large_requests_share_little_memory(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        highest = 0

        def answer(connection: object, frame: bytes) -> None:
            nonlocal highest
            highest = max(highest, server.reserved_bytes)
            desk.requests[-1][0].respond([frame[:1]])

        desk.answer = answer
        server = await started(desk, queued_max_request_bytes=MIB)
        peers = [await Peer.connect(server) for _ in range(20)]
        for peer in peers:
            peer.send(b"x" * (400 * KIB))
        await all_of([peer.answers(1) for peer in peers])
        assert 400 * KIB <= highest <= MIB
        assert server.reserved_bytes == 0
        await server.stop(100)

    run(story)


def test_announcements_take_no_memory_and_small_requests_pass(run: Run) -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, queued_max_request_bytes=100 * MIB)
        crowd = [await Peer.connect(server) for _ in range(50)]
        for peer in crowd:
            peer.transport.write((90 * MIB).to_bytes(4, "big") + bytes(200 * KIB))
        await eventually(lambda: sum(each.received_bytes > 0 for each in server.connections) == 50)
        heartbeat = await Peer.connect(server)
        assert await heartbeat.ask(b"!" * 60_000) == b"!" * 60_000
        kept_bytes = sum(len(each._receiver._frame) for each in server.connections)
        assert kept_bytes <= 50 * 64 * KIB + 2 * MIB
        assert server.reserved_bytes == 90 * MIB
        crowd[0].transport.abort()
        await eventually(lambda: len(list(server.connections)) == 50)
        assert server.reserved_bytes == 90 * MIB, "the next in line has it"
        await server.stop(100)

    run(story)


def test_a_stalled_request_makes_way_for_those_behind_it() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        desk = Desk()
        server = await started(desk, queued_max_request_bytes=MIB)
        stalled, next_one = await Peer.connect(server), await Peer.connect(server)
        stalled.transport.write(MIB.to_bytes(4, "big") + bytes(100 * KIB))
        await eventually(lambda: server.reserved_bytes > 0)
        began_s = loop.time()
        next_one.send(b"x" * MIB)
        await next_one.answers(1)
        assert stalled.is_closed
        assert 30 <= loop.time() - began_s <= 41
        await server.stop(100)

    run_simulated(story)


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


def test_a_request_keeps_its_memory_until_it_is_done_with_also_when_its_connection_is_gone(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, queued_max_request_bytes=MIB)
        quick, patient = await Peer.connect(server), await Peer.connect(server)
        for count in (1, 2):
            quick.send(b"x" * (600 * KIB))
            await desk.arrived(count)
            (connection, _) = desk.requests[-1]
            connection.abort("as if it broke")
            await quick.closed()
            assert server.reserved_bytes == 600 * KIB, "somebody still works on it"
            desk.answer_next()
            assert server.reserved_bytes == 0
            quick = await Peer.connect(server)
        patient.send(b"x" * (600 * KIB))
        await desk.arrived(3)
        desk.requests[-1][0].close("it makes no sense")
        assert server.reserved_bytes == 0
        await server.stop(100)

    run(story)


def test_a_request_that_was_never_taken_up_gives_its_memory_back() -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, queued_max_request_bytes=MIB)
        peer = await Peer.connect(server)
        peer.send(b"x" * (600 * KIB))
        await eventually(lambda: server.reserved_bytes > 0)
        (connection,) = server.connections
        submit = connection._lanes.submit

        def closed_first(connection: Connection, frame: bytearray) -> None:
            submit(connection, frame)
            connection.abort("it was closed in the same turn")

        connection._lanes = SimpleNamespace(submit=closed_first, forget=lambda _: None)  # type: ignore[assignment]
        await peer.closed()
        await eventually(lambda: server.reserved_bytes == 0)
        assert not desk.requests
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


def test_nodes_of_the_cluster_have_memory_of_their_own_and_a_bound(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        specs = [
            ListenerSpec("PLAINTEXT", "127.0.0.1", 0),
            ListenerSpec("CONTROLLER", "127.0.0.1", 0, is_privileged=True),
        ]
        server = await started(desk, *specs, queued_max_request_bytes=MIB, socket_request_max_bytes=MIB)
        client = await Peer.connect(server)
        nodes = [await Peer.connect(server, "CONTROLLER") for _ in range(3)]
        client.send(b"x" * MIB)
        await desk.arrived(1)
        for node in nodes:
            node.send(b"x" * (600 * KIB))
        await desk.arrived(2)
        assert server.reserved_bytes == 1624 * KIB, "one of them at a time, beside the client"
        for count in (3, 4):
            desk.open.pop()
            desk.requests[-1][0].respond([b"done"])
            await desk.arrived(count)
        assert server.reserved_bytes == 1624 * KIB
        await server.stop(100)

    run(story)
