"""The scenario "cluster": replicated topics under faults, with our own clients; nothing acknowledged is lost.

Three nodes that are controller and broker in one, or three of each. For a while a plan of faults plays, as many as the
promise allows for (`cluster_promises`); then everything is healed, and within bounded virtual time every partition must
have a leader and all replicas in sync, and every client must get on.

What clients saw is checked as Jepsen's workload for Kafka does (`checkers`), what lies on the disks by the rules of
replication (`replica_checker`), and what nodes know against each other (`quorum_checker`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.testing.sim.cluster_clients import (
    GROUP,
    GroupMember,
    Operator,
    SimulatedProducer,
    SimulatedReader,
)
from barnabas.testing.sim.cluster_setting import MIN_ISR, ClusterSetting, Profile
from barnabas.testing.sim.collector import resting_collector
from barnabas.testing.sim.quorum_clients import AdminPlan, Histories, SimulatedAdmin
from barnabas.testing.sim.replicated_run import FIRST_CLIENT, OFFSETS, ReplicatedRun
from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport

__all__ = ["ClusterScenario", "DataRun"]


class ClusterScenario:
    """See the module."""

    def __init__(self, options: ScenarioOptions) -> None:
        self.options = options

    def run(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> SeedReport:
        with resting_collector():
            return DataRun(seed, fault_limit=fault_limit, keep_story=keep_story).run()


class DataRun(ReplicatedRun):
    """One run of a seed."""

    def __init__(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> None:
        profile = Profile.draw(Random(f"{seed}/profile"))
        setting = ClusterSetting.draw(Random(f"{seed}/setting"), profile)
        super().__init__(seed, setting, internal={OFFSETS: MIN_ISR}, keep_story=keep_story)
        self.histories = Histories()
        self.sent_again_count = 0
        self._make_clients()
        self.plan_faults(fault_limit)

    def _make_clients(self) -> None:
        self.client_plan = plan = self.client_plan_for(self.kept_partitions())
        self.producers = [SimulatedProducer(f"producer-{each}", f"{FIRST_CLIENT}{10 + each}", plan) for each in (1, 2)]
        self.members_of_group = [GroupMember(f"member-{each}", f"{FIRST_CLIENT}{20 + each}", plan) for each in (1, 2)]
        self.reader = SimulatedReader("reader", f"{FIRST_CLIENT}31", plan)
        self.operator = Operator("operator", f"{FIRST_CLIENT}41", plan)
        self.clients = [*self.producers, *self.members_of_group, self.reader, self.operator]
        factor = min(len(plan.bootstraps), self.setting.topics[0].replication_factor)
        admin_plan = AdminPlan(plan.bootstraps, 1.0, self.tell, factor)
        self.admin = SimulatedAdmin(1, admin_plan, self.histories, self.world.random("admin 1"))

    def aims(self) -> Sequence[TopicPartition]:
        return self.client_plan.partitions

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

    async def play(self) -> None:
        self.supervise()
        await self.found(self.client_plan)
        for client in self.clients:
            client.begin()
        changing = self.loop.create_task(self.admin.use())
        self.nemesis.begin()
        self.look_again()
        await asyncio.sleep(self.duration_s)
        self.tell("everything is healed")
        self.nemesis.heal()
        self.admin.is_over = True
        await asyncio.gather(changing, self.operator.end())
        await self.demand("the cluster is whole", self.what_is_missing)
        await self.end_producers(self.client_plan.partitions)
        await self.demand("the replicas are equal", self.replicas.lagging)
        await self.demand("every reader gets to the end", self._who_is_behind)
        await asyncio.gather(*(each.end() for each in self.clients))
        # Members that leave are the last to have something written.
        await self.demand("the replicas are equal in the end", self.replicas.lagging)
        self.is_over = True
        await self._check_end()

    # After the faults

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
        self.look()
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
        self.look()
