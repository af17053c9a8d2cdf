"""What a controller's node tells of elections: why there is one, how long nobody leads, and who does after all."""

from __future__ import annotations

import asyncio
import logging

import pytest

from barnabas.base.log_context import said
from barnabas.broker.quorum.leader_watch import LeaderWatch, loss_text
from barnabas.raft.types import LeaderAndEpoch, LeaderLoss, LossCause
from barnabas.testing.sim.world import SimulatedNode, World

SILENT = LeaderLoss(LossCause.SILENT, 2, 7, 2100)


class ManualClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class Quorum:
    """Node 1 of several."""

    node_id = 1
    is_alone = False
    is_stopping = False
    leader = LeaderAndEpoch(2, 7)

    def waits_for(self) -> str:
        return "enough must run"


class Bench:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "barnabas.controller")
        self._caplog = caplog
        self.quorum, self.clock = Quorum(), ManualClock()
        self.watch = LeaderWatch(self.quorum, self.clock)

    def look(self, at_ms: int, loss: LeaderLoss | None) -> list[tuple[str, str]]:
        self._caplog.clear()
        self.clock.ms = at_ms
        self.watch.look(loss)
        return [(each.levelname, each.getMessage()) for each in self._caplog.records]


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Bench:
    return Bench(caplog)


REASON = "nothing was heard from controller 2 for 2100 ms"


def test_a_loss_is_told_once_and_warned_of_when_it_lasts(bench: Bench) -> None:
    assert bench.look(0, SILENT) == [("INFO", f"Node 1 looks for an active controller, since {REASON}")]
    assert bench.watch.reason == REASON
    assert bench.look(2900, SILENT) == []
    warning = f"Node 1 has known no active controller for 3.1 s, since {REASON}: enough must run"
    assert bench.look(3100, SILENT) == [("WARNING", warning)]
    assert bench.look(30_000, SILENT) == []
    assert [level for level, _ in bench.look(33_100, SILENT)] == ["WARNING"]
    bench.quorum.leader = LeaderAndEpoch(3, 8)
    assert bench.look(34_000, None) == [("INFO", "Controller 3 leads in epoch 8, after 34.0 s without an active one")]
    assert not bench.watch.reason
    assert bench.look(35_000, None) == []


def test_a_new_leader_in_time_is_told_by_others(bench: Bench) -> None:
    bench.look(0, SILENT)
    bench.quorum.leader = LeaderAndEpoch(3, 8)
    assert bench.look(200, None) == []


def test_the_same_leader_is_told_once_more(bench: Bench) -> None:
    bench.look(0, SILENT)
    assert bench.look(200, None) == [("INFO", "Controller 2 leads in epoch 7, after 0.2 s without an active one")]


def test_who_stops_or_is_alone_tells_nothing(bench: Bench) -> None:
    bench.quorum.is_stopping = True
    assert bench.look(0, SILENT) == []
    bench.quorum.is_stopping, bench.quorum.is_alone = False, True
    assert bench.look(0, SILENT) == []


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (SILENT, REASON),
        (LeaderLoss(LossCause.GONE, 2, 7), "controller 2 closed the connection, and its process does not answer"),
        (LeaderLoss(LossCause.RESIGNED, 2, 7), "controller 2 resigned"),
        (LeaderLoss(LossCause.RESIGNED, 1, 7), "this node resigned"),
        (
            LeaderLoss(LossCause.UNHEARD, 1, 7, 3000),
            "this node led, and has not heard from a majority of the controllers for 3000 ms",
        ),
        (
            LeaderLoss(LossCause.OUTVOTED, 2, 7, other_id=3),
            "controller 3 has begun an election after epoch 7 of controller 2",
        ),
    ],
)
def test_reasons(loss: LeaderLoss, text: str) -> None:
    assert loss_text(loss, 1) == text


def lines_of(caplog: pytest.LogCaptureFixture, who: str) -> list[tuple[str, str]]:
    controller = [each for each in caplog.records if each.name == "barnabas.controller"]
    return [(each.levelname, said(each)) for each in controller if each.__dict__["who"] == who]


def leader_of(nodes: list[SimulatedNode]) -> SimulatedNode:
    assert nodes[0].node is not None
    return nodes[nodes[0].node.quorum.leader.leader_id - 1]


@pytest.mark.parametrize("brokers", [0, 1])
def test_a_majority_is_gone_and_comes_back(caplog: pytest.LogCaptureFixture, brokers: int) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    with World(1) as world:

        async def story() -> tuple[int, int, list[tuple[str, str]]]:
            nodes = (await world.start_cluster(3, brokers=brokers))[:3]
            leader = leader_of(nodes)
            other, survivor = (each for each in nodes if each is not leader)
            number = nodes.index(survivor) + 1
            caplog.clear()
            other.kill()
            leader.kill()
            await asyncio.sleep(20)
            told = lines_of(caplog, f"node {number}")
            caplog.clear()
            await asyncio.gather(other.start(), leader.start())
            await asyncio.sleep(20)
            return number, nodes.index(leader) + 1, told

        number, leader_id, told = world.run(story())
    gone = f"controller {leader_id} closed the connection, and its process does not answer"
    assert told[0] == ("INFO", f"Node {number} looks for an active controller, since {gone}")
    (warning,) = [line for level, line in told if level == "WARNING"]
    assert f" s, since {gone}: no controller leads; of the voters " in warning
    assert any(" s without an active one" in line for _, line in lines_of(caplog, f"node {number}"))


def test_an_election_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    with World(1) as world:

        async def story() -> int:
            nodes = await world.start_cluster(3)
            leader = leader_of(nodes)
            leader.host.pause()
            await asyncio.sleep(10)
            return nodes.index(leader) + 1

        leader_id = world.run(story())
    (line,) = [
        said(each) for each in caplog.records if " is the active controller now, in epoch 2, since " in said(each)
    ]
    assert f"nothing was heard from controller {leader_id} for " in line


def test_who_starts_alone_has_lost_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """The watch of the start tells for whom it waits."""
    caplog.set_level(logging.INFO, "barnabas")
    with World(1) as world:

        async def story() -> None:
            nodes = await world.start_cluster(3)
            follower = next(each for each in nodes if each is not leader_of(nodes))
            for each in nodes:
                each.kill()
            caplog.clear()
            starting = asyncio.ensure_future(follower.start())
            await asyncio.sleep(20)
            follower.kill()
            await asyncio.wait([starting])
            starting.exception()

        world.run(story())
    told = [said(each) for each in caplog.records]
    assert any(" waits: no controller leads" in line or " waits: it reads" in line for line in told)
    assert not [line for line in told if "active controller" in line]


def test_a_leader_without_followers_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas")
    with World(1) as world:

        async def story() -> int:
            nodes = await world.start_cluster(3)
            leader = leader_of(nodes)
            for each in nodes:
                if each is not leader:
                    each.kill()
            await asyncio.sleep(15)
            return nodes.index(leader) + 1

        number = world.run(story())
    told = lines_of(caplog, f"node {number}")
    assert any("this node led, and has not heard from a majority of the controllers" in line for _, line in told)
    assert sum(level == "WARNING" and "has known no active controller" in line for level, line in told) == 1
