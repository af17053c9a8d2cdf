"""What the clients' tests send: every shape that a record can have, and more than a broker takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME_MS = 1_700_000_000_000
BIG_BYTES = 900_000
TOO_BIG_BYTES = 1_200_000  # max.message.bytes is 1,048,588
TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Sample:
    """A record, as a client sends and as it gets it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = TIME_MS


RECORDS = (
    Sample(b"value", b"key"),
    Sample(b"no key", None, timestamp_ms=TIME_MS + 3_600_000),
    Sample(None, b"a tombstone", timestamp_ms=TIME_MS - 1),
    Sample(b"", b"", timestamp_ms=TIME_MS + 5),
    Sample("größer als früher".encode(), "schlüssel".encode(), timestamp_ms=TIME_MS + 6),
    Sample(
        b"headers",
        b"many",
        (("plain", b"text"), ("twice", b"1"), ("twice", b"2"), ("null", None), ("empty", b""), ("größe", b"\xff\x00")),
        TIME_MS + 7,
    ),
    Sample(b"repeats itself " * 2000, b"long", timestamp_ms=TIME_MS + 8),
)


def until(what: Callable[[], T], timeout_s: float = TIMEOUT_S) -> T:
    """Ask again and again until the answer is true in Python's sense; for what a broker does in its own time."""
    deadline = time.monotonic() + timeout_s
    while not (answer := what()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s; the last answer was {answer!r}"
        time.sleep(0.01)
    return answer
