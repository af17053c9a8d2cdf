"""Reading from Apache Kafka itself: transactions as its brokers write them, compaction apart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import TopicPartition
from tests.client.consumer.reading_world import reading
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import KafkaServer

TOPIC = "payments"
OVERRIDES = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "num.partitions": "2",
}


def write_transactions(bootstrap: str) -> tuple[set[bytes], set[bytes]]:
    """Some committed, some aborted, two producers at a time; what of it is to be seen, and all."""
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    producers = []
    for name in ("first", "second"):
        settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(30)
        producers.append(producer)
    committed: set[bytes] = set()
    everything: set[bytes] = set()
    for round_ in range(8):
        written: list[set[bytes]] = [set(), set()]
        for producer in producers:
            producer.begin_transaction()
        for number in range(12):
            for who, producer in enumerate(producers):
                value = b"%d-%d-%d" % (round_, who, number)
                producer.produce(TOPIC, value, partition=number % 2)
                written[who].add(value)
                if number % 3 == who:
                    producer.flush(30)
        for who, producer in enumerate(producers):
            if (round_ + who) % 3 == 0:
                producer.flush(30)  # what librdkafka has not sent yet would not be aborted but dropped
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
                committed |= written[who]
            everything |= written[who]
    return committed, everything


async def read(bootstrap: str, **settings: Any) -> list[bytes]:
    partitions = [TopicPartition(TOPIC, number) for number in range(2)]
    values: list[bytes] = []
    async with reading(bootstrap, *partitions, **settings) as reader:
        ends = await reader.fetcher.lookup.end_offsets(partitions, 10_000)
        while any(
            (position := reader.subscription.position(each)) is None or position.offset < ends[each]
            for each in partitions
        ):
            values += [record.value for record in await reader.poll(7, timeout_s=0.2)]
        assert all(reader.fetcher.current_lag(each) == 0 for each in partitions)
    return values


@needs_kafka()
def test_committed_records_of_kafka_are_seen_once_and_aborted_ones_never(tmp_path: Path) -> None:
    with KafkaServer(tmp_path, OVERRIDES) as server:
        committed, everything = write_transactions(server.bootstrap)
        for size in (1, 700, 1 << 20):
            seen = asyncio.run(read(server.bootstrap, isolation_level="read_committed", max_partition_fetch_bytes=size))
            assert sorted(seen) == sorted(committed)
        assert sorted(asyncio.run(read(server.bootstrap))) == sorted(everything)
