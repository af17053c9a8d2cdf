"""What a query that writes exactly once has left open, by its checkpoint, and the end of it as the protocol has it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.checkpoint_files import CheckpointFiles
from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.exactly_once import Control, Stream, TaskPart, finish, steps
from barnabas.spark.core.exactly_once.control import LostControl
from barnabas.spark.core.exactly_once.names import run_of, task_of
from barnabas.spark.core.exactly_once.refusals import DeliveryError, lost
from barnabas.spark.sink.deciding import DecidingCluster
from barnabas.spark.sink.settings import producer_settings

if TYPE_CHECKING:
    from barnabas.client.admin.transactions import TransactionDescription


@dataclass(frozen=True, slots=True)
class LeftTransaction:
    """A transaction of a query's newest batch, or one that is open."""

    sink: str
    #: None if nobody has decided it.
    batch: int | None
    run: str
    task: int
    rows: int | None
    transactional_id: str
    #: "committed", "decided" (to be committed), "undecided" (to be aborted), "lost", "unknown", or "open" where the
    #: decisions are lost.
    state: str


class CheckpointTransactions:
    """The transactions of the query whose checkpoint this is. Use it in `with`."""

    def __init__(self, folder: str, client: Mapping[str, str], control_topic: str) -> None:
        self.query = _query_of(folder)
        self._newest_done = max(CheckpointFiles(folder).numbers("commits"), default=-1)
        settings = producer_settings(client, is_exactly_once=True)
        self._cluster = DecidingCluster(settings, control_topic, creates=False)

    def __enter__(self) -> CheckpointTransactions:
        self._cluster.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._cluster.__exit__(None, None, None)

    def left(self) -> list[LeftTransaction]:
        """By sink: those of the newest decision, and those that are open and in none."""
        return [each for stream in self._cluster.streams_of(self.query) for each in self._left(stream)]

    def losses(self) -> list[DeliveryError]:
        """Of which sinks the newest decision is not there any more: nothing can be finished of those."""
        seen = ((stream, self._cluster.seen(stream)) for stream in self._cluster.streams_of(self.query))
        return [lost(stream, control) for stream, control in seen if isinstance(control, LostControl)]

    def finish(self, run: str) -> list[DeliveryError]:
        """Commit what is decided, abort the rest, of every sink; what could not be done."""
        problems = []
        for stream in self._cluster.streams_of(self.query):
            try:
                self._cluster.perform(finish(stream, run, self._newest_done))
            except DeliveryError as problem:
                problems.append(problem)
        return problems

    def _left(self, stream: Stream) -> Iterator[LeftTransaction]:
        control = self._cluster.seen(stream)
        decided = control.decision if isinstance(control, Control) else None
        parts = decided.parts if decided is not None else ()
        described = self._cluster.described(stream, parts)
        for part in parts:
            assert decided is not None
            name = part.handle.transactional_id
            receipt = self._cluster.take(steps.PeekReceipt(stream, part.task))
            is_proven = receipt is not None and receipt.proves(part, decided.batch)
            state = "committed" if is_proven else _state_of(part, described)
            yield LeftTransaction(stream.sink, decided.batch, decided.run, part.task, part.rows, name, state)
        kept = {part.handle.transactional_id for part in parts}
        for name in self._cluster.take(steps.ListOpen(stream)):
            if name not in kept:
                run, task = run_of(name, stream), task_of(name, stream)
                state = "open" if isinstance(control, LostControl) else "undecided"
                yield LeftTransaction(stream.sink, None, run, task, None, name, state)


def _state_of(part: TaskPart, described: Mapping[str, TransactionDescription] | None) -> str:
    """What became of a part of which there is no receipt, as its coordinator tells: one of a cluster before 3.0 could
    only be asked in a way that may begin a transaction."""
    if described is None:
        return "unknown"
    found = described.get(part.handle.transactional_id)
    if found is None:
        return "unknown"
    if found.producer_id == part.handle.producer_id:
        # The epoch grows when it ends, or when somebody takes the id over.
        epochs = found.producer_epoch - part.handle.producer_epoch
        if epochs == 0 and found.state == "Ongoing":
            return "decided"
        if epochs in (0, 1) and found.state in ("PrepareCommit", "CompleteCommit"):
            return "committed"
    return "lost"


def _query_of(folder: str) -> str:
    text = CheckpointFiles(folder).text("metadata")
    if text is None:
        raise OptionError(f"{folder} is no checkpoint of a query: it has no file metadata")
    try:
        return str(json.loads(text)["id"])
    except (KeyError, TypeError, ValueError) as error:
        raise OptionError(f"{folder}/metadata tells no id of a query: {text[:100]!r}") from error
