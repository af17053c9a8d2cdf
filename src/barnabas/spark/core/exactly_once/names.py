"""What things are called in the cluster: transactional ids, groups, keys.

All begin with the same words for one query and sink, so that one prefixed ACL allows them, and one pattern lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_PREFIX: Final = "barnabas-spark"
#: Ids are used again after so many batches, for coordinators remember every id for a week. An attempt that sleeps for
#: longer than that, and then begins, would abort another one; the driver finds that out unless it has just decided.
SLOTS: Final = 16


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
    stage_attempt: int
    attempt: int

    @property
    def transactional_id(self) -> str:
        """No two attempts of near batches share one: to begin in an id aborts what is open in it."""
        numbers = (self.task, self.stage_attempt, self.attempt, self.batch % SLOTS)
        return f"{self.stream.task_prefix}{self.run}.{'.'.join(map(str, numbers))}"


def run_of(transactional_id: str, stream: Stream) -> str:
    """The run whose task has this id."""
    return transactional_id.removeprefix(stream.task_prefix).split(".", 1)[0]
