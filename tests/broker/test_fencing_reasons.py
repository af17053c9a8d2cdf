"""Why the active controller says that it fences a broker: its process has ended, it hung up, or it is silent."""

from __future__ import annotations

import asyncio
import logging

import pytest

from barnabas.base.log_context import said
from barnabas.broker.controller.quorum_controller import QuorumController
from barnabas.testing.sim.world import SimulatedNode, World


def controller_of(node: SimulatedNode) -> QuorumController:
    assert node.node is not None
    assert node.node._controller is not None
    return node.node._controller.controller


def active(nodes: list[SimulatedNode]) -> SimulatedNode:
    return next(each for each in nodes if controller_of(each).is_active)


@pytest.mark.parametrize(
    ("killed", "reason"),
    [
        ("the active controller", "whose process has ended"),
        ("another", "which closed its connection and did not come back"),
    ],
)
def test_a_broker_whose_process_ends(caplog: pytest.LogCaptureFixture, killed: str, reason: str) -> None:
    caplog.set_level(logging.INFO, "barnabas.controller")
    with World(1) as world:

        async def story() -> tuple[int, int]:
            nodes = await world.start_cluster(3)
            leader = active(nodes)
            gone = leader if killed == "the active controller" else next(each for each in nodes if each is not leader)
            gone_id = nodes.index(gone) + 1
            gone.kill()
            nodes.remove(gone)
            await asyncio.sleep(8)
            return gone_id, controller_of(active(nodes)).early_fencing.count

        gone_id, count = world.run(story())
    assert [said(each) for each in caplog.records if said(each).startswith(f"Fencing broker {gone_id},")] == [
        f"Fencing broker {gone_id}, {reason}"
    ]
    assert count == 1


def test_a_broker_that_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.controller")
    with World(1) as world:

        async def story() -> int:
            nodes = await world.start_cluster(3)
            leader = active(nodes)
            next(each for each in nodes if each is not leader).host.pause()
            await asyncio.sleep(15)
            return controller_of(leader).early_fencing.count

        assert world.run(story()) == 0
    assert [said(each).split(", ")[1] for each in caplog.records if said(each).startswith("Fencing broker ")] == [
        "whose session has expired"
    ]
