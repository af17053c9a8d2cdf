"""What a query that writes exactly once has left open, by its checkpoint, and the end of it as the protocol has it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from barnabas.spark.checkpoint_files import CheckpointFiles
from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.exactly_once import BatchDecision, Control, Stream, TaskPart, finish, steps
from barnabas.spark.core.exactly_once.names import run_of, task_of
from barnabas.spark.sink.deciding import DecidingCluster
from barnabas.spark.sink.settings import producer_settings


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
    #: "committed", "decided" (to be committed), "undecided" (to be aborted) or "lost".
    state: str


class CheckpointTransactions:
    """The transactions of the query whose checkpoint this is. Use it in `with`."""

    def __init__(self, folder: str, client: Mapping[str, str], control_topic: str) -> None:
        self.query = _query_of(folder)
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

    def finish(self, run: str) -> dict[str, BatchDecision | None]:
        """Commit what is decided, abort the rest; the newest decision of each sink. Raises of a torn batch."""
        streams = self._cluster.streams_of(self.query)
        return {each.sink: self._cluster.perform(finish(each, run)) for each in streams}

    def _left(self, stream: Stream) -> Iterator[LeftTransaction]:
        control: Control | None = self._cluster.take(steps.PeekControl(stream))
        decided = control.decision if control is not None else None
        parts = decided.parts if decided is not None else ()
        done = {part for part in parts if decided is not None and self._is_committed(stream, decided, part)}
        # Only what may be open: where the cluster tells of no transactions, the question is one to its producer.
        alive = self._cluster.take(steps.Probe(stream, tuple(part for part in parts if part not in done)))
        for part in parts:
            assert decided is not None
            name = part.handle.transactional_id
            state = "committed" if part in done else "decided" if name in alive else "lost"
            yield LeftTransaction(stream.sink, decided.batch, decided.run, part.task, part.rows, name, state)
        kept = {part.handle.transactional_id for part in parts}
        for name in self._cluster.take(steps.ListOpen(stream)):
            if name not in kept:
                run, task = run_of(name, stream), task_of(name, stream)
                yield LeftTransaction(stream.sink, None, run, task, None, name, "undecided")

    def _is_committed(self, stream: Stream, decided: BatchDecision, part: TaskPart) -> bool:
        receipt = self._cluster.peek_receipt(stream, part.task)
        return receipt is not None and receipt.proves(part, decided.batch)


def _query_of(folder: str) -> str:
    text = CheckpointFiles(folder).text("metadata")
    if text is None:
        raise OptionError(f"{folder} is no checkpoint of a query: it has no file metadata")
    try:
        return str(json.loads(text)["id"])
    except (KeyError, TypeError, ValueError) as error:
        raise OptionError(f"{folder}/metadata tells no id of a query: {text[:100]!r}") from error
