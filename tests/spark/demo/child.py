"""The demo in a process of its own, since it starts a Spark of its own: `python -m tests.spark.demo.child 600 …`."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final

from barnabas.spark.demo.picture import Picture
from barnabas.spark.demo.running import Demo, DemoOptions, DemoResult
from tests.spark.rig import processes

#: To compile a query takes longer than to run it on a few hundred rows.
SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


class Looker:
    """Sees all pictures, and knows when it is enough: so many clicks are written, the first update has taken in some of
    them, and others came while it ran, which are left for the second. So it does not matter how fast the machine is."""

    def __init__(self, fewest_clicks: int, kills: int = 0) -> None:
        self.enough = threading.Event()
        #: How often Spark is still to be killed, and in which of its updates that was last done.
        self._kills = kills
        self._killed_in = ""
        #: When what is new was first seen, in seconds from the beginning.
        self.times: dict[str, float] = {}
        self.rows_of_first_update = 0
        self._fewest_clicks = fewest_clicks
        self._began_s = time.monotonic()

    def __call__(self, picture: Picture) -> None:
        self._note(picture.phase)
        self._kill_spark(picture)
        for flow in picture.flows:
            self._note(f"flow {flow.name}: {flow.state}")
            if flow.name == "clicks" and flow.state == "completed" and picture.table_rows and not self.enough.is_set():
                self.rows_of_first_update = picture.table_rows
                is_more_there = picture.clicks - picture.broken > picture.table_rows
                if is_more_there and picture.clicks >= self._fewest_clicks and not self._kills:
                    self.enough.set()

    def _kill_spark(self, picture: Picture) -> None:
        """While a flow into a topic runs, in an update in which it was not killed yet."""
        is_writing = any(flow.name == "dead_letters" and flow.state == "running" for flow in picture.flows)
        if self._kills and is_writing and picture.phase != self._killed_in and picture.updates:
            spark = [pid for pid in processes.descendants(os.getpid()) if "java" in processes.command(pid)]
            processes.kill(*spark)
            self._killed_in = picture.phase
            self._kills -= 1

    def _note(self, what: str) -> None:
        self.times.setdefault(what, round(time.monotonic() - self._began_s, 1))


def told(outcome: DemoResult, looker: Looker) -> dict[str, object]:
    """What a test wants to know, as JSON has it."""
    return {
        "clicks": outcome.written.clicks,
        "broken": outcome.written.broken,
        "start_ms": outcome.start_ms,
        "is_complete": outcome.is_complete,
        "is_exact": outcome.is_exact,
        "dead_letters": outcome.picture.dead_letters,
        "causes": dict(outcome.picture.causes),
        "updates": outcome.picture.updates,
        "rows_of_first_update": looker.rows_of_first_update,
        "flows": [flow.name for flow in outcome.picture.flows],
        "views": None if outcome.picture.window is None else len(outcome.picture.window.views),
        "sessions": [[user, began_at, clicks] for (user, began_at), clicks in outcome.sessions.items()],
        "failure": None if outcome.failure is None else str(outcome.failure),
        "restarts": outcome.restarts,
        "times": looker.times,
    }


if __name__ == "__main__":
    fewest_clicks, rate, seed, keep, kills = sys.argv[1:]
    looker = Looker(int(fewest_clicks), int(kills))
    options = DemoOptions(rate=float(rate), seed=int(seed), keep=Path(keep), every_s=0.1, settings=SETTINGS)
    outcome = Demo(options, looker).run(threading.Event(), looker.enough)
    # Into a file: it may be more than a pipe takes at once, beside a Spark that has its own idea of standard output.
    Path(f"{keep}.json").write_text(json.dumps(told(outcome, looker)))
