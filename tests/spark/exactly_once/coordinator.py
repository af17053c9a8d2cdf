"""Transactions as a coordinator keeps them, in so far as the protocol of Spark's sink can see: ids, epochs, time-outs,
what is committed, and the offsets that are committed with it.

With `is_v2` every transaction has an epoch of its own (KIP-890). To begin in an id, or to run out of time, aborts what
is open in it and fences who has it, in both versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from barnabas.client.core.producing.transaction_states import TransactionHandle
from barnabas.spark.core.exactly_once.control import Control, Receipt


class Fenced(Exception):  # noqa: N818
    """PRODUCER_FENCED and its kin."""


@dataclass(slots=True)
class Transaction:
    """The newest of an id."""

    producer_id: int
    timeout: int
    epoch: int = -1
    #: empty, open, committed or aborted
    state: str = "empty"
    started: int = 0
    rows: list[int] = field(default_factory=list)
    receipt: tuple[str, Receipt] | None = None
    control: Control | None = None


class Coordinator:
    """All ids of a cluster. `lateness` says by how much the end of a transaction's time is noticed too late."""

    def __init__(self, *, is_v2: bool, lateness: Callable[[], int]) -> None:
        self.is_v2 = is_v2
        self._lateness = lateness
        self.now = 0
        self.ids: dict[str, Transaction] = {}
        self.receipts: dict[str, Receipt] = {}
        self.has_forgotten = False
        self._producer_ids = count()
        #: Told of each transaction that is ended, and of why it was aborted.
        self.on_commit: Callable[[str, Transaction], None] = lambda name, ended: None
        self.on_abort: Callable[[str, Transaction, str], None] = lambda name, ended, why: None

    def init(self, name: str, timeout: int, who: str) -> TransactionHandle:
        """InitProducerId, repeated until what was open is aborted."""
        found = self.ids.setdefault(name, Transaction(next(self._producer_ids), timeout))
        if found.state == "open":
            self._abort(name, found, f"{who} fenced it")
        found.epoch += 1
        found.timeout, found.state = timeout, "empty"
        return TransactionHandle(name, found.producer_id, found.epoch, 2 if self.is_v2 else 1)

    def write(self, handle: TransactionHandle, rows: Iterable[int] = ()) -> Transaction:
        """Records, or whatever else becomes part of the transaction that is open, or begins with it."""
        found = self._own(handle)
        if found.state != "open":
            found.state, found.started, found.rows, found.receipt, found.control = "open", self.now, [], None, None
        found.rows += rows
        return found

    def commit(self, handle: TransactionHandle) -> bool | None:
        """EndTxn; False for each of the errors that say that it was ended before, and not how, None for that of an id
        which is not known."""
        found = self.ids.get(handle.transactional_id)
        if found is None or found.producer_id != handle.producer_id:
            return None
        if self.is_v2 and found.state in ("committed", "aborted") and found.epoch == handle.producer_epoch + 1:
            return found.state == "committed"
        if found.epoch != handle.producer_epoch:
            return False
        if found.state != "open":
            return found.state == "committed" and not self.is_v2
        found.state = "committed"
        found.epoch += self.is_v2
        if found.receipt is not None:
            group, receipt = found.receipt
            self.receipts[group] = receipt
        self.on_commit(handle.transactional_id, found)
        return True

    def drop(self, handle: TransactionHandle) -> None:
        """EndTxn that aborts, by who has it."""
        found = self._own(handle)
        if found.state == "open":
            self._abort(handle.transactional_id, found, "its producer aborted it", is_fenced=self.is_v2)

    def left(self, handle: TransactionHandle) -> int | None:
        """How long it stays open yet; None if it does not."""
        found = self.ids.get(handle.transactional_id)
        if found is None or found.state != "open":
            return None
        if (found.producer_id, found.epoch) != (handle.producer_id, handle.producer_epoch):
            return None
        return found.started + found.timeout - self.now

    def is_pending(self, group: str) -> bool:
        """Whether an open transaction has a receipt of the group."""
        return any(
            found.state == "open" and found.receipt is not None and found.receipt[0] == group
            for found in self.ids.values()
        )

    def forget(self) -> None:
        """A week passes: no transaction is open any more, and brokers know of none, nor of receipts."""
        self.has_forgotten = True
        for name, found in self.ids.items():
            if found.state == "open":
                self._abort(name, found, "its time was over")
        self.ids.clear()
        self.receipts.clear()

    def tick(self, passed: int) -> None:
        self.now += passed
        for name, found in self.ids.items():
            if found.state == "open" and found.started + found.timeout + self._lateness() < self.now:
                self._abort(name, found, "its time was over")

    def _own(self, handle: TransactionHandle) -> Transaction:
        found = self.ids.get(handle.transactional_id)
        if found is None or (found.producer_id, found.epoch) != (handle.producer_id, handle.producer_epoch):
            raise Fenced
        return found

    def _abort(self, name: str, found: Transaction, why: str, *, is_fenced: bool = True) -> None:
        found.state = "aborted"
        found.epoch += is_fenced
        self.on_abort(name, found, why)
