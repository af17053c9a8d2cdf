"""The states of a transaction and how it moves between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class TransactionState(Enum):
    """Where a transaction stands; the values are the names that clients see."""

    #: A producer has its id, and no transaction yet.
    EMPTY = "Empty"
    #: There are partitions in it.
    ONGOING = "Ongoing"
    #: Decided, and not to be changed any more: markers are on their way to the partitions.
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    #: All partitions have their marker.
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    #: Nobody used the id for long: it is forgotten.
    DEAD = "Dead"
    #: The producer is fenced, and its transaction aborted with the same record; so this is in no log.
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def status(self) -> int:
        """Its number in records."""
        return _STATUS[self]

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def may_expire(self) -> bool:
        """Whether nothing is lost if the id is forgotten."""
        return TransactionState.DEAD in NEXT_STATES[self]


_STATUS: Final[Mapping[TransactionState, int]] = MappingProxyType({each: n for n, each in enumerate(TransactionState)})
_BY_STATUS: Final[Mapping[int, TransactionState]] = MappingProxyType({n: each for each, n in _STATUS.items()})

#: All moves that there are. Out of a prepared transaction only one leads on, so it always completes.
NEXT_STATES: Final[Mapping[TransactionState, frozenset[TransactionState]]] = MappingProxyType(
    {
        TransactionState.EMPTY: frozenset(
            {
                TransactionState.EMPTY,
                TransactionState.ONGOING,
                # Of a transaction without partitions, in version 2: the producer cannot know whether one was added.
                TransactionState.PREPARE_ABORT,
                TransactionState.DEAD,
            }
        ),
        TransactionState.ONGOING: frozenset(
            {
                TransactionState.ONGOING,
                TransactionState.PREPARE_COMMIT,
                TransactionState.PREPARE_ABORT,
                TransactionState.PREPARE_EPOCH_FENCE,
            }
        ),
        TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
        TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
        TransactionState.COMPLETE_COMMIT: frozenset(
            {
                TransactionState.EMPTY,
                TransactionState.ONGOING,
                TransactionState.PREPARE_ABORT,
                TransactionState.DEAD,
            }
        ),
        TransactionState.COMPLETE_ABORT: frozenset(
            {
                TransactionState.EMPTY,
                TransactionState.ONGOING,
                TransactionState.PREPARE_ABORT,
                TransactionState.DEAD,
            }
        ),
        TransactionState.DEAD: frozenset(),
        TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.PREPARE_ABORT}),
    }
)


def state_of(status: int) -> TransactionState | None:
    """The state with this number in records."""
    return _BY_STATUS.get(status)
