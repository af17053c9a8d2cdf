"""Connections that break all the time, and come back: brokers must not be taken for dead because of it.

Every second the connections between the brokers and the active controller are reset, for ten virtual minutes. A broker
that redials is heard of again within the grace, so no leader moves. If the way is also cut for longer than the grace,
at most one broker is fenced in a minute.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.cluster import ClusterPlan
from barnabas.testing.sim.quorum_clients import create_request
from barnabas.testing.sim.world import CLIENT_ADDRESS, SimulatedNode, World

if TYPE_CHECKING:
    from barnabas.broker.node import Node
    from barnabas.metadata.image import ClusterImage
    from barnabas.metadata.loader import MetadataUpdate
    from barnabas.raft.types import LeaderAndEpoch

__all__ = ["FlappingReport", "run_flapping"]

PARTITIONS: Final = 6
EVERY_S: Final = 1.0


@dataclass(slots=True)
class FlappingReport:
    """How often what happened; `moved_at_s` are the times at which partitions changed their leader."""

    resets: int = 0
    fenced: int = 0
    elections: int = 0
    virtual_s: float = 0.0
    moved_at_s: tuple[float, ...] = ()


class _Watch:
    """Listens to one node, counts elections and leaders that moved."""

    def __init__(self, world: World, report: FlappingReport) -> None:
        self._world = world
        self._report = report
        self._image: ClusterImage | None = None
        self.is_counting = False

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        before, self._image = self._image, update.image
        if before is None or not self.is_counting:
            return
        report = self._report
        for broker_id, broker in update.image.brokers.items():
            old = before.brokers.get(broker_id)
            report.fenced += broker.is_fenced and old is not None and not old.is_fenced
        leaders = {name: [each.leader for each in topic.partitions] for name, topic in update.image.topics.items()}
        then = {name: [each.leader for each in topic.partitions] for name, topic in before.topics.items()}
        if leaders != then:
            report.moved_at_s = (*report.moved_at_s, self._world.loop.world_time())

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        self._report.elections += self.is_counting and leader.leader_id >= 0


def run_flapping(seed: int, *, minutes: float, brokers: int = 0, cut_s: float = 0.0) -> FlappingReport:
    """With `cut_s` it is one broker at a time, and it and the active controller do not hear each other for so long."""
    logger, silence = logging.getLogger("barnabas"), logging.NullHandler()
    logger.addHandler(silence)
    try:
        with World(seed) as world:
            report = FlappingReport()
            world.run(_play(world, report, minutes * 60, ClusterPlan(3, brokers), cut_s))
            return report
    finally:
        logger.removeHandler(silence)


async def _play(world: World, report: FlappingReport, duration_s: float, plan: ClusterPlan, cut_s: float) -> None:
    watches: dict[int, _Watch] = {}

    def on_made(node_id: int, node: Node) -> None:
        watches[node_id] = _Watch(world, report)
        node.loader.publish_to(watches[node_id])

    members = plan.members(world, {}, on_made)
    await asyncio.gather(*(member.start() for member in members))
    brokers = [each for each in members if plan.is_broker(each.settings.node_id)]
    client = await ScriptedClient.connect(brokers[0].bootstrap, address=CLIENT_ADDRESS)
    await client.ask(create_request("topic", PARTITIONS))
    await asyncio.sleep(1.0)
    active = _active(members)
    others = [each for each in brokers if each is not active]
    watches[active.settings.node_id].is_counting = True
    began_s, number = world.loop.world_time(), 0
    while world.loop.world_time() - began_s < duration_s:
        number += 1
        # If several closed at once, it would be taken for the network's fault.
        for other in [others[number % len(others)]] if cut_s else others:
            world.network.reset(other.host.address, active.host.address)
            report.resets += 1
            if cut_s:
                world.network.partition([other.host.address], [active.host.address])
                world.loop.call_later(cut_s, world.network.heal)
        await asyncio.sleep(EVERY_S)
    report.virtual_s = world.loop.world_time() - began_s


def _active(members: list[SimulatedNode]) -> SimulatedNode:
    return next(
        each for each in members if each.node is not None and each.node.quorum.leader.leader_id == each.settings.node_id
    )
