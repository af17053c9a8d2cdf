"""What must be true of a log, checked against what clients saw.

Each workload tells the checker what it sent, what was acknowledged and what it read; values must be unique. `finish`
takes what the partitions hold in the end. Violations are collected, not raised one by one, so that a report shows the
whole damage.

- no acknowledged record is lost, and it stays at the offset that was told;
- an offset holds one record for ever, whoever reads it and whenever;
- nothing is read that was never sent;
- a reader moves forward, without holes between what it is given and what is there;
- of two records that a producer sent one after the other to a partition, waiting in between, the first comes first;
- with idempotence, nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition

__all__ = ["LogChecker", "Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not happen, and did."""

    kind: str
    partition: TopicPartition
    text: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.partition}: {self.text}"


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

    def _violation(self, kind: str, partition: TopicPartition, text: str) -> None:
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
                    "one offset acknowledged twice", partition, f"{offset}: {at.acknowledged[offset]!r} and {value!r}"
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
            kind = "a reader went back" if offset < before else "a reader missed records"
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
            self._violation("a record that nobody sent", partition, f"{value!r} at {offset}")
        if value in at.refused:
            self._violation("a refused record is there", partition, f"{value!r} at {offset}")
        if at.seen.setdefault(offset, value) != value:
            self._violation("an offset changed", partition, f"{offset} held {at.seen[offset]!r}, then {value!r}")

    # At the end

    def finish(self, partition: TopicPartition, values: Sequence[bytes], start_offset: int = 0) -> None:
        """All that a partition holds, from its first offset on."""
        at = self._at(partition)
        for offset, value in enumerate(values, start_offset):
            self._see(partition, at, offset, value)
        end_offset = start_offset + len(values)
        for offset, value in sorted(at.acknowledged.items()):
            if not start_offset <= offset < end_offset:
                self._violation("an acknowledged record is lost", partition, f"{value!r} at {offset}")
        for offset, value in sorted(at.seen.items()):
            if offset >= end_offset and offset not in at.acknowledged:
                self._violation("a record that was read is lost", partition, f"{value!r} at {offset}")
        self._check_order(partition, at, values)

    def _check_order(self, partition: TopicPartition, at: _Partition, values: Sequence[bytes]) -> None:
        # Only what was acknowledged: the bytes of an attempt that was given up may be written later than the next.
        acknowledged = set(at.acknowledged.values())
        last: dict[str, bytes] = {}
        met: set[bytes] = set()
        for value in values:
            if value in met:
                if not self._allow_duplicates:
                    self._violation("a record is there twice", partition, f"{value!r}")
                continue
            met.add(value)
            if value not in acknowledged:
                continue
            producer = at.producers.get(value, "")
            before = last.get(producer)
            if before is not None and at.sent.get(value, 0) < at.sent.get(before, 0):
                self._violation("records are out of order", partition, f"{value!r} comes after {before!r}")
            last[producer] = value

    def check(self) -> None:
        """Raise `AssertionError` with all violations, if there are any."""
        if self.violations:
            raise AssertionError("\n".join(map(str, self.violations)))
