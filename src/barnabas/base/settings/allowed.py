"""What values a setting allows, each rule with the words that an error message and the documentation use for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Allowed:
    """A rule for one value. `normal`, where given, brings accepted values to their usual form."""

    text: str
    accepts: Callable[[Any], bool]
    choices: tuple[str, ...] = ()
    normal: Callable[[Any], Any] | None = None


def at_least(lowest: float) -> Allowed:
    return Allowed(f"at least {lowest}", lambda value: bool(value >= lowest))


def between(lowest: float, highest: float) -> Allowed:
    return Allowed(f"{lowest} to {highest}", lambda value: bool(lowest <= value <= highest))


def or_exactly(special: int, rule: Allowed) -> Allowed:
    """One more value that is allowed besides those of `rule`, such as -1 for a default level."""
    return Allowed(f"{rule.text}, or {special}", lambda value: value == special or rule.accepts(value))


def one_of(*choices: str) -> Allowed:
    return Allowed(f"one of {', '.join(choices)}", lambda value: value in choices, choices)


def one_of_in_any_case(*choices: str) -> Allowed:
    """The choices in capitals or not; the value is kept as it is spelt here."""
    spelling = {choice.lower(): choice for choice in choices}
    return Allowed(
        f"one of {', '.join(choices)}, in any case",
        lambda value: value.lower() in spelling,
        choices,
        normal=lambda value: spelling[value.lower()],
    )


def _without_repetition(items: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(items))


def items(*choices: str, at_least_one: bool = False) -> Allowed:
    """The items of a list: any text or one of the choices, never empty. One that stands twice counts once."""
    text = f"items {', '.join(choices)}" if choices else ""
    if at_least_one:
        text = f"{text or 'items'}, at least one"

    def accepts(values: tuple[Any, ...]) -> bool:
        names = [str(value) for value in values]
        return all(names) and (bool(names) or not at_least_one) and (not choices or set(names) <= set(choices))

    return Allowed(text or "items that are not empty", accepts, choices, normal=_without_repetition)


def items_like(pattern: str, text: str, *, at_least_one: bool = False) -> Allowed:
    """A list of which every item matches the pattern."""
    compiled = re.compile(pattern)

    def accepts(values: tuple[str, ...]) -> bool:
        return all(compiled.fullmatch(value) for value in values) and (bool(values) or not at_least_one)

    return Allowed(text, accepts, normal=_without_repetition)


def like(pattern: str, text: str) -> Allowed:
    """A text that matches the pattern."""
    compiled = re.compile(pattern)
    return Allowed(text, lambda value: compiled.fullmatch(value) is not None)


NOT_EMPTY = Allowed("not empty", bool)
GZIP_LEVEL = or_exactly(-1, between(1, 9))
LZ4_LEVEL = between(1, 17)
ZSTD_LEVEL = between(-131072, 22)
HOSTS_AND_PORTS = items_like(r"[^@/]+:[0-9]{1,5}", "each host:port")
