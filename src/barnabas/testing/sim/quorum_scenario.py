"""The scenario "quorum": a cluster of real nodes under faults, while admins change topics and settings.

Three nodes that are controller and broker in one, or three controllers and two brokers. For a while a plan of faults
plays; then everything is healed, and the cluster must be whole and take changes within bounded virtual time. What
clients were told is then compared with what every node knows.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.image import ClusterImage
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.cluster import ClusterPlan
from barnabas.testing.sim.cluster_run import ClusterRun
from barnabas.testing.sim.collector import resting_collector
from barnabas.testing.sim.fault_plans import draw_plan
from barnabas.testing.sim.network import Link
from barnabas.testing.sim.quorum_checker import ClusterInvariant
from barnabas.testing.sim.quorum_clients import AdminPlan, Histories, SimulatedAdmin, create_request
from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport
from barnabas.testing.sim.world import CLIENT_ADDRESS, SimulatedNode

__all__ = ["QuorumRun", "QuorumScenario"]

DURATION_S: Final = 10.0
HEALING_S: Final = 40.0
LOOK_S: Final = 0.2
ADMINS: Final = 3


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
        with resting_collector():
            return QuorumRun(seed, fault_limit=fault_limit, keep_story=keep_story).run()


class QuorumRun(ClusterRun):
    """One run of a seed."""

    def __init__(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> None:
        self.setting = setting = QuorumSetting.draw(Random(f"{seed}/setting"))
        super().__init__(seed, setting.cluster, setting.link, setting.overrides, keep_story=keep_story)
        addresses = list(self.cluster.addresses().values())
        plan = draw_plan(self.world.random("faults"), addresses, duration_s=DURATION_S, pace=setting.pace)
        self.play_faults(plan[:fault_limit])
        self.histories = Histories()

    def run(self) -> SeedReport:
        return self.run_within(DURATION_S + 2 * HEALING_S)

    def counts(self) -> dict[str, int]:
        return {
            "elections": self.checker.election_count,
            "acknowledged": self.histories.acknowledged_count,
            "unanswered": self.histories.unanswered_count,
        }

    async def play(self) -> None:
        self.supervise()
        await asyncio.sleep(self.world.random("start").choice((0.0, 2.0)))
        self.nemesis.begin()
        brokers = [each.bootstrap for each in self.brokers()]
        plan = AdminPlan(brokers, self.setting.mean_pause_s, self.tell)
        admins = [
            SimulatedAdmin(number, plan, self.histories, self.world.random(f"admin {number}"))
            for number in range(1, ADMINS + 1)
        ]
        using = [self.loop.create_task(admin.use()) for admin in admins]
        await asyncio.sleep(DURATION_S)
        self.tell("everything is healed")
        self.nemesis.heal()
        for admin in admins:
            admin.is_over = True
        await asyncio.gather(*using)
        images = await self._demand_progress()
        self.is_over = True
        self.histories.check(self.checker, images)

    # After the faults

    async def _demand_progress(self) -> dict[int, ClusterImage]:
        """The cluster is whole, and takes a change through every broker; the images of all nodes, with these."""
        deadline_s = self.now_s() + HEALING_S
        wanted = {f"after-the-faults-{each.settings.node_id}": each for each in self.brokers()}
        done: set[str] = set()
        while True:
            images = self.images()
            problem = self.what_is_wrong(images)
            missing = [name for name in wanted if any(name not in image.topics for image in images.values())]
            if not problem and not missing and len(done) == len(wanted):
                return images
            if self.now_s() > deadline_s:
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
