"""All messages that are declared, by the names of Kafka's schemas."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import barnabas.wire.embedded
import barnabas.wire.stored
from barnabas.wire import Message, all_apis


def _declared_below(base: type[Message]) -> Iterator[type[Message]]:
    for cls in base.__subclasses__():
        if cls.VERSIONS.high >= cls.VERSIONS.low and cls.__module__.startswith("barnabas.wire."):
            yield cls
        yield from _declared_below(cls)


def all_messages() -> dict[str, type[Message]]:
    all_apis()
    for package in (barnabas.wire.stored, barnabas.wire.embedded):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return {cls.__name__: cls for cls in sorted(_declared_below(Message), key=lambda cls: cls.__name__)}


MESSAGES = all_messages()
MESSAGE_VERSIONS = [(name, version) for name, cls in MESSAGES.items() for version in cls.VERSIONS]
