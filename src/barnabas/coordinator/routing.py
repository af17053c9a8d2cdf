"""Which partition of `__consumer_offsets` a group belongs to."""

from __future__ import annotations


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 units, as a signed number of 32 bits."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + (data[position] << 8 | data[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(group_id: str, partition_count: int) -> int:
    value = java_string_hash(group_id)
    # The lowest number has no counterpart; Kafka takes it for 0.
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
