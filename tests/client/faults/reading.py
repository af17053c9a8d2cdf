"""What a topic holds, and a wait for something that other threads bring about."""

from __future__ import annotations

import time
from collections.abc import Callable

from barnabas import Consumer, TopicPartition
from barnabas.client._kernel.receiving import ConsumerRecord

LIMIT_S = 20.0


def read_all(bootstrap_servers: str, topic: str) -> list[ConsumerRecord]:
    """All records of a topic, by partition and offset. They are there to be read: nothing is waited for."""
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        partitions = [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        records: list[ConsumerRecord] = []
        while any(consumer.position(each) < ends[each] for each in partitions):
            records += consumer.poll(timeout=LIMIT_S)
    return sorted(records, key=lambda each: (each.partition, each.offset))


def values_of(bootstrap_servers: str, topic: str) -> list[bytes]:
    return [record.value for record in read_all(bootstrap_servers, topic)]


def wait_until(condition: Callable[[], object], what: str) -> None:
    """For what another thread or process does; fails the test if it never does."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.005)
