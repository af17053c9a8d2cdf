"""Memory that is used up: who waits, for how long, who comes first, and that every byte comes back."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from barnabas import Producer, aio
from barnabas.base.error_codes import ErrorCode
from barnabas.client.errors import BufferFullError, WrongUseError
from barnabas.testing import AsyncEmbeddedBroker, EmbeddedBroker
from barnabas.wire.apis import ApiKey
from tests.client.faults.reading import LIMIT_S, values_of, wait_until
from tests.client.scenes import scene, timed
from tests.virtual_time import on_virtual_time

SMALL: dict[str, Any] = {"buffer_memory": 20_000, "batch_size": 10_000, "linger_ms": 0, "retry_backoff_ms": 5}
BIG = bytes(9_000)


def is_all_free(producer: Any) -> bool:
    pool = producer._parts.pool
    return bool(pool.available_bytes == pool.total_bytes and not pool.waiter_count)


def is_waited(producer: Any, count: int) -> bool:
    return bool(producer._parts.pool.waiter_count == count)


def silence(broker: EmbeddedBroker | AsyncEmbeddedBroker) -> None:
    """Refuse everything from now on, until the faults are cleared."""
    broker.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1_000_000)


def test_send_gives_up_after_max_block_ms_and_memory_comes_back(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=150, **SMALL) as producer:
        producer.partitions_for(topic)
        silence(broker)
        accepted = [producer.send(topic, BIG) for _ in range(2)]
        with pytest.raises(BufferFullError, match=r"buffer.memory = 20000.*max.block.ms = 150"):
            producer.send(topic, BIG)
        broker.faults.clear()
        assert [future.result(LIMIT_S).offset for future in accepted] == [0, 1]
        producer.flush()
        assert is_all_free(producer)
        assert producer.send(topic, b"after").result(LIMIT_S).offset == 2


def test_whoever_waits_first_is_served_first(broker: EmbeddedBroker, topic: str) -> None:
    settings: dict[str, Any] = {**SMALL, "buffer_memory": 10_000, "max_block_ms": 20_000}
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        producer.partitions_for(topic)
        silence(broker)
        producer.send(topic, b"first" + BIG)
        threads = []
        for number in range(5):
            thread = threading.Thread(target=producer.send, args=(topic, b"%d" % number + BIG))
            thread.start()
            threads.append(thread)
            wait_until(partial(is_waited, producer, number + 1), "it waits")
        broker.faults.clear()
        for thread in threads:
            thread.join(LIMIT_S)
    order = [value[:1] for value in values_of(broker.bootstrap_servers, topic)]
    assert order == [b"f", b"0", b"1", b"2", b"3", b"4"]


def test_a_callback_that_finds_no_memory_is_told_instead_of_waiting_for_itself(
    broker: EmbeddedBroker, topic: str
) -> None:
    raised: list[Exception] = []

    def on_delivery(metadata: Any, error: Any) -> None:
        try:
            for _ in range(3):
                producer.send(topic, BIG)
        except WrongUseError as failure:
            raised.append(failure)

    with Producer(bootstrap_servers=broker.bootstrap_servers, **SMALL) as producer:
        producer.send(topic, b"v", on_delivery=on_delivery)
        producer.flush()
        assert "buffer.memory" in str(raised[0])
        assert producer.send(topic, b"after").result(LIMIT_S)
    assert is_all_free(producer)


def test_a_record_that_fails_gives_its_memory_back(broker: EmbeddedBroker, topic: str) -> None:
    settings: dict[str, Any] = {**SMALL, "request_timeout_ms": 50, "delivery_timeout_ms": 100}
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        producer.partitions_for(topic)
        silence(broker)
        futures = [producer.send(topic, BIG) for _ in range(6)]
        assert all(future.exception(LIMIT_S) is not None for future in futures)
        wait_until(lambda: is_all_free(producer), "all memory is free")
        broker.faults.clear()
        assert producer.send(topic, b"after").result(LIMIT_S).offset == 0


def test_a_task_that_is_cancelled_while_it_waits_gives_up_its_place(broker: EmbeddedBroker, topic: str) -> None:
    async def story() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers, **SMALL) as producer:
            await producer.partitions_for(topic)
            silence(broker)
            accepted = [await producer.send(topic, BIG) for _ in range(2)]
            waiting = [asyncio.create_task(producer.send(topic, b"%d" % number + BIG)) for number in range(3)]
            await asyncio.sleep(0)
            assert producer._parts.pool.waiter_count == 3
            waiting[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting[0]
            assert producer._parts.pool.waiter_count == 2
            broker.faults.clear()
            futures = [*accepted, *[await task for task in waiting[1:]]]
            assert [(await future).offset for future in futures] == [0, 1, 2, 3]
            await producer.flush()
            assert is_all_free(producer)

    asyncio.run(story())
    assert [value[:1] for value in values_of(broker.bootstrap_servers, topic)[2:]] == [b"1", b"2"]


@on_virtual_time
async def test_an_asyncio_send_gives_up_after_max_block_ms() -> None:
    async with scene("t") as it, it.producer(max_block_ms=150, **SMALL) as producer:
        await producer.partitions_for("t")
        silence(it.broker)
        accepted = [await producer.send("t", BIG) for _ in range(2)]
        async with timed(0.15, 0.2):
            with pytest.raises(BufferFullError, match=r"buffer.memory = 20000.*max.block.ms = 150"):
                await producer.send("t", BIG)
        it.faults.clear()
        assert [(await future).offset for future in accepted] == [0, 1]
        await producer.flush()
        assert is_all_free(producer)
        assert (await (await producer.send("t", b"after"))).offset == 2


def test_a_table_that_finds_no_memory_fails_as_a_whole_and_leaves_none_behind(
    broker: EmbeddedBroker, topic: str
) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"value": [b"%d" % number + bytes(4000) for number in range(20)]})
    with Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=100, **SMALL) as producer:
        producer.partitions_for(topic)
        silence(broker)
        with pytest.raises(BufferFullError):
            producer.send_arrow(topic, table)
        broker.faults.clear()
        producer.flush()
        assert is_all_free(producer)
        producer.send_arrow(topic, table.slice(0, 2)).result(LIMIT_S)
