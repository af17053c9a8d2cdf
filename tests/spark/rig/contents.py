"""Topics with contents that a reader can get wrong: nulls, headers, several partitions, timestamps that jump."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas import Admin, Producer

#: The first timestamp of `fill`; records of a partition are a second apart. Long ago: topics need `retention.ms=-1`.
FIRST_MS = 1_700_000_000_000
STEP_MS = 1000


def fill(bootstrap: str, topic: str, sizes: Iterable[int], *, first: int = 0) -> None:
    """Write `sizes[p]` records into partition p, numbered from `first` on, with values `p:n`, a second between them.

    Every fifth has no key, every seventh is a tombstone, every third has headers: one, one without a value, or one name
    twice.
    """
    with Producer(bootstrap_servers=bootstrap) as producer:
        for partition, size in enumerate(sizes):
            for number in range(first, first + size):
                producer.send(
                    topic,
                    None if number % 7 == 6 else f"{partition}:{number}".encode(),
                    key=None if number % 5 == 4 else f"k{number % 11}".encode(),
                    headers=_headers(number),
                    partition=partition,
                    timestamp_ms=FIRST_MS + number * STEP_MS,
                )
        producer.flush()


def _headers(number: int) -> list[tuple[str, bytes | None]]:
    if number % 3:
        return []
    kinds: tuple[list[tuple[str, bytes | None]], ...]
    kinds = [("a", b"%d" % number)], [("no-value", None)], [("twice", b""), ("twice", b"\x00\xff")]
    return kinds[number // 3 % 3]


def number(bootstrap: str, topic: str, numbers: Iterable[int], partitions: int) -> None:
    """Write each number as a value of its own, in turn over the partitions: a stream must deliver all, each once."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for each in numbers:
            producer.send(topic, b"%d" % each, partition=each % partitions)
        producer.flush()


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    """Give a topic more partitions."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_partitions({topic: partitions})
