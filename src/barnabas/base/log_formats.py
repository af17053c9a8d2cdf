"""How a line of the log looks: text for people, JSON for programs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any, Final

from barnabas.base.log_context import said

TEXT: Final = "text"
JSON: Final = "json"
FORMATS: Final = (TEXT, JSON)


def formatter(name: str) -> logging.Formatter:
    """By one of the names in `FORMATS`."""
    if name == JSON:
        return JsonLines()
    return logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


class JsonLines(logging.Formatter):
    """One object in each line: time in UTC, level, logger, who speaks, message, and the traceback if there is one. What
    a line has besides, as the parts of the time of a request, are `record.fields`; they stand in the object too."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        values: dict[str, Any] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
        }
        who = getattr(record, "who", None)
        if who is not None:
            values["who"] = who
        # The message may repeat, for people, what the fields tell.
        values["message"] = getattr(record, "summary", None) or said(record)
        values |= getattr(record, "fields", {})
        trace = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else None)
        if trace:
            values["exception"] = trace
        if record.stack_info:
            values["stack"] = record.stack_info
        return json.dumps(values, separators=(",", ":"), default=str)
