"""Values of options as text, read as Spark and Java read them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from barnabas.base.ids import TopicPartition
from barnabas.base.settings.units import INT_MAX, LONG_MAX
from barnabas.spark.core.errors import OptionError

# Java trims what is not above a space; Python's strip() would also take blanks that Java keeps.
_JAVA_BLANK: Final = "".join(map(chr, range(0x21)))
# Enough digits for any number; Python refuses to read thousands of them.
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,100}")
_DIGITS: Final = re.compile(r"[0-9]{1,100}")
_TIME: Final = re.compile(r"(-?[0-9]{1,100})([a-z]+)?")
_SIZE: Final = re.compile(r"([0-9]{1,100})([a-z]+)?")
_MICROSECONDS: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_BYTES: Final = {
    f"{letter}{rest}": 1 << 10 * (power + 1) for power, letter in enumerate("kmgtp") for rest in ("", "i", "b", "ib")
} | {"b": 1}


def trimmed(text: str) -> str:
    return text.strip(_JAVA_BLANK)


def boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"Option {name} is {text!r}; allowed are true and false.")
    return text.lower() == "true"


def whole(least: int, most: int = LONG_MAX) -> Callable[[str, str], int]:
    """Reads a whole number within limits, without blanks, as Java wants it."""

    def read(name: str, text: str) -> int:
        number = int(text) if _WHOLE_NUMBER.fullmatch(text) else None
        if number is None or number < least:
            raise OptionError(f"Option {name} is {text!r}; allowed is a whole number of at least {least}.")
        if number > most:
            raise OptionError(f"Option {name} is {text!r}; allowed is at most {most}.")
        return number

    return read


def time_ms(name: str, text: str) -> int:
    """A time as Spark's settings have it: `15m`, `100s`, `250ms`, a bare number in milliseconds; no fractions.

    >>> time_ms("maxTriggerDelay", "15m"), time_ms("maxTriggerDelay", "1999us")
    (900000, 1)
    """
    match = _TIME.fullmatch(trimmed(text.lower()))
    unit = _MICROSECONDS.get(match[2] or "ms") if match else None
    if match is None or unit is None or abs(int(match[1])) > LONG_MAX:
        raise OptionError(
            f"Option {name} is {text!r}; allowed is a whole number with a unit, such as 100ms, 30s, 15m (or 15min), 2h"
            " or 1d. Without a unit it counts milliseconds."
        )
    # Towards zero, and no further than a long goes: Java converts units so.
    number = int(match[1])
    size = min(abs(number) * unit // 1_000, LONG_MAX)
    return size if number >= 0 else -size


def size_bytes(name: str, text: str) -> int:
    """A size as Spark's settings have it: `64m`, `1g`, `512kb`, a bare number in bytes; no fractions.

    >>> size_bytes("maxBytesPerTrigger", "64m")
    67108864
    """
    match = _SIZE.fullmatch(trimmed(text.lower()))
    unit = _BYTES.get(match[2] or "b") if match else None
    if match is None or unit is None or not 0 < int(match[1]) * unit <= LONG_MAX:
        raise OptionError(
            f"Option {name} is {text!r}; allowed is a positive whole number with a unit, such as 512k, 64m or 1g."
            " Without a unit it counts bytes."
        )
    return int(match[1]) * unit


def numbers_by_partition(name: str, text: str, *, least: int, example: str) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23}}`: offsets or timestamps, none of them less than `least`."""
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _topics(name, text, example).items():
        if not isinstance(partitions, Mapping):
            _refuse(name, text, example, f"topic {topic!r} has {_shown(partitions)} instead of its partitions")
        for partition, number in partitions.items():
            numbers[_partition(name, text, example, topic, partition)] = _number(
                name, text, example, f"{topic}-{partition}", number, least
            )
    return numbers


def partitions(name: str, text: str) -> frozenset[TopicPartition]:
    """`{"topic": [0, 1]}`: at least one partition."""
    example = '{"topicA": [0, 1], "topicB": [2]}'
    found: set[TopicPartition] = set()
    for topic, numbers in _topics(name, text, example).items():
        if not isinstance(numbers, list):
            _refuse(name, text, example, f"topic {topic!r} has {_shown(numbers)} instead of a list of partitions")
        found |= {TopicPartition(topic, _number(name, text, example, topic, number, 0, INT_MAX)) for number in numbers}
    if not found:
        _refuse(name, text, example, "it names no partition")
    return frozenset(found)


def _topics(name: str, text: str, example: str) -> dict[str, object]:
    try:
        found: object = json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as problem:
        _refuse(name, text, example, f"it is not JSON: {problem}")
    if not isinstance(found, dict):
        _refuse(name, text, example, "it is JSON, but no object of topics")
    return found


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} stands there twice")
    return found


def _partition(name: str, text: str, example: str, topic: str, partition: str) -> TopicPartition:
    if not _DIGITS.fullmatch(partition) or int(partition) > INT_MAX:
        _refuse(name, text, example, f"{partition!r} is not a partition of {topic!r}")
    return TopicPartition(topic, int(partition))


def _number(name: str, text: str, example: str, where: str, number: object, least: int, most: int = LONG_MAX) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        _refuse(name, text, example, f"{where} has {_shown(number)} instead of a whole number")
    if not least <= number <= most:
        _refuse(name, text, example, f"{where} has {number}, but allowed is {least} to {most}")
    return number


def _shown(found: object) -> str:
    return json.dumps(found)


def _refuse(name: str, text: str, example: str, problem: str) -> NoReturn:
    raise OptionError(f"Option {name} is {text!r}: {problem}. Expected is JSON such as {example}.")
