"""One run of a seed upon a cluster of real nodes: who is started when, what strikes it, and what is told of it.

A scenario derives from `ClusterRun`, and adds clients and what must hold.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import BarnabasError
from barnabas.metadata.image import ClusterImage
from barnabas.testing.sim.cluster import ClusterPlan
from barnabas.testing.sim.fault_plans import Fault
from barnabas.testing.sim.loop import START_S, SimulationError
from barnabas.testing.sim.nemesis import Nemesis
from barnabas.testing.sim.network import Link
from barnabas.testing.sim.quorum_checker import ClusterChecker, ClusterInvariant, NodeWatch
from barnabas.testing.sim.raft_checkers import InvariantBrokenError
from barnabas.testing.sim.raft_depths import DepthTarget
from barnabas.testing.sim.scenarios import SeedReport
from barnabas.testing.sim.world import ProcessDiedError, SimulatedNode, World, unwarned

if TYPE_CHECKING:
    from barnabas.broker.node import Node

__all__ = ["ClusterRun"]

SUPERVISION_S: Final = 0.25
_LOOK_S: Final = 0.002
#: What simulated nodes complain of is part of the play.
_SILENCE: Final = logging.NullHandler()


class ClusterRun(ABC):
    """See the module. `nemesis` must be set before `run`: which faults there are depends upon the scenario."""

    nemesis: Nemesis
    plan: Sequence[Fault]

    def __init__(
        self,
        seed: int,
        cluster: ClusterPlan,
        link: Link,
        overrides: Mapping[str, object],
        *,
        keep_story: bool,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        self.seed = seed
        self.cluster = cluster
        self.world = World(seed, link=link)
        self.loop = self.world.loop
        self.story: list[str] = []
        self._keeps_story = keep_story
        self.checker = ClusterChecker(self._own_offset)
        self.members = cluster.members(self.world, overrides, self._on_made, levels)
        self.by_host = {member.host.address: member for member in self.members}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self.is_over = False
        #: Hosts whose nodes are stopped to exchange their disks.
        self.exchanging: set[str] = set()

    @abstractmethod
    async def play(self) -> None:
        """What happens; whatever must hold and does not is raised."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """What happened how often."""

    def run_within(self, limit_s: float) -> SeedReport:
        """Play, for at most so much virtual time, and report."""
        broken = problem = ""
        logger = logging.getLogger("barnabas")
        logger.addHandler(_SILENCE)
        try:
            self.world.run(self.play(), limit_s=limit_s)
        except InvariantBrokenError as failure:
            broken, problem = str(failure.invariant.value), failure.text
        except (SimulationError, BarnabasError) as failure:
            broken, problem = ClusterInvariant.NO_FAILURE.value, f"{failure!r}, by {failure.__cause__!r}"
        finally:
            virtual_s, event_count = self.now_s(), self.loop.event_count
            trace = self.world.trace.hexdigest()
            self.world.close()
            logger.removeHandler(_SILENCE)
        if self.checker.broken is not None:
            broken, problem = str(self.checker.broken.invariant.value), self.checker.broken.text
        if broken:
            with unwarned():
                gc.collect()  # clients in the middle of something, which nobody could close
        plan = [str(fault) for fault in self.plan]
        counts = {"faults": len(plan), **self.counts()}
        return SeedReport(
            self.seed, virtual_s, event_count, trace, len(plan), broken, problem, plan, self.story, counts
        )

    def play_faults(
        self,
        plan: Sequence[Fault],
        leader: Callable[[], str | None] | None = None,
        may_strike: Callable[[Fault, Sequence[str]], str] = lambda fault, targets: "",
    ) -> None:
        """Have a plan ready. `leader` is the host that is meant by "the leader", which is the active controller if it
        is not told; `may_strike` says why a fault shall not happen now, if that is so."""
        self.plan = plan
        target = DepthTarget(
            self.world,
            list(self.cluster.addresses().values()),
            leader or self.active_controller,
            self.start,
            lambda _: None,
            self._stop,
            self._stop_and_restore,
        )
        self.nemesis = Nemesis(self.loop, target, plan, lambda text: self.tell(f"FAULT: {text}"), may_strike)

    # The cast

    def supervise(self) -> None:
        """Start what has ended by itself, as an operator's supervisor does; again and again."""
        for member in self.members:
            if not self.nemesis.is_held_down(member.host.address):
                self.start(member.host.address)
        if not self.is_over:
            self.loop.call_later(SUPERVISION_S, self.supervise)

    def start(self, address: str) -> None:
        member, life = self.by_host[address], self._lives.get(address)
        if not member.host.is_running and (life is None or life.done()):
            self._lives[address] = self.loop.create_task(self._live(member))

    async def _live(self, member: SimulatedNode) -> None:
        """One life of a node: as a process, it ends when its start is refused, or when it cannot go on."""
        who = f"node {member.settings.node_id}"
        self.tell(f"{who} starts")
        try:
            await member.start()
            if member.node is not None:
                self.tell(f"{who} ends: {await member.host.do(member.node.failed())}")
        except ProcessDiedError:
            return
        except BarnabasError as refusal:
            self.tell(f"{who} does not start: {refusal}")
        except Exception as failure:
            self.loop.call_exception_handler({"message": f"{who} failed", "exception": failure})
        member.kill()

    def _stop(self, address: str) -> None:
        """Stop a node as an operator does, unless it is not there."""
        member = self.by_host[address]
        if member.host.is_running:
            self.loop.create_task(self._stop_cleanly(member))

    def _stop_and_restore(self, address: str) -> None:
        self.exchanging.add(address)
        self.loop.create_task(self._exchange_disk(self.by_host[address]))

    async def _exchange_disk(self, member: SimulatedNode) -> None:
        """A node that stops is killed as soon as the metadata says that it is out. So it registers again at once, and
        what it has asked of others is still on its way: nobody has closed those connections in good order."""
        stopping = self.loop.create_task(self._stop_cleanly(member))
        while not stopping.done() and not self._is_fenced(member.settings.node_id):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)
        member.kill()
        await stopping
        member.kill()  # it may have been started again meanwhile
        member.host.restore_image()
        self.exchanging.discard(member.host.address)
        self.tell(f"node {member.settings.node_id} has an old disk")
        if not self.nemesis.is_held_down(member.host.address):
            self.start(member.host.address)

    def _is_fenced(self, node_id: int) -> bool:
        broker = self.checker.newest.brokers.get(node_id)
        return broker is None or broker.is_fenced

    async def _stop_cleanly(self, member: SimulatedNode) -> None:
        who, process = f"node {member.settings.node_id}", member.host.process
        try:
            if member.node is not None:
                await member.host.do(member.node.stop())
        except ProcessDiedError:
            return
        except BarnabasError as failure:
            self.tell(f"{who} does not stop cleanly: {failure}")
        if member.host.process is process:
            self.tell(f"{who} has stopped")
            member.kill()

    def _on_made(self, node_id: int, node: Node) -> None:
        node.loader.publish_to(NodeWatch(node_id, self.checker, self.tell))

    def brokers(self) -> list[SimulatedNode]:
        return [each for each in self.members if self.cluster.is_broker(each.settings.node_id)]

    # Looking

    def now_s(self) -> float:
        return self.loop.world_time() - START_S

    def tell(self, text: str) -> None:
        if self._keeps_story:
            self.story.append(f"{self.now_s():8.3f} s  {text}")

    def images(self) -> dict[int, ClusterImage]:
        running = [each for each in self.members if each.node is not None and each.host.is_running]
        return {each.settings.node_id: each.node.loader.image for each in running if each.node is not None}

    def what_is_wrong(self, images: dict[int, ClusterImage]) -> str:
        """What keeps the cluster from being whole; empty if nothing does."""
        if len(images) < len(self.members):
            return f"only nodes {sorted(images)} run"
        try:
            leaders = {each.settings.node_id: each.node.quorum.leader for each in self.members if each.node is not None}
        except (BarnabasError, AttributeError):
            return "a node has only begun to start"
        if len(set(leaders.values())) > 1 or any(each.leader_id < 0 for each in leaders.values()):
            return f"the nodes do not agree on the active controller: {leaders}"
        brokers = {each.settings.node_id for each in self.brokers()}
        for node_id, image in images.items():
            working = {broker.broker_id for broker in image.brokers.values() if not broker.is_fenced}
            if working != brokers:
                return f"node {node_id} knows only the brokers {sorted(working)} as unfenced"
        return ""

    def _own_offset(self, node_id: int) -> int:
        node = self.members[node_id - 1].node
        return -1 if node is None else node.loader.image.offset

    def active_controller(self) -> str | None:
        """The host of the node that leads the quorum in the newest epoch."""
        leading = []
        for member in self.members:
            if member.node is not None and member.host.is_running:
                try:
                    leader = member.node.quorum.leader
                except (BarnabasError, AttributeError):
                    continue  # it has only begun to start
                if leader.leader_id == member.settings.node_id:
                    leading.append((leader.epoch, member.host.address))
        return max(leading)[1] if leading else None
