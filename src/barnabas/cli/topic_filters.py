"""Names of topics as Kafka's tools take them: a regular expression, or several by ','."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

_QUOTES = "\"'"


def topic_pattern(text: str, option: str = "--topic") -> re.Pattern[str]:
    """The expression that a whole name must match. ',' is taken for '|', and quotes from property files are dropped."""
    expression = text.strip().replace(",", "|").replace(" ", "").strip(_QUOTES)
    try:
        return re.compile(expression)
    except re.error as problem:
        raise click.UsageError(f"{option}: {text!r} is not a regular expression: {problem}") from None


def matching(names: Iterable[str], pattern: re.Pattern[str] | None) -> list[str]:
    """The names that match, sorted."""
    return sorted(name for name in names if pattern is None or pattern.fullmatch(name))
