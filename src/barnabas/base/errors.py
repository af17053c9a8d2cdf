"""Exceptions of the whole package, and `check` and `known`, which guard invariants also under `python -O`."""

from __future__ import annotations

from typing import TypeVar

from barnabas.base.error_codes import ErrorCode

T = TypeVar("T")


class BarnabasError(Exception):
    """Everything that Barnabas raises on purpose."""


class RemoteProtocolError(BarnabasError):
    """The bytes that a peer or a file gave us are not what the protocol allows."""


class LocalProtocolError(BarnabasError):
    """Our own side asked for something that the protocol cannot express."""


class BrokerError(BarnabasError):
    """A broker answered with an error code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code.name} ({code.value}): {message or code.text}")


class SettingsError(BarnabasError):
    """A setting has a value that is not allowed, or is missing, or contradicts another."""


class InvariantError(BarnabasError):
    """Something that must always hold did not. Stopping beats going on with wrong data."""


def check(condition: object, message: str) -> None:
    """Raise `InvariantError` unless `condition` holds. Unlike `assert` it stays in force under `-O`."""
    if not condition:
        raise InvariantError(message)


def known(value: T | None, message: str) -> T:
    """The value, which must be there: `InvariantError` if it is None. A type checker believes it, unlike a `check`.

    >>> known({"a": 1}.get("a"), "a has a value") + 1
    2
    """
    if value is None:
        raise InvariantError(message)
    return value
