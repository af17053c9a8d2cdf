"""What a node logs stays short and readable, whatever its clients send.

A client chooses its id, its group's, topics, settings; all of it may end up in a line of the log, as often as the
client likes. `LimitedHandler` stands before any handler of Python's `logging`:
- of each place in the code so many lines pass at once, and then one in a second; of those that do not, a line tells how
  many they were. What is critical always passes;
- a line has a bounded length, endless ids in it are shortened, and control characters are escaped, so that nobody can
  write lines of his own or speak to a terminal. A traceback keeps its lines, indented, for the same reason.

    logging.getLogger().addHandler(LimitedHandler(logging.StreamHandler(), SystemClock().monotonic_ms))

Whoever runs a node inside a program of his own decides about logging himself, and may do the same.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection
from typing import Final

from barnabas.base.foreign_text import one_line
from barnabas.base.log_context import name_speaker

MAX_LINE_BYTES: Final = 4096
#: Of loggers that are whole.
_WHOLE_LINE_BYTES: Final = 64 * 1024
LINES_AT_ONCE: Final = 100
INTERVAL_MS: Final = 10_000
_MS_PER_LINE: Final = 1_000
_MAX_TEMPLATE_BYTES: Final = 500
_TRACE_LINES: Final = 50
_INDENT: Final = "    "

Later = Callable[[int, Callable[[], None]], object]
Place = tuple[str, int, str, int]


class _Allowance:
    """How many lines of one place in the code may pass, and what was left out since that was last told."""

    __slots__ = ("filled_ms", "left", "left_out", "since_ms", "template")

    def __init__(self, now_ms: int) -> None:
        self.left = LINES_AT_ONCE
        self.filled_ms = now_ms
        self.left_out = 0
        self.since_ms = now_ms
        self.template = ""

    def take(self, now_ms: int) -> bool:
        """Whether one more may pass."""
        earned = (now_ms - self.filled_ms) // _MS_PER_LINE
        self.filled_ms += earned * _MS_PER_LINE
        self.left = min(self.left + earned, LINES_AT_ONCE)
        if self.left <= 0:
            return False
        self.left -= 1
        return True


class LimitedHandler(logging.Handler):
    """See the module. `later(after_ms, action)` calls `action`, in whatever thread; without it, what was left out is
    told with the next line that comes, or at the end. Of loggers in `whole` every line passes, with all of its words:
    whoever turned them on asked for that. Lines of other people's loggers say, too, who speaks."""

    def __init__(
        self,
        target: logging.Handler,
        monotonic_ms: Callable[[], int],
        later: Later = lambda after_ms, action: None,
        whole: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.addFilter(name_speaker)
        self._whole = frozenset(whole)
        self._target = target
        self._monotonic_ms = monotonic_ms
        self._later = later
        # By place, not by text: what libraries log may have the text of clients for a template.
        self._allowances: dict[Place, _Allowance] = {}
        self._limited: dict[Place, _Allowance] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now_ms = self._monotonic_ms()
        self._tell(now_ms, INTERVAL_MS)
        if record.levelno >= logging.CRITICAL or record.name in self._whole or self._may_pass(record, now_ms):
            self._target.handle(fit(record, is_whole=record.name in self._whole))

    def _may_pass(self, record: logging.LogRecord, now_ms: int) -> bool:
        place = (record.name, record.levelno, record.pathname, record.lineno)
        allowance = self._allowances.get(place)
        if allowance is None:
            allowance = self._allowances[place] = _Allowance(now_ms)
        if allowance.take(now_ms):
            return True
        if not allowance.left_out:
            allowance.since_ms = now_ms
            allowance.template = f"{record.filename}:{record.lineno}: {one_line(str(record.msg), _MAX_TEMPLATE_BYTES)}"
            self._limited[place] = allowance
            self._later(INTERVAL_MS, self.tell_overdue)
        allowance.left_out += 1
        return False

    def tell_overdue(self) -> None:
        """Tell of lines that were left out some time ago."""
        self._tell_locked(INTERVAL_MS)

    def _tell_locked(self, interval_ms: int) -> None:
        self.acquire()
        try:
            self._tell(self._monotonic_ms(), interval_ms)
        finally:
            self.release()

    def _tell(self, now_ms: int, interval_ms: int) -> None:
        due = [place for place, each in self._limited.items() if now_ms - each.since_ms >= interval_ms]
        for place in due:
            allowance = self._limited.pop(place)
            count, allowance.left_out = allowance.left_out, 0
            text = f"… and {count:,} more like it ({allowance.template})"
            self._target.handle(logging.LogRecord(*place, text, (), None))

    def flush(self) -> None:
        self._target.flush()

    def close(self) -> None:
        self._tell_locked(0)
        self._target.close()
        super().close()


def fit(record: logging.LogRecord, *, is_whole: bool = False) -> logging.LogRecord:
    """A copy of a record with what this module promises; other handlers have the record as it was."""
    changed = copy.copy(record)
    most_bytes = _WHOLE_LINE_BYTES if is_whole else MAX_LINE_BYTES
    changed.msg, changed.args = one_line(_message(record), most_bytes, is_whole=is_whole), ()
    trace = record.exc_text or (logging.Formatter().formatException(record.exc_info) if record.exc_info else "")
    changed.exc_info, changed.exc_text = None, _trace_lines(trace)
    changed.stack_info = _trace_lines(record.stack_info or "")
    return changed


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as failure:  # a wrong call of ours must not end what it was about
        return f"{record.msg!r} cannot be filled in: {failure!r}"


def _trace_lines(text: str) -> str | None:
    """A traceback ends with the text of an exception, which may be a client's. The first and the last lines of a long
    one are kept: where it came from, and what it was."""
    if not text:
        return None
    lines = [_INDENT + one_line(each, MAX_LINE_BYTES) for each in text.splitlines()]
    if len(lines) > 2 * _TRACE_LINES:
        lines[_TRACE_LINES:-_TRACE_LINES] = [f"{_INDENT}…({len(lines) - 2 * _TRACE_LINES} lines)"]
    return "\n".join(lines)
