"""In which states the transactions of a producer can be, and what waits for a change of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """As Kafka's `TransactionManager` has them."""

    UNINITIALIZED = "uninitialized"
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "prepared"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in an error that abort_transaction() ends"
    FATAL_ERROR = "in an error that nothing ends"


#: From which states each can be reached. A fatal error can come at any time, and nothing follows it.
SOURCES: Final = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING}),
    State.INITIALIZING: frozenset({State.UNINITIALIZED, State.COMMITTING, State.ABORTING}),
    State.READY: frozenset({State.INITIALIZING, State.COMMITTING, State.ABORTING}),
    State.IN_TRANSACTION: frozenset({State.READY}),
    State.PREPARED: frozenset({State.IN_TRANSACTION}),
    State.COMMITTING: frozenset({State.IN_TRANSACTION}),
    State.ABORTING: frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.IN_TRANSACTION, State.COMMITTING, State.ABORTABLE_ERROR}),
    State.FATAL_ERROR: frozenset(State),
}


class TransactionResult:
    """What becomes of one call. It may be waited for more than once: a call that timed out is made again."""

    __slots__ = ("_on_done", "error", "is_done", "is_told", "operation")

    def __init__(self, operation: str) -> None:
        #: The method of the producer.
        self.operation = operation
        self.is_done = False
        self.error: Exception | None = None
        #: Whether the program has heard of the outcome.
        self.is_told = False
        self._on_done: list[Callable[[], object]] = []

    def when_done(self, callback: Callable[[], object]) -> None:
        if self.is_done:
            callback()
        else:
            self._on_done.append(callback)

    def finish(self, error: Exception | None = None) -> None:
        """Only the first outcome counts."""
        if self.is_done:
            return
        self.is_done = True
        self.error = error
        waiting, self._on_done = self._on_done, []
        for callback in waiting:
            callback()


@dataclass(frozen=True, slots=True)
class TransactionHandle:
    """A flushed transaction that is open, for whoever is to end it: `Admin.end_transaction`. Can be pickled; as JSON
    it is `dataclasses.asdict(handle)`, and `TransactionHandle(**found)` again."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    #: 1, or 2 where every transaction has an epoch of its own (KIP-890).
    version: int
    #: Nothing was written, so that there is nothing to end.
    is_empty: bool = False
