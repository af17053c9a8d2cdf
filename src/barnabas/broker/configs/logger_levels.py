"""The levels of this process's loggers, under the names that Kafka's clients use for levels; and loggers under Kafka's
names as well as under ours, so that what an operator has typed for years does here what it did there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.base.log_context import TRACE, logger
from barnabas.base.settings.names import nearest_name

_log = logger("barnabas.settings")

ROOT: Final = "root"
#: Each request and its answer, at DEBUG, and all that they hold at TRACE. As with Kafka, a level for everything is not
#: meant for it.
REQUEST_LOG: Final = "barnabas.request"
#: Who leads and follows which partition, as each broker learns it.
STATE_CHANGE_LOG: Final = "barnabas.state_change"

_PACKAGE: Final = "barnabas"
_LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}
LEVELS: Final = tuple(_LEVELS)

#: Which of our loggers says what one of Kafka's does. Several may be one here.
KAFKAS_LOGGERS: Final = {
    "kafka": _PACKAGE,
    "kafka.authorizer.logger": "barnabas.authorizer",
    "kafka.coordinator.transaction": "barnabas.transactions",
    "kafka.log": "barnabas.storage",
    "kafka.network": "barnabas.net",
    "kafka.network.RequestChannel$": REQUEST_LOG,
    "kafka.request.logger": REQUEST_LOG,
    "kafka.server": "barnabas.broker",
    "kafka.server.KafkaApis": "barnabas.broker",
    "kafka.server.ReplicaManager": "barnabas.broker",
    "org.apache.kafka": _PACKAGE,
    "org.apache.kafka.clients": "barnabas.client",
    "org.apache.kafka.controller": "barnabas.controller",
    "org.apache.kafka.coordinator.group": "barnabas.groups",
    "org.apache.kafka.coordinator.transaction": "barnabas.transactions",
    "org.apache.kafka.image": "barnabas.metadata",
    "org.apache.kafka.metadata": "barnabas.metadata",
    "org.apache.kafka.raft": "barnabas.raft",
    "org.apache.kafka.server": "barnabas.broker",
    "org.apache.kafka.storage": "barnabas.storage",
    "org.apache.kafka.storage.internals.log.Cleaner": "barnabas.storage.cleaner",
    "org.apache.kafka.storage.internals.log.LogCleaner": "barnabas.storage.cleaner",
    "state.change.logger": STATE_CHANGE_LOG,
}
#: Levels of loggers that do not follow their parent unless they are told to.
_DEFAULTS: Final = {REQUEST_LOG: logging.WARNING}

_followers: list[Callable[[], None]] = []

for _name, _level in _DEFAULTS.items():
    if logger(_name).level == logging.NOTSET:
        logger(_name).setLevel(_level)


def logger_levels() -> dict[str, str]:
    """The level that holds for each logger of ours, under its names, and for the root."""
    ours = {name for name in logging.root.manager.loggerDict if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")}
    names = {*ours, *KAFKAS_LOGGERS.values(), *KAFKAS_LOGGERS}
    return {name: _level_name(_logger(name)) for name in [ROOT, *sorted(names)]}


def is_logger(name: str) -> bool:
    return name in logger_levels()


def set_level(name: str, level: str) -> None:
    _logger(name).setLevel(_LEVELS[level])
    _tell()


def reset_level(name: str) -> None:
    """Let the logger follow its parent again. The root has none and gets Python's default."""
    if name == ROOT:
        logging.getLogger().setLevel(logging.WARNING)
    else:
        found = _logger(name)
        found.setLevel(_DEFAULTS.get(found.name, logging.NOTSET))
    _tell()


def apply_levels(given: Iterable[str]) -> None:
    """What `logging.levels` says: NAME=LEVEL each. A logger that nothing here has yet is one all the same: libraries
    have their own. But it may be a slip, so it is told."""
    known = {*logger_levels(), *logging.root.manager.loggerDict}
    for each in given:
        name, level = (part.strip() for part in each.rsplit("=", 1))
        if name not in known:
            near = nearest_name(name, known)
            hint = f"; did you mean {near}?" if near else ""
            _log.warning("logging.levels: nothing here has a logger %s so far%s", name, hint)
        set_level(name, level)


def on_levels_changed(follow: Callable[[], None]) -> Callable[[], None]:
    """Have `follow` called when levels may have changed by what is here; what is returned ends that."""
    _followers.append(follow)
    return lambda: _followers.remove(follow)


def _tell() -> None:
    for follow in tuple(_followers):
        follow()


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else KAFKAS_LOGGERS.get(name, name))


def _level_name(found: logging.Logger) -> str:
    level = found.getEffectiveLevel()
    return next((name for name, threshold in _LEVELS.items() if level >= threshold), "TRACE")
