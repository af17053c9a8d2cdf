"""Which partition of `__consumer_offsets` a group belongs to."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Final

_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"


#: Names up to this length are remembered, so many at a time.
_SHORT: Final = 255
_REMEMBERED: Final = 4096


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 units, as a signed number of 32 bits."""
    value = 0
    units = text.encode() if text.isascii() else memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H")
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(group_id: str, partition_count: int) -> int:
    # Every heartbeat asks, most of them for the same few groups.
    return (_remembered if len(group_id) <= _SHORT else _partition_for)(group_id, partition_count)


def _partition_for(group_id: str, partition_count: int) -> int:
    value = java_string_hash(group_id)
    # The lowest number has no counterpart; Kafka takes it for 0.
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


_remembered = lru_cache(_REMEMBERED)(_partition_for)
