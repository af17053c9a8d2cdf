"""How many bytes an offset of a partition stands for, found out by looking at a few places.

Brokers tell the size of a partition, but not of a part of it. So a few small fetches are made between two offsets, and
what comes says how many bytes there are for how many offsets. Compaction leaves fewer bytes per offset in the old part
of a log than in the new one, and producers change their minds: one place is not enough.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.consumer.range_reading import bytes_per_offset_at
from barnabas.client.consumer.sync_consumer import Consumer
from barnabas.spark.core.ranges import OffsetRange
from barnabas.spark.pool import ClientPool
from barnabas.spark.reading import consumer_settings

log = logging.getLogger(__name__)

#: For partitions of which nothing can be found out.
DEFAULT_BYTES: Final = 1024.0
#: A sample of several batches of usual size: of the first and the last one only a part may count.
_SAMPLE_BYTES: Final = 131_072
_SAMPLES: Final = 3

_consumers: Final = ClientPool[Consumer](Consumer)


def bytes_per_offset(
    client: Mapping[str, str], ranges: Iterable[OffsetRange], *, timeout_s: float = 10.0
) -> dict[TopicPartition, float]:
    """Bytes in the log (as they are stored and sent, compressed or not) per offset of the ranges' partitions.

    Each partition is looked at in a few places, between the first and the last of its ranges, with small fetches, all
    partitions of a broker at once. One that cannot be sampled in time gets the average of the others, or 1 KiB if there
    is none.
    """
    spans = spanned(ranges)
    found: dict[TopicPartition, list[float]] = {partition: [] for partition in spans}
    # Those of the reader, with small fetches.
    small = {**client, "max.partition.fetch.bytes": str(_SAMPLE_BYTES), "fetch.min.bytes": "1"}
    try:
        with _consumers.lend(consumer_settings(small)) as consumer:
            for number in range(_SAMPLES):
                places = sample_places(spans, number)
                for partition, each in bytes_per_offset_at(consumer, places, timeout_s / _SAMPLES).items():
                    found[partition].append(each)
    except BarnabasError as error:
        log.warning("how large records are cannot be found out: %s", error)
    return fill_in(found)


def spanned(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, OffsetRange]:
    """All from the first to the last offset of each partition."""
    spans: dict[TopicPartition, OffsetRange] = {}
    for each in ranges:
        known = spans.get(each.topic_partition, each)
        first, until = min(known.from_offset, each.from_offset), max(known.until_offset, each.until_offset)
        spans[each.topic_partition] = OffsetRange(each.topic_partition, first, until)
    return spans


def sample_places(spans: Mapping[TopicPartition, OffsetRange], number: int) -> dict[TopicPartition, int]:
    """Where to look in round `number`: at the beginning of each of as many parts of equal length. A span of fewer
    offsets than samples has fewer places.
    """
    places: dict[TopicPartition, int] = {}
    for partition, span in spans.items():
        place = span.from_offset + span.size * number // _SAMPLES
        if number == 0 or place > span.from_offset + span.size * (number - 1) // _SAMPLES:
            places[partition] = place
    return places


def fill_in(found: Mapping[TopicPartition, list[float]]) -> dict[TopicPartition, float]:
    """The average of each partition's samples; for one without any, the average of all others."""
    means = {partition: sum(each) / len(each) for partition, each in found.items() if each}
    usual = sum(means.values()) / len(means) if means else DEFAULT_BYTES
    return {partition: means.get(partition, usual) for partition in found}
