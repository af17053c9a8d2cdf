"""What must hold of `__transaction_state` in the end, and between it and the markers in other logs.

The whole history of each transactional id is there, as nothing is compacted. It may only do what the table says; each
transaction that was ended by a marker was decided so, and each decision has its markers. `transaction_watch` looks at
what comes first while it happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.transaction_checker import Break, TransactionInvariant
from barnabas.testing.sim.transaction_history import LoggedMarker, LoggedRecord, PartitionHistory
from barnabas.wire.stored.transaction_state import TransactionKey, TransactionLogKey, TransactionValue

__all__ = ["Decision", "LoggedState", "TransactionLogChecker", "states_of"]


class Status(IntEnum):
    """As in the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def is_prepared(self) -> bool:
        return self in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)

    @property
    def is_open(self) -> bool:
        return self is Status.ONGOING or self.is_prepared


_AT_REST: Final = (None, Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)
#: From which states each may come. None is an id that nobody has heard of, or whose record was deleted.
BEFORE: Final[Mapping[Status, tuple[Status | None, ...]]] = {
    Status.EMPTY: _AT_REST,
    Status.ONGOING: (Status.ONGOING, *_AT_REST[1:]),
    Status.PREPARE_COMMIT: (Status.ONGOING,),
    # Who aborts without having written anything gets another epoch all the same, with transactions v2.
    Status.PREPARE_ABORT: (Status.ONGOING, *_AT_REST[1:]),
    Status.COMPLETE_COMMIT: (Status.PREPARE_COMMIT,),
    Status.COMPLETE_ABORT: (Status.PREPARE_ABORT,),
    Status.DEAD: _AT_REST[1:],
}


class LoggedState(NamedTuple):
    """A record of `__transaction_state`."""

    offset: int
    transactional_id: str
    status: Status | None
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]

    def __str__(self) -> str:
        what = "deleted" if self.status is None else self.status.name
        return f"{self.transactional_id} {what} at {self.offset} ({self.producer_id}, {self.producer_epoch})"


class Decision(NamedTuple):
    """How a transaction of a producer ends in a partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    is_commit: bool

    def __str__(self) -> str:
        what = "commit" if self.is_commit else "abort"
        return f"{what} of producer {self.producer_id} in epoch {self.producer_epoch} in {self.partition}"


def states_of(records: Iterable[LoggedRecord]) -> list[LoggedState]:
    """What records of a partition of `__transaction_state` say."""
    states = []
    for record in records:
        key = TransactionKey.decode_key(record.key or b"")
        if not isinstance(key, TransactionLogKey):
            continue
        if record.value is None:
            states.append(LoggedState(record.offset, key.transactional_id, None, -1, -1, frozenset()))
            continue
        value = TransactionValue.decode_value(key.TYPE, record.value)
        partitions = frozenset(
            TopicPartition(each.topic, number)
            for each in value.transaction_partitions or []
            for number in each.partition_ids
        )
        status = Status(value.transaction_status)
        states.append(
            LoggedState(
                record.offset, key.transactional_id, status, value.producer_id, value.producer_epoch, partitions
            )
        )
    return states


def decisions_of(state: LoggedState) -> list[Decision]:
    """What a record that prepares an end decides."""
    if state.status is None or not state.status.is_prepared:
        return []
    is_commit = state.status is Status.PREPARE_COMMIT
    return [Decision(each, state.producer_id, state.producer_epoch, is_commit) for each in state.partitions]


def decision_of(partition: TopicPartition, marker: LoggedMarker) -> Decision:
    return Decision(partition, marker.producer_id, marker.producer_epoch, marker.is_commit)


@dataclass(slots=True)
class _Identity:
    last: LoggedState | None = None
    epochs: dict[int, int] = field(default_factory=dict)


class TransactionLogChecker:
    """What is committed in `__transaction_state`, and the markers that are committed elsewhere; see the module."""

    def __init__(self, break_: Break) -> None:
        self._break = break_
        self._identities: dict[str, _Identity] = {}
        self._decided: Counter[Decision] = Counter()
        self.state_count = 0

    def state(self, state: LoggedState) -> None:
        """The next of its partition."""
        self.state_count += 1
        identity = self._identities.setdefault(state.transactional_id, _Identity())
        before, identity.last = identity.last, None if state.status is None else state
        if state.status is None:
            return
        if (None if before is None else before.status) not in BEFORE[state.status]:
            self._break(TransactionInvariant.STATES, f"{before or 'nothing'}, then {state}")
        known = identity.epochs.get(state.producer_id, -1)
        if state.producer_epoch < known:
            self._break(TransactionInvariant.STATES, f"the epoch was {known}, then {state}")
        identity.epochs[state.producer_id] = state.producer_epoch
        if before is not None and before.status is Status.ONGOING:
            self._check_partitions(before, state)
        self._decided.update(decisions_of(state))

    def _check_partitions(self, before: LoggedState, state: LoggedState) -> None:
        if before.partitions - state.partitions:
            lost = ", ".join(map(str, sorted(before.partitions - state.partitions)))
            self._break(TransactionInvariant.STATES, f"{before}, then {state} without {lost}")
        if state.status is not Status.ONGOING and before.partitions != state.partitions:
            self._break(TransactionInvariant.STATES, f"{before}, then {state} with other partitions")

    def markers(self, histories: Mapping[TopicPartition, PartitionHistory]) -> None:
        """All of them, once all states are told: each decision has a marker, and no transaction was ended without."""
        found, ended = Counter[Decision](), Counter[Decision]()
        for partition, history in histories.items():
            for marker in history.markers:
                found[decision_of(partition, marker)] += 1
                ended[decision_of(partition, marker)] += marker.has_ended
        for decision in self._decided - found:
            self._break(TransactionInvariant.COMPLETE_LAST, f"there is no marker for the {decision}")
        for decision in ended - self._decided:
            self._break(TransactionInvariant.DECIDED_FIRST, f"nobody has decided the {decision}")

    def open(self) -> str:
        """Whichever transaction is not over; empty if all are."""
        for identity in self._identities.values():
            last = identity.last
            if last is not None and last.status is not None and last.status.is_open:
                return str(last)
        return ""
