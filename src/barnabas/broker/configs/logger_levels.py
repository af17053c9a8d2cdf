"""The levels of this process's loggers, under the names that Kafka's clients use for levels."""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"

_PACKAGE: Final = "barnabas"
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    # There is nothing finer here.
    "TRACE": logging.DEBUG,
}
LEVELS: Final = tuple(_LEVELS)


def logger_levels() -> dict[str, str]:
    """The level that holds for each logger of ours, and for the root."""
    names = [name for name in logging.root.manager.loggerDict if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]
    return {name: _level_name(_logger(name)) for name in [ROOT, *sorted(names)]}


def is_logger(name: str) -> bool:
    return name in logger_levels()


def set_level(name: str, level: str) -> None:
    _logger(name).setLevel(_LEVELS[level])


def reset_level(name: str) -> None:
    """Let the logger follow its parent again. The root has none and gets Python's default."""
    _logger(name).setLevel(logging.WARNING if name == ROOT else logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, threshold in _LEVELS.items() if level >= threshold), "DEBUG")
