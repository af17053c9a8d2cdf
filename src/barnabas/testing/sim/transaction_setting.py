"""What a seed of the scenario "transactions" draws before anything happens, beyond what that of "cluster" does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.cluster_setting import FACTOR, MIN_ISR, ClusterSetting, Profile, TopicPlan
from barnabas.testing.sim.fault_plans import Fault, FaultKind
from barnabas.testing.sim.network import Link

__all__ = ["INPUT", "OUTPUT", "TransactionSetting"]

INPUT: Final = "orders"
OUTPUT: Final = "totals"
#: What a transaction waits for are chains of requests between brokers: on slower ways none would be in time.
_SLOWEST_S: Final = 0.15
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

    @classmethod
    def draw(cls, random: Random, profile: Profile) -> TransactionSetting:
        cluster = ClusterSetting.draw(random, profile)
        state_partition_count = random.choice((1, 2))
        overrides = {
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
        timeouts_ms = (10_000, 20_000) if profile is Profile.SLOW_REPLICATION else (2000, 3000, 6000)
        return cls(
            cluster=replace(cluster, overrides=overrides, topics=topics, slow_links=_shorter(cluster)),
            version=random.choices((0, 1, 2), (1, 2, 4))[0],
            state_partition_count=state_partition_count,
            transaction_timeout_ms=round(random.choice(timeouts_ms) * cluster.pace),
            abort_chance=random.choice((0.05, 0.15)),
            sleep_chance=random.choice((0.0, 0.04, 0.1)),
            death_chance=random.choice((0.0, 0.02, 0.08)),
            borrow_chance=random.choice((0.0, 0.3, 0.6)),
        )

    def draw_faults(self, random: Random, clients: Sequence[str], duration_s: float) -> list[Fault]:
        """As for the cluster. In some seeds also ways that take long for a moment: what was sent then arrives after it
        was sent again another way, and after what came of that."""
        plan = self.cluster.draw_faults(random, clients, duration_s)
        hosts = list(self.cluster.cluster.addresses().values())
        for _ in range(random.choice((0, 0, 6))):
            start_s, pace = random.uniform(0.0, duration_s), self.cluster.pace
            end_s = min(start_s + random.uniform(0.1, 1.0) * pace, duration_s)
            source, target = random.sample([*hosts, *clients], 2)
            plan.append(Fault(start_s, end_s, FaultKind.SLOW, (source, target), random.uniform(2.0, 5.0) * pace))
        return sorted(plan, key=lambda fault: (fault.start_s, fault.end_s))

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
