"""What things are called in the cluster: transactional ids, groups, keys.

All begin with the same words for one query and sink, so that one prefixed ACL allows them, and one pattern lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_PREFIX: Final = "barnabas-spark"
#: Coordinators remember every id for a week, so there are only so many of a task: ids are used again after some
#: batches, unless the remainder of Spark's number of the attempt, or of its stage, differs. An attempt that sleeps so
#: long, and then begins in the id of another, would abort it; the driver finds that out before it decides, or tells of
#: a torn batch.
SLOTS: Final = 4
STAGES: Final = 8
REMAINDERS: Final = 31


@dataclass(frozen=True, slots=True)
class Stream:
    """A query and one of its sinks: what has one chain of decisions. Neither name has a dot in it."""

    query: str
    sink: str

    @property
    def name(self) -> str:
        """Also the key of its control records."""
        return f"{_PREFIX}.{self.query}.{self.sink}"

    @property
    def driver_id(self) -> str:
        """The transactional id in which decisions are written."""
        return f"{self.name}.driver"

    @property
    def task_prefix(self) -> str:
        """What the transactional ids of all its tasks begin with, and no other's."""
        return f"{self.name}.task."

    def group_of(self, task: int) -> str:
        """The group whose committed offset is the receipt of a task."""
        return f"{self.name}.{task}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one task of one batch."""

    stream: Stream
    run: str
    batch: int
    task: int
    #: Counts from 0 in each attempt at the stage.
    attempt: int
    #: Spark's `taskAttemptId`: no two attempts of an application have the same.
    attempt_id: int
    #: Another one wherever a batch is written again in the same run, as a function for `foreachBatch` may.
    stage: int = 0

    @property
    def transactional_id(self) -> str:
        """No two attempts of near batches share one: to begin in an id aborts what is open in it."""
        numbers = (self.task, self.batch % SLOTS, self.stage % STAGES, self.attempt, self.attempt_id % REMAINDERS)
        return f"{self.stream.task_prefix}{self.run}.{'.'.join(map(str, numbers))}"


def run_of(transactional_id: str, stream: Stream) -> str:
    """The run whose task has this id."""
    return transactional_id.removeprefix(stream.task_prefix).split(".", 1)[0]


def task_of(transactional_id: str, stream: Stream) -> int:
    return int(transactional_id.removeprefix(stream.task_prefix).split(".")[1])


def prefix_of_query(query: str) -> str:
    """What all names of a query begin with."""
    return f"{_PREFIX}.{query}."


def stream_of(name: str, query: str) -> Stream | None:
    """The stream that has this key, group or transactional id; None if it is of another query."""
    prefix = prefix_of_query(query)
    return Stream(query, name.removeprefix(prefix).split(".", 1)[0]) if name.startswith(prefix) else None
