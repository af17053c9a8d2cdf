"""Partitions with replicas run by programs of both kinds: who leads, who is in sync, and what lies on the disks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas import Admin, BarnabasError, TopicPartition
from barnabas.client.admin import NewTopic
from tests.peers.nodes import PeerCluster

_PATIENCE_S: Final = 90.0
TOPIC: Final = "replicated"
#: A follower that is away leaves soon, and a broker that is dead is known soon.
SETTINGS: Final = {
    "replica.lag.time.max.ms": "6000",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "controlled.shutdown.enable": "true",
    "auto.leader.rebalance.enable": "false",
}


class Replicas:
    """The partitions of one topic, as one may ask any broker that runs."""

    def __init__(self, cluster: PeerCluster, topic: str = TOPIC) -> None:
        self.cluster = cluster
        self.topic = topic

    def create(self, assignments: Mapping[int, Sequence[int]], min_in_sync: int = 1) -> None:
        settings = {"min.insync.replicas": min_in_sync}
        with self._admin() as admin:
            self._until(
                lambda: admin.create_topics([NewTopic(self.topic, assignments=assignments, configs=settings)]),
                "the topic is created",
            )
        self.until_in_sync({each: set(replicas) for each, replicas in assignments.items()})

    def leaders(self) -> dict[int, int | None]:
        with self._admin() as admin:
            found = admin.describe_topics([self.topic])[self.topic].partitions
        return {each.partition: None if each.leader is None else each.leader.node_id for each in found}

    def in_sync(self) -> dict[int, set[int]]:
        with self._admin() as admin:
            found = admin.describe_topics([self.topic])[self.topic].partitions
        return {each.partition: {node.node_id for node in each.isr} for each in found}

    def until_in_sync(self, wanted: Mapping[int, set[int]]) -> None:
        self._until(lambda: self.in_sync() == wanted, f"{wanted} are in sync", self.in_sync)

    def until_led_by(self, leader_ids: set[int]) -> None:
        """All partitions are led, by these alone."""
        self._until(lambda: set(self.leaders().values()) <= leader_ids, f"{leader_ids} lead", self.leaders)

    def elect_preferred(self) -> None:
        """Until each partition is led by its first replica."""

        def elected() -> bool:
            with self._admin() as admin:
                admin.elect_leaders([TopicPartition(self.topic, each) for each in self.leaders()])
                found = admin.describe_topics([self.topic])[self.topic].partitions
            return all(each.leader is not None and each.leader.node_id == each.replicas[0].node_id for each in found)

        self._until(elected, "the first replicas lead", self.leaders)

    def _admin(self) -> Admin:
        return Admin(bootstrap_servers=self.cluster.bootstrap)

    def _until(self, done: Callable[[], object], what: str, told: Callable[[], object] | None = None) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            problem: object = None
            try:
                if done():
                    return
            except BarnabasError as failure:
                problem = failure
            if time.monotonic() > deadline_s:
                now = problem if told is None or problem is not None else told()
                raise AssertionError(f"it did not happen that {what}: {now}")
            time.sleep(0.1)


def log_of(folder: Path, topic: str, partition: int) -> bytes:
    """All batches of a partition, as they lie in the segments of a node."""
    segments = sorted((folder / "data" / f"{topic}-{partition}").glob("*.log"))
    assert segments, f"{folder} has no log of {topic}-{partition}"
    return b"".join(each.read_bytes() for each in segments)


def assert_same_segments(
    cluster: PeerCluster, topic: str, partitions: Iterable[int], node_ids: Iterable[int], *, is_quiet: bool = True
) -> int:
    """Byte for byte, on all of these nodes, which have stopped; returns how many bytes were compared.

    What coordinators write by themselves, those that stopped before do not have: such a topic is not quiet.
    """
    count = 0
    chosen = list(node_ids)
    for partition in partitions:
        logs = {each: log_of(cluster[each].folder, topic, partition) for each in chosen}
        if not is_quiet:
            end = min(map(len, logs.values()))
            logs = {each: log[:end] for each, log in logs.items()}
        first = logs[chosen[0]]
        for node_id, log in logs.items():
            place = next((at for at, pair in enumerate(zip(first, log, strict=False)) if pair[0] != pair[1]), None)
            assert log == first, (
                f"{topic}-{partition}: node {chosen[0]} has {len(first)} bytes, node {node_id} {len(log)}; they differ "
                f"from byte {place} on"
            )
        count += len(first) * len(logs)
    return count
