"""The clients that are compared, each with the settings that make it fast, each run in a process of its own.

`python -m bench.client_contestants NAME BOOTSTRAP TOPIC PARTITIONS COUNT` prints the seconds from the first record to
the last acknowledgement, or to the last record read. All write the same: values of 100 bytes, `acks=all`, to the
partitions in turn; all touch the value of every record that they read.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

VALUE: Final = b"x" * 100
LINGER_MS: Final = 5
BATCH_BYTES: Final = 1_000_000
CHUNK: Final = 5_000
ARROW_ROWS: Final = 100_000
_TIMEOUT_S: Final = 120


def confluent_produce(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    producer.list_topics(topic, timeout=_TIMEOUT_S)
    start = time.perf_counter()
    for number in range(count):
        try:
            producer.produce(topic, VALUE, partition=number % partitions)
        except BufferError:
            producer.poll(0.1)
            producer.produce(topic, VALUE, partition=number % partitions)
    assert producer.flush(_TIMEOUT_S) == 0
    return time.perf_counter() - start


def confluent_consume(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            # Room for all, or librdkafka pauses for a second whenever its queue is full.
            "queued.min.messages": 10_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.list_topics(topic, timeout=_TIMEOUT_S)
    seen = total = 0
    start = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    while seen < count:
        found = consumer.consume(CHUNK, timeout=10.0)
        assert found, f"{seen} of {count} records"
        for message in found:
            total += len(message.value())
        seen += len(found)
    elapsed = time.perf_counter() - start
    consumer.close()
    return elapsed


def kafka_python_produce(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=LINGER_MS, batch_size=BATCH_BYTES)
    producer.partitions_for(topic)
    start = time.perf_counter()
    for number in range(count):
        producer.send(topic, VALUE, partition=number % partitions)
    producer.flush(_TIMEOUT_S)
    elapsed = time.perf_counter() - start
    producer.close()
    return elapsed


def kafka_python_consume(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    seen = total = 0
    start = time.perf_counter()
    while seen < count:
        for messages in consumer.poll(timeout_ms=10_000, max_records=CHUNK).values():
            for message in messages:
                total += len(message.value)
            seen += len(messages)
    elapsed = time.perf_counter() - start
    consumer.close()
    return elapsed


def aiokafka_produce(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    from aiokafka import AIOKafkaProducer

    async def main() -> float:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
        )
        await producer.start()
        await producer.partitions_for(topic)
        start = time.perf_counter()
        for number in range(count):
            await producer.send(topic, VALUE, partition=number % partitions)
        await producer.flush()
        elapsed = time.perf_counter() - start
        await producer.stop()
        return elapsed

    return _on_uvloop(main)


def aiokafka_consume(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def main() -> float:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
        await consumer.start()
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        seen = total = 0
        start = time.perf_counter()
        while seen < count:
            for messages in (await consumer.getmany(timeout_ms=10_000, max_records=CHUNK)).values():
                for message in messages:
                    total += len(message.value)
                seen += len(messages)
        elapsed = time.perf_counter() - start
        await consumer.stop()
        return elapsed

    return _on_uvloop(main)


def our_produce(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    from barnabas import Producer

    with Producer(bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        producer.partitions_for(topic)
        start = time.perf_counter()
        for number in range(count):
            producer.send(topic, VALUE, partition=number % partitions)
        producer.flush(_TIMEOUT_S)
        return time.perf_counter() - start


def our_produce_as_installed(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    """No setting but the address."""
    from barnabas import Producer

    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.partitions_for(topic)
        start = time.perf_counter()
        for number in range(count):
            producer.send(topic, VALUE, partition=number % partitions)
        producer.flush(_TIMEOUT_S)
        return time.perf_counter() - start


def our_asyncio_produce(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    from barnabas.aio import Producer

    async def main() -> float:
        async with Producer(bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
            await producer.partitions_for(topic)
            start = time.perf_counter()
            for number in range(count):
                await producer.send(topic, VALUE, partition=number % partitions)
            await producer.flush()
            return time.perf_counter() - start

    return _on_uvloop(main)


def our_arrow_produce(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    import pyarrow as pa

    from barnabas import Producer

    rows = min(count, ARROW_ROWS)
    table = pa.table(
        {
            "value": pa.array([VALUE] * rows, pa.binary()),
            "partition": pa.array([number % partitions for number in range(rows)], pa.int32()),
        }
    )
    with Producer(bootstrap_servers=bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        producer.partitions_for(topic)
        start = time.perf_counter()
        for _ in range(count // rows):
            producer.send_arrow(topic, table)
        producer.flush(_TIMEOUT_S)
        return time.perf_counter() - start


def _our_consumer(bootstrap: str, topic: str, partitions: int) -> Any:
    from barnabas import Consumer, TopicPartition

    consumer = Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    return consumer


def our_iteration(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    with _our_consumer(bootstrap, topic, partitions) as consumer:
        total = 0
        start = time.perf_counter()
        for record in islice(consumer, count):
            total += len(record.value)
        return time.perf_counter() - start


def our_asyncio_iteration(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    from barnabas import TopicPartition
    from barnabas.aio import Consumer

    async def main() -> float:
        async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            seen = total = 0
            start = time.perf_counter()
            async for record in consumer:
                total += len(record.value)
                seen += 1
                if seen == count:
                    break
            return time.perf_counter() - start

    return _on_uvloop(main)


def our_arrow_consume(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    with _our_consumer(bootstrap, topic, partitions) as consumer:
        seen = 0
        start = time.perf_counter()
        while seen < count:
            batch = consumer.poll_arrow(timeout=10.0)
            assert batch.num_rows, f"{seen} of {count} records"
            seen += batch.num_rows
        return time.perf_counter() - start


def _on_uvloop(main: Callable[[], Any]) -> float:
    """Everybody's asyncio gets the faster loop."""
    from barnabas.net.runtime import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return float(runner.run(main()))


CONTESTANTS: Final[dict[str, Callable[[str, str, int, int], float]]] = {
    each.__name__: each
    for each in (
        confluent_produce,
        confluent_consume,
        kafka_python_produce,
        kafka_python_consume,
        aiokafka_produce,
        aiokafka_consume,
        our_produce,
        our_produce_as_installed,
        our_asyncio_produce,
        our_arrow_produce,
        our_iteration,
        our_asyncio_iteration,
        our_arrow_consume,
    )
}

if __name__ == "__main__":
    name, bootstrap, topic, partitions, count = sys.argv[1:]
    print(CONTESTANTS[name](bootstrap, topic, int(partitions), int(count)))
