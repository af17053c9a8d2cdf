"""The same key goes to the same partition, whichever client sends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from tests.compat.our_client import aio_polled, polled
from tests.compat.our_client_peers import Peers, java_record, kafkajs_missing, kafkajs_send
from tests.compat.samples import TIMEOUT_S, Sample
from tests.oracles import missing

#: A prime, so that no two ways to shorten a hash agree by chance.
PARTITIONS: Final = 23


def _keys() -> list[bytes]:
    """Of every length modulo four, as the hash reads them; some with high bits, which are negative for Java."""
    random = Random(11)
    found = {b"", b"\0", b"\xff" * 7, "schlüssel".encode(), "ключ".encode(), "鍵".encode(), "🔑🗝".encode(), b"k" * 5000}
    while len(found) < 500:
        length = random.choice((1, 2, 3, 4, 5, 8, 13, 36, 200))
        found.add(
            random.choice(
                (
                    random.randbytes(length),
                    b"user-%d" % random.getrandbits(8 + length),
                    "".join(chr(random.randrange(0x400, 0x2000)) for _ in range(length)).encode(),
                )
            )
        )
    return sorted(found)


KEYS: Final = _keys()


def _ours(peers: Peers, topic: str, keys: Sequence[bytes]) -> None:
    with peers.ours.producer() as producer:
        sent = [producer.send(topic, b"x", key) for key in keys]
    # The partition was known at once, and is told again with the acknowledgement.
    assert [each.partition for each in sent] == [each.result(TIMEOUT_S).partition for each in sent]


def _ours_aio(peers: Peers, topic: str, keys: Sequence[bytes]) -> None:
    asyncio.run(peers.ours.aio_produce(topic, [Sample(b"x", key) for key in keys]))


def _ours_arrow(peers: Peers, topic: str, keys: Sequence[bytes]) -> None:
    peers.ours.produce_arrow(topic, pa.table({"key": pa.array(keys), "value": pa.array([b"x"] * len(keys))}))


def _confluent(peers: Peers, topic: str, keys: Sequence[bytes]) -> None:
    peers.confluent.produce(topic, [Sample(b"x", key) for key in keys], {"partitioner": "murmur2_random"})


def _kafka_python(peers: Peers, topic: str, keys: Sequence[bytes]) -> None:
    peers.kafka_python.produce(topic, [Sample(b"x", key) for key in keys])


def _aiokafka(peers: Peers, topic: str, keys: Sequence[bytes]) -> None:
    asyncio.run(peers.aiokafka.produce(topic, [Sample(b"x", key) for key in keys]))


def _java(peers: Peers, topic: str, keys: Sequence[bytes]) -> None:
    peers.java("produce", topic=topic, records=[java_record(Sample(b"x", key)) for key in keys])


def _kafkajs(peers: Peers, topic: str, keys: Sequence[bytes]) -> None:
    kafkajs_send(peers.bootstrap, topic, keys)


SENDERS: Final[dict[str, Callable[[Peers, str, Sequence[bytes]], None]]] = {
    "ours in asyncio": _ours_aio,
    "ours in Arrow": _ours_arrow,
    "confluent-kafka": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "Java": _java,
    "kafkajs": _kafkajs,
}
MISSING: Final = {"Java": missing(), "kafkajs": kafkajs_missing()}


def chosen(peers: Peers, send: Callable[[Peers, str, Sequence[bytes]], None]) -> dict[bytes, int]:
    topic = peers.ours.topic(PARTITIONS)
    send(peers, topic, KEYS)
    return {each.key: each.partition for each in peers.ours.read(topic, PARTITIONS, len(KEYS), polled)}


@pytest.fixture(scope="module")
def ours(peers: Peers) -> dict[bytes, int]:
    return chosen(peers, _ours)


@pytest.mark.parametrize("sender", SENDERS)
def test_a_key_has_one_partition(peers: Peers, ours: dict[bytes, int], sender: str) -> None:
    reason = MISSING.get(sender)
    if reason is not None:
        pytest.skip(reason)
    assert len(ours) == len(KEYS)
    assert chosen(peers, SENDERS[sender]) == ours


def test_all_partitions_are_used(ours: dict[bytes, int]) -> None:
    assert set(ours.values()) == set(range(PARTITIONS))


def test_records_without_keys_go_everywhere(peers: Peers) -> None:
    topic = peers.ours.topic(4)
    peers.ours.produce(topic, [Sample(b"x" * 1000)] * 600, linger_ms=1, batch_size=4000)

    async def read() -> set[int]:
        records = await peers.ours.aio_read(topic, 4, 600, aio_polled)
        return {each.partition for each in records}

    assert asyncio.run(read()) == {0, 1, 2, 3}
