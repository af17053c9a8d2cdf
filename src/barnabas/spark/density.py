"""How many bytes an offset of a partition stands for, found out by looking at a few places.

Brokers tell the size of a partition, but not of a part of it. So a few small fetches are made between two offsets, and
what comes says how many bytes there are for how many offsets. Compaction leaves fewer bytes per offset in the old part
of a log than in the new one, and producers change their minds: one place is not enough.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.consumer.range_reading import bytes_per_offset_at
from barnabas.client.consumer.sync_consumer import Consumer
from barnabas.spark.pool import ClientPool
from barnabas.spark.reading import consumer_settings

log = logging.getLogger(__name__)

#: For partitions of which nothing can be found out.
DEFAULT_BYTES: Final = 1024.0
#: A sample of several batches of usual size: of the first and the last one only a part may count.
_SAMPLE_BYTES: Final = 131_072

_consumers: Final = ClientPool(Consumer)


def bytes_per_offset(
    client: Mapping[str, str],
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    *,
    samples: int = 3,
    timeout_ms: int = 10_000,
) -> dict[TopicPartition, float]:
    """Bytes in the log (as they are stored and sent, compressed or not) per offset between `begin` and `end`.

    Each partition of `end` is looked at in a few places with small fetches, all partitions of a broker at once. One
    that cannot be sampled in time gets the average of the others, or 1 KiB if there is none.
    """
    spans = {partition: (begin.get(partition, 0), until) for partition, until in end.items()}
    found: dict[TopicPartition, list[float]] = {partition: [] for partition in spans}
    open_spans = {partition: span for partition, span in spans.items() if span[0] < span[1]}
    if open_spans:
        # Those of the reader, with small fetches.
        small = {**client, "max.partition.fetch.bytes": str(_SAMPLE_BYTES), "fetch.min.bytes": "1"}
        try:
            with _consumers.lend(consumer_settings(small)) as consumer:
                for number in range(samples):
                    places = sample_places(open_spans, number, samples)
                    for partition, each in bytes_per_offset_at(consumer, places, timeout_ms / samples / 1000).items():
                        found[partition].append(each)
        except BarnabasError as error:
            log.warning("how large records are cannot be found out: %s", error)
    return fill_in(found)


def sample_places(
    spans: Mapping[TopicPartition, tuple[int, int]], number: int, samples: int
) -> dict[TopicPartition, int]:
    """Where to look in round `number`: at the beginning of each of as many parts of equal length. A span of fewer
    offsets than samples has fewer places.
    """
    places: dict[TopicPartition, int] = {}
    for partition, (first, until) in spans.items():
        size = until - first
        place = first + size * number // samples
        if number == 0 or place > first + size * (number - 1) // samples:
            places[partition] = place
    return places


def fill_in(found: Mapping[TopicPartition, list[float]]) -> dict[TopicPartition, float]:
    """The average of each partition's samples; for one without any, the average of all others."""
    means = {partition: sum(each) / len(each) for partition, each in found.items() if each}
    usual = sum(means.values()) / len(means) if means else DEFAULT_BYTES
    return {partition: means.get(partition, usual) for partition in found}
