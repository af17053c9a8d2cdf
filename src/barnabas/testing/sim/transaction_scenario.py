"""The scenario "transactions": workers read, compute and write exactly once, under faults.

As the scenario "cluster", with a loop in it: producers write to an input, workers of a group write what follows from it
to an output and commit the group's offsets with that, in transactions (`transaction_clients`), and readers read what is
committed, or everything. Faults aim at the leaders of the output, of the group's offsets and of `__transaction_state`.

What programs did and were told is checked against the logs (`transaction_checker`), the states of transactional ids
and their markers against each other (`transaction_log_checker`, and `transaction_watch` while it happens).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.testing.sim.cluster_clients import Operator, SimulatedProducer
from barnabas.testing.sim.cluster_setting import MIN_ISR, Profile
from barnabas.testing.sim.collector import resting_collector
from barnabas.testing.sim.fault_plans import Fault
from barnabas.testing.sim.replica_log import ReplicaLog
from barnabas.testing.sim.replicated_run import FIRST_CLIENT, OFFSETS, ReplicatedRun
from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport
from barnabas.testing.sim.transaction_ambush import Ambush
from barnabas.testing.sim.transaction_checker import (
    Readers,
    TransactionBook,
    TransactionInvariant,
    offset_commits,
)
from barnabas.testing.sim.transaction_clients import GROUP, IsolatedReader, Worker, WorkerPlan, effects_of
from barnabas.testing.sim.transaction_history import PartitionHistory, read_history
from barnabas.testing.sim.transaction_log_checker import TransactionLogChecker, states_of
from barnabas.testing.sim.transaction_setting import TransactionSetting
from barnabas.testing.sim.transaction_stragglers import Stragglers
from barnabas.testing.sim.transaction_watch import TransactionWatch

__all__ = ["TransactionRun", "TransactionScenario"]

WORKERS: Final = 2


class TransactionScenario:
    """See the module."""

    def __init__(self, options: ScenarioOptions) -> None:
        self.options = options

    def run(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> SeedReport:
        with resting_collector():
            return TransactionRun(seed, fault_limit=fault_limit, keep_story=keep_story).run()


class TransactionRun(ReplicatedRun):
    """One run of a seed."""

    duration_s = 9.0

    def __init__(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> None:
        profile = Profile.draw(Random(f"{seed}/profile"))
        self.drawn = drawn = TransactionSetting.draw(Random(f"{seed}/transactions"), profile)
        internal = dict.fromkeys([OFFSETS, *drawn.state_partitions], MIN_ISR)
        levels = {"transaction_version": drawn.version}
        super().__init__(seed, drawn.cluster, internal=internal, keep_story=keep_story, levels=levels)
        self.tell(f"transactions of version {drawn.version}")
        self.world.network.delivers_before_reset = drawn.has_late_requests
        self.book = TransactionBook(
            self.checker.break_, lambda source, offset: effects_of(source, offset, drawn.outputs)
        )
        self.readers_book = Readers(self.checker.break_)
        self.states = TransactionLogChecker(self.checker.break_)
        self.watch = TransactionWatch(
            self.brokers(),
            dict.fromkeys([OFFSETS, *drawn.outputs], MIN_ISR),
            drawn.state_partitions,
            self.replicas.log_of,
            self.budget.lost,
            self.checker.break_,
        )
        self._make_clients()
        self.ambush = Ambush(self.world, drawn.cluster.pace, self._coordinators, self.tell, self.budget.may_strike)
        self.plan_faults(fault_limit)

    def _make_clients(self) -> None:
        drawn = self.drawn
        self.client_plan = plan = self.client_plan_for(drawn.inputs)
        self.stragglers = Stragglers("stragglers", f"{FIRST_CLIENT}51", plan, self._state_logs, drawn.version)
        names = [f"worker-{each}" for each in range(1, WORKERS + 1)]
        work = WorkerPlan(
            drawn.outputs,
            self.book,
            names,
            drawn.transaction_timeout_ms,
            drawn.request_timeout_ms,
            drawn.abort_chance,
            drawn.sleep_chance,
            drawn.death_chance,
            drawn.borrow_chance,
            drawn.pause_chance,
            drawn.nap_chance,
            drawn.straggler_chance,
            drawn.max_poll_interval_ms,
            self.stragglers,
        )
        self.producers = [SimulatedProducer("producer-1", f"{FIRST_CLIENT}11", plan)]
        self.workers = [
            Worker(name, f"{FIRST_CLIENT}{20 + number}", plan, work) for number, name in enumerate(names, 1)
        ]
        of_output = self.client_plan_for(drawn.outputs)
        self.readers = [
            IsolatedReader("committed", f"{FIRST_CLIENT}31", of_output, self.readers_book, is_read_committed=True),
            IsolatedReader("everything", f"{FIRST_CLIENT}32", of_output, self.readers_book, is_read_committed=False),
        ]
        self.operator = Operator("operator", f"{FIRST_CLIENT}41", plan)
        self.clients = [*self.producers, *self.workers, *self.readers, self.operator, self.stragglers]

    def _state_logs(self) -> Iterator[ReplicaLog]:
        for name in self.drawn.state_partitions:
            image = self.checker.newest.partition(*name)
            if image is not None and image.leader >= 0:
                yield self.replicas.log_of(image.leader, name)

    def _coordinators(self) -> Iterator[tuple[str, ReplicaLog]]:
        addresses = self.cluster.addresses()
        for name in self.drawn.state_partitions:
            image = self.checker.newest.partition(*name)
            followers = [] if image is None else [each for each in image.isr if each != image.leader]
            if image is not None and image.leader >= 0 and followers:
                yield addresses[image.leader], self.replicas.log_of(followers[0], name)

    def draw_faults(self, random: Random, clients: Sequence[str]) -> list[Fault]:
        return self.drawn.draw_faults(random, clients, [each.address for each in self.workers], self.duration_s)

    def aims(self) -> Sequence[TopicPartition]:
        return [*self.drawn.state_partitions, *self.drawn.state_partitions, *self.drawn.outputs, OFFSETS]

    def counts(self) -> dict[str, int]:
        return {
            "elections": self.checker.election_count,
            "leaders": self.checker.leader_change_count,
            "power losses": self.budget.power_loss_count,
            "acknowledged": self.log_checker.acknowledged_count,
            "committed": sum(each.committed_count for each in self.workers),
            "aborted": sum(each.aborted_count for each in self.workers),
            "fenced": sum(each.fenced_count for each in self.workers),
            "late": self.stragglers.late_count,
            "ambushed": self.ambush.count,
            "died": sum(each.death_count for each in self.workers),
            "read": self.readers_book.record_count,
        }

    async def play(self) -> None:
        self.supervise()
        await self.found(self.client_plan)
        for client in self.clients:
            client.begin()
        self.nemesis.begin()
        if self.drawn.has_ambushes:
            self.ambush.begin(self.duration_s)
        self.look_again()
        await asyncio.sleep(self.duration_s)
        self.tell("everything is healed")
        self.nemesis.heal()
        for worker in self.workers:
            worker.is_careful = True
            worker.own_count = 0
        await self.operator.end()
        await self.demand("the cluster is whole", self.what_is_missing)
        await self.demand("every worker gets on", self._who_is_stuck)
        await self.end_producers(self.drawn.inputs)
        await self.demand("the group gets to the end of the input", self._what_is_left)
        await asyncio.gather(*(each.end() for each in self.workers))
        await self.demand("no transaction hangs", self.watch.hanging)
        await self.demand("the replicas are equal", self.replicas.lagging)
        await self.demand("every reader gets to the end", self._who_is_behind)
        await asyncio.gather(*(each.end() for each in self.clients))
        await self.demand("the replicas are equal in the end", self.replicas.lagging)
        self.is_over = True
        await self._check_end()

    def look(self) -> None:
        super().look()
        self.watch.look()

    def was_cut(self, address: str) -> None:
        super().was_cut(address)
        self.watch.cut(address)

    # After the faults

    def _who_is_stuck(self) -> str:
        stuck = [each.name for each in self.workers if not each.own_count]
        return f"{', '.join(stuck)} committed nothing" if stuck else ""

    def _history(self, name: TopicPartition) -> PartitionHistory:
        """By what lies on the disk of its leader."""
        image = self.checker.newest.partition(*name)
        if image is None or image.leader < 0:
            return PartitionHistory()
        log = self.replicas.log_of(image.leader, name)
        log.refresh()
        return read_history(log.data())

    def _what_is_left(self) -> str:
        ends = self.replicas.ends(self.drawn.inputs)
        committed: dict[TopicPartition, int] = {}
        for record, commit in offset_commits(self._history(OFFSETS), GROUP):
            if record.outcome.is_visible:
                committed[commit.partition] = commit.offset
        for partition, end in ends.items():
            if committed.get(partition, 0) < end:
                return f"the group has committed {committed.get(partition, 0)} of {end} in {partition}"
        return ""

    def _who_is_behind(self) -> str:
        histories = {name: self._history(name) for name in self.drawn.outputs}
        for reader, is_read_committed in zip(self.readers, (True, False), strict=True):
            last = {
                name: visible[-1].offset
                for name, history in histories.items()
                if (visible := history.seen_by(read_committed=is_read_committed))
            }
            if problem := reader.behind(last):
                return problem
        return ""

    async def _check_end(self) -> None:
        self.look()
        self.replicas.compare_bytes()
        histories = {name: read_history(self.replicas.data(name)) for name in self.replicas.names}
        for partition in self.drawn.inputs:
            again = self.remembered.sent_again(partition, self.replicas.data(partition))
            self.log_checker.finish(partition, self.replicas.values(partition), may_be_twice=again)
        self._check_transactions(histories)
        await self._check_group(histories[OFFSETS])
        self.look()

    def _check_transactions(self, histories: dict[TopicPartition, PartitionHistory]) -> None:
        inputs = {name: histories[name] for name in self.drawn.inputs}
        outputs = {name: histories[name] for name in self.drawn.outputs}
        self.readers_book.check(outputs)
        self.book.check(inputs, outputs, offset_commits(histories[OFFSETS], GROUP))
        for name in self.drawn.state_partitions:
            for state in states_of(histories[name].records):
                self.states.state(state)
        self.states.markers({**outputs, OFFSETS: histories[OFFSETS]})
        if hanging := self.states.open():
            self.checker.break_(TransactionInvariant.NOTHING_HANGS, hanging)

    async def _check_group(self, history: PartitionHistory) -> None:
        """What the coordinator of the group says is what its log says."""
        async with Admin(**self.client_plan.settings("auditor")) as admin:
            offsets = await admin.list_group_offsets(GROUP)
        wanted = {}
        for record, commit in offset_commits(history, GROUP):
            if record.outcome.is_visible:
                wanted[commit.partition] = commit.offset
        found = {partition: each.offset for partition, each in offsets.items() if each is not None}
        if found != wanted:
            self.checker.break_(TransactionInvariant.AGREES, f"the group is at {found}; its log says {wanted}")
