"""A value that cannot be decoded, and how it is told of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from barnabas.spark.core.errors import SparkConnectorError

_MOST_SHOWN_BYTES: Final = 80
#: An explanation goes along with every bad record, and libraries put whole schemas into theirs.
_MOST_EXPLAINED: Final = 300


class BadKind(StrEnum):
    """What is wrong with a value, in a word that programs can compare: the header `barnabas.error.class`."""

    EMPTY = "EMPTY_VALUE"
    NOT_UTF8 = "NOT_UTF8"
    JSON_SYNTAX = "JSON_SYNTAX"
    JSON_TYPE = "JSON_TYPE"
    JSON_RANGE = "JSON_RANGE"
    JSON_MISSING = "JSON_MISSING_FIELD"
    FRAMING = "NO_REGISTRY_FRAMING"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
    INCOMPATIBLE_SCHEMA = "INCOMPATIBLE_SCHEMA"
    AVRO = "AVRO_DATA"


class BadValueError(Exception):
    """Raised inside a decoder for the one value in hand."""

    def __init__(self, kind: BadKind, explanation: str) -> None:
        explanation = explanation if len(explanation) <= _MOST_EXPLAINED else explanation[:_MOST_EXPLAINED] + "…"
        super().__init__(kind, explanation)
        self.kind = kind
        self.explanation = explanation

    def of_row(self, row: int, schema_id: int | None = None) -> BadValue:
        return BadValue(row, self.kind, self.explanation, schema_id)


@dataclass(frozen=True, slots=True)
class BadValue:
    """`row` counts from the first row of the block that was to be decoded."""

    row: int
    kind: BadKind
    explanation: str
    schema_id: int | None = None

    @property
    def error(self) -> str:
        return f"{self.kind}: {self.explanation}"


class BadRecordError(SparkConnectorError):
    """A value could not be decoded and the user wants the query to fail then, or there were more than he allows."""


def excerpt(value: bytes) -> str:
    """The beginning of a value, for a message: harmless on a terminal and in a log, whatever the bytes are.

    >>> excerpt(b'{"a": \\x1b[31m')
    '{"a": \\\\x1b[31m'
    """
    shown = value[:_MOST_SHOWN_BYTES].decode("utf-8", "backslashreplace")
    safe = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown)
    more = len(value) - _MOST_SHOWN_BYTES
    return f"{safe} … and {more} bytes more" if more > 0 else safe
