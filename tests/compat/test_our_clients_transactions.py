"""What others wrote in transactions: our consumers show what was committed, or everything, as they are told.

Needs a broker with transactions, which an Apache Kafka is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from barnabas import TopicPartition
from tests.compat.brokers import unique
from tests.compat.our_client import aio_iterated, aio_polled, aio_polled_arrow, iterated, polled, polled_arrow, rows_of
from tests.compat.our_client_peers import Peers, java_record
from tests.compat.samples import TIMEOUT_S, Sample

PARTITIONS: Final = 3


@dataclass(frozen=True)
class Written:
    peers: Peers
    topic: str
    committed: frozenset[int]
    everything: frozenset[int]


@pytest.fixture(scope="module")
def written(kafka_peers: Peers) -> Written:
    """Transactions of confluent-kafka, side by side, and of Java, one after the other; between them records of ours
    that belong to none."""
    topic = kafka_peers.ours.topic(PARTITIONS)
    committed: set[int] = set()
    number = 0

    def some(count: int) -> list[int]:
        nonlocal number
        number += count
        return list(range(number - count, number))

    transactional = []
    for name in ("first", "second"):
        producer = kafka_peers.confluent.producer({"transactional.id": unique(name)})
        producer.init_transactions(TIMEOUT_S)
        transactional.append(producer)
    for step in range(6):
        for producer in transactional:
            producer.begin_transaction()
        shares: list[list[int]] = [[], []]
        for _ in range(3):
            for share, producer in zip(shares, transactional, strict=True):
                mine = some(5)
                for each in mine:
                    producer.produce(topic, b"%d" % each, partition=each % PARTITIONS)
                producer.flush(TIMEOUT_S)
                share += mine
        for who, producer in enumerate(transactional):
            if (step + who) % 3:
                producer.commit_transaction(TIMEOUT_S)
                committed.update(shares[who])
            else:
                producer.abort_transaction(TIMEOUT_S)
        plain = some(4)
        kafka_peers.ours.produce(topic, [Sample(b"%d" % each) for each in plain], partition=step % PARTITIONS)
        committed.update(plain)
    for is_committed in (True, False, True):
        mine = some(10)
        records = [java_record(Sample(b"%d" % each), each % PARTITIONS) for each in mine]
        settings = {"transactional.id": unique("java"), "linger.ms": "0"}
        kafka_peers.java("transact", topic=topic, records=records, settings=settings, commit=is_committed)
        if is_committed:
            committed.update(mine)
    return Written(kafka_peers, topic, frozenset(committed), frozenset(range(number)))


def numbers(found: Any) -> list[int]:
    if hasattr(found, "to_pylist"):
        return [int(sample.value or b"") for _, _, sample in rows_of(found)]
    return [int(each.value) for each in found]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("how", [iterated, polled, polled_arrow, aio_iterated, aio_polled, aio_polled_arrow])
def test_what_is_shown(written: Written, how: Callable[[Any, int], Any], level: str) -> None:
    wanted = written.committed if level == "read_committed" else written.everything
    ours, place = written.peers.ours, (written.topic, PARTITIONS, len(wanted))
    if asyncio.iscoroutinefunction(how):
        found = numbers(asyncio.run(ours.aio_read(*place, how, isolation_level=level)))
    else:
        found = numbers(ours.read(*place, how, isolation_level=level))
    assert sorted(found) == sorted(wanted)


def test_an_open_transaction_holds_back_what_follows_it(written: Written) -> None:
    peers = written.peers
    topic = peers.ours.topic()
    partition = TopicPartition(topic, 0)
    producer = peers.confluent.producer({"transactional.id": unique("open")})
    producer.init_transactions(TIMEOUT_S)
    peers.ours.produce(topic, [Sample(b"0")])
    producer.begin_transaction()
    producer.produce(topic, b"1", partition=0)
    producer.flush(TIMEOUT_S)
    peers.ours.produce(topic, [Sample(b"2")])
    with (
        peers.ours.consumer(isolation_level="read_committed") as careful,
        peers.ours.consumer(isolation_level="read_uncommitted") as careless,
    ):
        for each in (careful, careless):
            each.assign([partition])
        assert numbers(polled(careless, 3)) == [0, 1, 2]
        assert numbers(polled(careful, 1)) == [0]
        assert careful.poll(0.3) == []
        assert (careful.end_offsets([partition]), careless.end_offsets([partition])) == ({partition: 1}, {partition: 3})
        producer.commit_transaction(TIMEOUT_S)
        assert numbers(polled(careful, 2)) == [1, 2]
        assert careful.position(partition) >= 3
