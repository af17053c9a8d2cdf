"""What comes out of the pipeline, looked at from outside: the topics as a consumer reads them, the tables as files."""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas import Consumer
from barnabas.spark.demo.picture import Session, Window
from barnabas.spark.demo.writing import DEAD_LETTERS, SESSIONS

#: The header of a dead letter that says what was wrong: the rule that it breaks, or a word and then more of them.
CAUSE_HEADER: Final = "barnabas.error.message"
CLASS_HEADER: Final = "barnabas.error.class"
#: The class of dead letters whose message is the name of a rule, which says what should hold and did not.
BROKEN_RULE: Final = "BROKEN_RULE"
_LAST_SESSIONS: Final = 8
_LOG: Final = "_spark_metadata"
_WHOLE: Final = ".compact"
_TREND_WINDOWS: Final = 24
_WINDOW_MINUTES: Final = 10


class TopicWatch:
    """Counts what the pipeline writes to its topics, and what is there twice: nothing, as it writes exactly once."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.causes: Counter[str] = Counter()
        self.twice = 0
        self.last_sessions: deque[Session] = deque(maxlen=_LAST_SESSIONS)
        self._dead_letters: set[bytes | None] = set()
        #: By user and when it began: how many clicks it had.
        self.found_sessions: dict[tuple[str, str], int] = {}
        self._by_window: Counter[datetime] = Counter()
        self._consumer = Consumer(
            SESSIONS,
            DEAD_LETTERS,
            bootstrap_servers=bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            client_id="demo",
        )

    @property
    def sessions(self) -> int:
        return len(self.found_sessions)

    @property
    def dead_letters(self) -> int:
        return len(self._dead_letters)

    @property
    def sessions_trend(self) -> tuple[int, ...]:
        """How many sessions began in each of the last windows of the story."""
        windows = sorted(self._by_window)[-_TREND_WINDOWS:]
        return tuple(self._by_window[window] for window in windows)

    def look(self, timeout_s: float = 0.0) -> int:
        """Read what is new; how many records."""
        batch = self._consumer.poll_arrow(timeout=timeout_s)
        for row in batch.select(["topic", "key", "value", "headers"]).to_pylist():
            if row["topic"] == SESSIONS:
                found = _session(row["value"])
                if found is not None:
                    self._see_session(*found)
            else:
                self._see_dead_letter(row["key"], row["headers"] or ())
        rows: int = batch.num_rows
        return rows

    def look_to_the_end(self, timeout_s: float) -> bool:
        """Read all that is there now; false if that takes too long."""
        ends, give_up_s = self._consumer.end_offsets(self._consumer.assignment()), time.monotonic() + timeout_s
        while any(self._consumer.position(place) < end for place, end in ends.items()):
            if not self.look(timeout_s=0.2) and time.monotonic() > give_up_s:
                return False
        return True

    def close(self) -> None:
        self._consumer.close()

    def _see_session(self, session: Session, began: str, began_at: datetime) -> None:
        identity = (session.user, began)
        if identity in self.found_sessions:
            self.twice += 1
            return
        self.found_sessions[identity] = session.clicks
        self._by_window[
            began_at.replace(minute=began_at.minute // _WINDOW_MINUTES * _WINDOW_MINUTES, second=0, microsecond=0)
        ] += 1
        self.last_sessions.appendleft(session)

    def _see_dead_letter(self, key: bytes | None, headers: Iterable[dict[str, Any]]) -> None:
        if key in self._dead_letters:
            self.twice += 1
            return
        self._dead_letters.add(key)
        self.causes[_cause({header["key"]: header["value"] for header in headers})] += 1


def _session(value: bytes | None) -> tuple[Session, str, datetime] | None:
    """What a record tells, with its beginning as it is written and as a time. None if it is not the pipeline's: the
    node is there for everybody, and people try it out."""
    try:
        fields = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    # Fields that are null are left out of the JSON that Spark writes.
    match {"name": None, "plan": None, **fields} if isinstance(fields, dict) else None:
        case {
            "user": str(user),
            "began_at": str(began),
            "clicks": int(clicks),
            "has_bought": bool(has_bought),
            "name": str() | None as name,
            "plan": str() | None as plan,
        }:
            try:
                began_at = datetime.fromisoformat(began)
            except ValueError:
                return None
            # Times with and without a zone cannot be put in order.
            return None if began_at.tzinfo is None else (Session(user, name, plan, clicks, has_bought), began, began_at)
    return None


def _cause(headers: Mapping[str, bytes | None]) -> str:
    message = (headers.get(CAUSE_HEADER) or b"unknown").decode(errors="replace")
    if headers.get(CLASS_HEADER) == BROKEN_RULE.encode():
        return f"breaks: {message}"
    return message.partition(":")[0]


class TableWatch:
    """A folder of Parquet files that Spark writes. Files never change; new ones come, old ones go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: dict[str, int] = {}

    def count_rows(self) -> int:
        """Rows of all files, each of which is opened once."""
        found = {file.name: file for file in _files(self._folder)}
        self._rows = {name: rows for name, rows in self._rows.items() if name in found}
        for name, file in found.items():
            if name not in self._rows:
                self._rows[name] = pq.read_metadata(file).num_rows
        return sum(self._rows.values())

    def count_distinct(self, column: str) -> int:
        """How many different values there are: as many as rows, if no row is there twice."""
        table = self.read()
        return 0 if table is None else len(table[column].unique())

    def read(self) -> pa.Table | None:
        """All of it; None if there is nothing yet."""
        files = _files(self._folder)
        return pa.concat_tables([pq.read_table(file, partitioning=None) for file in files]) if files else None


def newest_window(page_views: pa.Table) -> Window | None:
    """The last window that is over: the one that clicks come into now is always the smallest."""
    windows = sorted({row["began_at"] for row in page_views.select(["began_at"]).to_pylist()})
    if not windows:
        return None
    chosen = windows[-2] if len(windows) > 1 else windows[-1]
    views = [(row["page"], row["views"]) for row in page_views.to_pylist() if row["began_at"] == chosen]
    return Window(chosen, tuple(sorted(views, key=lambda view: (-view[1], view[0]))))


def _files(folder: Path) -> list[Path]:
    """Files that count. A stream keeps a list of them, since a batch that was broken off leaves files behind; what a
    view is being written to has another place (`_temporary`) or begins with a dot until it is whole."""
    if (folder / _LOG).is_dir():
        return [folder / name for name in sorted(_committed(folder / _LOG))]
    return sorted(folder.glob("[!._]*.parquet")) if folder.is_dir() else []


def _committed(log: Path) -> set[str]:
    """Names of the files in the log of a stream: one list per batch, now and then one of all batches so far."""
    entries = {file.name: file for file in log.glob("[0-9]*")}
    whole = max((int(name.partition(".")[0]) for name in entries if name.endswith(_WHOLE)), default=-1)
    names: set[str] = set()
    for name, entry in entries.items():
        if name == f"{whole}{_WHOLE}" or (name.isdigit() and int(name) > whole):
            _, *lines = entry.read_text(encoding="utf-8").splitlines()
            names.update(unquote(json.loads(line)["path"].rpartition("/")[2]) for line in lines)
    return names
