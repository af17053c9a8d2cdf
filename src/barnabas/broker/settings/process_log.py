"""The log of the process: what it does, not what clients write. Kafka leaves this to a file of log4j's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from barnabas.base.log_formats import FORMATS, TEXT
from barnabas.base.settings import LIVE, LOW, Int, Long, Names, Settings, setting
from barnabas.base.settings.allowed import at_least, items_like, one_of, or_exactly
from barnabas.base.settings.units import MIB

LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


class ProcessLogSettings(Settings, title="Log of the process", importance=LOW):
    """Ours: Kafka has none of these. A node inside a program of its own leaves all but the last to the program."""

    @classmethod
    def of(cls, *sources: Mapping[str, str]) -> Self:
        """What sources for a whole node say of the log, which is needed before the rest is loaded: that may warn."""
        return cls.load(*({name: each[name] for name in each if name in cls.declared()} for each in sources))

    logging_file: str | None = setting(
        "Where the log of the process goes; null means standard error. The option --log-file stands over it.",
        default=None,
    )
    logging_format: str = setting(
        "How its lines look: text, or an object of JSON in each line.", default=TEXT, allowed=one_of(*FORMATS)
    )
    logging_file_max_bytes: Long = setting(
        "How large the file may grow; then it is renamed to FILE.1, and a new one begun.",
        default=20 * MIB,
        allowed=at_least(1024),
    )
    logging_file_roll_ms: Long = setting(
        "A file is also renamed when a period of this length has ended, such as an hour; -1 for never.",
        default=-1,
        allowed=or_exactly(-1, at_least(1000)),
    )
    logging_file_max_count: Int = setting(
        "How many renamed files are kept; the oldest go.", default=10, allowed=at_least(1)
    )
    logging_levels: Names = setting(
        "Levels of loggers at the start, as kafka.request.logger=DEBUG; later they are changed as broker-loggers.",
        default=(),
        allowed=items_like(rf"[^=]+=({'|'.join(LEVELS)})", f"each LOGGER=LEVEL, with a level of {', '.join(LEVELS)}"),
    )
    logging_slow_request_ms: Long = setting(
        "A request that takes longer, what its client lets it wait not counted, is logged with the parts of its time; "
        "-1 for none.",
        default=1000,
        allowed=or_exactly(-1, at_least(0)),
        state=LIVE,
    )
