"""The demo in a process of its own, since it starts a Spark of its own: `python -m tests.spark.demo.child 10 …`."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from barnabas.spark.demo.running import Demo, DemoOptions, Outcome


def told(outcome: Outcome) -> dict[str, object]:
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
        "flows": [flow.name for flow in outcome.picture.flows],
        "views": None if outcome.picture.window is None else len(outcome.picture.window.views),
        "sessions": [[user, began_at, clicks] for (user, began_at), clicks in outcome.sessions.items()],
        "failure": None if outcome.failure is None else str(outcome.failure),
    }


if __name__ == "__main__":
    seconds, rate, seed, keep = sys.argv[1:]
    options = DemoOptions(seconds=float(seconds), rate=float(rate), seed=int(seed), keep=Path(keep))
    sys.stdout.write(json.dumps(told(Demo(options, lambda picture: None).run(threading.Event()))))
