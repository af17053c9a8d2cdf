"""The end of a client, as it should be and as it should not: closed late, early, twice, never."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from barnabas import Consumer, Producer, TopicPartition, aio
from barnabas.base.error_codes import ErrorCode
from barnabas.client.errors import ClientClosedError, ClientTimeoutError, WrongUseError
from barnabas.testing import EmbeddedBroker
from barnabas.wire.apis import ApiKey
from tests.client.faults.reading import LIMIT_S, values_of, wait_until
from tests.client.scenes import scene, timed
from tests.virtual_time import on_virtual_time

PARTITION = TopicPartition("clicks", 0)

PRODUCER_USES: dict[str, Callable[[Any], Any]] = {
    "send": lambda producer: producer.send("clicks", b"v"),
    "send_arrow": lambda producer: producer.send_arrow("clicks", []),
    "partitions_for": lambda producer: producer.partitions_for("clicks"),
}
CONSUMER_USES: dict[str, Callable[[Any], Any]] = {
    "subscribe": lambda consumer: consumer.subscribe(["clicks"]),
    "assign": lambda consumer: consumer.assign([PARTITION]),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "poll": lambda consumer: consumer.poll(0),
    "poll_arrow": lambda consumer: consumer.poll_arrow(0),
    "seek": lambda consumer: consumer.seek(PARTITION, 0),
    "seek_to_beginning": lambda consumer: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer: consumer.seek_to_end(),
    "position": lambda consumer: consumer.position(PARTITION),
    "pause": lambda consumer: consumer.pause([PARTITION]),
    "resume": lambda consumer: consumer.resume([PARTITION]),
    "commit": lambda consumer: consumer.commit(),
    "commit_async": lambda consumer: consumer.commit_async(),
    "committed": lambda consumer: consumer.committed([PARTITION]),
    "group_metadata": lambda consumer: consumer.group_metadata(),
    "enforce_rebalance": lambda consumer: consumer.enforce_rebalance(),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([PARTITION]),
    "end_offsets": lambda consumer: consumer.end_offsets([PARTITION]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({PARTITION: 0}),
    "partitions_for": lambda consumer: consumer.partitions_for("clicks"),
    "list_topics": lambda consumer: consumer.list_topics(),
}


@pytest.mark.parametrize("use", PRODUCER_USES)
def test_a_closed_producer_says_so(broker: EmbeddedBroker, use: str) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    producer.close()
    with pytest.raises(ClientClosedError, match="closed"):
        PRODUCER_USES[use](producer)


def test_what_is_left_of_a_closed_producer(broker: EmbeddedBroker, topic: str) -> None:
    """Close and flush have nothing left to do; metrics tell how it was."""
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    future = producer.send(topic, b"v")
    producer.close()
    producer.close()
    producer.flush()
    assert future.result(0).offset == 0
    assert producer.metrics()


@pytest.mark.parametrize("use", CONSUMER_USES)
def test_a_closed_consumer_says_so(broker: EmbeddedBroker, use: str) -> None:
    consumer = Consumer("clicks", bootstrap_servers=broker.bootstrap_servers, group_id="g")
    consumer.close()
    consumer.close()
    with pytest.raises(ClientClosedError, match="closed"):
        CONSUMER_USES[use](consumer)
    consumer.wakeup()


def test_the_asyncio_clients_say_so_too(broker: EmbeddedBroker) -> None:
    async def ask(use: Callable[[Any], Any], client: Any) -> None:
        async def called() -> None:
            await use(client)

        with pytest.raises(ClientClosedError, match="closed"):
            await called()

    async def story() -> None:
        for started in (False, True):
            producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers)
            consumer = aio.Consumer("clicks", bootstrap_servers=broker.bootstrap_servers, group_id="g")
            if started:
                await producer.start()
                await consumer.start()
            for client in (producer, consumer):
                await client.close()
                await client.close()
            await producer.flush()
            for use in PRODUCER_USES.values():
                await ask(use, producer)
            for use in CONSUMER_USES.values():
                await ask(use, consumer)

    asyncio.run(story())


def test_a_body_that_raises_still_sends_what_was_given(broker: EmbeddedBroker, topic: str) -> None:
    def body() -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
            producer.send(topic, b"before")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert values_of(broker.bootstrap_servers, topic) == [b"before"]


def test_close_while_others_send(broker: EmbeddedBroker, topic: str) -> None:
    """Those in `send` get an error; what was accepted is acknowledged, and nothing else is in the topic."""
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=1)
    accepted: list[list[Any]] = [[] for _ in range(4)]
    ended: list[Exception] = []

    def send(number: int) -> None:
        try:
            for index in range(10_000_000):
                accepted[number].append(producer.send(topic, b"%d/%d" % (number, index)))
        except Exception as error:
            ended.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(len(each) > 200 for each in accepted), "all send")
    producer.close()
    for thread in threads:
        thread.join(LIMIT_S)
    assert [type(error) for error in ended] == [ClientClosedError] * 4
    assert all(future.exception(0) is None for each in accepted for future in each)
    written = values_of(broker.bootstrap_servers, topic)
    assert len(written) == sum(map(len, accepted))
    for number in range(4):
        mine = [value for value in written if value.startswith(b"%d/" % number)]
        assert mine == [b"%d/%d" % (number, index) for index in range(len(mine))]


def test_close_while_somebody_waits_for_memory(broker: EmbeddedBroker, topic: str) -> None:
    """Whoever waits is told at once, not when max.block.ms is over."""
    settings: dict[str, Any] = {"buffer_memory": 20_000, "batch_size": 10_000, "max_block_ms": 60_000, "linger_ms": 0}
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, **settings)
    broker.faults.fail_next(ApiKey.PRODUCE, delay_ms=500, times=2)
    ended: list[Exception] = []

    def send() -> None:
        try:
            while True:
                producer.send(topic, bytes(9000))
        except ClientClosedError as error:
            ended.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    wait_until(lambda: producer._parts.pool.waiter_count, "memory is used up")
    producer.close(timeout=0.1)
    thread.join(LIMIT_S)
    assert len(ended) == 1


def test_close_while_somebody_waits_for_metadata() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        producer = Producer(bootstrap_servers=f"127.0.0.1:{mute.getsockname()[1]}")
        ended: list[Exception] = []

        def send() -> None:
            try:
                producer.send("clicks", b"v")
            except ClientClosedError as error:
                ended.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        wait_until(lambda: producer._thread._calls, "it waits")
        producer.close()
        thread.join(LIMIT_S)
        assert len(ended) == 1


@on_virtual_time
async def test_close_with_a_timeout_fails_what_is_left_by_then() -> None:
    async with scene("t") as it:
        producer = it.producer()
        await (await producer.send("t", b"first"))
        it.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1000)
        told: list[Any] = []
        future = await producer.send("t", b"second", on_delivery=lambda metadata, error: told.append(error))
        async with timed(0.15, 0.25):
            await producer.close(timeout=0.15)
        error = future.exception()
        assert isinstance(error, ClientClosedError)
        assert "not acknowledged within 150 ms" in str(error)
        assert told == [error]


def test_a_close_without_asyncio_fails_what_is_left_too(broker: EmbeddedBroker, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    producer.send(topic, b"first").result(LIMIT_S)
    broker.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1000)
    told: list[Any] = []
    future = producer.send(topic, b"second", on_delivery=lambda metadata, error: told.append(error))
    producer.close(timeout=0.15)
    error = future.exception(0)
    assert isinstance(error, ClientClosedError)
    assert "not acknowledged within 150 ms" in str(error)
    assert told == [error]


def test_flush_with_a_timeout_says_that_it_is_not_done_and_the_records_still_go(
    broker: EmbeddedBroker, topic: str
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"first").result(LIMIT_S)
        broker.faults.fail_next(ApiKey.PRODUCE, delay_ms=300)
        future = producer.send(topic, b"second")
        with pytest.raises(ClientTimeoutError, match="still being sent"):
            producer.flush(timeout=0.05)
        assert future.result(LIMIT_S).offset == 1


def test_two_threads_that_close_both_return_when_it_is_closed(broker: EmbeddedBroker, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    producer.send(topic, b"first").result(LIMIT_S)
    broker.faults.fail_next(ApiKey.PRODUCE, delay_ms=200)
    future = producer.send(topic, b"second")
    states: list[bool] = []

    def close() -> None:
        producer.close()
        states.append(future.done())

    threads = [threading.Thread(target=close) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert states == [True] * 3


def test_a_callback_cannot_close_its_producer(broker: EmbeddedBroker, topic: str) -> None:
    """It would wait for itself. The producer is none the worse for it."""
    raised: list[Exception] = []

    def on_delivery(metadata: Any, error: Any) -> None:
        for use in (producer.close, producer.flush):
            try:
                use()
            except Exception as failure:
                raised.append(failure)

    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"v", on_delivery=on_delivery)
        producer.flush()
        assert [type(each) for each in raised] == [WrongUseError] * 2
        assert producer.send(topic, b"w").result(LIMIT_S).offset == 1


def test_ctrl_c_in_close_fails_what_was_not_acknowledged(broker: EmbeddedBroker, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap_servers)
    producer.send(topic, b"first").result(LIMIT_S)
    seen = broker.faults.seen[ApiKey.PRODUCE]
    broker.faults.fail_next(ApiKey.PRODUCE, delay_ms=1500)
    future = producer.send(topic, b"second")
    interrupt_when(lambda: broker.faults.seen[ApiKey.PRODUCE] > seen)
    with pytest.raises(KeyboardInterrupt):
        producer.close()
    assert isinstance(future.exception(LIMIT_S), ClientClosedError)
    producer.close()


def interrupt_when(condition: Callable[[], object]) -> None:
    """Ctrl-C, from elsewhere."""

    def interrupt() -> None:
        wait_until(condition, "time to interrupt")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()


def test_an_asyncio_producer_closed_by_two_tasks(broker: EmbeddedBroker, topic: str) -> None:
    async def story() -> None:
        producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers)
        await (await producer.send(topic, b"first"))
        broker.faults.fail_next(ApiKey.PRODUCE, delay_ms=100)
        future = await producer.send(topic, b"second")

        async def close() -> bool:
            await producer.close()
            return bool(future.done())

        assert list(await asyncio.gather(close(), close())) == [True, True]

    asyncio.run(story())


def test_a_cancelled_close_still_ends_the_producer(broker: EmbeddedBroker, topic: str) -> None:
    """Nobody waits for ever for a record of a producer whose close was cancelled."""

    async def story() -> None:
        producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers)
        await (await producer.send(topic, b"first"))
        broker.faults.fail_next(ApiKey.PRODUCE, delay_ms=1500)
        future = await producer.send(topic, b"second")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await producer.close()
        with pytest.raises(ClientClosedError):
            await future

    asyncio.run(story())


def test_a_producer_that_is_dropped_warns_and_still_sends(broker: EmbeddedBroker, topic: str) -> None:
    """Whoever drops it is not held up."""

    def use() -> threading.Thread:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
        producer.send(topic, b"first")
        producer.send(topic, b"second")
        return producer._thread._thread

    with pytest.warns(ResourceWarning, match="was not closed"):
        thread = use()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert values_of(broker.bootstrap_servers, topic) == [b"first", b"second"]


def test_a_consumer_that_is_dropped_warns_and_leaves_no_thread(broker: EmbeddedBroker, topic: str) -> None:
    def use() -> None:
        consumer = Consumer(topic, bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{topic}")
        consumer.poll(0.1)
        thread = consumer._thread._thread
        del consumer
        gc.collect()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        gc.collect()

    with pytest.warns(ResourceWarning, match="was not closed"):
        use()


def test_an_asyncio_client_that_is_dropped_warns(broker: EmbeddedBroker, topic: str) -> None:
    async def story() -> None:
        producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers)
        await (await producer.send(topic, b"v"))
        del producer
        gc.collect()

    with pytest.warns(ResourceWarning, match="was not closed"):
        asyncio.run(story())


PROGRAM = """
import sys
from barnabas import Producer, Consumer
kept = Producer(bootstrap_servers={address!r}, linger_ms=60_000)
for number in range(1000):
    kept.send({topic!r}, b"%d" % number)
{more}
"""


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("", 0),
        ("raise RuntimeError('boom')", 1),
        ("del kept", 0),
        ("consumer = Consumer({topic!r}, bootstrap_servers={address!r}, group_id='left-open'); consumer.poll(0.2)", 0),
    ],
    ids=["at the end", "by an exception", "dropped just before", "with a consumer left open"],
)
def test_a_program_that_ends_without_closing_sends_what_it_has(more: str, code: int) -> None:
    """Also to a broker whose name must be looked up for another connection at that time."""
    topic = "left"
    with EmbeddedBroker(listen="localhost:0") as named:
        named.create_topic(topic)
        address = named.bootstrap_servers
        program = PROGRAM.format(address=address, topic=topic, more=more.format(address=address, topic=topic))
        ended = subprocess.run([sys.executable, "-c", program], timeout=LIMIT_S, capture_output=True, text=True)
        assert ended.returncode == code, ended.stderr
        assert values_of(address, topic) == [b"%d" % number for number in range(1000)], ended.stderr


def test_a_program_whose_broker_is_gone_ends_all_the_same() -> None:
    """It is not held up for longer than a few seconds, even though its records cannot be sent."""
    with EmbeddedBroker() as own:
        program = f"""
import barnabas.client.producer.sync_producer as module
module._LAST_CHANCE_S = 0.3
from barnabas import Producer
kept = Producer(bootstrap_servers={own.bootstrap_servers!r}, linger_ms=60_000)
future = kept.send("lost", b"v", on_delivery=lambda metadata, error: print(type(error).__name__, flush=True))
print("sent", flush=True)
input()
"""
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == "sent\n"
            own.stop()
            told, _ = running.communicate("\n", timeout=LIMIT_S)
            assert told == "ClientClosedError\n"
            assert running.returncode == 0


def test_a_consumer_cannot_be_closed_by_another_thread_while_it_polls(broker: EmbeddedBroker, topic: str) -> None:
    """It is told to use `wakeup`, and the poll goes on as if nothing had happened."""
    settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
    consumer = Consumer(topic, bootstrap_servers=broker.bootstrap_servers, **settings)
    raised: list[Exception] = []
    done = threading.Event()

    def close() -> None:
        wait_until(lambda: consumer._depth, "it polls")
        try:
            consumer.close()
        except WrongUseError as error:
            raised.append(error)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(topic, b"after", partition=0)
        done.set()

    threading.Thread(target=close).start()
    with consumer:
        records = consumer.poll(LIMIT_S)
    assert done.wait(LIMIT_S)
    assert len(raised) == 1
    assert [record.value for record in records] == [b"after"]


@on_virtual_time
async def test_close_of_a_consumer_ends_in_time_when_the_group_is_silent() -> None:
    async with scene("t") as it:
        consumer = it.consumer("t", group_id="g", auto_offset_reset="earliest")
        await it.fill("t", 1)
        assert await consumer.poll(LIMIT_S)
        await consumer.poll(0)
        it.faults.fail_next(ApiKey.OFFSET_COMMIT, delay_ms=1500, times=10)
        it.faults.fail_next(ApiKey.LEAVE_GROUP, delay_ms=1500, times=10)
        async with timed(0, 0.4):
            await consumer.close(timeout=0.2)
