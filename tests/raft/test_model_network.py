"""The network of messages that simulations run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.raft.ports import Reply, Transport
from barnabas.raft.types import Address
from barnabas.testing.sim.model_network import ModelTransport
from barnabas.testing.sim.model_world import ModelWorld
from barnabas.testing.sim.network import Link
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.vote import VoteRequest, VoteResponse

PORT = 9093
ONE, TWO = "10.0.0.1", "10.0.0.2"


class Player:
    """A process that answers each vote with its voter's id, and remembers what it hears."""

    def __init__(self, world: ModelWorld, name: str) -> None:
        self.world = world
        self.host = world.host(name)
        self.heard: list[int] = []
        self.answers: list[int | None] = []
        self.refused: list[Address] = []
        self.transport: ModelTransport

    def start(self) -> None:
        self.host.start_process()
        self.transport = self.host.transport(PORT)
        transport: Transport = self.transport
        self.host.context.run(self.world.loop.create_task, transport.start(self._receive, self.refused.append))

    def _receive(self, request: Request, version: int, reply: Reply, listener: str | None = None) -> None:
        assert isinstance(request, VoteRequest)
        assert version == 2
        self.heard.append(request.voter_id)
        reply(VoteResponse(error_code=request.voter_id, topics=[]))

    def ask(self, to: str, number: int, timeout_ms: int = 1000) -> None:
        def responded(response: Response | None) -> None:
            assert response is None or isinstance(response, VoteResponse)
            self.answers.append(None if response is None else response.error_code)

        request = VoteRequest(cluster_id="c", voter_id=number, topics=[])
        send: Callable[[], None] = lambda: self.transport.send(  # noqa: E731
            Address(to, PORT), request, responded, timeout_ms=timeout_ms
        )
        self.host.context.run(send)


def make(seed: int = 1, *, link: Link | None = None) -> tuple[ModelWorld, Player, Player]:
    world = ModelWorld(seed, link=link)
    one, two = Player(world, ONE), Player(world, TWO)
    one.start()
    two.start()
    world.loop.run_for(0.1)
    return world, one, two


def test_messages_go_through_the_codec_and_overtake_each_other() -> None:
    world, one, two = make(link=Link(max_delay_s=0.5))
    for number in range(20):
        one.ask(TWO, number)
    world.loop.run_for(2)
    assert sorted(two.heard) == list(range(20)) != two.heard
    assert sorted(each for each in one.answers if each is not None) == list(range(20))
    world.close()


def test_what_is_lost_or_cut_off_is_told_only_by_the_timeout() -> None:
    world, one, two = make()
    world.network.cut(ONE, TWO)
    one.ask(TWO, 1)
    world.loop.run_for(0.9)
    assert (one.answers, two.heard) == ([], [])
    world.loop.run_for(0.2)
    assert one.answers == [None]
    world.network.mend(ONE, TWO)
    world.network.cut(TWO, ONE)
    one.ask(TWO, 2)
    world.loop.run_for(2)
    assert (one.answers, two.heard) == ([None, None], [2])
    world.network.mend(TWO, ONE)
    world.network.set_link(ONE, TWO, Link(loss=1.0))
    one.ask(TWO, 3)
    world.loop.run_for(2)
    assert two.heard == [2]
    world.close()


def test_a_dead_process_refuses_and_those_who_knew_it_are_told() -> None:
    world, one, two = make()
    one.ask(TWO, 1)
    world.loop.run_for(1)
    two.host.kill()
    world.loop.run_for(0.1)
    assert one.refused == [Address(TWO, PORT)]
    one.ask(TWO, 2)
    world.loop.run_for(0.1)
    assert one.answers == [1, None]
    two.start()
    one.ask(TWO, 3)
    world.loop.run_for(0.5)
    one.ask(TWO, 4)
    world.loop.run_for(0.5)
    assert one.answers[-1] == 4
    world.close()


def test_a_host_without_power_says_nothing() -> None:
    world, one, two = make()
    one.ask(TWO, 1)
    world.loop.run_for(1)
    two.host.power_off()
    one.ask(TWO, 2)
    world.loop.run_for(0.9)
    assert (one.answers, one.refused) == ([1], [])
    world.loop.run_for(0.2)
    assert one.answers == [1, None]
    world.close()


def test_who_is_paused_answers_late_and_nobody_waits_for_it() -> None:
    world, one, two = make()
    two.host.pause()
    one.ask(TWO, 1)
    world.loop.run_for(2)
    assert (one.answers, two.heard) == ([None], [])
    two.host.resume()
    world.loop.run_for(1)
    assert (one.answers, two.heard) == ([None], [1])
    world.close()


def test_a_reset_ends_what_is_under_way() -> None:
    world, one, _ = make(link=Link(min_delay_s=0.2, max_delay_s=0.3))
    one.ask(TWO, 1)
    world.network.reset(ONE, TWO)
    world.loop.run_for(0.05)
    assert (one.answers, one.refused) == ([None], [])
    world.close()
    assert asyncio._get_running_loop() is None
