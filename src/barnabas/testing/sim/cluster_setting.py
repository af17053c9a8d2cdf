"""What a seed of the scenario "cluster" draws before anything happens: nodes, topics, settings, and which faults.

Most seeds mix everything. Some have a profile, which makes schedules likely that a mix hardly ever comes upon:

- slow replication: between brokers, and from some of them to the controllers, everything takes long, and brokers come
  back quickly with less than they had. So fetches and proposals of a former life arrive late, followers are elected or
  admitted while they lack something, and whoever follows anew has much to cut off;
- without eligible leader replicas, under the weaker promise that holds then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final

from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.cluster import ClusterPlan
from barnabas.testing.sim.fault_plans import WEIGHTS, Fault, FaultKind, draw_plan
from barnabas.testing.sim.network import Link

__all__ = ["ClusterSetting", "Profile", "TopicPlan"]

FACTOR: Final = 3
MIN_ISR: Final = 2
#: Faults of clusters. Where power is lost depends upon the seed: without it, more is promised.
_POWER: Final[Mapping[FaultKind, int]] = {FaultKind.POWER: 8, FaultKind.OLD_DISK: 3, FaultKind.RESTORE: 3}
_OTHERS: Final[Mapping[FaultKind, int]] = {
    **{kind: weight for kind, weight in WEIGHTS.items() if kind not in (*_POWER, FaultKind.BLACKOUT)},
    FaultKind.RESTART: 4,
}
_SLOW_REPLICATION: Final[Mapping[FaultKind, int]] = {
    FaultKind.RESTORE: 8,
    FaultKind.POWER: 4,
    FaultKind.OLD_DISK: 2,
    FaultKind.KILL: 4,
    FaultKind.RESTART: 5,
    FaultKind.ISOLATE: 3,
    FaultKind.CUT_ONE_WAY: 3,
    FaultKind.SLOW: 3,
    FaultKind.PAUSE: 2,
    FaultKind.RESET: 2,
}


class Profile(Enum):
    """Which schedules a seed is about; see the module."""

    MIXED = "mixed"
    SLOW_REPLICATION = "slow replication"
    WITHOUT_ELR = "without eligible leader replicas"

    @classmethod
    def draw(cls, random: Random) -> Profile:
        return random.choices(list(cls), (5, 3, 2))[0]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic, and what is promised of it: with `is_kept`, that nothing acknowledged is lost under the faults that are
    injected."""

    name: str
    partition_count: int
    replication_factor: int
    min_isr: int
    is_kept: bool = True

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, number) for number in range(self.partition_count)]


@dataclass(frozen=True, slots=True)
class ClusterSetting:
    """See the module. Timeouts of nodes and of clients go by `pace`, so that much happens in little time."""

    cluster: ClusterPlan
    pace: float
    link: Link
    topics: Sequence[TopicPlan]
    has_power_losses: bool
    overrides: Mapping[str, object]
    delivery_timeout_ms: int
    assignment_strategy: str
    profile: Profile = Profile.MIXED
    #: Ways that are always slow, from host to host.
    slow_links: Mapping[tuple[str, str], Link] = field(default_factory=dict)

    @property
    def has_elr(self) -> bool:
        return self.profile is not Profile.WITHOUT_ELR

    @classmethod
    def draw(cls, random: Random, profile: Profile = Profile.MIXED) -> ClusterSetting:
        is_slow = profile is Profile.SLOW_REPLICATION
        pace = random.choice((0.4, 0.7, 1.0))
        has_power_losses = random.random() < 0.5 or is_slow
        topics = [TopicPlan("ledger", random.choice((1, 2, 3)), FACTOR, MIN_ISR)]
        if random.random() < 0.4:
            # With one replica that must be in sync, every power loss may cost records.
            topics.append(TopicPlan("pairs", random.choice((1, 2)), 2, 1, is_kept=not has_power_losses))
        # Whoever is to come back with an old disk has no vote.
        cluster = ClusterPlan(3, random.choice((0, 0, 0, 3)) if not is_slow else 3)
        return cls(
            cluster=cluster,
            pace=pace,
            link=Link(max_delay_s=random.choice((0.002, 0.002, 0.02))),
            topics=topics,
            has_power_losses=has_power_losses,
            overrides=_draw_overrides(random, pace),
            # Where replication is slow, a producer that gives up early may be behind for ever.
            delivery_timeout_ms=random.choice((120_000, 120_000, 120_000 if is_slow else 4000)),
            assignment_strategy=random.choice(("range", "cooperative-sticky")),
            profile=profile,
            slow_links=_draw_slow_links(random, cluster, pace) if is_slow else {},
        )

    def draw_faults(self, random: Random, clients: Sequence[str], duration_s: float) -> list[Fault]:
        hosts = list(self.cluster.addresses().values())
        brokers = [host for node_id, host in self.cluster.addresses().items() if self.cluster.is_broker(node_id)]
        weights = {**_OTHERS, **(_POWER if self.has_power_losses else {})}
        is_slow = self.profile is Profile.SLOW_REPLICATION
        if is_slow:
            # Kills leave no room for old disks: see `cluster_promises`.
            weights = {FaultKind.RESTORE: 1} if random.random() < 0.5 else {**_SLOW_REPLICATION}
        # A voter of the quorum must not forget what it has voted. Without ELR it matters when exactly power is lost.
        old_disks = brokers if self.cluster.brokers and self.has_power_losses and self.has_elr else ()
        plan = draw_plan(
            random,
            hosts,
            duration_s=duration_s,
            old_disks=old_disks,
            pace=self.pace,
            weights=weights,
            clients=clients,
        )
        if is_slow:
            plan += [each for fault in plan for each in self._late_fetches(random, fault, brokers, duration_s)]
            plan.sort(key=lambda fault: (fault.start_s, fault.end_s))
        return plan if self.has_power_losses and self.has_elr else [_without_power(fault) for fault in plan]

    def _late_fetches(self, random: Random, fault: Fault, brokers: Sequence[str], duration_s: float) -> list[Fault]:
        """When a broker comes back with an old disk, what it has asked of the others just before may arrive after it
        has registered again."""
        if fault.kind is not FaultKind.RESTORE or random.random() < 0.3:
            return []
        start_s = max(0.0, fault.end_s - random.uniform(0.1, 0.6) * self.pace)
        end_s = min(fault.end_s + random.uniform(0.0, 0.2) * self.pace, duration_s)
        delay_s = random.uniform(1.0, 4.0)  # to start takes a while, at whatever pace
        host = fault.targets[0]
        return [Fault(start_s, end_s, FaultKind.SLOW, (host, each), delay_s) for each in brokers if each != host]


def _without_power(fault: Fault) -> Fault:
    if fault.kind is not FaultKind.DIE_IN_WRITE:
        return fault
    return Fault(fault.start_s, fault.end_s, fault.kind, fault.targets, abs(fault.amount))


def _draw_slow_links(random: Random, cluster: ClusterPlan, pace: float) -> dict[tuple[str, str], Link]:
    """Between brokers, and from some brokers to all controllers."""
    hosts = cluster.addresses()
    brokers = [host for node_id, host in hosts.items() if cluster.is_broker(node_id)]
    between = Link(max_delay_s=random.choice((0.05, 0.2, 0.5)) * pace)
    links = {(one, other): between for one in brokers for other in brokers if one != other}
    for broker in brokers:
        if random.random() < 0.4:
            link = Link(max_delay_s=random.choice((0.1, 0.4)) * pace)
            links.update({(broker, host): link for host in hosts.values() if host not in brokers})
    return links


def _draw_overrides(random: Random, pace: float) -> dict[str, object]:
    overrides: dict[str, object] = {
        "controller.quorum.election.timeout.ms": round(1000 * pace),
        "controller.quorum.fetch.timeout.ms": max(1000, round(2000 * pace)),
        "controller.quorum.election.backoff.max.ms": round(1000 * pace),
        "controller.quorum.request.timeout.ms": round(2000 * pace),
        "broker.heartbeat.interval.ms": round(800 * pace),
        "broker.session.timeout.ms": round(3600 * pace),
        "replica.lag.time.max.ms": round(random.choice((1500, 3000)) * pace),
        "replica.fetch.wait.max.ms": round(500 * pace),
        "replica.fetch.backoff.ms": round(300 * pace),
        "replica.socket.timeout.ms": round(2000 * pace),
        "replica.high.watermark.checkpoint.interval.ms": random.choice((200, 1000, 5000)),
        "request.timeout.ms": round(2000 * pace),
        "auto.create.topics.enable": "false",
        "default.replication.factor": FACTOR,
        "min.insync.replicas": MIN_ISR,
        "offsets.topic.replication.factor": FACTOR,
        "group.min.session.timeout.ms": 500,
        # Clocks that jump back would have records of clients refused.
        "log.message.timestamp.after.max.ms": 2**63 - 1,
        # Compacted replicas differ, and nothing else does.
        "log.cleaner.enable": "false",
    }
    if random.random() < 0.5:
        overrides["internal.log.segment.bytes"] = random.choice((2000, 10_000))
    if random.random() < 0.3:
        overrides["leader.imbalance.check.interval.seconds"] = 1
    if random.random() < 0.3:
        overrides["metadata.log.max.record.bytes.between.snapshots"] = 3000
    return overrides
