"""What people give to a client without a keyword, by the habits that they bring from other clients.

Where the meaning is clear it is taken; else one sentence says what to write.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.base.errors import SettingsError
from barnabas.base.ids import TopicPartition

#: A dict of settings by Kafka's names, or addresses of brokers.
ConfigOrServers = Mapping[str, object] | str | Iterable[str]
#: A topic, several of them, or a dict of settings.
TopicsOrConfig = str | Iterable[str] | Mapping[str, object]

#: No topic can be called so: names have letters, digits, dots, hyphens and underscores.
_ADDRESS: Final = re.compile(r"(?:\S+://)?[\w.\-\[\]:]*:\d+(?:,\S*)?")


def settings_sources(given: object, keywords: Mapping[str, object], client: str) -> list[Mapping[str, object]]:
    """The argument of a producer or an admin: settings, or the brokers, as with `Producer("127.0.0.1:9092")`."""
    if given is None:
        return []
    if isinstance(given, Mapping):
        return [given]
    servers = [given] if isinstance(given, str) else _texts(given)
    if not servers:
        raise SettingsError(
            f'{client}({_shown(given)}): give it settings, by keyword ({client}(bootstrap_servers="host:9092")) or in '
            f'a dict ({client}({{"bootstrap.servers": "host:9092"}}))'
        )
    if keywords.get("bootstrap_servers") is not None:
        raise SettingsError(
            f"{client}({_shown(given)}, bootstrap_servers=…): brokers are given twice; leave the first one out"
        )
    return [{"bootstrap.servers": ",".join(servers)}]


def topics_and_settings(given: Iterable[object]) -> tuple[list[str], list[Mapping[str, object]]]:
    """The arguments of a consumer: topics, one by one or in a list, and settings."""
    topics: list[str] = []
    sources: list[Mapping[str, object]] = []
    for each in given:
        if isinstance(each, Mapping):
            sources.append(each)
        elif isinstance(each, re.Pattern):
            raise SettingsError(
                f"Consumer({_shown(each)}): a pattern is given to subscribe, as in "
                f"consumer.subscribe(pattern={each.pattern!r})"
            )
        elif isinstance(each, str):
            topics.append(_topic(each))
        else:
            # A TopicPartition is a tuple of its own.
            names = [] if isinstance(each, TopicPartition) else _texts(each)
            if not names:
                raise SettingsError(_no_topic(each))
            topics += map(_topic, names)
    return topics, sources


def _topic(name: str) -> str:
    if _ADDRESS.fullmatch(name):
        raise SettingsError(
            f"Consumer({name!r}): that is an address, and topics are expected here; write "
            f'Consumer("topic", bootstrap_servers={name!r})'
        )
    return name


def _no_topic(given: object) -> str:
    if isinstance(given, TopicPartition) or (
        isinstance(given, Iterable) and any(isinstance(each, TopicPartition) for each in given)
    ):
        return f"Consumer({_shown(given)}): partitions are given to assign, as in consumer.assign([…])"
    return (
        f'Consumer({_shown(given)}): topics are expected here, such as Consumer("clicks") or Consumer(["clicks"]), '
        "and settings by keyword or in a dict"
    )


def _texts(given: object) -> list[str]:
    """The texts of a list, a tuple, a set or the like; none if anything else is in it."""
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable):
        return []
    # Read once: it may be a generator.
    items = list(given)
    return items if all(isinstance(each, str) for each in items) else []


def _shown(given: object) -> str:
    """Short, and without what a settings object of somebody's may hold."""
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:77]}…"
