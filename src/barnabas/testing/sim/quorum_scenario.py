"""The scenario "quorum": a cluster of real nodes under faults, while admins change topics and settings.

Three nodes that are controller and broker in one, or three controllers and two brokers. For a while a plan of faults
plays; then everything is healed, and the cluster must be whole and take changes within bounded virtual time. What
clients were told is then compared with what every node knows.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.metadata.image import ClusterImage
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.cluster import ClusterPlan
from barnabas.testing.sim.fault_plans import draw_plan
from barnabas.testing.sim.loop import START_S, SimulationError
from barnabas.testing.sim.nemesis import Nemesis
from barnabas.testing.sim.network import Link
from barnabas.testing.sim.quorum_checker import ClusterChecker, ClusterInvariant, NodeWatch
from barnabas.testing.sim.quorum_clients import Admin, AdminPlan, Histories, create_request
from barnabas.testing.sim.raft_checkers import InvariantBrokenError
from barnabas.testing.sim.raft_depths import DepthTarget
from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport
from barnabas.testing.sim.world import CLIENT_ADDRESS, ProcessDiedError, SimulatedNode, World

if TYPE_CHECKING:
    from barnabas.broker.node import Node

__all__ = ["QuorumRun", "QuorumScenario"]

DURATION_S: Final = 10.0
HEALING_S: Final = 40.0
SUPERVISION_S: Final = 0.25
LOOK_S: Final = 0.2
ADMINS: Final = 3
#: What simulated nodes complain of is part of the play.
_SILENCE: Final = logging.NullHandler()


@dataclass(frozen=True, slots=True)
class QuorumSetting:
    """What a seed draws of the cluster itself, before anything happens to it."""

    cluster: ClusterPlan
    pace: float
    mean_pause_s: float
    link: Link
    overrides: dict[str, object]

    @classmethod
    def draw(cls, random: Random) -> QuorumSetting:
        pace = random.choice((0.4, 0.7, 1.0))
        overrides: dict[str, object] = {
            "controller.quorum.election.timeout.ms": round(1000 * pace),
            # Shorter ones are not taken.
            "controller.quorum.fetch.timeout.ms": max(1000, round(2000 * pace)),
            "controller.quorum.election.backoff.max.ms": round(1000 * pace),
            "controller.quorum.request.timeout.ms": round(2000 * pace),
            "broker.heartbeat.interval.ms": round(800 * pace),
            "broker.session.timeout.ms": round(3600 * pace),
            "auto.create.topics.enable": "false",
        }
        if random.random() < 0.5:
            overrides["metadata.log.max.record.bytes.between.snapshots"] = random.choice((500, 3000))
        return cls(
            cluster=ClusterPlan(3, random.choice((0, 0, 2))),
            pace=pace,
            mean_pause_s=random.choice((0.1, 0.3)),
            link=Link(max_delay_s=random.choice((0.002, 0.002, 0.05))),
            overrides=overrides,
        )


class QuorumScenario:
    """See the module."""

    def __init__(self, options: ScenarioOptions) -> None:
        self.options = options

    def run(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> SeedReport:
        return QuorumRun(seed, fault_limit=fault_limit, keep_story=keep_story).run()


class QuorumRun:
    """One run of a seed."""

    def __init__(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> None:
        self.seed = seed
        self.setting = QuorumSetting.draw(Random(f"{seed}/setting"))
        self.world = World(seed, link=self.setting.link)
        self.loop = self.world.loop
        self.story: list[str] = []
        self._keeps_story = keep_story
        self.checker = ClusterChecker(self._own_offset)
        self.cluster = self.setting.cluster
        addresses = list(self.cluster.addresses().values())
        self.plan = draw_plan(
            self.world.random("faults"), addresses, duration_s=DURATION_S, pace=self.setting.pace
        )[:fault_limit]
        self.members = self.cluster.members(self.world, self.setting.overrides, self._on_made)
        self._by_host = {member.host.address: member for member in self.members}
        target = DepthTarget(self.world, addresses, self._leader_host, self._start, lambda _: None)
        self.nemesis = Nemesis(self.loop, target, self.plan, lambda text: self._tell(f"FAULT: {text}"))
        self.histories = Histories()
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._is_over = False

    # The run

    def run(self) -> SeedReport:
        broken = problem = ""
        logger = logging.getLogger("barnabas")
        logger.addHandler(_SILENCE)
        try:
            self.world.run(self._play(), limit_s=DURATION_S + 2 * HEALING_S)
        except InvariantBrokenError as failure:
            broken, problem = str(failure.invariant.value), failure.text
        except (SimulationError, BarnabasError) as failure:
            broken, problem = ClusterInvariant.NO_FAILURE.value, f"{failure!r}, by {failure.__cause__!r}"
        finally:
            virtual_s, event_count = self._now_s(), self.loop.event_count
            trace = self.world.trace.hexdigest()
            self.world.close()
            logger.removeHandler(_SILENCE)
        counts = {
            "faults": len(self.plan),
            "elections": self.checker.election_count,
            "acknowledged": self.histories.acknowledged_count,
            "unanswered": self.histories.unanswered_count,
        }
        plan = [str(fault) for fault in self.plan]
        return SeedReport(
            self.seed, virtual_s, event_count, trace, len(plan), broken, problem, plan, self.story, counts
        )

    async def _play(self) -> None:
        self._supervise()
        await asyncio.sleep(self.world.random("start").choice((0.0, 2.0)))
        self.nemesis.begin()
        brokers = [each.bootstrap for each in self._brokers()]
        plan = AdminPlan(brokers, self.setting.mean_pause_s, self._tell)
        admins = [
            Admin(number, plan, self.histories, self.world.random(f"admin {number}"))
            for number in range(1, ADMINS + 1)
        ]
        using = [self.loop.create_task(admin.use()) for admin in admins]
        await asyncio.sleep(DURATION_S)
        self._tell("everything is healed")
        self.nemesis.heal()
        for admin in admins:
            admin.is_over = True
        await asyncio.gather(*using)
        images = await self._demand_progress()
        self._is_over = True
        self._check_end(images)

    def _check_end(self, images: dict[int, ClusterImage]) -> None:
        for topic in self.histories.topics.values():
            self.checker.check_topic(topic, images)
        for setting in self.histories.settings.values():
            if self.histories.topics[setting.resource.name].is_certain:
                self.checker.check_setting(setting, images, is_shared=False)
        self.checker.check_setting(self.histories.shared, images, is_shared=True)

    # The cast

    def _supervise(self) -> None:
        """Start what has ended by itself, as an operator's supervisor does."""
        for member in self.members:
            if not self.nemesis.is_held_down(member.host.address):
                self._start(member.host.address)
        if not self._is_over:
            self.loop.call_later(SUPERVISION_S, self._supervise)

    def _start(self, address: str) -> None:
        member, life = self._by_host[address], self._lives.get(address)
        if not member.host.is_running and (life is None or life.done()):
            self._lives[address] = self.loop.create_task(self._live(member))

    async def _live(self, member: SimulatedNode) -> None:
        """One life of a node: as a process, it ends when its start is refused, or when it cannot go on."""
        who = f"node {member.settings.node_id}"
        self._tell(f"{who} starts")
        try:
            await member.start()
            if member.node is not None:
                self._tell(f"{who} ends: {await member.host.do(member.node.failed())}")
        except ProcessDiedError:
            return
        except BarnabasError as refusal:
            self._tell(f"{who} does not start: {refusal}")
        except Exception as failure:
            self.loop.call_exception_handler({"message": f"{who} failed", "exception": failure})
        member.kill()

    def _on_made(self, node_id: int, node: Node) -> None:
        node.loader.publish_to(NodeWatch(node_id, self.checker, self._tell))

    def _brokers(self) -> list[SimulatedNode]:
        return [each for each in self.members if self.cluster.is_broker(each.settings.node_id)]

    # After the faults

    async def _demand_progress(self) -> dict[int, ClusterImage]:
        """The cluster is whole, and takes a change through every broker; the images of all nodes, with these."""
        deadline_s = self._now_s() + HEALING_S
        wanted = {f"after-the-faults-{each.settings.node_id}": each for each in self._brokers()}
        done: set[str] = set()
        while True:
            images = self._images()
            problem = self._what_is_wrong(images)
            missing = [name for name in wanted if any(name not in image.topics for image in images.values())]
            if not problem and not missing and len(done) == len(wanted):
                return images
            if self._now_s() > deadline_s:
                lacking = problem or f"topics are missing: {', '.join(missing or wanted)}"
                self.checker.break_(ClusterInvariant.PROGRESS, f"after {HEALING_S:.0f} s {lacking}")
            if not problem:
                for name in wanted:
                    if name not in done and await self._create(wanted[name], name):
                        done.add(name)
            await asyncio.sleep(LOOK_S)

    async def _create(self, member: SimulatedNode, name: str) -> bool:
        try:
            client = await ScriptedClient.connect(member.bootstrap, address=CLIENT_ADDRESS, timeout_s=3.0)
            answer = await client.ask(create_request(name, 1))
            client.abort()
        except (OSError, TimeoutError):
            return False
        return answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    def _images(self) -> dict[int, ClusterImage]:
        running = [each for each in self.members if each.node is not None and each.host.is_running]
        return {each.settings.node_id: each.node.loader.image for each in running if each.node is not None}

    def _what_is_wrong(self, images: dict[int, ClusterImage]) -> str:
        """What keeps the cluster from being whole; empty if nothing does."""
        if len(images) < len(self.members):
            return f"only nodes {sorted(images)} run"
        leaders = {each.settings.node_id: each.node.quorum.leader for each in self.members if each.node is not None}
        if len(set(leaders.values())) > 1 or any(each.leader_id < 0 for each in leaders.values()):
            return f"the nodes do not agree on the active controller: {leaders}"
        brokers = {each.settings.node_id for each in self._brokers()}
        for node_id, image in images.items():
            working = {broker.broker_id for broker in image.brokers.values() if not broker.is_fenced}
            if working != brokers:
                return f"node {node_id} knows only the brokers {sorted(working)} as unfenced"
        return ""

    # Watching

    def _now_s(self) -> float:
        return self.loop.world_time() - START_S

    def _tell(self, text: str) -> None:
        if self._keeps_story:
            self.story.append(f"{self._now_s():8.3f} s  {text}")

    def _own_offset(self, node_id: int) -> int:
        node = self.members[node_id - 1].node
        return -1 if node is None else node.loader.image.offset

    def _leader_host(self) -> str | None:
        """Who leads in the newest epoch."""
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
