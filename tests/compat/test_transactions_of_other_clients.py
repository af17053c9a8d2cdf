"""Transactions of other people's clients on our cluster: librdkafka's, aiokafka's and Java's, all in the same topic.

On one node, and on three, where a transaction reaches partitions, coordinators and groups on several brokers. What they
abort nobody sees, what they commit everybody does, and offsets go with it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import aiokafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas.testing import EmbeddedBroker, EmbeddedCluster
from tests.compat.brokers import unique
from tests.oracles import needs_kafka, run_java

TRANSACTIONS = 10
RECORDS = 6
QUIET = {"log_level": 0}
COMMITTED = [number for number in range(TRANSACTIONS) if number % 2]


@pytest.fixture(scope="module", params=["one node", "three nodes"])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "one node":
        with EmbeddedBroker() as broker:
            broker.create_topic("t", partitions=3)
            yield broker.bootstrap_servers
    else:
        with EmbeddedCluster(nodes=3) as cluster:
            cluster.create_topic("t", partitions=3, replication_factor=3)
            yield cluster.bootstrap_servers


def seen_by_librdkafka(bootstrap: str, who: str) -> Counter[int]:
    """How many records of each transaction a reader of committed data finds."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition("t", number, 0) for number in range(3)])
    found: Counter[int] = Counter()
    ends = 0
    while ends < 3:
        message = consumer.poll(10)
        assert message is not None, "the end does not come"
        if message.error():
            ends += 1
        else:
            name, number, _ = message.value().decode().split()
            if name == who:
                found[int(number)] += 1
    consumer.close()
    return found


def committed_offset(bootstrap: str, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET})
    [told] = consumer.committed([TopicPartition("t", 0)], 10)
    consumer.close()
    return int(told.offset)


def test_librdkafka(bootstrap: str) -> None:
    who, group = unique("rdk"), unique("group")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": who, "linger.ms": 0, **QUIET})
    producer.init_transactions(30)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET})
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for each in range(RECORDS):
            producer.produce("t", f"{who} {number} {each}".encode(), partition=each % 3)
        producer.send_offsets_to_transaction([TopicPartition("t", 0, number)], reader.consumer_group_metadata(), 30)
        if number % 2:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    reader.close()
    assert seen_by_librdkafka(bootstrap, who) == dict.fromkeys(COMMITTED, RECORDS)
    assert committed_offset(bootstrap, group) == COMMITTED[-1]


def test_the_older_of_two_with_one_id_is_fenced(bootstrap: str) -> None:
    who = unique("fenced")
    old, new = (
        Producer({"bootstrap.servers": bootstrap, "transactional.id": who, "linger.ms": 0, **QUIET}) for _ in range(2)
    )
    old.init_transactions(30)
    old.begin_transaction()
    old.produce("t", f"{who} 0 old".encode(), partition=0)
    old.flush(30)
    new.init_transactions(30)
    with pytest.raises(KafkaException, match="fenced"):
        old.commit_transaction(30)
    new.begin_transaction()
    new.produce("t", f"{who} 1 new".encode(), partition=0)
    new.commit_transaction(30)
    assert seen_by_librdkafka(bootstrap, who) == {1: 1}


def test_aiokafka(bootstrap: str) -> None:
    who, group = unique("aio"), unique("group")

    async def play() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=who) as producer:
            for number in range(TRANSACTIONS):
                await producer.begin_transaction()
                for each in range(RECORDS):
                    await producer.send("t", f"{who} {number} {each}".encode(), partition=each % 3)
                await producer.send_offsets_to_transaction({aiokafka.TopicPartition("t", 0): number}, group)
                if number % 2:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    async def read() -> Counter[int]:
        found: Counter[int] = Counter()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
        consumer.assign([aiokafka.TopicPartition("t", number) for number in range(3)])
        async with consumer:
            await consumer.seek_to_beginning()
            ends = await consumer.end_offsets(list(consumer.assignment()))
            while any([await consumer.position(each) < end for each, end in ends.items()]):
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        name, number, _ = record.value.decode().split()
                        if name == who:
                            found[int(number)] += 1
        return found

    asyncio.run(play())
    assert asyncio.run(read()) == dict.fromkeys(COMMITTED, RECORDS)
    assert seen_by_librdkafka(bootstrap, who) == dict.fromkeys(COMMITTED, RECORDS)
    assert committed_offset(bootstrap, group) == COMMITTED[-1]


@needs_kafka()
def test_java(bootstrap: str) -> None:
    """Which leaves the adding of partitions and groups to us (transactions v2)."""
    who = unique("java")
    printed = run_java("JavaTransactions.java", "", arguments=(bootstrap, "t", who))
    told = dict(line.split("\t", 1) for line in printed.splitlines())
    committed = [number for number in range(20) if number % 2]
    assert told == {
        "fenced": "yes",
        "count": str(RECORDS * len(committed)),
        "seen": str(committed),
        "after fencing": "1",
        "offset": str(committed[-1]),
    }
    assert seen_by_librdkafka(bootstrap, who) == dict.fromkeys(committed, RECORDS)
