"""A program that polls lists and columns, iterates, seeks and pauses in any order gets every record where it should."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from barnabas import Consumer, Producer, TopicPartition
from barnabas.client._kernel.receiving import ConsumerRecord
from barnabas.testing import EmbeddedBroker

EACH = 600
PARTITIONS = [TopicPartition("mixed", 0), TopicPartition("mixed", 1)]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        made.create_topic("mixed", partitions=2)
        with Producer(bootstrap_servers=made.bootstrap_servers, batch_size=600) as producer:
            for number in range(EACH):
                for partition in (0, 1):
                    headers = [("h", b"1")] if number % 3 else []
                    producer.send("mixed", b"%d" % number, partition=partition, headers=headers)
        yield made


class Reading:
    """A consumer, and a plain account of where it should be."""

    def __init__(self, consumer: Consumer, random: Random) -> None:
        self.consumer = consumer
        self.random = random
        self.positions = [0, 0]
        self.paused: set[int] = set()
        self.loop: Iterator[ConsumerRecord] = iter(consumer)

    def see(self, partition: int, offset: int, value: bytes) -> None:
        assert int(value) == offset == self.positions[partition]
        assert partition not in self.paused
        self.positions[partition] += 1

    def has_records(self) -> bool:
        return any(each not in self.paused and self.positions[each] < EACH for each in (0, 1))

    def poll(self) -> None:
        for record in self.consumer.poll(0.02, max_records=self.random.choice([1, 3, 50, 500])):
            self.see(record.partition, record.offset, record.value)

    def poll_arrow(self) -> None:
        batch = self.consumer.poll_arrow(0.02, max_rows=self.random.choice([1, 7, 100, 5000]))
        for row in batch.to_pylist():
            self.see(row["partition"], row["offset"], row["value"])

    def iterate(self) -> None:
        if self.random.random() < 0.5:
            self.loop = iter(self.consumer)
        while self.has_records():
            record = next(self.loop)
            self.see(record.partition, record.offset, record.value)
            if self.random.random() < 0.1:
                break

    def seek(self) -> None:
        which = self.random.randrange(2)
        self.positions[which] = self.random.randrange(EACH)
        self.consumer.seek(PARTITIONS[which], self.positions[which])

    def pause(self) -> None:
        which = self.random.randrange(2)
        self.consumer.pause([PARTITIONS[which]])
        self.paused.add(which)

    def resume(self) -> None:
        which = self.random.randrange(2)
        self.consumer.resume([PARTITIONS[which]])
        self.paused.discard(which)

    def position(self) -> None:
        assert [self.consumer.position(each) for each in PARTITIONS] == self.positions


@pytest.mark.parametrize("seed", range(4))
def test_all_ways_of_reading_mix(broker: EmbeddedBroker, seed: int) -> None:
    random = Random(seed)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=random.choice([500, 5000, 1 << 20]),
        fetch_max_bytes=random.choice([1000, 20_000, 1 << 20]),
        fetch_max_wait_ms=20,
    ) as consumer:
        consumer.assign(PARTITIONS)
        it = Reading(consumer, random)
        steps = [it.poll, it.poll, it.poll_arrow, it.poll_arrow, it.iterate, it.iterate, it.seek, it.seek]
        for _ in range(80):
            random.choice([*steps, it.pause, it.resume, it.resume, it.position])()
