"""Requests take a bounded memory over all connections, by not reading, and nobody holds it for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.net import Connection, ListenerSpec, Server
from barnabas.net.memory import RequestMemory, Share
from barnabas.net.pace import Doing, Standing
from tests.net.hand_loop import HandLoop, StubConnection
from tests.net.worlds import KIB, MIB, Desk, Peer, Story, all_of, eventually, run_simulated, started

Run = Callable[[Story], None]

LIMIT_BYTES = 16 * MIB
LARGEST_BYTES = 6 * MIB
#: What is left to large frames beside the reserve.
LARGE_BYTES = 4 * MIB


class ArrivingFrame(StubConnection):
    """A frame that asks for memory as a connection does: in steps of a mebibyte, and not while it waits."""

    def __init__(self, memory: RequestMemory, number: int, size_bytes: int) -> None:
        super().__init__(str(number))
        self.requests = memory
        self.size_bytes = size_bytes
        self.share = memory.share_of(size_bytes)
        self.charged_bytes = 0
        self.is_waiting = False
        self.on_grant: Callable[[ArrivingFrame], None] = lambda _: None

    @property
    def is_whole(self) -> bool:
        return self.charged_bytes == self.size_bytes

    def go_on(self) -> None:
        more_bytes = min(MIB, self.size_bytes - self.charged_bytes)
        self.is_waiting = not self.requests.ask(self.as_connection, self.share, more_bytes)
        if not self.is_waiting:
            self.charged_bytes += more_bytes

    def held_of(self, share: object) -> int:
        return self.charged_bytes if share is self.share else 0

    def memory_granted(self, more_bytes: int) -> None:
        assert self.is_waiting
        self.is_waiting = False
        self.charged_bytes += more_bytes
        self.on_grant(self)

    def end(self) -> None:
        self.requests.stop_waiting(self.as_connection)
        charged_bytes, self.charged_bytes = self.charged_bytes, 0
        self.requests.give_back(self.as_connection, self.share, charged_bytes)


class FramesArrive(RuleBasedStateMachine):
    """Frames of all sizes begin, grow, are done with or broken off, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = RequestMemory(HandLoop().as_loop, {}, LIMIT_BYTES, LARGEST_BYTES, 3)
        self.frames: list[ArrivingFrame] = []
        self.count = 0
        #: In the order of asking; who holds something comes before who begins.
        self.lines: dict[tuple[Share, bool], list[ArrivingFrame]] = {}

    @rule(size=st.sampled_from([5 * KIB, 60 * KIB, 100 * KIB, MIB, MIB + 1, 3 * MIB, LARGEST_BYTES]))
    def begin(self, size: int) -> None:
        self.count += 1
        frame = ArrivingFrame(self.memory, self.count, size)
        frame.on_grant = self._granted
        self.frames.append(frame)
        self._go_on(frame)

    @precondition(lambda self: any(not each.is_waiting and not each.is_whole for each in self.frames))
    @rule(data=st.data())
    def grow(self, data: st.DataObject) -> None:
        self._go_on(data.draw(st.sampled_from([e for e in self.frames if not e.is_waiting and not e.is_whole])))

    @precondition(lambda self: self.frames)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self._end(data.draw(st.sampled_from(self.frames)))

    @rule(limit=st.sampled_from([LIMIT_BYTES, 10 * MIB, 32 * MIB]))
    def change_the_limit(self, limit: int) -> None:
        self.memory.set_limit(limit, LARGEST_BYTES)

    def _go_on(self, frame: ArrivingFrame) -> None:
        frame.go_on()
        if frame.is_waiting:
            self.lines.setdefault((frame.share, bool(frame.charged_bytes)), []).append(frame)

    def _granted(self, frame: ArrivingFrame) -> None:
        holders = self.lines.get((frame.share, True))
        line = holders or self.lines[frame.share, False]
        assert line.pop(0) is frame, "first come, first served"

    def _end(self, frame: ArrivingFrame) -> None:
        self.frames.remove(frame)
        if frame.is_waiting:
            self.lines[frame.share, bool(frame.charged_bytes)].remove(frame)
        frame.end()

    @invariant()
    def what_is_held_is_counted_and_bounded(self) -> None:
        memory = self.memory
        held_bytes = sum(frame.charged_bytes for frame in self.frames)
        assert memory.held_bytes == held_bytes
        assert memory.small.held_bytes + memory.reserved_bytes == held_bytes
        assert held_bytes <= 32 * MIB
        assert memory.waiter_count == sum(frame.is_waiting for frame in self.frames)

    @invariant()
    def who_waits_waits_for_somebody_who_does_not(self) -> None:
        for (share, _), line in self.lines.items():
            if line:
                assert any(e.share is share and not e.is_waiting and e.charged_bytes for e in self.frames)

    def teardown(self) -> None:
        """Whatever the mess: if everybody goes on, all of them come to their end."""
        while self.frames:
            frame = next(each for each in self.frames if not each.is_waiting)
            if frame.is_whole:
                self._end(frame)
            else:
                self._go_on(frame)
        assert self.memory.held_bytes == 0


FramesArrive.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_frames_arrive = FramesArrive.TestCase


def arriving(memory: RequestMemory, count: int, size_bytes: int) -> list[ArrivingFrame]:
    return [ArrivingFrame(memory, number, size_bytes) for number in range(count)]


def test_a_fixed_limit_is_never_exceeded_however_the_frames_grow() -> None:
    random = Random(5)
    memory = RequestMemory(HandLoop().as_loop, {}, LIMIT_BYTES, LARGEST_BYTES, 3)
    frames = [
        frame
        for size_bytes in (60 * KIB, 100 * KIB, MIB, 2 * MIB, LARGEST_BYTES)
        for frame in arriving(memory, 100, size_bytes)
    ]
    highest = 0
    while any(frames):
        able = [frame for frame in frames if not frame.is_waiting]
        frame = random.choice(able)
        if frame.is_whole:
            frame.end()
            frames.remove(frame)
        else:
            frame.go_on()
        highest = max(highest, memory.held_bytes)
    assert LIMIT_BYTES // 2 < highest <= LIMIT_BYTES


def test_half_received_frames_that_hold_everything_finish_one_by_one_in_the_reserve() -> None:
    memory = RequestMemory(HandLoop().as_loop, {}, LIMIT_BYTES, LARGEST_BYTES, 3)
    frames = arriving(memory, 4, LARGEST_BYTES)
    for frame in frames:
        frame.go_on()
    assert memory.large.held_bytes == LARGE_BYTES
    for frame in frames:
        frame.go_on()
    # The first is in the reserve, which left room for the step of the next; the others wait.
    assert [frame.is_waiting for frame in frames] == [False, False, True, True]
    while not frames[0].is_whole:
        frames[0].go_on()
    assert memory.held_bytes == LARGEST_BYTES + LARGE_BYTES
    frames[0].end()
    assert not frames[2].is_waiting, "the next in line has the reserve"


def test_who_is_in_the_reserve_leaves_it_when_there_is_room_elsewhere() -> None:
    memory = RequestMemory(HandLoop().as_loop, {}, LIMIT_BYTES, LARGEST_BYTES, 3)
    hog, favoured, late = arriving(memory, 3, 4 * MIB)
    while not hog.is_whole:
        hog.go_on()
    favoured.go_on()
    late.go_on()
    assert (favoured.is_waiting, late.is_waiting) == (False, True)
    hog.end()
    assert memory.large.held_bytes == 2 * MIB, "both hold their memory as others do"
    assert not late.is_waiting


def test_a_frame_larger_than_its_share_waits_until_it_is_alone() -> None:
    memory = RequestMemory(HandLoop().as_loop, {}, MIB, MIB, 3)
    first, second = arriving(memory, 2, 600 * KIB)
    first.go_on()
    second.go_on()
    assert (first.is_waiting, second.is_waiting) == (False, True)
    first.end()
    assert not second.is_waiting


class Shortage:
    """A stalled holder of a share, and somebody who waits for it."""

    def __init__(self) -> None:
        self.loop = HandLoop()
        connections: dict[int, Connection] = {}
        self.memory = RequestMemory(self.loop.as_loop, connections, LIMIT_BYTES, LARGEST_BYTES, 3)
        self.holder, self.waiter = arriving(self.memory, 2, MIB)
        self.others = arriving(self.memory, 3, MIB)
        for number, frame in enumerate([self.holder, *self.others]):
            connections[number] = frame.as_connection
            frame.memory = self.memory
            frame.on_abort = frame.end
            frame.go_on()

    def receive(self, received_bytes: int, announced_bytes: int = MIB) -> None:
        self.holder.peer_standing = Standing(Doing.SENDING_FRAME, announced_bytes, received_bytes)


def test_who_makes_no_progress_while_others_wait_is_cut_off_within_seconds() -> None:
    it = Shortage()
    it.receive(100)
    it.loop.pass_time(20)
    it.waiter.go_on()
    it.loop.pass_time(2.9)
    assert it.holder.log == []
    it.loop.pass_time(1.2)
    assert it.holder.log == ["abort: too slow in sending its request while others wait for memory"]
    assert not it.waiter.is_waiting


def test_who_holds_memory_that_nobody_needs_keeps_it() -> None:
    it = Shortage()
    it.receive(0)
    it.loop.pass_time(10_000)
    assert it.holder.log == []


def test_shortages_that_are_over_count_for_nothing() -> None:
    it = Shortage()
    it.receive(0)
    for _ in range(10):
        it.waiter.go_on()
        it.loop.pass_time(2)
        it.memory.stop_waiting(it.waiter.as_connection)
        it.loop.pass_time(2)
    assert it.holder.log == []


@pytest.mark.parametrize(
    ("announced_bytes", "bytes_per_s", "is_cut_off"),
    [(MIB, 60 * KIB, True), (MIB, 70 * KIB, False), (100 * MIB, MIB, True), (100 * MIB, 4 * MIB, False)],
)
def test_a_frame_must_come_fast_enough_to_be_of_use(announced_bytes: int, bytes_per_s: int, is_cut_off: bool) -> None:
    it = Shortage()
    it.waiter.go_on()
    for second in range(12):
        it.receive(second * bytes_per_s, announced_bytes)
        it.loop.pass_time(1)
    assert bool(it.holder.log) is is_cut_off


def test_a_request_in_process_is_not_its_peers_fault() -> None:
    it = Shortage()
    it.waiter.go_on()
    it.loop.pass_time(1000)
    assert it.holder.log == [], "it has no standing: it is not for the peer to do something"


def test_who_waits_for_others_with_a_large_request_in_hand_makes_way() -> None:
    it = Shortage()
    it.holder.peer_standing = Standing(Doing.WAITING, 0, 0)
    it.waiter.go_on()
    it.loop.pass_time(5)
    assert it.holder.log == ["abort: too slow in waiting with a large request while others wait for memory"]


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


def kept_bytes(server: Server) -> int:
    """What connections really keep of requests that are not in process."""
    return sum(each._receiver.kept_bytes + sum(map(len, each._ahead)) for each in server.connections)


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
        assert kept_bytes(server) <= server.request_bytes <= 50 * 64 * KIB + 2 * MIB
        assert MIB <= server.reserved_bytes <= 2 * MIB, "one of them goes on, in the reserve"
        await server.stop(100)

    run(story)


async def drip(peer: Peer, announced_bytes: int, first_bytes: int, bytes_per_s: int) -> None:
    """Announce a frame, send its beginning, then a little now and then, until the connection is cut."""
    peer.transport.write(announced_bytes.to_bytes(4, "big") + bytes(first_bytes))
    while not peer.is_closed:
        await asyncio.sleep(1)
        peer.transport.write(bytes(bytes_per_s))


async def send_many(server: Server, count: int, size_bytes: int) -> float:
    """Send requests one after the other; how long the slowest took. None may take as long as a client waits."""
    loop = asyncio.get_running_loop()
    peer = await Peer.connect(server)
    slowest_s = 0.0
    for _ in range(count):
        began_s = loop.time()
        async with asyncio.timeout(30):
            await peer.ask(b"x" * size_bytes)
        slowest_s = max(slowest_s, loop.time() - began_s)
    return slowest_s


def test_six_that_announce_much_and_send_little_keep_nobody_waiting() -> None:
    async def story() -> None:
        desk = Desk()
        desk.answer = lambda connection, frame: connection.respond([frame[:1]])
        server = await started(desk)
        drippers = [asyncio.create_task(drip(await Peer.connect(server), 100 * MIB, 100, 4 * KIB)) for _ in range(6)]
        await eventually(lambda: sum(each.received_bytes > 0 for each in server.connections) == 6)
        slowest_s = max(await all_of([send_many(server, 30, 100 * KIB) for _ in range(10)]))
        assert slowest_s < 3
        assert len(list(server.connections)) == 16, "nobody waited, so nobody was cut"
        for task in drippers:
            task.cancel()
        await server.stop(100)

    run_simulated(story)


@pytest.mark.parametrize("size_bytes", [100 * KIB, 3 * MIB])
def test_a_crowd_of_half_sent_frames_makes_way_within_seconds(size_bytes: int) -> None:
    """They have really sent what fills all memory for large frames, and then stop."""

    async def story() -> None:
        desk = Desk()
        desk.answer = lambda connection, frame: connection.respond([frame[:1]])
        server = await started(desk, queued_max_request_bytes=32 * MIB, socket_request_max_bytes=LARGEST_BYTES)
        crowd = [await Peer.connect(server) for _ in range(16)]
        tasks = [asyncio.create_task(drip(peer, LARGEST_BYTES, 3 * MIB // 2, 1)) for peer in crowd]
        await eventually(lambda: server.reserved_bytes >= 13 * MIB)
        slowest_s = await send_many(server, 5, size_bytes)
        # Ordinary frames are not concerned; a large one waits until the crowd was cut, in a few generations.
        assert slowest_s < (1 if size_bytes <= MIB else 28)
        for task in tasks:
            task.cancel()
        await server.stop(100)

    run_simulated(story)


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
        assert 3 <= loop.time() - began_s <= 5
        await server.stop(100)

    run_simulated(story)


def test_small_frames_are_bounded_together_and_heartbeats_live(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, queued_max_request_bytes=8 * MIB)
        crowd = [await Peer.connect(server) for _ in range(80)]
        for peer in crowd[:5]:
            peer.send(b"x" * 60_000, b"y" * 1000)
        await desk.arrived(5)
        for peer in crowd[5:40]:
            peer.transport.write((64 * KIB).to_bytes(4, "big") + bytes(60 * KIB))
        await eventually(lambda: server.request_bytes > MIB - 64 * KIB)
        for peer in crowd[40:]:
            peer.send(b"x" * 60_000, b"y" * 1000)
        desk.is_patient = False
        heartbeat = await Peer.connect(server)
        for _ in range(10):
            assert await heartbeat.ask(b"!" * 4000) == b"!" * 4000
        await eventually(
            lambda: sum(bool(e._receiver.announced_bytes or e.is_in_process) for e in server.connections) == 80
        )
        in_process = sum(len(frame) for _, frame in desk.open)
        assert kept_bytes(server) + in_process <= MIB + 80 * 8 * KIB
        assert server.request_bytes <= MIB + 80 * 4 * KIB
        assert len(desk.requests) == 15, "the others wait"
        heartbeat = await Peer.connect(server)
        assert await heartbeat.ask(b"!" * 4000) == b"!" * 4000
        await server.stop(100)

    run(story)


def test_small_frames_that_never_become_whole_make_way() -> None:
    async def story() -> None:
        desk = Desk()
        server = await started(desk, queued_max_request_bytes=8 * MIB)
        for _ in range(60):
            peer = await Peer.connect(server)
            peer.transport.write((64 * KIB).to_bytes(4, "big") + bytes(60 * KIB))
        assert await send_many(server, 10, 60 * KIB) < 20
        await server.stop(100)

    run_simulated(story)


def test_parked_requests_make_way_only_if_they_are_large_and_others_wait() -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, queued_max_request_bytes=8 * MIB)
        modest = await Peer.connect(server)
        modest.send(b"a join")
        crowd = [await Peer.connect(server) for _ in range(20)]
        for peer in crowd[:15]:
            peer.send(b"x" * (60 * KIB))
        await desk.arrived(16)
        for connection, _ in desk.open:
            connection.park(connection.finish_without_response)
        await asyncio.sleep(100)
        assert not any(peer.is_closed for peer in crowd), "nobody waits"
        for peer in crowd[15:]:
            peer.send(b"x" * (60 * KIB))
        await eventually(lambda: all(peer.is_closed for peer in crowd[:15]))
        await desk.arrived(21)
        assert not modest.is_closed
        await server.stop(100)

    run_simulated(story)


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    honest=st.lists(st.sampled_from([1000, 30 * KIB, 100 * KIB, MIB, 2 * MIB, 5 * MIB]), min_size=1, max_size=6),
    slow=st.lists(
        st.tuples(
            st.sampled_from([50 * KIB, 900 * KIB, LARGEST_BYTES]), st.floats(0, 0.9), st.sampled_from([0, 100, 10_000])
        ),
        max_size=12,
    ),
)
def test_whoever_sends_beside_whomever_the_bound_holds_and_the_honest_get_through(
    seed: int, honest: list[int], slow: list[tuple[int, float, int]]
) -> None:
    async def story() -> None:
        desk = Desk()
        desk.answer = lambda connection, frame: connection.respond([frame[:1]])
        server = await started(desk, queued_max_request_bytes=LIMIT_BYTES, socket_request_max_bytes=LARGEST_BYTES)
        highest = 0

        async def look() -> None:
            nonlocal highest
            while True:
                highest = max(highest, server.request_bytes)
                assert kept_bytes(server) <= server.request_bytes + 4 * KIB * len(list(server.connections))
                await asyncio.sleep(0.05)

        looking = asyncio.create_task(look())
        tasks = [
            asyncio.create_task(drip(await Peer.connect(server), size, int(size * part), rate))
            for size, part, rate in slow
        ]
        await all_of([send_many(server, 2, size_bytes) for size_bytes in honest])
        assert highest <= LIMIT_BYTES + 4 * KIB * (len(honest) + len(slow))
        for task in tasks:
            task.cancel()
        assert not looking.done()
        looking.cancel()
        await server.stop(100)
        assert server.request_bytes == 0

    run_simulated(story, seed)


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


def test_a_frame_that_is_let_go_of_makes_room_while_its_answer_is_waited_for(run: Run) -> None:
    async def story() -> None:
        desk = Desk(is_patient=True)
        server = await started(desk, queued_max_request_bytes=MIB)
        peers = [await Peer.connect(server) for _ in range(3)]
        for count, peer in enumerate(peers, 1):
            peer.send(b"x" * (600 * KIB), b"the next one")
            await desk.arrived(count)
            assert server.reserved_bytes == 600 * KIB
            desk.requests[-1][0].release_frame()
            assert server.reserved_bytes == 0
        assert len(desk.open) == 3, "all of them wait, and one takes the next request only after its answer"
        desk.answer = lambda connection, frame: connection.respond([frame[-12:]])
        for _ in range(3):
            desk.answer_next()
        await desk.arrived(6)
        for _ in range(3):
            desk.answer_next()
        assert [await peer.answers(2) for peer in peers] == [[b"x" * 12, b"the next one"]] * 3
        assert server.request_bytes == 0
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
        submit = connection._request_channel.submit

        def closed_first(connection: Connection, frame: bytearray) -> None:
            submit(connection, frame)
            connection.abort("it was closed in the same turn")

        connection._request_channel = SimpleNamespace(submit=closed_first, forget=lambda _: None)  # type: ignore[assignment]
        await peer.closed()
        await eventually(lambda: server.reserved_bytes == 0)
        assert not desk.requests
        await server.stop(100)

    run_simulated(story)


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
