"""From options to the settings of a producer or consumer: files, single settings, and the spellings of older Kafkas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from barnabas.base.properties import load_properties_file
from barnabas.cli.kafka_options import GivenOptions, KafkaTool
from barnabas.cli.output import say

F = TypeVar("F", bound=Callable[..., Any])


class ParserTool(KafkaTool):
    """A command of those that Kafka reads with another parser: without any option it shows its help and is content.

    `greedy` options take all words up to the next option: `--producer-props acks=1 linger.ms=5`.
    """

    greedy: frozenset[str] = frozenset()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            say(ctx.get_help())
            ctx.exit(0)
        return super().parse_args(ctx, list(self._spread(args)))

    def _spread(self, args: Iterable[str]) -> Iterable[str]:
        open_option: str | None = None
        is_first = False
        for word in args:
            if word.startswith("--"):
                open_option, is_first = (word, True) if word in self.greedy else (None, False)
            elif open_option is not None:
                if not is_first:
                    yield open_option
                is_first = False
            yield word


def deprecated(given: GivenOptions, old: str, new: str) -> None:
    """An option that has a new name: both at once are one too many, and the old one is told about."""
    given.exclude(new, old)
    if old in given:
        say(f"Warning: {old} is deprecated; use {new}", err=True)


def old_name(name: str, parameter: str, new: str, **more: Any) -> Callable[[F], F]:
    """The former spelling of an option."""
    return click.option(name, parameter, help=f"Deprecated: {new}.", **more)


def key_values(pairs: Iterable[str]) -> dict[str, str]:
    """`name=value`, split at the first '='; without one the value is empty."""
    found = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        found[name.strip()] = value
    return found


def file_settings(path: str | None) -> dict[str, Any]:
    """What a file of properties says; nothing if there is none."""
    return dict(load_properties_file(Path(path))) if path else {}


def merged(settings: dict[str, Any], given: GivenOptions, options: Mapping[str, tuple[str, object]]) -> None:
    """Add settings that have an option of their own: what was typed wins, the option's default yields to `settings`."""
    for option, (name, value) in options.items():
        if option in given or name not in settings:
            settings[name] = value
