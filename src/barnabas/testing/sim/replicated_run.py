"""One run of a seed upon a cluster with replicated topics: its promises, its checkers, and what is demanded in the end.

A scenario derives from `ReplicatedRun`, and adds clients and what must hold of what they saw.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from random import Random
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin, NewTopic
from barnabas.metadata.image import ClusterImage, PartitionImage
from barnabas.storage.segment import LOG_SUFFIX
from barnabas.testing.sim.checkers import GroupCommits, LogChecker
from barnabas.testing.sim.cluster_clients import ClientPlan, SimulatedClient, SimulatedProducer
from barnabas.testing.sim.cluster_promises import FaultBudget
from barnabas.testing.sim.cluster_run import ClusterRun
from barnabas.testing.sim.cluster_setting import ClusterSetting, Profile, TopicPlan
from barnabas.testing.sim.fault_plans import Fault
from barnabas.testing.sim.producer_checker import ProducerChecker
from barnabas.testing.sim.quorum_checker import ClusterInvariant
from barnabas.testing.sim.replica_checker import ReplicaChecker
from barnabas.testing.sim.scenarios import SeedReport

__all__ = ["FIRST_CLIENT", "OFFSETS", "ReplicatedRun"]

FOUNDING_S: Final = 30.0
HEALING_S: Final = 40.0
LOOK_S: Final = 0.1
FIRST_CLIENT: Final = "10.0.1."
OFFSETS: Final = TopicPartition("__consumer_offsets", 0)


class ReplicatedRun(ClusterRun):
    """See the module. `internal` are partitions that are looked at besides those of the setting's topics."""

    #: How long the faults last.
    duration_s = 12.0
    clients: Sequence[SimulatedClient]
    producers: Sequence[SimulatedProducer]

    def __init__(
        self,
        seed: int,
        setting: ClusterSetting,
        *,
        internal: Mapping[TopicPartition, int],
        keep_story: bool,
        levels: Mapping[str, int] | None = None,
    ) -> None:
        self.setting = setting
        levels = {**(levels or {}), **({} if setting.has_elr else {"elr_version": 0})}
        super().__init__(seed, setting.cluster, setting.link, setting.overrides, keep_story=keep_story, levels=levels)
        self.tell(f"profile: {setting.profile.value}")
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
        self.replicas = ReplicaChecker(
            self.brokers(),
            {**promised, **internal},
            self._partition,
            self.budget.lost,
            self.budget.absent,
            self.checker.break_,
        )
        self.remembered = ProducerChecker(
            self.brokers(), self.kept_partitions(), self.replicas.log_of, self.checker.break_
        )
        self.world.on_cut = self._on_cut
        self.checker.on_newest = self._on_newest
        self.log_checker = LogChecker()
        self.commits = GroupCommits(self.log_checker)
        self._aim = self.world.random("aim")

    def client_plan_for(self, partitions: Sequence[TopicPartition]) -> ClientPlan:
        """What clients need that write to these partitions."""
        setting = self.setting
        return ClientPlan(
            self.world,
            [each.bootstrap for each in self.brokers()],
            partitions,
            setting.pace,
            self.log_checker,
            self.commits,
            self.tell,
            self.replicas.acknowledged,
            setting.delivery_timeout_ms,
            setting.assignment_strategy,
            has_bursts=setting.profile is Profile.SLOW_REPLICATION,
        )

    def kept_partitions(self) -> list[TopicPartition]:
        """Those of topics of which it is promised that nothing is lost."""
        return [each for topic in self.setting.topics if topic.is_kept for each in topic.partitions()]

    @abstractmethod
    def aims(self) -> Sequence[TopicPartition]:
        """The partitions whose leaders are meant by "the leader"; one of them, if it is not the active controller."""

    def plan_faults(self, fault_limit: int | None) -> None:
        """Once the clients are there, whose ways may be cut, too."""
        random, clients = self.world.random("faults"), [each.address for each in self.clients]
        plan = self.draw_faults(random, clients)
        self.play_faults(plan[:fault_limit], self._leader, self.budget.may_strike)

    def draw_faults(self, random: Random, clients: Sequence[str]) -> list[Fault]:
        return self.setting.draw_faults(random, clients, self.duration_s)

    def run(self) -> SeedReport:
        return self.run_within(FOUNDING_S + self.duration_s + 4 * HEALING_S)

    # The run

    async def found(self, plan: ClientPlan) -> None:
        """Create the topics."""
        async with Admin(**plan.settings("founder")) as admin:
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

    def look_again(self) -> None:
        """At once, and again and again until it is over."""
        if not self.is_over:
            self.look()
            self.loop.call_later(LOOK_S, self.look_again)

    def look(self) -> None:
        """What must hold at any moment."""
        if self.checker.broken is not None:
            raise self.checker.broken  # a client or a node was told, and could not end the run
        self.replicas.look()
        self.remembered.look()
        if self.log_checker.violations:
            violation = self.log_checker.violations[0]
            self.checker.break_(violation.kind, f"{violation.partition}: {violation.text}")

    # After the faults

    async def demand(self, what: str, wrong: Callable[[], str]) -> None:
        """Wait until nothing is wrong any more; not for ever."""
        deadline_s = self.now_s() + HEALING_S
        while problem := wrong():
            if self.now_s() > deadline_s:
                self.checker.break_(ClusterInvariant.PROGRESS, f"{HEALING_S:.0f} s for that {what}, and {problem}")
            await asyncio.sleep(LOOK_S)
        self.tell(what)

    def what_is_missing(self) -> str:
        """For the cluster to be whole, and all its replicas in sync."""
        images = self.images()
        if problem := self.what_is_wrong(images):
            return problem
        for node_id, image in images.items():
            for name, topic in image.topics.items():
                for number, each in enumerate(topic.partitions):
                    if each.leader < 0 or set(each.isr) != set(each.replicas):
                        return f"node {node_id} knows {name}-{number} as led by {each.leader}, in sync {each.isr}"
        return ""

    async def end_producers(self, partitions: Sequence[TopicPartition]) -> None:
        """Once they have got answers from everywhere."""
        for producer in self.producers:
            producer.served.clear()

        def who_is_not_served() -> str:
            for producer in self.producers:
                missing = [each for each in partitions if each not in producer.served]
                if missing:
                    return f"{producer.name} got no answer from {', '.join(map(str, missing))}"
            return ""

        await self.demand("every producer gets on", who_is_not_served)
        await asyncio.gather(*(each.end() for each in self.producers))

    # Watching

    def _on_cut(self, address: str, path: str) -> None:
        """When the cut is done, before the next turn of its node."""
        if path.endswith(LOG_SUFFIX):
            self.loop.call_soon(self.was_cut, address, context=Context())

    def was_cut(self, address: str) -> None:
        """A log of this host was cut."""
        self.remembered.cut(address)

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
        image = self._partition(self._aim.choice(self.aims()))
        return None if image is None else self.cluster.addresses().get(image.leader)
