"""What must hold of transactions that read, compute and write, checked against what programs did and were told.

Workers read an input, write what follows from each record to an output, and have the group's offsets committed in the
same transaction. Each transaction has a *tag*, which is in all that it writes, also in the metadata of its offsets; so
the logs tell what became of it, wherever it wrote:

- it is committed or aborted as a whole, over all partitions and the group's offsets, and as its program was told;
- each record of the input has its effect exactly once in what is committed;
- a transaction has the effects of just those records that its offsets say, from where the one before has ended;
- what is committed of a key comes in the order of the input;
- who reads committed data sees just what is committed, and who reads everything sees that, each record in its place;
- in the end nothing is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NoReturn

from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.transaction_history import LoggedRecord, Outcome, PartitionHistory
from barnabas.wire.stored.consumer_offsets import GroupKey, GroupValue, OffsetCommitKey

__all__ = ["Effect", "Readers", "TransactionBook", "TransactionInvariant", "offset_commits"]


class TransactionInvariant(Enum):
    """What must hold. The values are its name in reports."""

    WHOLE = "a transaction is committed or aborted as a whole"
    AS_TOLD = "a transaction has ended as its producer was told"
    EXACTLY_ONCE = "each record of the input has its effect exactly once"
    AGREES = "what a group has committed agrees with the output"
    ORDER = "what is committed of a key comes in the order of the input"
    ONLY_COMMITTED = "who reads committed data sees just that"
    EVERYTHING = "who reads everything sees every record in its place"
    NOTHING_HANGS = "no transaction hangs"
    STATES = "a transactional id goes only from state to state as the table says"
    DECIDED_FIRST = "a marker is written once its outcome is decided for good"
    COMPLETE_LAST = "a transaction is complete once all its markers are written for good"
    LAST_STABLE = "the last stable offset is where the first undecided transaction begins"


Break = Callable[[Enum, str], NoReturn]


class Effect(NamedTuple):
    """What a worker writes for one record of the input: `copy` numbers what follows from the same one."""

    tag: str
    source: TopicPartition
    offset: int
    copy: int

    def encode(self) -> bytes:
        return f"{self.tag}|{self.source.topic}|{self.source.partition}|{self.offset}|{self.copy}".encode()

    @classmethod
    def decode(cls, value: bytes | None) -> Effect:
        tag, topic, partition, offset, copy = (value or b"").decode().split("|")
        return cls(tag, TopicPartition(topic, int(partition)), int(offset), int(copy))

    @property
    def origin(self) -> tuple[TopicPartition, int, int]:
        return self.source, self.offset, self.copy


class OffsetCommit(NamedTuple):
    """What a record of `__consumer_offsets` commits, with the tag of its transaction."""

    tag: str
    partition: TopicPartition
    offset: int


def offset_commits(history: PartitionHistory, group: str) -> list[tuple[LoggedRecord, OffsetCommit]]:
    """The offsets of a group that were committed in transactions, in the order in which they came into force, which is
    that of markers."""
    found = []
    for record in history.records:
        key = GroupKey.decode_key(record.key or b"")
        if record.outcome is Outcome.PLAIN or not isinstance(key, OffsetCommitKey) or key.group != group:
            continue
        value = GroupValue.decode_value(key.TYPE, record.value or b"")
        partition = TopicPartition(key.topic, key.partition)
        found.append((record, OffsetCommit(value.metadata, partition, value.offset)))
    return sorted(found, key=lambda each: (each[0].ended_at is None, each[0].ended_at or 0, each[0].offset))


@dataclass(slots=True)
class _Transaction:
    """What a program did, and what it was told: None if it does not know."""

    effects: list[tuple[TopicPartition, Effect]] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    told: bool | None = None


class TransactionBook:
    """See the module. `expected` says what must follow from a record of the input: copies with their partitions."""

    def __init__(
        self,
        break_: Break,
        expected: Callable[[TopicPartition, int], Sequence[TopicPartition]],
    ) -> None:
        self._break = break_
        self._expected = expected
        self._transactions: dict[str, _Transaction] = {}

    # What programs tell

    def begun(self, tag: str) -> None:
        self._transactions[tag] = _Transaction()

    def wrote(self, partition: TopicPartition, effect: Effect) -> None:
        """It is about to."""
        self._transactions[effect.tag].effects.append((partition, effect))

    def sent_offsets(self, tag: str, offsets: Mapping[TopicPartition, int]) -> None:
        """It is about to."""
        self._transactions[tag].offsets.update(offsets)

    def told(self, tag: str, *, is_committed: bool) -> None:
        """Its producer was told how it has ended."""
        self._transactions[tag].told = is_committed

    def told_count(self, *, is_committed: bool) -> int:
        return sum(each.told is is_committed for each in self._transactions.values())

    # At the end

    def check(
        self,
        inputs: Mapping[TopicPartition, PartitionHistory],
        outputs: Mapping[TopicPartition, PartitionHistory],
        commits: Sequence[tuple[LoggedRecord, OffsetCommit]],
    ) -> None:
        """Against all that the logs hold."""
        effects = [
            (partition, record, Effect.decode(record.value))
            for partition, history in outputs.items()
            for record in history.records
        ]
        self._check_outcomes(effects, commits)
        committed = [(partition, effect) for partition, record, effect in effects if record.outcome.is_visible]
        self._check_agreement(inputs, committed, [commit for record, commit in commits if record.outcome.is_visible])
        self._check_once(inputs, committed)
        self._check_order(outputs)

    def _check_outcomes(
        self,
        effects: Sequence[tuple[TopicPartition, LoggedRecord, Effect]],
        commits: Sequence[tuple[LoggedRecord, OffsetCommit]],
    ) -> None:
        outcomes: dict[str, dict[Outcome, str]] = {}
        for partition, record, effect in effects:
            outcomes.setdefault(effect.tag, {})[record.outcome] = f"{record.offset} of {partition}"
        for record, commit in commits:
            outcomes.setdefault(commit.tag, {})[record.outcome] = f"{record.offset}, the group's offsets"
        written: dict[str, Counter[object]] = {}
        for partition, _, effect in effects:
            written.setdefault(effect.tag, Counter())[partition, effect] += 1
        for _, commit in commits:
            # A request that was made again writes again; it says the same.
            written.setdefault(commit.tag, Counter())[commit.partition, commit.offset] = 1
        for tag, found in outcomes.items():
            if Outcome.OPEN in found:
                self._break(TransactionInvariant.NOTHING_HANGS, f"{tag} is open at {found[Outcome.OPEN]}")
            if len(found) > 1:
                where = "; ".join(f"{outcome.value} at {place}" for outcome, place in found.items())
                self._break(TransactionInvariant.WHOLE, f"{tag} is {where}")
        for tag, transaction in self._transactions.items():
            self._check_transaction(tag, transaction, outcomes.get(tag, {}), written.get(tag, Counter()))

    def _check_transaction(
        self, tag: str, transaction: _Transaction, found: Mapping[Outcome, str], written: Counter[object]
    ) -> None:
        is_committed = Outcome.COMMITTED in found
        wanted = Counter[object]([*transaction.effects, *transaction.offsets.items()])
        if transaction.told is False and is_committed:
            place = found[Outcome.COMMITTED]
            self._break(TransactionInvariant.AS_TOLD, f"{tag} was said to be aborted, and is committed at {place}")
        if transaction.told and wanted and not is_committed:
            what = "aborted" if found else "nowhere"
            self._break(TransactionInvariant.AS_TOLD, f"{tag} was said to be committed, and is {what}")
        if is_committed and written != wanted:
            text = f"{tag} is committed; missing {dict(wanted - written)}, too many {dict(written - wanted)}"
            self._break(TransactionInvariant.WHOLE, text)

    def _check_agreement(
        self,
        inputs: Mapping[TopicPartition, PartitionHistory],
        committed: Iterable[tuple[TopicPartition, Effect]],
        commits: Iterable[OffsetCommit],
    ) -> None:
        done: dict[tuple[str, TopicPartition], set[int]] = {}
        for _, effect in committed:
            done.setdefault((effect.tag, effect.source), set()).add(effect.offset)
        positions = dict.fromkeys(inputs, 0)
        visible = {
            name: [each.offset for each in history.seen_by(read_committed=True)] for name, history in inputs.items()
        }
        for tag, partition, end_offset in dict.fromkeys(commits):
            start_offset, positions[partition] = positions[partition], end_offset
            wanted = {each for each in visible[partition] if start_offset <= each < end_offset}
            found = done.get((tag, partition), set())
            if found != wanted:
                self._break(
                    TransactionInvariant.AGREES,
                    f"{tag} took the group from {start_offset} to {end_offset} in {partition}; of these it has not "
                    f"written what follows from {sorted(wanted - found)}, and besides what follows from "
                    f"{sorted(found - wanted)}",
                )

    def _check_once(
        self,
        inputs: Mapping[TopicPartition, PartitionHistory],
        committed: Iterable[tuple[TopicPartition, Effect]],
    ) -> None:
        found: Counter[tuple[TopicPartition, Effect]] = Counter()
        tags: dict[object, list[str]] = {}
        for partition, effect in committed:
            anonymous = effect._replace(tag="")
            found[partition, anonymous] += 1
            tags.setdefault(anonymous, []).append(effect.tag)
        wanted: Counter[tuple[TopicPartition, Effect]] = Counter()
        for source, history in inputs.items():
            for record in history.seen_by(read_committed=True):
                for copy, partition in enumerate(self._expected(source, record.offset)):
                    wanted[partition, Effect("", source, record.offset, copy)] += 1
        for partition, effect in found - wanted:
            self._break(
                TransactionInvariant.EXACTLY_ONCE,
                f"what follows from {effect.offset} of {effect.source} is {found[partition, effect]} times in "
                f"{partition}, by {', '.join(tags[effect])}",
            )
        for partition, effect in wanted - found:
            text = f"what follows from {effect.offset} of {effect.source} is not in {partition}"
            self._break(TransactionInvariant.EXACTLY_ONCE, text)

    def _check_order(self, outputs: Mapping[TopicPartition, PartitionHistory]) -> None:
        for partition, history in outputs.items():
            last: dict[object, Effect] = {}
            for record in history.seen_by(read_committed=True):
                effect = Effect.decode(record.value)
                before = last.get((record.key, effect.source))
                if before is not None and effect.offset < before.offset:
                    self._break(
                        TransactionInvariant.ORDER,
                        f"{partition}, at {record.offset}: {effect} comes after {before}",
                    )
                last[record.key, effect.source] = effect


@dataclass(slots=True)
class _Reading:
    """What one life of a reader was given of a partition."""

    partition: TopicPartition
    is_read_committed: bool
    seen: list[tuple[int, bytes]] = field(default_factory=list)


class Readers:
    """What readers who begin at the beginning were given, held against what the logs have in the end."""

    def __init__(self, break_: Break) -> None:
        self._break = break_
        self._readings: dict[tuple[str, TopicPartition], _Reading] = {}

    def read(self, who: str, partition: TopicPartition, offset: int, value: bytes, *, is_read_committed: bool) -> None:
        reading = self._readings.setdefault((who, partition), _Reading(partition, is_read_committed))
        reading.seen.append((offset, value))

    def last_offset(self, who: str, partition: TopicPartition) -> int:
        """Of what it was given; -1 if that is nothing."""
        reading = self._readings.get((who, partition))
        return -1 if reading is None or not reading.seen else reading.seen[-1][0]

    @property
    def record_count(self) -> int:
        return sum(len(each.seen) for each in self._readings.values())

    def check(self, histories: Mapping[TopicPartition, PartitionHistory]) -> None:
        for (who, partition), reading in self._readings.items():
            visible = histories[partition].seen_by(read_committed=reading.is_read_committed)
            wanted = [(each.offset, each.value or b"") for each in visible][: len(reading.seen)]
            if reading.seen == wanted:
                continue
            pairs = zip(reading.seen, [*wanted, (-1, b"")], strict=False)
            given, there = next((one, other) for one, other in pairs if one != other)
            outcomes = {each.offset: each.outcome.value for each in histories[partition].records}
            invariant = (
                TransactionInvariant.ONLY_COMMITTED if reading.is_read_committed else TransactionInvariant.EVERYTHING
            )
            text = f"{partition}: {who} was given {given[1]!r} at {given[0]}"
            fate = outcomes.get(given[0], "not there")
            self._break(invariant, f"{text}, which is {fate}; the next to be seen is {there[1]!r} at {there[0]}")
