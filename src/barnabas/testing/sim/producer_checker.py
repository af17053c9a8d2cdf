"""What replicas know of producers, held against what lies in their logs.

Every replica must know the newest batch of each producer in its log, whoever wrote it and whatever was cut off since:
if it leads, a batch that comes again is known by that. Of the up to four before it a replica may know fewer, since
snapshots of producers keep only the newest; such batches are *forgotten* there, as they are in Kafka. A producer that
sends one of them again is told that its numbers are wrong, begins a new epoch, and sends again what has no answer. That
is the one way in which a record may be there twice, and only those batches are excused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import NoReturn

from barnabas.base.ids import TopicPartition
from barnabas.metadata.image import PartitionImage
from barnabas.records.batch import BatchView
from barnabas.records.reading import iter_entries
from barnabas.storage.log import PartitionLog
from barnabas.storage.producer_state import WINDOW_BATCHES, RememberedBatch
from barnabas.testing.sim.replica_checker import ReplicaInvariant, replica_of
from barnabas.testing.sim.replica_log import HEADER_BYTES, ReplicaLog, SeenBatch
from barnabas.testing.sim.world import SimulatedNode

__all__ = ["ProducerChecker"]


class ProducerChecker:
    """See the module.

    - `names`: the partitions that are looked at.
    - `log_of`: the log of a replica, by its node, as it lies on the disk.
    - `break_`: told of what does not hold.
    """

    def __init__(
        self,
        brokers: Sequence[SimulatedNode],
        names: Sequence[TopicPartition],
        log_of: Callable[[int, TopicPartition], ReplicaLog],
        break_: Callable[[Enum, str], NoReturn],
    ) -> None:
        self._brokers = brokers
        self._names = names
        self._log_of = log_of
        self._break = break_
        #: The log of each replica that was looked through for batches that it has forgotten.
        self._looked_through: dict[tuple[int, TopicPartition], PartitionLog] = {}
        #: The headers of batches that a producer may have to send again, with the nodes that have forgotten some.
        self._excused: dict[TopicPartition, dict[bytes, set[int]]] = {}
        #: For each producer on each replica the last of its batches, and what is to be remembered by then.
        self._written: dict[tuple[int, TopicPartition, int], tuple[SeenBatch, list[RememberedBatch]]] = {}
        #: Who led in which epoch.
        self._leaders: dict[TopicPartition, dict[int, int]] = {}

    # During the run

    def look(self) -> None:
        """At all replicas whose nodes run. Before a node leads, so that what it has forgotten is noticed."""
        for member in self._brokers:
            self._look_at(member, was_cut=False)

    def cut(self, address: str) -> None:
        """A log of this host was cut, and so are memories."""
        for member in self._brokers:
            if member.host.address == address:
                self._look_at(member, was_cut=True)

    def changed(self, name: TopicPartition, now: PartitionImage) -> None:
        """The newest metadata says this of a partition."""
        self._leaders.setdefault(name, {})[now.leader_epoch] = now.leader

    def _look_at(self, member: SimulatedNode, *, was_cut: bool) -> None:
        for name in self._names:
            partition = replica_of(member, name)
            log = None if partition is None else partition.log
            if log is None:
                continue
            node_id = member.settings.node_id
            seen = self._log_of(node_id, name)
            seen.refresh()
            for producer_id, batches in seen.by_producer.items():
                if batches:
                    self._check(node_id, name, batches, log.producers.remembered(producer_id))
            if was_cut or self._looked_through.get((node_id, name)) is not log:
                self._looked_through[node_id, name] = log
                self._note_forgotten(node_id, name, log, seen)

    def _check(
        self, node_id: int, name: TopicPartition, batches: list[SeenBatch], remembered: Sequence[RememberedBatch]
    ) -> None:
        written = self._written_by(node_id, name, batches)
        if bool(remembered) != bool(written) or list(remembered) != written[len(written) - len(remembered) :]:
            self._break(
                ReplicaInvariant.PRODUCERS,
                f"{name}: node {node_id} remembers {remembered} of producer {batches[-1].producer_id}; its log ends "
                f"with {written}",
            )

    def _written_by(self, node_id: int, name: TopicPartition, batches: list[SeenBatch]) -> list[RememberedBatch]:
        """What is to be remembered of a producer. As long as the last of its batches is there, so are those before."""
        last = batches[-1]
        key = node_id, name, last.producer_id
        known = self._written.get(key)
        if known is not None and known[0] is last:
            return known[1]
        written = [
            RememberedBatch(each.base_sequence, each.last_sequence, each.base_offset, each.last_offset)
            for each in _newest(batches)
        ]
        self._written[key] = last, written
        return written

    def _note_forgotten(self, node_id: int, name: TopicPartition, log: PartitionLog, seen: ReplicaLog) -> None:
        for producer_id, batches in seen.by_producer.items():
            newest = _newest(batches)
            if len(newest) > len(log.producers.remembered(producer_id)):
                # Any of them may be without an answer; where one is refused, all begin anew.
                for batch in newest:
                    self._excused.setdefault(name, {}).setdefault(batch.header, set()).add(node_id)

    # At the end

    def sent_again(self, name: TopicPartition, data: bytes) -> set[bytes]:
        """Values that may be there more than once, by what a log holds in the end."""
        copies: dict[bytes, list[BatchView]] = {}
        for entry in iter_entries(data):
            assert isinstance(entry, BatchView)
            for record in entry.records():
                copies.setdefault(bytes(record.value or b""), []).append(entry)
        return {
            value
            for value, found in copies.items()
            if len(found) > 1 and all(self._is_excused(name, *pair) for pair in pairwise(found))
        }

    def _is_excused(self, name: TopicPartition, first: BatchView, again: BatchView) -> bool:
        """Whether a node that had forgotten the first batch, or one beside it, led before the other was written, so
        that the producer began a new epoch."""
        if first.producer_id != again.producer_id or first.producer_epoch >= again.producer_epoch:
            return False
        forgetful = self._excused.get(name, {}).get(bytes(first.data[:HEADER_BYTES]), set())
        leaders: Mapping[int, int] = self._leaders.get(name, {})
        # An epoch that nobody has seen in an image may have been anybody's.
        epochs = range(first.leader_epoch, again.leader_epoch + 1)
        return bool(forgetful) and any(leaders.get(epoch) in (None, *forgetful) for epoch in epochs)


def _newest(batches: list[SeenBatch]) -> list[SeenBatch]:
    """What a replica that was never started again knows of a producer: the newest of its newest epoch. Markers are no
    batches of its own, but the epoch may be theirs."""
    epoch = batches[-1].producer_epoch if batches else -1
    found: list[SeenBatch] = []
    for batch in reversed(batches):
        if batch.producer_epoch != epoch or len(found) == WINDOW_BATCHES:
            break
        if not batch.is_control:
            found.append(batch)
    return found[::-1]
