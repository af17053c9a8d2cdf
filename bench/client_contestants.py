"""The clients that are compared, each with the settings that make it fast, each run in a process of its own.

`python -m bench.client_contestants NAME BOOTSTRAP TOPIC PARTITIONS COUNT [WARM]` prints the seconds from the first
record to the last acknowledgement, or to the last record read. All write the same: values of 100 bytes, `acks=all`, to
the partitions in turn; all touch the value of every record that they read.

A virtual machine may hand memory that is free for a second or two back to its host, and get it again at a fifth of the
speed at which files are written otherwise. So whoever produces first writes a file as large as its records will be,
`WARM`, and deletes it when the clock starts: then the node finds the memory at hand.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

VALUE: Final = b"x" * 100
LINGER_MS: Final = 5
BATCH_BYTES: Final = 1_000_000
FAST_SETTINGS: Final[Mapping[str, int]] = {"linger.ms": LINGER_MS, "batch.size": BATCH_BYTES}
NO_SETTINGS: Final[Mapping[str, int]] = {}
CHUNK: Final = 5_000
ARROW_ROWS: Final = 100_000
RECORD_BYTES: Final = len(VALUE) + 12
_TIMEOUT_S: Final = 120

_warm: list[Path] = []


def warm_memory(path: Path, size_bytes: int) -> None:
    chunk = bytes(2**20)
    with path.open("wb") as file:
        for _ in range(size_bytes // len(chunk) + 1):
            file.write(chunk)
    _warm.append(path)


def start_clock() -> float:
    while _warm:
        _warm.pop().unlink()
    return time.perf_counter()


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
    return _confluent_seconds(producer, topic, partitions, count)


def confluent_produce_as_installed(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    """No setting but the address."""
    from confluent_kafka import Producer

    return _confluent_seconds(Producer({"bootstrap.servers": bootstrap}), topic, partitions, count)


def _confluent_seconds(producer: Any, topic: str, partitions: int, count: int) -> float:
    producer.list_topics(topic, timeout=_TIMEOUT_S)
    start = start_clock()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, VALUE, partition=number % partitions)
                break
            except BufferError:
                # Its queue is full, of 100,000 messages unless told otherwise.
                producer.poll(0.1)
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
    start = start_clock()
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
        start = start_clock()
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
        return _our_seconds(producer, topic, partitions, count)


def our_produce_as_installed(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    """No setting but the address."""
    from barnabas import Producer

    with Producer(bootstrap_servers=bootstrap) as producer:
        return _our_seconds(producer, topic, partitions, count)


def our_produce_with_linger(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    """No setting but the address and linger.ms."""
    from barnabas import Producer

    with Producer(bootstrap_servers=bootstrap, linger_ms=LINGER_MS) as producer:
        return _our_seconds(producer, topic, partitions, count)


def _our_seconds(producer: Any, topic: str, partitions: int, count: int) -> float:
    producer.partitions_for(topic)
    start = start_clock()
    for number in range(count):
        producer.send(topic, VALUE, partition=number % partitions)
    producer.flush(_TIMEOUT_S)
    return time.perf_counter() - start


def our_asyncio_produce(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    return _our_asyncio_seconds(bootstrap, topic, partitions, count, FAST_SETTINGS)


def our_asyncio_produce_as_installed(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    """No setting but the address."""
    return _our_asyncio_seconds(bootstrap, topic, partitions, count)


def _our_asyncio_seconds(
    bootstrap: str, topic: str, partitions: int, count: int, settings: Mapping[str, int] = NO_SETTINGS
) -> float:
    from barnabas.aio import Producer

    async def main() -> float:
        async with Producer({"bootstrap.servers": bootstrap, **settings}) as producer:
            await producer.partitions_for(topic)
            start = start_clock()
            for number in range(count):
                await producer.send(topic, VALUE, partition=number % partitions)
            await producer.flush()
            return time.perf_counter() - start

    return _on_uvloop(main)


def our_arrow_produce(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    return _our_arrow_seconds(bootstrap, topic, partitions, count, FAST_SETTINGS)


def our_arrow_produce_as_installed(bootstrap: str, topic: str, partitions: int, count: int) -> float:
    """No setting but the address."""
    return _our_arrow_seconds(bootstrap, topic, partitions, count)


def _our_arrow_seconds(
    bootstrap: str, topic: str, partitions: int, count: int, settings: Mapping[str, int] = NO_SETTINGS
) -> float:
    import pyarrow as pa

    from barnabas import Producer

    rows = min(count, ARROW_ROWS)
    table = pa.table(
        {
            "value": pa.array([VALUE] * rows, pa.binary()),
            "partition": pa.array([number % partitions for number in range(rows)], pa.int32()),
        }
    )
    with Producer({"bootstrap.servers": bootstrap, **settings}) as producer:
        producer.partitions_for(topic)
        start = start_clock()
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
        confluent_produce_as_installed,
        confluent_consume,
        kafka_python_produce,
        kafka_python_consume,
        aiokafka_produce,
        aiokafka_consume,
        our_produce,
        our_produce_as_installed,
        our_produce_with_linger,
        our_asyncio_produce,
        our_asyncio_produce_as_installed,
        our_arrow_produce,
        our_arrow_produce_as_installed,
        our_iteration,
        our_asyncio_iteration,
        our_arrow_consume,
    )
}

if __name__ == "__main__":
    name, bootstrap, topic, partitions, count, *warm = sys.argv[1:]
    for path in warm:
        warm_memory(Path(path), int(count) * RECORD_BYTES)
    print(CONTESTANTS[name](bootstrap, topic, int(partitions), int(count)))
