"""What must hold of the replicas of a partition, looked at from without: on their disks and in their nodes.

All that was ever below a high watermark is kept here as the committed prefix. Every replica must agree with it as far
as its own high watermark goes; whoever leads in the newest epoch must have all of it, and whoever joins those in sync
also all that its leader found when it began to lead; and what is acknowledged must lie on as many disks as were
promised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NoReturn

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.metadata.image import PartitionImage
from barnabas.records.reading import iter_entries
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition
from barnabas.replication.remote_replica import RemoteReplica
from barnabas.testing.sim.replica_log import ReplicaLog, SeenBatch
from barnabas.testing.sim.world import DATA_DIRECTORY, SimulatedNode

__all__ = ["ReplicaChecker", "ReplicaInvariant", "replica_of"]


class ReplicaInvariant(Enum):
    """What must hold. The values are its name in reports."""

    COMMITTED_IS_IDENTICAL = "below the high watermark all replicas are identical"
    LEADER_HAS_ALL = "who leads in the newest epoch has all that was committed"
    IN_SYNC_HAVE_ALL = "who is in sync or eligible to lead has all that was committed"
    JOINS_WITH_ALL = "who joins those in sync has all that was committed, or was there when its leader began"
    HIGH_WATERMARK_RISES = "the high watermark of a leader does not fall"
    NEWEST_LIVES = "what a leader knows of a follower is of the newest life that it has heard of"
    ENOUGH_HAVE_IT = "what is acknowledged lies on as many replicas as must be in sync"
    CAUGHT_UP = "once healed, all replicas hold the same, byte by byte"
    PRODUCERS = "a replica knows of producers what its log says"


@dataclass(slots=True)
class _Committed:
    """What was below a high watermark of some replica: the header of each batch by its first offset."""

    end_offset: int = 0
    batches: dict[int, SeenBatch] = field(default_factory=dict)

    def is_all_in(self, log: ReplicaLog) -> bool:
        """Whether a log has it, up to the last batch: what is before that one follows from it."""
        last = log.find(self.end_offset - 1)
        return not self.end_offset or (last is not None and last.header == self.batches[last.base_offset].header)


class ReplicaChecker:
    """See the module.

    - `promised`: the partitions that are looked at, with how many replicas of each must be in sync.
    - `newest`: what the newest metadata says of a partition.
    - `lost`: the hosts that have lost power, and are not back in sync.
    - `absent`: those of them that have not even registered again, so that nobody can know of the loss.
    - `break_`: told of what does not hold.
    """

    def __init__(
        self,
        brokers: Sequence[SimulatedNode],
        promised: Mapping[TopicPartition, int],
        newest: Callable[[TopicPartition], PartitionImage | None],
        lost: Callable[[], set[str]],
        absent: Callable[[], set[str]],
        break_: Callable[[Enum, str], NoReturn],
    ) -> None:
        self._brokers = brokers
        self._by_id = {each.settings.node_id: each for each in brokers}
        self._promised = promised
        self._newest = newest
        self._lost = lost
        self._absent = absent
        self._tell_broken = break_
        self._logs: dict[tuple[int, TopicPartition], ReplicaLog] = {}
        self._committed: dict[TopicPartition, _Committed] = {}
        self._suspected: set[tuple[int, TopicPartition, int]] = set()
        self._lives: dict[tuple[int, TopicPartition, int], tuple[object, int]] = {}
        self._high_watermarks: dict[tuple[int, TopicPartition], tuple[object, int]] = {}

    def _break(self, invariant: ReplicaInvariant, name: TopicPartition, text: str) -> NoReturn:
        self._tell_broken(invariant, f"{name}: {text}")

    @property
    def names(self) -> Collection[TopicPartition]:
        """The partitions that are looked at."""
        return self._promised.keys()

    def log_of(self, node_id: int, name: TopicPartition) -> ReplicaLog:
        key = node_id, name
        found = self._logs.get(key)
        if found is None:
            disk = self._by_id[node_id].host.disk
            found = self._logs[key] = ReplicaLog(disk, f"{DATA_DIRECTORY}/{name.topic}-{name.partition}")
        return found

    # During the run

    def look(self) -> None:
        """At all replicas whose nodes run."""
        suspected, self._suspected = self._suspected, set()
        for name in self._promised:
            self._look_at_replicas(name)
            self._look_at_isr(name, suspected)

    def _look_at_replicas(self, name: TopicPartition) -> None:
        for member in self._brokers:
            partition = replica_of(member, name)
            if partition is not None and partition.log is not None:
                self._look_at(member.settings.node_id, name, partition)

    def _look_at_isr(self, name: TopicPartition, suspected: set[tuple[int, TopicPartition, int]]) -> None:
        """On the disks of those who are in sync or eligible. A leader may hear of a change before we do, so what is
        wrong must be so twice."""
        image, committed = self._newest(name), self._committed.get(name, _Committed())
        if image is None:
            return
        absent = self._absent()
        for node_id in (*image.isr, *image.eligible_leader_replicas):
            seen = self.log_of(node_id, name)
            seen.refresh()
            if committed.is_all_in(seen) or self._by_id[node_id].host.address in absent:
                continue
            suspicion = node_id, name, image.partition_epoch
            if suspicion in suspected:
                self._break(
                    ReplicaInvariant.IN_SYNC_HAVE_ALL,
                    name,
                    f"of those in sync, {image.isr}, or eligible, {image.eligible_leader_replicas}, node {node_id} has "
                    f"a log that ends at {seen.end_offset}; committed was everything below {committed.end_offset}",
                )
            self._suspected.add(suspicion)

    def changed(self, name: TopicPartition, was: PartitionImage, now: PartitionImage) -> None:
        """The newest metadata says something else of a partition than before. Called at that moment: who joins those in
        sync without having everything may have fetched it a moment later."""
        if not set(now.isr) - set(was.isr):
            return
        self._look_at_replicas(name)
        committed, absent = self._committed.get(name, _Committed()), self._absent()
        start_offset = 0
        if now.leader_epoch == was.leader_epoch and now.leader in self._by_id:
            leaders = self.log_of(now.leader, name)
            leaders.refresh()
            start_offset = leaders.start_of_epoch(now.leader_epoch)
        for node_id in sorted(set(now.isr) - set(was.isr)):
            seen = self.log_of(node_id, name)
            seen.refresh()
            has_all = committed.is_all_in(seen) and seen.end_offset >= start_offset
            if not has_all and self._by_id[node_id].host.address not in absent:
                self._break(
                    ReplicaInvariant.JOINS_WITH_ALL,
                    name,
                    f"node {node_id} joined those in sync, {now.isr}, with a log that ends at {seen.end_offset}; "
                    f"committed was everything below {committed.end_offset}, and the log of its leader, node "
                    f"{now.leader}, ended at {start_offset} when its epoch began",
                )

    def _look_at(self, node_id: int, name: TopicPartition, partition: Partition) -> None:
        assert partition.log is not None
        seen = self.log_of(node_id, name)
        seen.refresh()
        high_watermark = partition.log.high_watermark
        committed = self._committed.setdefault(name, _Committed())
        while seen.compared < len(seen.batches) and seen.batches[seen.compared].last_offset < high_watermark:
            self._compare(node_id, name, committed, seen.batches[seen.compared])
            seen.compared += 1
        role = partition.role
        if isinstance(role, LeaderState):
            self._look_at_leader(node_id, name, role, high_watermark)

    def _compare(self, node_id: int, name: TopicPartition, committed: _Committed, batch: SeenBatch) -> None:
        known = committed.batches.get(batch.base_offset)
        if known is None and batch.base_offset < committed.end_offset:
            self._break(
                ReplicaInvariant.COMMITTED_IS_IDENTICAL,
                name,
                f"on node {node_id} a batch begins at offset {batch.base_offset}, within one that was committed",
            )
        if known is not None and known.header != batch.header:
            self._break(
                ReplicaInvariant.COMMITTED_IS_IDENTICAL,
                name,
                f"at offset {batch.base_offset} node {node_id} has the batch {batch}; committed was {known}",
            )
        committed.batches[batch.base_offset] = batch
        committed.end_offset = max(committed.end_offset, batch.last_offset + 1)

    def _look_at_leader(self, node_id: int, name: TopicPartition, role: LeaderState, high_watermark: int) -> None:
        key = node_id, name
        before_role, before = self._high_watermarks.get(key, (role, -1))
        if before_role is role and high_watermark < before:
            self._break(
                ReplicaInvariant.HIGH_WATERMARK_RISES,
                name,
                f"on its leader, node {node_id}, it fell from {before} to {high_watermark} in epoch "
                f"{role.leader_epoch}",
            )
        self._high_watermarks[key] = role, high_watermark
        for follower in role.followers.values():
            self._look_at_follower(node_id, name, role, follower)
        newest, end_offset = self._newest(name), self._committed[name].end_offset
        if newest is None or newest.leader != node_id or newest.leader_epoch != role.leader_epoch:
            return  # others may lead by now, and have committed more
        if role.log.log_end_offset < end_offset:
            self._break(
                ReplicaInvariant.LEADER_HAS_ALL,
                name,
                f"node {node_id} leads in epoch {role.leader_epoch} and its log ends at {role.log.log_end_offset}; "
                f"committed was everything below {end_offset}",
            )

    def _look_at_follower(self, node_id: int, name: TopicPartition, role: LeaderState, follower: RemoteReplica) -> None:
        key, broker_epoch = (node_id, name, follower.broker_id), follower.broker_epoch
        before_role, before = self._lives.get(key, (role, -1))
        if broker_epoch is None:
            return
        if before_role is role and broker_epoch < before:
            self._break(
                ReplicaInvariant.NEWEST_LIVES,
                name,
                f"its leader, node {node_id}, has heard of node {follower.broker_id} in broker epoch {before}, and "
                f"then went by what that asked in {broker_epoch}",
            )
        self._lives[key] = role, broker_epoch

    def acknowledged(self, name: TopicPartition, offset: int) -> None:
        """A client was told that its record lies there."""
        image, wanted = self._newest(name), self._promised.get(name)
        if image is None or wanted is None:
            return
        lost, found = self._lost(), Counter[bytes]()
        absent = 0
        for node_id in image.replicas:
            if self._by_id[node_id].host.address in lost:
                absent += 1
                continue
            seen = self.log_of(node_id, name)
            seen.refresh()
            batch = seen.find(offset)
            if batch is not None:
                found[batch.header] += 1
        if max(found.values(), default=0) + absent < wanted:
            self._break(
                ReplicaInvariant.ENOUGH_HAVE_IT,
                name,
                f"offset {offset} was acknowledged, but only {max(found.values(), default=0)} of the replicas "
                f"{image.replicas} have it, {wanted} must be in sync",
            )

    # At the end

    def lagging(self) -> str:
        """What keeps the replicas from being equal; empty if nothing does."""
        for name in self._promised:
            image = self._newest(name)
            if image is None:
                continue
            ends = {}
            for node_id in image.replicas:
                partition = replica_of(self._by_id[node_id], name)
                if partition is None or partition.log is None:
                    return f"node {node_id} has no usable log of {name}"
                ends[node_id] = partition.log.log_end_offset, partition.log.high_watermark
            if len({offset for pair in ends.values() for offset in pair}) > 1:
                return f"the replicas of {name} have these log end offsets and high watermarks: {ends}"
        return ""

    def ends(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where logs end, by what lies on the disks of their leaders."""
        found = {}
        for name in names:
            image = self._newest(name)
            if image is not None and image.leader in self._by_id:
                seen = self.log_of(image.leader, name)
                seen.refresh()
                found[name] = seen.end_offset
        return found

    def values(self, name: TopicPartition) -> list[bytes]:
        """Of all records of a partition, which has caught up."""
        return [bytes(record.value or b"") for entry in iter_entries(self.data(name)) for record in entry.records()]

    def data(self, name: TopicPartition) -> bytes:
        """The batches of a partition, which has caught up."""
        image = self._newest(name)
        assert image is not None
        return self.log_of(image.replicas[0], name).data()

    def compare_bytes(self) -> None:
        """All replicas of each partition, which have caught up."""
        for name in self._promised:
            image = self._newest(name)
            found: dict[int, bytes] = {}
            for node_id in () if image is None else image.replicas:
                seen = self.log_of(node_id, name)
                seen.refresh()
                found[node_id] = seen.data()
            if len(set(found.values())) > 1:
                sizes = {node_id: len(data) for node_id, data in found.items()}
                self._break(ReplicaInvariant.CAUGHT_UP, name, f"bytes differ; so many has each node: {sizes}")


def replica_of(member: SimulatedNode, name: TopicPartition) -> Partition | None:
    """The partition as a running node knows it."""
    if member.node is None or not member.host.is_running:
        return None
    try:
        return member.node.services.replica_manager.get(name)
    except (BarnabasError, AttributeError):
        return None  # it has only begun to start
