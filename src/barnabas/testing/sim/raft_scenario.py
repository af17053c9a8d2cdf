"""The scenario "raft": a quorum under faults, clients that append, and what must hold after every event.

For a while a plan of faults plays, while clients append through whoever believes that it leads. Then everything is
healed, and the quorum must elect one leader and commit a fresh record everywhere within bounded virtual time.

In some runs nothing happens but that disks take seconds for a sync, once all follow one leader. It must stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from barnabas.base.errors import BrokerError
from barnabas.raft.options import QuorumOptions
from barnabas.raft.transitions import Role
from barnabas.raft.types import Address, CommittedBatch
from barnabas.raft.voters import VoterSet
from barnabas.storage.errors import PassingError
from barnabas.testing.sim.collector import resting_collector
from barnabas.testing.sim.fault_plans import WEIGHTS, Fault, FaultKind, draw_plan
from barnabas.testing.sim.loop import START_S, SimulationError
from barnabas.testing.sim.nemesis import Nemesis
from barnabas.testing.sim.network import Link
from barnabas.testing.sim.process import Process
from barnabas.testing.sim.raft_checkers import BatchFact, Invariant, InvariantBrokenError, RaftChecker
from barnabas.testing.sim.raft_depths import PORT, Depth, DepthTarget, ModelDepth, WholeDepth
from barnabas.testing.sim.raft_replica import QuorumPlan, SimulatedReplica
from barnabas.testing.sim.raft_voter_changes import VoterChanges
from barnabas.testing.sim.scenarios import ScenarioOptions, SeedReport

__all__ = ["RaftRun", "RaftScenario"]

DURATION_S: Final = 20.0
HEALING_S: Final = 30.0
#: Who watches over processes looks so often.
SUPERVISION_S: Final = 0.5
FIRST_OBSERVER_ID: Final = 101
_WEIGHTS: Final[Mapping[FaultKind, int]] = {**WEIGHTS, FaultKind.SLOW_SYNCS: 3}
#: How many runs have slow syncs and nothing else.
_ONLY_SLOW_SYNCS: Final = 0.15
#: What simulated replicas complain of is part of the play.
_SILENCE: Final = logging.NullHandler()


@dataclass(frozen=True, slots=True)
class RaftSetting:
    """What a seed draws of the quorum itself, before anything happens to it."""

    observers: int
    changes_voters: bool
    snapshot_every: int | None
    kept_snapshots: int
    mean_pause_s: float
    #: How long the quorum's timeouts are, measured by Kafka's.
    pace: float
    link: Link
    options: QuorumOptions
    only_slow_syncs: bool = False

    @classmethod
    def draw(cls, random: Random) -> RaftSetting:
        setting = cls._draw_any(random)
        if random.random() < _ONLY_SLOW_SYNCS:
            # A leader that is voted out has to go.
            return replace(setting, changes_voters=False, only_slow_syncs=True)
        return setting

    @classmethod
    def _draw_any(cls, random: Random) -> RaftSetting:
        changes_voters = random.random() < 0.3
        pace = random.choice((0.2, 0.5, 1.0))
        return cls(
            observers=random.choice((1, 2)) if changes_voters else random.choice((0, 0, 1)),
            changes_voters=changes_voters,
            snapshot_every=random.choice((None, 3, 10)),
            kept_snapshots=random.choice((1, 2)),
            mean_pause_s=random.choice((0.1, 0.3, 1.0)) * pace,
            pace=pace,
            # The slower messages are in relation to the timeouts, the more elections meet each other.
            link=Link(max_delay_s=random.choice((0.002, 0.002, 0.1 * pace))),
            options=QuorumOptions(
                election_timeout_ms=round(1000 * pace),
                fetch_timeout_ms=round(2000 * pace),
                election_backoff_max_ms=round(1000 * pace),
                request_timeout_ms=round(2000 * pace),
                fetch_max_wait_ms=round(500 * pace),
                # The smallest gives a follower one batch at a time.
                fetch_max_bytes=random.choice((1, 300, 8 * 1024 * 1024)),
                fetch_snapshot_max_bytes=random.choice((100, 8 * 1024 * 1024)),
            ),
        )


class RaftScenario:
    """See the module."""

    def __init__(self, options: ScenarioOptions) -> None:
        self.options = options

    def run(self, seed: int, *, fault_limit: int | None = None, keep_story: bool = False) -> SeedReport:
        with resting_collector():
            return RaftRun(seed, self.options, fault_limit=fault_limit, keep_story=keep_story).run()


class RaftRun:
    """One run of a seed. What a subclass may change is made by methods of its own."""

    def __init__(
        self, seed: int, options: ScenarioOptions, *, fault_limit: int | None = None, keep_story: bool = False
    ) -> None:
        self.seed = seed
        self.setting = RaftSetting.draw(Random(f"{seed}/setting"))
        self.duration_s = DURATION_S * self.setting.pace
        self.depth: Depth
        if options.depth == "model":
            self.depth = ModelDepth(seed, link=self.setting.link, kept_snapshots=self.setting.kept_snapshots)
        else:
            self.depth = WholeDepth(seed, link=self.setting.link, kept_snapshots=self.setting.kept_snapshots)
        self.loop = self.depth.loop
        self.story: list[str] = []
        self._tell = self.tell if keep_story else None
        self.checker = RaftChecker(count_safe=self._count_safe, on_leader=self._on_leader)
        self.voter_hosts = {node_id: f"10.0.0.{node_id}" for node_id in range(1, options.voters + 1)}
        self.observer_hosts = {
            FIRST_OBSERVER_ID + place: f"10.0.1.{place + 1}" for place in range(self.setting.observers)
        }
        self.plan = self._draw_plan()[:fault_limit]
        self.replicas = self._make_replicas()
        self._by_host = {replica.host: replica for replica in self.replicas}
        hosts = [replica.host for replica in self.replicas]
        target = DepthTarget(
            self.depth, hosts, self._leader_host, lambda host: self._by_host[host].start(), self._on_old_disk
        )
        self.nemesis = Nemesis(self.loop, target, self.plan, self._on_fault)
        self._voter_changes = VoterChanges(self.replicas, self.depth.random("voters"))
        self._chance = self.depth.random("clients")
        self._value_count = 0
        self._is_healed = False
        self._is_over = False
        #: Values that were appended, by their offsets, until a commit tells what became of them.
        self._appended: dict[tuple[int, int], tuple[bytes, ...]] = {}
        self._values: dict[int, tuple[bytes, ...]] = {}
        self.acknowledged_count = 0
        self.election_count = 0
        self._must_stay = False

    # The cast

    def _draw_plan(self) -> list[Fault]:
        hosts = [*self.voter_hosts.values(), *self.observer_hosts.values()]
        random = self.depth.random("faults")
        pace = self.setting.pace
        if self.setting.only_slow_syncs:
            plan = draw_plan(random, hosts, duration_s=self.duration_s, pace=pace, weights={FaultKind.SLOW_SYNCS: 1})
            # Who puts a snapshot in place of its log says nothing until that is safe.
            longest_s = 3.0 if self.setting.snapshot_every is None else 0.4 * pace
            return [replace(each, amount=min(each.amount, longest_s)) for each in plan]
        old_disks = self._old_disk_hosts()
        return draw_plan(random, hosts, duration_s=self.duration_s, old_disks=old_disks, pace=pace, weights=_WEIGHTS)

    def _old_disk_hosts(self) -> list[str]:
        """A voter that comes back with an old disk has forgotten what it promised, and Raft promises nothing then."""
        return [] if self.setting.changes_voters else list(self.observer_hosts.values())

    def _make_replicas(self) -> list[SimulatedReplica]:
        addresses = {node_id: Address(host, PORT) for node_id, host in self.voter_hosts.items()}
        setting = self.setting
        plan = QuorumPlan(
            VoterSet.of(addresses),
            tuple(addresses.values()),
            setting.options,
            setting.snapshot_every,
            snapshot_bytes=200,
        )
        cast = {**self.voter_hosts, **self.observer_hosts}
        return [
            SimulatedReplica(node_id, host, self.depth, self.checker, plan, self._on_commit, self._tell)
            for node_id, host in cast.items()
        ]

    # The run

    def run(self) -> SeedReport:
        broken = problem = ""
        self.loop.after_event = self._after_event
        logger = logging.getLogger("barnabas")
        logger.addHandler(_SILENCE)
        try:
            self.loop.run_until_complete(self._play(), limit_s=self.duration_s + 3 * HEALING_S)
        except InvariantBrokenError as failure:
            broken, problem = failure.invariant.value, failure.text
        except SimulationError as failure:
            broken, problem = Invariant.NO_FAILURE.value, f"{failure}"
        finally:
            self.loop.after_event = None
            virtual_s, event_count = self._now_s(), self.loop.event_count
            trace = self.depth.trace()
            self.depth.close()
            logger.removeHandler(_SILENCE)
        counts = {
            "faults": len(self.plan),
            "elections": self.election_count,
            "commits": len(self.checker.committed),
            "acknowledged": self.acknowledged_count,
            "changes of voters": self._voter_changes.count,
        }
        plan = [str(fault) for fault in self.plan]
        return SeedReport(
            self.seed, virtual_s, event_count, trace, len(plan), broken, problem, plan, self.story, counts
        )

    async def _play(self) -> None:
        for replica in self.replicas:
            replica.start()
        if self.setting.only_slow_syncs:
            await self._demand_progress(b"before the faults")
            self._must_stay = True
        self.nemesis.begin()
        self._supervise()
        self._use()
        if self.setting.changes_voters:
            self._change_voters()
        await asyncio.sleep(self.duration_s)
        self._heal()
        await self._demand_progress(b"after the faults")
        self._is_over = True

    def _heal(self) -> None:
        self.tell_if_kept("everything is healed")
        self._is_healed = True
        self.nemesis.heal()
        for replica in self.replicas:
            replica.start()

    def _supervise(self) -> None:
        """Start what has ended by itself, as an operator's supervisor does."""
        for replica in self.replicas:
            if not self.nemesis.is_held_down(replica.host):
                replica.start()
        if not self._is_over:
            self.loop.call_later(SUPERVISION_S * self.setting.pace, self._supervise)

    # Clients

    def _use(self) -> None:
        """Append through whoever believes that it leads, also if it is wrong."""
        for replica in self.replicas:
            state = replica.state
            if state is not None and state.leader.leader_id == replica.node_id and replica.is_running:
                self._value_count += 1
                values = tuple(b"%d.%d" % (self._value_count, place) for place in range(self._chance.choice((1, 1, 3))))
                self._append(replica, values)
        if not self._is_healed:
            self.loop.call_later(self._chance.expovariate(1 / self.setting.mean_pause_s), self._use)

    def _append(self, replica: SimulatedReplica, values: tuple[bytes, ...]) -> None:
        process = self.depth.host(replica.host).process
        if process is not None:
            with process.enter():
                self.loop.call_soon(self._append_there, replica, values)

    def _change_voters(self) -> None:
        leader = self._leader()
        process = None if leader is None else self.depth.host(leader.host).process
        if leader is not None and process is not None:
            with process.enter():
                self.loop.call_soon(self._voter_changes.ask, leader)
        if not self._is_healed:
            self.loop.call_later(self._chance.uniform(0.3, 2.0) * self.setting.pace, self._change_voters)

    def _append_there(self, replica: SimulatedReplica, values: tuple[bytes, ...]) -> None:
        """Runs in the replica's process."""
        driver, state = replica.driver, replica.state
        if driver is None or state is None:
            return
        try:
            last_offset = driver.append(values, state.leader.epoch)
        except (BrokerError, PassingError):
            return
        self._appended[replica.node_id, last_offset] = values

    def _on_commit(self, replica: SimulatedReplica, batch: CommittedBatch) -> None:
        """What is at an offset stays there; who appended it hears of it from the replica that took it."""
        found = tuple(batch.values)
        first = self._values.setdefault(batch.base_offset, found)
        if first != found:
            self.checker.break_(
                Invariant.COMMITTED_STAYS,
                f"replica {replica.node_id} was told {found!r} at offset {batch.base_offset}, another {first!r}",
            )
        if self._appended.pop((replica.node_id, batch.last_offset), None) == found:
            self.acknowledged_count += 1

    # After the faults

    async def _demand_progress(self, wanted: bytes) -> None:
        """One leader, and a fresh record that every replica applies, though more of them come all the time, and with
        them new snapshots: who has to load one piece by piece must get to its end."""
        deadline_s = self._now_s() + HEALING_S
        while not self._has_everywhere(wanted):
            if self._now_s() > deadline_s:
                self._complain_of_no_progress(wanted)
            leader = self._leader()
            if leader is not None:
                self._append(leader, (wanted,))
            await asyncio.sleep(0.25)

    def _has_everywhere(self, value: bytes) -> bool:
        offset = next((offset for offset, values in self._values.items() if value in values), None)
        if offset is None:
            return False
        machines = [each.machine for each in self.replicas if each.machine is not None]
        roles = [each.state.role for each in machines]
        return roles.count(Role.LEADER) == 1 and all(
            each.state is not None and each.state.end_offset > offset for each in self.replicas
        )

    def _complain_of_no_progress(self, value: bytes) -> None:
        def describe(replica: SimulatedReplica) -> str:
            machine, state = replica.machine, replica.state
            if machine is None or state is None:
                return f"{replica.node_id} has not begun"
            role = f"{machine.state.role.value} in epoch {machine.epoch}"
            return f"{replica.node_id} is {role}, its log ends at {machine.log.end_offset}, applied {state.end_offset}"

        where = "; ".join(describe(each) for each in self.replicas)
        raise InvariantBrokenError(
            Invariant.PROGRESS, f"after {HEALING_S:.0f} s a fresh record is not everywhere: {where}"
        )

    # Watching

    def _now_s(self) -> float:
        return self.loop.world_time() - START_S

    def _after_event(self, process: Process) -> None:
        replica = self._by_host.get(process.address)
        if replica is not None and not process.is_dead:
            replica.look()

    def _leader(self) -> SimulatedReplica | None:
        """Who leads in the newest epoch."""
        leading = [
            (replica.machine.epoch, replica)
            for replica in self.replicas
            if replica.machine is not None and replica.is_running and replica.machine.state.role is Role.LEADER
        ]
        return max(leading, key=lambda each: each[0])[1] if leading else None

    def _leader_host(self) -> str | None:
        leader = self._leader()
        return None if leader is None else leader.host

    def _count_safe(self, node_id: int, batch: BatchFact) -> tuple[int, int]:
        cast = {**self.voter_hosts, **self.observer_hosts}
        machine = self._by_host[cast[node_id]].machine
        if machine is None:
            return 0, 0
        voters = machine.voters
        found = [self.depth.is_safe(cast[each], batch.base_offset, batch.epoch) for each in voters.ids]
        return sum(each is not False for each in found), voters.majority

    def _on_leader(self, node_id: int, epoch: int) -> None:
        self.election_count += 1
        if self._must_stay:
            self.checker.break_(
                Invariant.SLOW_SYNCS_MOVE_NOBODY, f"replica {node_id} leads in epoch {epoch}, and nothing else happened"
            )
        self.depth.note(f"{node_id} leads in epoch {epoch}")
        self.tell_if_kept(f"{node_id} leads in epoch {epoch}")

    def _on_old_disk(self, host: str) -> None:
        """An observer may forget: it promised nothing."""
        replica = self._by_host[host]
        if replica.node_id not in self.voter_hosts:
            self.checker.forgot(replica.node_id)

    def _on_fault(self, words: str) -> None:
        self.depth.note(words)
        self.tell_if_kept(f"FAULT: {words}")

    def tell_if_kept(self, text: str) -> None:
        if self._tell is not None:
            self._tell(text)

    def tell(self, text: str) -> None:
        self.story.append(f"{self._now_s():8.3f} s  {text}")
