"""The scenario "cluster": replicated topics under faults, with our own clients; nothing acknowledged is lost.

Three nodes that are controller and broker in one, or three of each. For a while a plan of faults plays, as many as the
promise allows for (`cluster_promises`); then everything is healed, and within bounded virtual time every partition must
have a leader and all replicas in sync, and every client must get on.

What clients saw is checked as Jepsen's workload for Kafka does (`checkers`), what lies on the disks by the rules of
replication (`replica_checker`), and what nodes know against each other (`quorum_checker`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from random import Random
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin, NewTopic
from barnabas.metadata.image import ClusterImage, PartitionImage
from barnabas.storage.segment import LOG_SUFFIX
from barnabas.testing.sim.checkers import GroupCommits, LogChecker
from barnabas.testing.sim.cluster_clients import (
    GROUP,
    ClientPlan,
    GroupMember,
    Operator,
    SimulatedClient,
    SimulatedProducer,
    SimulatedReader,
)
from barnabas.testing.sim.cluster_promises import FaultBudget
from barnabas.testing.sim.cluster_run import ClusterRun
from barnabas.testing.sim.cluster_setting import MIN_ISR, ClusterSetting, Profile, TopicPlan
from barnabas.testing.sim.producer_checker import ProducerChecker
from barnabas.testing.sim.quorum_checker import ClusterInvariant
from barnabas.testing.sim.quorum_clients import AdminPlan, Histories, SimulatedAdmin
from barnabas.testing.sim.replica_checker import ReplicaChecker
from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport

__all__ = ["ClusterScenario", "DataRun"]

DURATION_S: Final = 12.0
FOUNDING_S: Final = 30.0
HEALING_S: Final = 40.0
LOOK_S: Final = 0.1
_FIRST_CLIENT: Final = "10.0.1."
_OFFSETS_TOPIC: Final = "__consumer_offsets"


class ClusterScenario:
    """See the module."""

    def __init__(self, options: ScenarioOptions) -> None:
        self.options = options

    def run(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> SeedReport:
        return DataRun(seed, fault_limit=fault_limit, keep_story=keep_story).run()


class DataRun(ClusterRun):
    """One run of a seed."""

    def __init__(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> None:
        profile = Profile.draw(Random(f"{seed}/profile"))
        self.setting = setting = ClusterSetting.draw(Random(f"{seed}/setting"), profile)
        elr_version = None if setting.has_elr else 0
        super().__init__(
            seed, setting.cluster, setting.link, setting.overrides, keep_story=keep_story, elr_version=elr_version
        )
        self.tell(f"profile: {profile.value}")
        for way, link in setting.slow_links.items():
            self.world.network.set_usual_link(*way, link)
        addresses = self.cluster.addresses()
        self.budget = FaultBudget(
            {host: node_id for node_id, host in addresses.items() if self.cluster.is_broker(node_id)},
            lambda: self.checker.newest,
            self.now_s,
            lambda host: self.world.host(host).disk.is_crash_planned or host in self.exchanging,
            None if setting.has_elr else lambda: self.nemesis.active(),
        )
        self.world.on_death = self.budget.died
        promised = {each: topic.min_isr for topic in setting.topics if topic.is_kept for each in topic.partitions()}
        promised[TopicPartition(_OFFSETS_TOPIC, 0)] = MIN_ISR
        self.replicas = ReplicaChecker(
            self.brokers(), promised, self._partition, self.budget.lost, self.budget.absent, self.checker.break_
        )
        self.remembered = ProducerChecker(
            self.brokers(), self._kept_partitions(), self.replicas.log_of, self.checker.break_
        )
        self.world.on_cut = self._on_cut
        self.checker.on_newest = self._on_newest
        self.log_checker = LogChecker()
        self.commits = GroupCommits(self.log_checker)
        self.histories = Histories()
        self.sent_again_count = 0
        self._make_clients()
        plan = setting.draw_faults(self.world.random("faults"), [each.address for each in self.clients], DURATION_S)
        self._aim = self.world.random("aim")
        self.play_faults(plan[:fault_limit], self._leader, self.budget.may_strike)

    def _kept_partitions(self) -> list[TopicPartition]:
        return [each for topic in self.setting.topics if topic.is_kept for each in topic.partitions()]

    def _make_clients(self) -> None:
        setting = self.setting
        bootstraps = [each.bootstrap for each in self.brokers()]
        plan = ClientPlan(
            self.world,
            bootstraps,
            self._kept_partitions(),
            setting.pace,
            self.log_checker,
            self.commits,
            self.tell,
            self.replicas.acknowledged,
            setting.delivery_timeout_ms,
            setting.assignment_strategy,
            has_bursts=setting.profile is Profile.SLOW_REPLICATION,
        )
        self.client_plan = plan
        self.producers = [SimulatedProducer(f"producer-{each}", f"{_FIRST_CLIENT}{10 + each}", plan) for each in (1, 2)]
        self.members_of_group = [GroupMember(f"member-{each}", f"{_FIRST_CLIENT}{20 + each}", plan) for each in (1, 2)]
        self.reader = SimulatedReader("reader", f"{_FIRST_CLIENT}31", plan)
        self.operator = Operator("operator", f"{_FIRST_CLIENT}41", plan)
        self.clients: list[SimulatedClient] = [*self.producers, *self.members_of_group, self.reader, self.operator]
        admin_plan = AdminPlan(bootstraps, 1.0, self.tell, min(len(bootstraps), setting.topics[0].replication_factor))
        self.admin = SimulatedAdmin(1, admin_plan, self.histories, self.world.random("admin 1"))

    def run(self) -> SeedReport:
        return self.run_within(FOUNDING_S + DURATION_S + 4 * HEALING_S)

    def counts(self) -> dict[str, int]:
        return {
            "elections": self.checker.election_count,
            "leaders": self.checker.leader_change_count,
            "power losses": self.budget.power_loss_count,
            "acknowledged": self.log_checker.acknowledged_count,
            "failed": sum(each.failed_count for each in self.producers),
            "sent again": self.sent_again_count,
            "commits": self.commits.acknowledged_count,
        }

    # The run

    async def play(self) -> None:
        self.supervise()
        await self._found()
        for client in self.clients:
            client.begin()
        changing = self.loop.create_task(self.admin.use())
        self.nemesis.begin()
        self._look_again()
        await asyncio.sleep(DURATION_S)
        self.tell("everything is healed")
        self.nemesis.heal()
        self.admin.is_over = True
        await asyncio.gather(changing, self.operator.end())
        await self._demand("the cluster is whole", self._what_is_missing)
        for producer in self.producers:
            producer.served.clear()
        await self._demand("every producer gets on", self._who_is_not_served)
        await asyncio.gather(*(each.end() for each in self.producers))
        await self._demand("the replicas are equal", self.replicas.lagging)
        await self._demand("every reader gets to the end", self._who_is_behind)
        await asyncio.gather(*(each.end() for each in self.clients))
        # Members that leave are the last to have something written.
        await self._demand("the replicas are equal in the end", self.replicas.lagging)
        self.is_over = True
        await self._check_end()

    async def _found(self) -> None:
        """Create the topics."""
        async with Admin(**self.client_plan.settings("founder")) as admin:
            for topic in self.setting.topics:
                await self._create(admin, topic)

    async def _create(self, admin: Admin, topic: TopicPlan) -> None:
        deadline_s = self.now_s() + FOUNDING_S
        configs = {"min.insync.replicas": topic.min_isr}
        new = NewTopic(topic.name, topic.partition_count, topic.replication_factor, configs=configs)
        while True:
            if len(self.checker.newest.brokers) == len(self.brokers()):
                try:
                    await admin.create_topics([new], timeout=5.0)
                    return
                except BarnabasError as failure:
                    self.tell(f"{topic.name} is not created: {failure}")
                    if topic.name in self.checker.newest.topics:
                        return
            if self.now_s() > deadline_s:
                self.checker.break_(ClusterInvariant.PROGRESS, f"{topic.name} could not be created")
            await asyncio.sleep(LOOK_S)

    def _look_again(self) -> None:
        if not self.is_over:
            self._look()
            self.loop.call_later(LOOK_S, self._look_again)

    def _look(self) -> None:
        if self.checker.broken is not None:
            raise self.checker.broken  # a client or a node was told, and could not end the run
        self.replicas.look()
        self.remembered.look()
        if self.log_checker.violations:
            violation = self.log_checker.violations[0]
            self.checker.break_(violation.kind, f"{violation.partition}: {violation.text}")

    # After the faults

    async def _demand(self, what: str, wrong: Callable[[], str]) -> None:
        """Wait until nothing is wrong any more; not for ever."""
        deadline_s = self.now_s() + HEALING_S
        while problem := wrong():
            if self.now_s() > deadline_s:
                self.checker.break_(ClusterInvariant.PROGRESS, f"{HEALING_S:.0f} s for that {what}, and {problem}")
            await asyncio.sleep(LOOK_S)
        self.tell(what)

    def _what_is_missing(self) -> str:
        images = self.images()
        if problem := self.what_is_wrong(images):
            return problem
        for node_id, image in images.items():
            for name, topic in image.topics.items():
                for number, each in enumerate(topic.partitions):
                    if each.leader < 0 or set(each.isr) != set(each.replicas):
                        return f"node {node_id} knows {name}-{number} as led by {each.leader}, in sync {each.isr}"
        return ""

    def _who_is_not_served(self) -> str:
        for producer in self.producers:
            missing = [each for each in self.client_plan.partitions if each not in producer.served]
            if missing:
                return f"{producer.name} got no answer from {', '.join(map(str, missing))}"
        return ""

    def _who_is_behind(self) -> str:
        ends = self.replicas.ends(self.client_plan.partitions)
        for partition, end in ends.items():
            if self.reader.positions.get(partition, 0) < end:
                return f"the reader is at {self.reader.positions.get(partition)} of {end} in {partition}"
            committed = max(each.committed.get(partition, 0) for each in self.members_of_group)
            if end and committed < end:
                return f"the group has committed {committed} of {end} in {partition}"
        return ""

    async def _check_end(self) -> None:
        self._look()
        self.replicas.compare_bytes()
        self.histories.check(self.checker, self.images())
        async with Admin(**self.client_plan.settings("auditor")) as admin:
            offsets = await admin.list_group_offsets(GROUP)
        for partition in self.client_plan.partitions:
            again = self.remembered.sent_again(partition, self.replicas.data(partition))
            self.sent_again_count += len(again)
            self.log_checker.finish(partition, self.replicas.values(partition), may_be_twice=again)
            found = offsets.get(partition)
            self.commits.found(partition, 0 if found is None else found.offset)
        self._look()

    # Watching

    def _on_cut(self, address: str, path: str) -> None:
        """When the cut is done, before the next turn of its node."""
        if path.endswith(LOG_SUFFIX):
            self.loop.call_soon(self.remembered.cut, address, context=Context())

    def _on_newest(self, before: ClusterImage, image: ClusterImage) -> None:
        if image.topics is before.topics:
            return
        for name in self.replicas.names:
            was, now = before.partition(*name), image.partition(*name)
            if was is not None and now is not None and was is not now:
                self.replicas.changed(name, was, now)
            if now is not None and was is not now:
                self.remembered.changed(name, now)
        self.remembered.look()

    def _partition(self, name: TopicPartition) -> PartitionImage | None:
        return self.checker.newest.partition(*name)

    def _leader(self) -> str | None:
        """Somebody who leads: a partition, or the quorum."""
        if self._aim.random() < 0.3:
            return self.active_controller()
        image = self._partition(self._aim.choice(self.client_plan.partitions))
        return None if image is None else self.cluster.addresses().get(image.leader)
