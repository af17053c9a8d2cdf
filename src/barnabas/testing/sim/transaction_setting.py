"""What a seed of the scenario "transactions" draws before anything happens, beyond what that of "cluster" does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.records.control import EPOCH_PER_TRANSACTION
from barnabas.testing.sim.cluster_setting import FACTOR, MIN_ISR, ClusterSetting, Profile, TopicPlan
from barnabas.testing.sim.fault_plans import LEADER, Fault, FaultKind
from barnabas.testing.sim.network import Link

__all__ = ["INPUT", "OUTPUT", "TransactionSetting"]

INPUT: Final = "orders"
OUTPUT: Final = "totals"
#: What a transaction waits for are chains of requests between brokers: on slower ways none would be in time.
_SLOWEST_S: Final = 0.15
_SHORT_POLL_INTERVAL_MS: Final = 500
_STATE_TOPIC: Final = "__transaction_state"


@dataclass(frozen=True, slots=True)
class TransactionSetting:
    """See the module. `version` is the level of transaction.version; see `transaction_clients` for the chances."""

    cluster: ClusterSetting
    version: int
    state_partition_count: int
    transaction_timeout_ms: int
    abort_chance: float
    sleep_chance: float
    death_chance: float
    borrow_chance: float
    #: Whether a request may arrive after its sender has given it up. Before version 2 a transaction cannot be told from
    #: the next one of its producer, so that a late EndTxn may end that, in Kafka too.
    has_late_requests: bool
    #: Of requests of earlier transactions, and of markers of a former coordinator, in each transaction.
    straggler_chance: float
    #: That a worker stands still over a transaction, heartbeats and all.
    pause_chance: float
    #: That it sleeps for longer than `max_poll_interval_ms` over one.
    nap_chance: float
    max_poll_interval_ms: int
    #: Whether coordinators are stopped between their decision and its markers: see `transaction_ambush`.
    has_ambushes: bool

    @classmethod
    def draw(cls, random: Random, profile: Profile) -> TransactionSetting:
        cluster = ClusterSetting.draw(random, profile)
        state_partition_count = random.choice((1, 2))
        overrides: dict[str, object] = {
            **cluster.overrides,
            "transaction.state.log.replication.factor": FACTOR,
            "transaction.state.log.min.isr": MIN_ISR,
            "transaction.state.log.num.partitions": state_partition_count,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": random.choice((200, 1000)),
        }
        topics = [
            TopicPlan(INPUT, random.choice((1, 2)), FACTOR, MIN_ISR),
            TopicPlan(OUTPUT, random.choice((1, 2, 3)), FACTOR, MIN_ISR),
        ]
        # Where replication is slow, what a transaction needs is done in several seconds at best.
        timeouts_ms: tuple[int, ...] = (10_000, 20_000) if profile is Profile.SLOW_REPLICATION else (2000, 3000, 6000)
        version = random.choices((0, 1, 2), (1, 2, 4))[0]
        has_late_requests = random.random() < 0.6 and version >= 2 and profile is not Profile.SLOW_REPLICATION
        straggler_chance = random.choice((0.0, 0.2, 0.5))
        pause_chance = random.choice((0.0, 0.05))
        # Where replication is slow, a transaction may take as long as a nap.
        nap_chance = random.choice((0.0, 0.15)) if profile is not Profile.SLOW_REPLICATION else 0.0
        borrow_chance = random.choice((0.0, 0.3, 0.6))
        if nap_chance:
            # Whoever wakes up shall find its transaction as it was, and its partitions in other hands.
            timeouts_ms, borrow_chance, has_late_requests = (6000,), 0.0, False
        if has_late_requests:
            overrides["request.timeout.ms"] = round(1000 * cluster.pace)
        return cls(
            cluster=replace(cluster, overrides=overrides, topics=topics, slow_links=_shorter(cluster)),
            version=version,
            state_partition_count=state_partition_count,
            transaction_timeout_ms=round(random.choice(timeouts_ms) * cluster.pace),
            abort_chance=random.choice((0.05, 0.15)),
            sleep_chance=random.choice((0.0, 0.04, 0.1)),
            death_chance=random.choice((0.0, 0.02, 0.08)),
            borrow_chance=borrow_chance,
            has_late_requests=has_late_requests,
            straggler_chance=straggler_chance,
            pause_chance=pause_chance,
            nap_chance=nap_chance,
            max_poll_interval_ms=round(_SHORT_POLL_INTERVAL_MS * cluster.pace) if nap_chance else 300_000,
            # With an epoch for each transaction, markers of a former coordinator are late by that.
            has_ambushes=version < EPOCH_PER_TRANSACTION and not nap_chance and random.random() < 0.8,
        )

    def draw_faults(
        self, random: Random, clients: Sequence[str], workers: Sequence[str], duration_s: float
    ) -> list[Fault]:
        """As for the cluster. With late requests also ways that take long for a moment: what was sent then arrives
        after it was sent again on another connection, and after what came of that."""
        plan = self.cluster.draw_faults(random, clients, duration_s)
        if self.nap_chance or self.has_ambushes:
            # While one is away, the others must get on.
            plan = [each for each in plan if random.random() < 0.3]
        hosts = list(self.cluster.cluster.addresses().values())
        for _ in range(20 if self.has_late_requests else 0):
            start_s, pace = random.uniform(0.0, duration_s), self.cluster.pace
            end_s = min(start_s + random.uniform(0.1, 1.0) * pace, duration_s)
            way = random.choice(workers if random.random() < 0.6 else hosts), LEADER
            plan.append(Fault(start_s, end_s, FaultKind.SLOW, way, random.uniform(1.0, 4.0) * pace))
        return sorted(plan, key=lambda fault: (fault.start_s, fault.end_s))

    @property
    def request_timeout_ms(self) -> int:
        """Of workers: whoever gives up early sends again while the first request is still on its way."""
        return round((400 if self.has_late_requests else 2000) * self.cluster.pace)

    @property
    def inputs(self) -> list[TopicPartition]:
        return self.cluster.topics[0].partitions()

    @property
    def outputs(self) -> list[TopicPartition]:
        return self.cluster.topics[1].partitions()

    @property
    def state_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(_STATE_TOPIC, number) for number in range(self.state_partition_count)]


def _shorter(cluster: ClusterSetting) -> dict[tuple[str, str], Link]:
    slowest_s = _SLOWEST_S * cluster.pace
    return {way: Link(max_delay_s=min(link.max_delay_s, slowest_s)) for way, link in cluster.slow_links.items()}
