"""What tasks tell, what is decided, and the record of it in the control topic."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from barnabas.base.errors import RemoteProtocolError
from barnabas.client.core.producing.transaction_states import TransactionHandle
from barnabas.spark.core.exactly_once.names import Attempt

#: Fingerprints are added up without what overflows.
_FINGERPRINTS: Final = 1 << 64

#: Of runs that are superseded, the newest are remembered. One that is older finds its transactions aborted.
MOST_SUPERSEDED: Final = 50


@dataclass(frozen=True, slots=True)
class Written:
    """What an attempt did. Without rows there is no transaction, and no handle."""

    attempt: Attempt
    rows: int = 0
    size_bytes: int = 0
    handle: TransactionHandle | None = None
    #: When its transaction began, by the clock of its machine. For clusters that do not tell; 0 if nobody knows.
    begun_ms: int = 0
    #: Of the topics, keys and values of its rows, in whatever order. Those of several attempts are added.
    fingerprint: int = 0
    #: Where all rows go; empty if each says so itself.
    topic: str = ""


@dataclass(frozen=True, slots=True)
class TaskPart:
    """The rows of one task: an open transaction that is to be committed."""

    task: int
    rows: int
    handle: TransactionHandle
    begun_ms: int = 0


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """A batch is these transactions and no others."""

    batch: int
    run: str
    rows: int
    size_bytes: int
    parts: tuple[TaskPart, ...]
    #: None where it was decided by a version that did not know of it.
    fingerprint: int | None = 0
    #: Likewise; also in the fingerprint. Empty if each row says so itself.
    topic: str | None = ""

    def has_rows_of(self, other: BatchDecision) -> bool:
        """Whether both have the same rows, in whatever tasks, as far as that is told."""
        is_told = None not in (self.fingerprint, self.topic, other.fingerprint, other.topic)
        return (self.rows, self.size_bytes) == (other.rows, other.size_bytes) and (
            not is_told or self.fingerprint == other.fingerprint
        )

    @property
    def transactional_ids(self) -> frozenset[str]:
        return frozenset(part.handle.transactional_id for part in self.parts)


def decision_of(batch: int, run: str, written: Iterable[Written]) -> BatchDecision:
    written = list(written)
    return BatchDecision(
        batch,
        run,
        sum(each.rows for each in written),
        sum(each.size_bytes for each in written),
        tuple(
            TaskPart(each.attempt.task, each.rows, each.handle, each.begun_ms)
            for each in written
            if each.handle is not None
        ),
        sum(each.fingerprint for each in written) % _FINGERPRINTS,
        written[0].topic,
    )


@dataclass(frozen=True, slots=True)
class Control:
    """The newest control record of a stream: who decides, who does not any more, and what was decided last."""

    owner: str
    superseded: tuple[str, ...] = ()
    decision: BatchDecision | None = None

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Raises `RemoteProtocolError` for what is none."""
        try:
            found = json.loads(value)
            decision = found["decision"]
            return cls(found["owner"], tuple(found["superseded"]), None if decision is None else _decision(decision))
        except (KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(f"this is no control record of Spark's sink: {value[:200]!r}") from error


@dataclass(frozen=True, slots=True)
class LostControl:
    """The newest control record stood there, and does not any more: what is before it must not be taken for it."""

    topic: str
    offset: int


def _decision(found: dict[str, Any]) -> BatchDecision:
    parts = (
        TaskPart(each["task"], each["rows"], TransactionHandle(**each["handle"]), each.get("begun_ms", 0))
        for each in found["parts"]
    )
    return BatchDecision(
        found["batch"],
        found["run"],
        found["rows"],
        found["size_bytes"],
        tuple(parts),
        found.get("fingerprint"),
        found.get("topic"),
    )


def taken_over(control: Control | None, run: str, others: Iterable[str]) -> Control:
    """The record with which a run decides, the same one if it did before. Whoever did, and `others`, do no longer."""
    if control is not None and control.owner == run:
        return control
    before = [] if control is None else [*control.superseded, control.owner]
    superseded = tuple(name for name in dict.fromkeys([*before, *others]) if name != run)
    return Control(run, superseded[-MOST_SUPERSEDED:], None if control is None else control.decision)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a group tells of its task: the newest batch of which a transaction was committed, and which one that was."""

    batch: int
    transactional_id: str

    def proves(self, part: TaskPart, batch: int) -> bool:
        """Whether the part was committed. A later batch was decided only when this one was done."""
        return self.batch > batch or (self.batch == batch and self.transactional_id == part.handle.transactional_id)
