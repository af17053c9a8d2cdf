"""How far groups have read: what is committed, what is on its way into the log, what transactions hold back.

Plain readers see only what is committed, so that nobody acts on an offset that may vanish with this leader. Operations
that must know the latest see what is staged as well. A transaction's offsets wait for its marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.wire.stored.consumer_offsets import OffsetCommitValue

NO_OFFSET: Final = -1
NO_EXPIRY_MS: Final = -1


@dataclass(slots=True)
class CommittedOffset:
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

    @classmethod
    def from_value(cls, value: OffsetCommitValue, record_offset: int) -> CommittedOffset:
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            record_offset,
        )


@dataclass(slots=True, eq=False)
class StagedOffset:
    """A change on its way: of what, to what (None deletes), and what was on its way for the same before."""

    group_id: str
    partition: TopicPartition
    value: CommittedOffset | None
    before: StagedOffset | None
    is_committed: bool = False


_GroupOffsets: TypeAlias = dict[TopicPartition, CommittedOffset]


class OffsetStore:
    """The offsets of all groups of a shard."""

    def __init__(self) -> None:
        self._committed: dict[str, _GroupOffsets] = {}
        self._staged: dict[str, dict[TopicPartition, StagedOffset]] = {}
        self._in_transactions: dict[int, dict[str, _GroupOffsets]] = {}

    # Reading

    def committed(self, group_id: str) -> _GroupOffsets:
        """What is safe in the log."""
        return self._committed.get(group_id) or {}

    def latest(self, group_id: str) -> _GroupOffsets:
        """What will be safe once all that is staged is."""
        staged = self._staged.get(group_id)
        if not staged:
            return self.committed(group_id)
        merged = dict(self.committed(group_id))
        for partition, change in staged.items():
            if change.value is None:
                merged.pop(partition, None)
            else:
                merged[partition] = change.value
        return merged

    def has_transaction(self, group_id: str, partition: TopicPartition | None = None) -> bool:
        """Whether a transaction that has not ended holds offsets of the group, or of one partition of it."""
        return any(
            group_id in groups and (partition is None or partition in groups[group_id])
            for groups in self._in_transactions.values()
        )

    def known_partitions(self, group_id: str) -> list[TopicPartition]:
        """All that a deletion of the group must delete, in order, each once."""
        found = dict.fromkeys(self.latest(group_id))
        for groups in self._in_transactions.values():
            found.update(dict.fromkeys(groups.get(group_id, ())))
        return list(found)

    def groups_with(self, topic: str) -> Iterator[tuple[str, list[TopicPartition]]]:
        """The groups that have offsets of a topic, and for which partitions."""
        group_ids = dict.fromkeys([*self._committed, *self._staged])
        for groups in self._in_transactions.values():
            group_ids.update(dict.fromkeys(groups))
        for group_id in group_ids:
            partitions = [each for each in self.known_partitions(group_id) if each.topic == topic]
            if partitions:
                yield group_id, partitions

    def count(self) -> int:
        return sum(map(len, self._committed.values()))

    # Changing

    def stage(self, group_id: str, partition: TopicPartition, value: CommittedOffset | None) -> StagedOffset:
        changes = self._staged.setdefault(group_id, {})
        change = changes[partition] = StagedOffset(group_id, partition, value, changes.get(partition))
        return change

    def commit(self, change: StagedOffset) -> None:
        """Show a staged change to everyone. Changes are committed in the order in which they were staged."""
        change.is_committed = True
        change.before = None
        self._replace(change, None)
        self.replay(change.group_id, change.partition, change.value)

    def unstage(self, change: StagedOffset) -> None:
        """Take a change back that never reached the log: the last one staged goes first."""
        before = change.before
        self._replace(change, None if before is None or before.is_committed else before)

    def _replace(self, change: StagedOffset, instead: StagedOffset | None) -> None:
        changes = self._staged.get(change.group_id)
        if changes is None or changes.get(change.partition) is not change:
            return
        if instead is not None:
            changes[change.partition] = instead
            return
        del changes[change.partition]
        if not changes:
            del self._staged[change.group_id]

    def replay(
        self,
        group_id: str,
        partition: TopicPartition,
        value: CommittedOffset | None,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Take in one record of the log."""
        if value is None:
            self._forget(self._committed, group_id, partition)
            for groups in self._in_transactions.values():
                self._forget(groups, group_id, partition)
        elif producer_id == NO_PRODUCER_ID:
            self._committed.setdefault(group_id, {})[partition] = value
        else:
            self._in_transactions.setdefault(producer_id, {}).setdefault(group_id, {})[partition] = value

    @staticmethod
    def _forget(groups: dict[str, _GroupOffsets], group_id: str, partition: TopicPartition) -> None:
        offsets = groups.get(group_id)
        if offsets is not None and offsets.pop(partition, None) is not None and not offsets:
            del groups[group_id]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Take in the marker with which a transaction ends."""
        for group_id, offsets in self._in_transactions.pop(producer_id, {}).items():
            if not committed:
                continue
            current = self._committed.setdefault(group_id, {})
            for partition, value in offsets.items():
                known = current.get(partition)
                # Compaction may have kept a plain commit that came after this one: the later record counts.
                if known is None or known.record_offset < value.record_offset:
                    current[partition] = value
