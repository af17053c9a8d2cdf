"""What must be true of a log, checked against what clients saw.

Each workload tells the checker what it sent, what was acknowledged and what it read; values must be unique. `finish`
takes what the partitions hold in the end. Violations are collected, not raised one by one, so that a report shows the
whole damage.

- no acknowledged record is lost, and it stays at the offset that was told;
- an offset holds one record for ever, whoever reads it and whenever;
- nothing is read that was never sent;
- a reader moves forward, without holes between what it is given and what is there;
- of two records that a producer sent one after the other to a partition, waiting in between, the first comes first;
- with idempotence, nothing is there twice;
- a group goes on where it has committed: at what was last acknowledged, or at what was tried since then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from barnabas.base.ids import TopicPartition

__all__ = ["Anomaly", "GroupCommits", "LogChecker", "Violation"]


class Anomaly(Enum):
    """What must not happen. The values are for the person who reads of it."""

    ACKNOWLEDGED_TWICE = "one offset acknowledged twice"
    BACKWARDS = "a reader went back"
    HOLE = "a reader missed records"
    FROM_NOBODY = "a record that nobody sent"
    REFUSED = "a refused record is there"
    CHANGED = "an offset changed"
    LOST = "an acknowledged record is lost"
    UNREAD = "a record that was read is lost"
    TWICE = "a record is there twice"
    DISORDER = "records are out of order"
    COMMIT_LOST = "a group is not where it has committed"


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not happen, and did."""

    kind: Anomaly
    partition: TopicPartition
    text: str

    def __str__(self) -> str:
        return f"{self.kind.value} in {self.partition}: {self.text}"


@dataclass(slots=True)
class _Partition:
    """What is known of a partition."""

    sent: dict[bytes, int] = field(default_factory=dict)
    producers: dict[bytes, str] = field(default_factory=dict)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    seen: dict[int, bytes] = field(default_factory=dict)
    readers: dict[str, int] = field(default_factory=dict)


class LogChecker:
    """See the module. `allow_duplicates` is for producers that send again without being idempotent."""

    def __init__(self, *, allow_duplicates: bool = False) -> None:
        self.violations: list[Violation] = []
        self._allow_duplicates = allow_duplicates
        self._partitions: dict[TopicPartition, _Partition] = {}

    @property
    def acknowledged_count(self) -> int:
        return sum(len(each.acknowledged) for each in self._partitions.values())

    def _at(self, partition: TopicPartition) -> _Partition:
        return self._partitions.setdefault(partition, _Partition())

    def _violation(self, kind: Anomaly, partition: TopicPartition, text: str) -> None:
        self.violations.append(Violation(kind, partition, text))

    # What clients tell

    def sent(self, partition: TopicPartition, values: Iterable[bytes], producer: str = "") -> None:
        """A producer is about to send these, in this order. Sending a value again does not change its place."""
        at = self._at(partition)
        for value in values:
            at.sent.setdefault(value, len(at.sent))
            at.producers.setdefault(value, producer)

    def acknowledged(self, partition: TopicPartition, base_offset: int, values: Sequence[bytes]) -> None:
        """The node says that these lie at `base_offset` and on."""
        at = self._at(partition)
        for offset, value in enumerate(values, base_offset):
            if at.acknowledged.setdefault(offset, value) != value:
                self._violation(
                    Anomaly.ACKNOWLEDGED_TWICE, partition, f"{offset}: {at.acknowledged[offset]!r} and {value!r}"
                )
            self._see(partition, at, offset, value)

    def refused(self, partition: TopicPartition, values: Iterable[bytes]) -> None:
        """The node says that it did not write these, for good."""
        self._at(partition).refused.update(values)

    def read(self, partition: TopicPartition, offset: int, values: Sequence[bytes], reader: str) -> None:
        """A reader that goes from offset to offset was given these from `offset` on."""
        at = self._at(partition)
        before = at.readers.get(reader)
        if before is not None and offset != before:
            kind = Anomaly.BACKWARDS if offset < before else Anomaly.HOLE
            self._violation(kind, partition, f"{reader} was at {before}, was given {offset}")
        for each, value in enumerate(values, offset):
            self._see(partition, at, each, value)
        at.readers[reader] = offset + len(values)

    def seek(self, partition: TopicPartition, reader: str, offset: int | None = None) -> None:
        """A reader starts anew, somewhere or at a certain offset."""
        at = self._at(partition)
        if offset is None:
            at.readers.pop(reader, None)
        else:
            at.readers[reader] = offset

    def _see(self, partition: TopicPartition, at: _Partition, offset: int, value: bytes) -> None:
        if value not in at.sent:
            self._violation(Anomaly.FROM_NOBODY, partition, f"{value!r} at {offset}")
        if value in at.refused:
            self._violation(Anomaly.REFUSED, partition, f"{value!r} at {offset}")
        if at.seen.setdefault(offset, value) != value:
            self._violation(Anomaly.CHANGED, partition, f"{offset} held {at.seen[offset]!r}, then {value!r}")

    # At the end

    def finish(
        self,
        partition: TopicPartition,
        values: Sequence[bytes],
        start_offset: int = 0,
        *,
        may_be_twice: Collection[bytes] = (),
    ) -> None:
        """All that a partition holds, from its first offset on."""
        at = self._at(partition)
        for offset, value in enumerate(values, start_offset):
            self._see(partition, at, offset, value)
        end_offset = start_offset + len(values)
        for offset, value in sorted(at.acknowledged.items()):
            if not start_offset <= offset < end_offset:
                self._violation(Anomaly.LOST, partition, f"{value!r} at {offset}")
        for offset, value in sorted(at.seen.items()):
            if offset >= end_offset and offset not in at.acknowledged:
                self._violation(Anomaly.UNREAD, partition, f"{value!r} at {offset}")
        self._check_order(partition, at, values, may_be_twice)

    def _check_order(
        self, partition: TopicPartition, at: _Partition, values: Sequence[bytes], may_be_twice: Collection[bytes]
    ) -> None:
        # Only what was acknowledged: the bytes of an attempt that was given up may be written later than the next.
        acknowledged = set(at.acknowledged.values())
        last: dict[str, bytes] = {}
        met: set[bytes] = set()
        for value in values:
            if value in met:
                if not self._allow_duplicates and value not in may_be_twice:
                    self._violation(Anomaly.TWICE, partition, f"{value!r}")
                continue
            met.add(value)
            if value not in acknowledged:
                continue
            producer = at.producers.get(value, "")
            before = last.get(producer)
            if before is not None and at.sent.get(value, 0) < at.sent.get(before, 0):
                self._violation(Anomaly.DISORDER, partition, f"{value!r} comes after {before!r}")
            last[producer] = value

    def check(self) -> None:
        """Raise `AssertionError` with all violations, if there are any."""
        if self.violations:
            raise AssertionError("\n".join(map(str, self.violations)))


@dataclass(slots=True)
class _Commits:
    """What a group has committed in a partition. `owner` is who reads it since the last rebalance."""

    acknowledged: int = 0
    #: Tried without an answer, so that each may come into force later, until another owner has been seen to begin.
    uncertain: set[int] = field(default_factory=set)
    owner: object = None
    has_begun: bool = False


class GroupCommits:
    """What the members of one group commit and where they go on. Violations go to `checker`.

    A coordinator takes commits of the present owner of a partition only. So whoever is seen to begin at an offset after
    a rebalance has settled what became of all that was tried before.
    """

    def __init__(self, checker: LogChecker) -> None:
        self._checker = checker
        self._partitions: dict[TopicPartition, _Commits] = {}
        self.acknowledged_count = 0

    def _at(self, partition: TopicPartition) -> _Commits:
        return self._partitions.setdefault(partition, _Commits())

    def assigned(self, partition: TopicPartition, owner: object) -> None:
        """A rebalance gave the partition to a member, which knows no position in it."""
        at = self._at(partition)
        at.owner, at.has_begun = owner, False

    def began(self, partition: TopicPartition, owner: object, offset: int) -> None:
        """The first that a member was given after the assignment. Others who still think it theirs do not count."""
        at = self._at(partition)
        if at.owner is not owner or at.has_begun:
            return
        at.has_begun = True
        self.found(partition, offset)
        at.acknowledged, at.uncertain = offset, set()

    def found(self, partition: TopicPartition, offset: int) -> None:
        """Where the group is, by what it was told."""
        at = self._at(partition)
        if offset != at.acknowledged and offset not in at.uncertain:
            tried = f", tried since then {sorted(at.uncertain)}" if at.uncertain else ""
            text = f"the group is at {offset}; committed was {at.acknowledged}{tried}"
            self._checker.violations.append(Violation(Anomaly.COMMIT_LOST, partition, text))

    def trying(self, partition: TopicPartition, offset: int) -> None:
        self._at(partition).uncertain.add(offset)

    def committed(self, partition: TopicPartition, owner: object, offset: int) -> None:
        """It was acknowledged. What somebody is told who is not the owner any more was settled before."""
        self.acknowledged_count += 1
        at = self._at(partition)
        if at.owner is owner:
            at.acknowledged = offset
            at.uncertain.discard(offset)
