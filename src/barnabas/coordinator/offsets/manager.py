"""How far groups have read, as replayed from the log; what transactions hold back waits for their markers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.coordinator.timeline import SnapshotRegistry, TimelineDict
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.wire.stored.consumer_offsets import OffsetCommitValue

NO_OFFSET: Final = -1
NO_EXPIRY_MS: Final = -1


class CommittedOffset(NamedTuple):
    """One offset as a group left it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    #: Set only by clients so old that they chose a retention time themselves.
    expire_timestamp_ms: int = NO_EXPIRY_MS
    topic_id: Uuid = Uuid.ZERO
    #: Where its record lies: of a plain commit and one in a transaction, the later record counts.
    record_offset: int = -1


Offsets: TypeAlias = Mapping[TopicPartition, CommittedOffset]
_GroupOffsets: TypeAlias = TimelineDict[TopicPartition, CommittedOffset]
_Groups: TypeAlias = TimelineDict[str, _GroupOffsets]


class OffsetMetadataManager:
    """The offsets of all groups of a shard. They change by replay, and by nothing else."""

    def __init__(self, snapshots: SnapshotRegistry) -> None:
        self._snapshots = snapshots
        self._groups: _Groups = TimelineDict(snapshots)
        #: What open transactions hold, by group, partition and producer. As far as the log goes: nobody asks what of it
        #: is committed, so it needs no timelines.
        self._pending: dict[str, dict[TopicPartition, dict[int, CommittedOffset]]] = {}
        #: The same by producer, in the order of the records.
        self._open_transactions: dict[int, dict[tuple[str, TopicPartition], None]] = {}

    # Reading

    def committed(self, group_id: str) -> Offsets:
        """What is safe in the log."""
        offsets = self._groups.committed.get(group_id)
        return {} if offsets is None else offsets.committed

    def latest(self, group_id: str) -> Offsets:
        """What will be safe once all that is in the log is."""
        offsets = self._groups.get(group_id)
        return {} if offsets is None else offsets.latest()

    def has_transaction(self, group_id: str, partition: TopicPartition | None = None) -> bool:
        """Whether a transaction that has not ended holds offsets of the group, or of one partition of it."""
        pending = self._pending.get(group_id)
        return pending is not None and (partition is None or partition in pending)

    def pending(self, group_id: str) -> frozenset[TopicPartition]:
        """The partitions of which transactions hold offsets now, whatever becomes of them later."""
        return frozenset(self._pending.get(group_id, ()))

    def known_partitions(self, group_id: str) -> list[TopicPartition]:
        """All that a deletion of the group must delete, in order, each once."""
        found = dict.fromkeys(self.latest(group_id))
        found.update(dict.fromkeys(self._pending.get(group_id, ())))
        return list(found)

    def groups_with(self, topic: str) -> Iterator[tuple[str, list[TopicPartition]]]:
        """The groups that have offsets of a topic, and for which partitions."""
        for group_id in dict.fromkeys((*self._groups.latest(), *self._pending)):
            partitions = [each for each in self.known_partitions(group_id) if each.topic == topic]
            if partitions:
                yield group_id, partitions

    # Replay

    def replay(
        self,
        group_id: str,
        partition: TopicPartition,
        stored: OffsetCommitValue | None,
        record_offset: int,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Take in one record of the log."""
        if stored is None:
            self._forget(group_id, partition)
            return
        value = CommittedOffset(
            stored.offset,
            stored.leader_epoch,
            stored.metadata,
            stored.commit_timestamp,
            stored.expire_timestamp,
            stored.topic_id,
            record_offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._offsets_of(group_id).set(partition, value)
        else:
            self._pending.setdefault(group_id, {}).setdefault(partition, {})[producer_id] = value
            self._open_transactions.setdefault(producer_id, {})[group_id, partition] = None

    def _offsets_of(self, group_id: str) -> _GroupOffsets:
        offsets = self._groups.get(group_id)
        if offsets is None:
            offsets = TimelineDict(self._snapshots)
            self._groups.set(group_id, offsets)
        return offsets

    def _forget(self, group_id: str, partition: TopicPartition) -> None:
        offsets = self._groups.get(group_id)
        if offsets is not None and offsets.delete(partition) is not None and not offsets:
            self._groups.delete(group_id)
        for producer_id in list(self._pending.get(group_id, {}).get(partition, ())):
            self._take_pending(group_id, partition, producer_id)
            held = self._open_transactions[producer_id]
            del held[group_id, partition]
            if not held:
                del self._open_transactions[producer_id]

    def _take_pending(self, group_id: str, partition: TopicPartition, producer_id: int) -> CommittedOffset:
        partitions = self._pending[group_id]
        producers = partitions[partition]
        value = producers.pop(producer_id)
        if not producers:
            del partitions[partition]
        if not partitions:
            del self._pending[group_id]
        return value

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Take in the marker with which a transaction ends."""
        for group_id, partition in self._open_transactions.pop(producer_id, ()):
            value = self._take_pending(group_id, partition, producer_id)
            if committed:
                current = self._offsets_of(group_id)
                known = current.get(partition)
                # Compaction may have kept a plain commit that came after this one: the later record counts.
                if known is None or known.record_offset < value.record_offset:
                    current.set(partition, value)
