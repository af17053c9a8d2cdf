"""What may happen to a producer from within: callbacks that end everything, a loop that ends, plug-ins that forget."""

from __future__ import annotations

import asyncio
import gc
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from barnabas import Producer, aio
from barnabas.client.errors import BufferFullError, ClientClosedError, ClientTimeoutError
from barnabas.testing import EmbeddedBroker
from tests.client.faults.reading import LIMIT_S, values_of

# Callbacks


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_a_callback_that_would_end_the_program_costs_nothing(
    broker: EmbeddedBroker,
    make_topic: Callable[..., str],
    kind: type[BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One answer tells of three batches: all three are told, and the producer goes on."""
    topic = make_topic(3)

    def on_delivery(metadata: Any, error: Any) -> None:
        raise kind

    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=50) as producer:
        producer.partitions_for(topic)
        futures = [
            producer.send(topic, b"v", partition=number, on_delivery=None if number else on_delivery)
            for number in range(3)
        ]
        assert [future.result(LIMIT_S).offset for future in futures] == [0, 0, 0]
        assert producer.send(topic, b"v", partition=1).result(LIMIT_S).offset == 1
        producer.flush(LIMIT_S)
        assert producer._parts.pool.available_bytes == producer._parts.pool.total_bytes
        assert producer._parts.sender.in_network_count == 0
    assert sum("callback raised" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_in_asyncio_it_stops_the_loop_when_all_records_have_their_outcome(
    broker: EmbeddedBroker, make_topic: Callable[..., str], kind: type[BaseException]
) -> None:
    topic = make_topic(3)
    futures: list[Any] = []

    def on_delivery(metadata: Any, error: Any) -> None:
        raise kind

    async def story() -> None:
        producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=20)
        kept.append(producer)
        await producer.partitions_for(topic)
        futures.append(await producer.send(topic, b"v", partition=0, on_delivery=on_delivery))
        futures.extend([await producer.send(topic, b"v", partition=number) for number in (1, 2)])
        await asyncio.sleep(LIMIT_S)

    async def go_on() -> int:
        [producer] = kept
        offset = (await (await producer.send(topic, b"v", partition=1))).offset
        await producer.close()
        return int(offset)

    kept: list[aio.Producer] = []
    loop = asyncio.new_event_loop()
    try:
        first = loop.create_task(story())
        with pytest.raises(kind):
            loop.run_until_complete(first)
        assert [future.result(0).offset for future in futures] == [0, 0, 0]
        first.cancel()
        assert loop.run_until_complete(go_on()) == 1
    finally:
        loop.close()


# The loop


def test_when_its_thread_ends_a_producer_fails_everything_and_takes_nothing(broker: EmbeddedBroker, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
    producer.partitions_for(topic)
    future = producer.send(topic, b"never sent")
    thread = producer._thread
    thread.loop.call_soon_threadsafe(thread.loop.stop)
    assert isinstance(future.exception(LIMIT_S), ClientClosedError)
    thread.join(LIMIT_S)
    for _ in range(2):
        with pytest.raises(ClientClosedError, match="event loop"):
            producer.send(topic, b"too late")
    # A new thread may have the number of the one that ended: it may wait all the same.
    outcomes: list[Any] = []
    for _ in range(20):
        waiting = threading.Thread(target=lambda: outcomes.append((producer._parts.home.is_here, future.done())))
        waiting.start()
        waiting.join()
    assert outcomes == [(False, True)] * 20
    assert producer._parts.pool.available_bytes == producer._parts.pool.total_bytes
    producer.close(LIMIT_S)
    producer.close()


def test_ctrl_c_between_the_flag_and_the_wake_is_no_wake_for_ever(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
        producer.send(topic, b"first").result(LIMIT_S)
        producer.flush(LIMIT_S)
        driver = producer._parts.driver
        loop = driver._loop

        class Interrupted:
            def call_soon_threadsafe(self, *_: Any, **__: Any) -> None:
                driver._loop = loop
                raise KeyboardInterrupt

        while driver._is_awake:
            pass
        driver._loop = Interrupted()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            producer.send(topic, b"interrupted")
        assert producer.send(topic, b"after").result(LIMIT_S)
        producer.flush(LIMIT_S)
    assert values_of(broker.bootstrap_servers, topic)[-1] == b"after"


# What it tells about itself


def test_every_metric_is_fed(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000, buffer_memory=20_000, max_block_ms=50
    ) as producer:
        producer.partitions_for(topic)
        names = producer.metrics()["producer-metrics"]
        assert names["waiting-threads"] == 0
        for _ in range(40):
            producer.send(topic, b"x" * 900)
        producer.flush(LIMIT_S)
        told = producer.metrics()["producer-metrics"]
    assert 900 < told["record-size-max"] < 950
    assert told["record-size-avg"] == told["record-size-max"]
    assert told["bufferpool-wait-time-ns-total"] > 0
    assert told["flush-time-ns-total"] > 0
    assert told["waiting-threads"] == 0
    assert told["requests-in-flight"] == 0
    assert 0 <= told["metadata-age"] < LIMIT_S
    assert not math.isnan(told["buffer-exhausted-total"])


def test_records_that_find_no_memory_are_counted() -> None:
    async def story() -> dict[str, float]:
        async with aio.Producer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=0, buffer_memory=20_000, max_block_ms=30
        ) as producer:
            await learn_of_topic(producer)
            producer._parts.driver._is_stopped = True  # the sender sends nothing any more
            with pytest.raises(BufferFullError):
                await fill(producer)
            producer._parts.driver._is_stopped = False
            told = producer.metrics()["producer-metrics"]
            await producer.close(0)
            return told

    async def learn_of_topic(producer: aio.Producer) -> None:
        """However long that takes: `max_block_ms` is short for the memory's sake."""
        while True:
            with suppress(ClientTimeoutError):
                await producer.partitions_for("t")
                return

    async def fill(producer: aio.Producer) -> None:
        while True:
            await producer.send("t", b"x" * 900)

    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        told = asyncio.run(story())
    assert told["buffer-exhausted-total"] == 1
    assert told["bufferpool-wait-time-ns-total"] >= 25e6


# Plug-ins


class Forgetful:
    """An interceptor that returns nothing."""

    def __init__(self) -> None:
        self.is_closed = False
        self.told: list[Any] = []

    def on_send(self, record: Any) -> Any:
        return None

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        self.told.append((metadata.offset, error))

    def close(self) -> None:
        self.is_closed = True


def test_an_interceptor_that_returns_nothing_is_passed_over(
    broker: EmbeddedBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    interceptor = Forgetful()
    with Producer(bootstrap_servers=broker.bootstrap_servers, interceptor_classes=[interceptor]) as producer:
        assert producer.send(topic, b"v").result(LIMIT_S).offset == 0
    assert interceptor.told == [(0, None)]
    assert "Forgetful failed in on_send" in caplog.text


class Reporter:
    def __init__(self) -> None:
        self.is_closed = False

    def init(self, metrics: Any) -> None: ...

    def metric_change(self, metric: Any) -> None: ...

    def metric_removal(self, metric: Any) -> None: ...

    def close(self) -> None:
        self.is_closed = True


def test_an_asyncio_producer_that_was_never_used_closes_its_plug_ins() -> None:
    interceptor, reporter = Forgetful(), Reporter()

    async def story() -> None:
        producer = aio.Producer(
            bootstrap_servers="127.0.0.1:1", interceptor_classes=[interceptor], metric_reporters=[reporter]
        )
        await producer.close()
        await producer.close()

    asyncio.run(story())
    gc.collect()
    assert interceptor.is_closed
    assert reporter.is_closed
