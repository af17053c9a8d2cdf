"""`barnabas transactions --from-checkpoint DIR`: what a Spark query that writes exactly once has left open."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Mapping
from typing import Any, Final

from barnabas.base.errors import BarnabasError
from barnabas.base.extras import how_to_install
from barnabas.cli.output import say, shown
from barnabas.cli.warnings_shown import show_warnings

_COLUMNS: Final = ("SINK", "BATCH", "RUN", "TASK", "ROWS", "STATE", "TRANSACTIONAL-ID")
#: What each state means, and what --finish does about it.
_MEANING: Final = {
    "committed": "is in the topics",
    "decided": "is decided and not committed yet: --finish commits it, and so does the query when it starts again",
    "undecided": "is open and not decided: --finish aborts it, and so does the query when it starts again",
    "open": "is open, and nobody knows whether it was decided: it ends with its time-out, and readers wait for that",
    "lost": "was decided, and there is no proof that it was committed: its time was over before anybody ended it",
    "unknown": "was decided so long ago, or on a cluster so old, that nobody tells whether it was committed",
}


def show_checkpoint(settings: Mapping[str, Any], folder: str, control_topic: str | None, *, is_finishing: bool) -> int:
    """One table; with `is_finishing`, of what is there then. Ends with 1 if rows of a batch or decisions are lost, or
    if it could not be finished."""
    if importlib.util.find_spec("pyspark") is None:
        raise BarnabasError(f"--from-checkpoint needs PySpark: {how_to_install('spark')}")
    show_warnings()
    from barnabas.spark.core.exactly_once.refusals import FINISHING
    from barnabas.spark.core.options import ExactlyOnceOptions
    from barnabas.spark.sink.undecided import CheckpointTransactions

    client = {name: str(value) for name, value in settings.items()}
    with CheckpointTransactions(folder, client, control_topic or ExactlyOnceOptions().control_topic) as found:
        problems = found.finish(f"{FINISHING}{uuid.uuid4()}") if is_finishing else found.losses()
        for problem in problems:
            say(str(problem))
        rows = found.left()
    if not rows:
        say(f"query {found.query} has no transactions in the control topic, and none that are open")
        return 1 if problems else 0
    cells = [
        (each.sink, each.batch, each.run, each.task, each.rows, each.state, each.transactional_id) for each in rows
    ]
    texts = [_COLUMNS, *(tuple("-" if cell is None else shown(cell) for cell in row) for row in cells)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text in texts:
        say("  ".join(f"{cell:<{width}}" for cell, width in zip(text, widths, strict=True)).rstrip())
    states = {each.state for each in rows}
    for state, meaning in _MEANING.items():
        if state in states:
            say(f"{state}: {meaning}")
    return 1 if problems or "lost" in states else 0
