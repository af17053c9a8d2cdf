"""What the driver asks of the cluster, one thing at a time. A step that raises ends the protocol where it is."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from barnabas.client.core.producing.transaction_states import TransactionHandle
from barnabas.spark.core.exactly_once.control import Control, LostControl, Receipt, TaskPart
from barnabas.spark.core.exactly_once.names import Stream

#: How long the driver has for a decision, from before it looks at the transactions of the tasks.
DRIVER_TIMEOUT_MS: Final = 10_000
#: How late coordinators may notice that a transaction's time is over, unless they are set otherwise.
NOTICED_LATE_MS: Final = 10_000
#: What the transactions of a batch must have left when it is decided, if their time-out is not short: for the decision,
#: and then as much again to end them.
LONGEST_NEEDED_MS: Final = 2 * (DRIVER_TIMEOUT_MS + NOTICED_LATE_MS)

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DriverStep(Generic[A]):
    """One thing to do, which is answered with an `A`."""

    stream: Stream


#: What ends with a `T`, and takes steps until then.
Steps: TypeAlias = Generator[DriverStep[Any], Any, T]


def take(step: DriverStep[A]) -> Steps[A]:
    """`answer = yield from take(step)`, with the type of the answer."""
    answer: A = yield step
    return answer


@dataclass(frozen=True, slots=True)
class PeekControl(DriverStep[Control | None]):
    """The newest committed control record, or one that was so a moment ago: nobody is waited for."""


@dataclass(frozen=True, slots=True)
class ReadControl(DriverStep[Control | LostControl | None]):
    """The newest committed control record. What was committed when the step began is seen, or seen to be lost."""


@dataclass(frozen=True, slots=True)
class ReadOthers(DriverStep[Mapping[str, Control]]):
    """The newest committed control records of the other sinks of the query, by their names. Likewise."""


@dataclass(frozen=True, slots=True)
class HasCommitted(DriverStep[bool]):
    """Whether a task of the stream has ever committed, as its coordinators remember: then there is, or was, a decision.
    False where the cluster does not tell."""


@dataclass(frozen=True, slots=True)
class FenceDriver(DriverStep[None]):
    """InitProducerId for the driver's id: nobody else can decide from here on, unless he fences as well."""


@dataclass(frozen=True, slots=True)
class ListOpen(DriverStep[tuple[str, ...]]):
    """The tasks' transactional ids that have an open transaction, as far as the cluster tells."""


@dataclass(frozen=True, slots=True)
class WriteControl(DriverStep[None]):
    """Begin a transaction of the driver's id, and write the record in it. Raises if the id was fenced."""

    control: Control


@dataclass(frozen=True, slots=True)
class CommitControl(DriverStep[None]):
    """Commit that transaction. Raises if the id was fenced, or its time-out is over."""


@dataclass(frozen=True, slots=True)
class DropControl(DriverStep[None]):
    """Abort that transaction."""


@dataclass(frozen=True, slots=True)
class Probe(DriverStep[Mapping[str, int]]):
    """The milliseconds that each open transaction has left, by transactional id. What is not open is not there."""

    parts: tuple[TaskPart, ...]


@dataclass(frozen=True, slots=True)
class CommitTask(DriverStep[bool | None]):
    """EndTxn. True: it is committed, now or before. False: it was ended before, nobody can tell how. None: that was so
    long ago that its coordinator has forgotten the id."""

    handle: TransactionHandle


@dataclass(frozen=True, slots=True)
class AbortTasks(DriverStep[None]):
    """InitProducerId for these ids of tasks: what is open in them is aborted, and who writes in them is fenced."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadReceipt(DriverStep[Receipt | None]):
    """The receipt of a task, once no transaction that may change it is open."""

    task: int


@dataclass(frozen=True, slots=True)
class PeekReceipt(DriverStep[Receipt | None]):
    """The receipt of a task as it is committed now, whatever is open."""

    task: int
