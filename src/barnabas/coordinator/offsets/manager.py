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
        self._open_transactions: TimelineDict[int, _Groups] = TimelineDict(snapshots)

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
        for groups in self._open_transactions.latest().values():
            offsets = groups.get(group_id)
            if offsets is not None and (partition is None or partition in offsets):
                return True
        return False

    def known_partitions(self, group_id: str) -> list[TopicPartition]:
        """All that a deletion of the group must delete, in order, each once."""
        found = dict.fromkeys(self.latest(group_id))
        for groups in self._open_transactions.latest().values():
            offsets = groups.get(group_id)
            if offsets is not None:
                found.update(dict.fromkeys(offsets.latest()))
        return list(found)

    def groups_with(self, topic: str) -> Iterator[tuple[str, list[TopicPartition]]]:
        """The groups that have offsets of a topic, and for which partitions."""
        group_ids = dict.fromkeys(self._groups.latest())
        for groups in self._open_transactions.latest().values():
            group_ids.update(dict.fromkeys(groups.latest()))
        for group_id in group_ids:
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
            _forget(self._groups, group_id, partition)
            for groups in list(self._open_transactions.latest().values()):
                _forget(groups, group_id, partition)
            return
        groups = self._groups
        if producer_id != NO_PRODUCER_ID:
            known = self._open_transactions.get(producer_id)
            if known is None:
                known = TimelineDict(self._snapshots)
                self._open_transactions.set(producer_id, known)
            groups = known
        value = CommittedOffset(
            stored.offset,
            stored.leader_epoch,
            stored.metadata,
            stored.commit_timestamp,
            stored.expire_timestamp,
            stored.topic_id,
            record_offset,
        )
        self._offsets_of(groups, group_id).set(partition, value)

    def _offsets_of(self, groups: _Groups, group_id: str) -> _GroupOffsets:
        offsets = groups.get(group_id)
        if offsets is None:
            offsets = TimelineDict(self._snapshots)
            groups.set(group_id, offsets)
        return offsets

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Take in the marker with which a transaction ends."""
        groups = self._open_transactions.delete(producer_id)
        if groups is None or not committed:
            return
        for group_id, offsets in groups.latest().items():
            current = self._offsets_of(self._groups, group_id)
            for partition, value in offsets.latest().items():
                known = current.get(partition)
                # Compaction may have kept a plain commit that came after this one: the later record counts.
                if known is None or known.record_offset < value.record_offset:
                    current.set(partition, value)


def _forget(groups: _Groups, group_id: str, partition: TopicPartition) -> None:
    offsets = groups.get(group_id)
    if offsets is not None and offsets.delete(partition) is not None and not offsets:
        groups.delete(group_id)
