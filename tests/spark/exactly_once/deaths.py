"""How drivers and executors die in `killed_in_spark`, and the ledger of who has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.spark.exactly_once.killed import (
    ABORT_STEPS,
    DRIVER_STEPS,
    FIRST_STEPS,
    NEEDS_LISTING,
    REFUSED_STEPS,
    REPEAT_STEPS,
    TASK_STEPS,
    UNDECIDED_ABORT_STEPS,
)
from tests.spark.exactly_once.mortal import Fate


@dataclass(frozen=True, slots=True)
class Death:
    """One way to die. A driver that dies in a batch which the one before has left, needs that one."""

    fate: Fate
    #: How the driver before dies, in the same batch.
    before: Fate | None = None
    #: Between the two, others fence the transactional ids of tasks that have committed: EndTxn cannot tell any more.
    is_fenced: bool = False
    #: In the first batch of the query.
    is_first: bool = False

    @property
    def is_of_driver(self) -> bool:
        return self.fate[0] != "executor"


def _named(text: str, steps: Sequence[str], kind: str, first: int = 1) -> dict[str, Death]:
    return {
        f"{text} after {name} ({step})": Death((kind, step))
        for step, name in enumerate(steps, start=1)
        if step >= first
    }


_DECIDED: Final = ("commit", DRIVER_STEPS.index("CommitControl") + 1)
_DONE: Final = ("commit", len(DRIVER_STEPS))
_PROBED: Final = ("commit", DRIVER_STEPS.index("Probe") + 1)
_FIRST_RECEIPT: Final = REPEAT_STEPS.index("ReadReceipt") + 1

#: By what is said of it.
DEATHS: Final[dict[str, Death]] = {
    **_named("driver", DRIVER_STEPS, "commit"),
    **_named("abort", ABORT_STEPS, "abort"),
    **_named("abort of what was not decided", UNDECIDED_ABORT_STEPS, "undecided"),
    **{
        f"first batch after {name} ({step})": Death(("commit", step), is_first=True)
        for step, name in enumerate(FIRST_STEPS, start=1)
        if name in ("HasCommitted", "ReadOthers")
    },
    **_named("refusal", REFUSED_STEPS, "refused", len(REFUSED_STEPS)),
    **{
        f"repetition after {name} ({step})": (
            Death(("commit", step), before=_DECIDED)
            if step < _FIRST_RECEIPT
            else Death(("commit", step), before=_DONE, is_fenced=True)
        )
        for step, name in enumerate(REPEAT_STEPS, start=1)
    },
    **{
        f"taking over after {name} ({step})": Death(("commit", step), _PROBED)
        for step, name in ((4, "ReadOthers"), (len(DRIVER_STEPS) + 2, "AbortTasks"))
    },
    **{f"settling the batch before after CommitTask ({step})": Death(("settle", step), _PROBED) for step in (1, 2)},
    **{f"executor after {name}": Death(("executor", name)) for name in TASK_STEPS},
}


def cannot_be_met(name: str, kind: str) -> str:
    """Why a step is not taken on a cluster; empty if it is."""
    return "no listing" if kind == "kafka-2.8" and name.startswith(NEEDS_LISTING) else ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One story: who died in it how often, and how it ended."""

    cluster: str
    killed: dict[str, int]
    seconds: int
    #: Empty if every row was there once, and nobody saw part of a task.
    failure: str = ""


class Ledger:
    """What has been seen, in a file of JSON lines, so that the next run goes on there."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.entries: list[Entry] = []
        if path is not None and path.exists():
            self.entries = [Entry(**json.loads(line)) for line in path.read_text().splitlines()]

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if self._path is not None:
            with self._path.open("a") as file:
                fields = {name: getattr(entry, name) for name in Entry.__slots__}
                file.write(json.dumps(fields) + "\n")

    def counts(self, cluster: str, *, failed: bool = False) -> Counter[str]:
        found: Counter[str] = Counter()
        for entry in self.entries:
            if entry.cluster == cluster and bool(entry.failure) == failed:
                found.update(entry.killed)
        return found

    def table(self, clusters: Iterable[str]) -> list[str]:
        """How often each step was met on each cluster in stories that ended with every row once."""
        clusters = list(clusters)
        good = {each: self.counts(each) for each in clusters}
        bad = {each: self.counts(each, failed=True) for each in clusters}
        lines = [f"{'killed':52}" + "".join(f"{each:>12}" for each in clusters)]
        for name in DEATHS:
            cells = [cannot_be_met(name, each) or _cell(good[each][name], bad[each][name]) for each in clusters]
            lines.append(f"{name:52}" + "".join(f"{cell:>12}" for cell in cells))
        lines.append(f"{'in all':52}" + "".join(f"{sum(good[each].values()):>12}" for each in clusters))
        return lines


def _cell(good: int, bad: int) -> str:
    return (str(good) if good else "-") + (f" ({bad} bad)" if bad else "")
