"""Clients used from where they may be used, and from where they may not: threads, event loops, forked processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from barnabas import Consumer, Producer, TopicPartition, aio
from barnabas.client.errors import ClientClosedError, ClientTimeoutError, WakeupError, WrongUseError
from barnabas.testing import EmbeddedBroker
from tests.client.faults.reading import LIMIT_S, read_all, values_of, wait_until

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


# Threads


def test_many_threads_share_a_producer(broker: EmbeddedBroker, make_topic: Callable[..., str]) -> None:
    """Every record is there once, and those of one key in the order in which its thread sent them."""
    topic, count = make_topic(partitions=3), 20_000
    told: list[int] = []

    def send(number: int) -> None:
        key = b"thread-%d" % number
        for index in range(count):
            producer.send(topic, b"%d" % index, key=key)
        producer.send(topic, b"last", key=key, on_delivery=lambda metadata, error: told.append(number))

    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=2) as producer:
        threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(told) == list(range(8))
    by_key: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for record in read_all(broker.bootstrap_servers, topic):
        by_key[record.key].append(record.value)
    assert len(by_key) == 8
    expected = [b"%d" % index for index in range(count)] + [b"last"]
    assert all(values == expected for values in by_key.values())


def test_many_threads_wait_for_one_future_and_flush_together(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        future = producer.send(topic, b"v")
        offsets: list[int] = []

        def wait() -> None:
            producer.flush()
            offsets.append(future.result(LIMIT_S).offset)

        threads = [threading.Thread(target=wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert offsets == [0] * 8


def polling_in_a_thread(consumer: Consumer, timeout: float = LIMIT_S) -> tuple[threading.Thread, list[Any]]:
    outcome: list[Any] = []

    def poll() -> None:
        try:
            outcome.append(consumer.poll(timeout))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    wait_until(lambda: consumer._depth, "it polls")
    return thread, outcome


@pytest.mark.parametrize(
    "use",
    [
        lambda consumer: consumer.poll(0),
        lambda consumer: consumer.assignment(),
        lambda consumer: consumer.commit(),
        lambda consumer: next(iter(consumer)),
        lambda consumer: consumer.close(),
    ],
    ids=["poll", "assignment", "commit", "iterate", "close"],
)
def test_a_second_thread_is_refused_and_wakeup_is_for_it(
    broker: EmbeddedBroker, topic: str, use: Callable[[Consumer], object]
) -> None:
    """The poll that is under way does not notice; `wakeup` ends it, and the consumer can be used on."""
    with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{topic}") as consumer:
        thread, outcome = polling_in_a_thread(consumer)
        with pytest.raises(WrongUseError, match="two threads"):
            use(consumer)
        consumer.wakeup()
        thread.join(LIMIT_S)
        assert [type(each) for each in outcome] == [WakeupError]
        assert consumer.poll(0) == []
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(LIMIT_S)


def test_ctrl_c_in_poll_leaves_a_consumer_that_can_be_used(broker: EmbeddedBroker, topic: str) -> None:
    settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
    with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        for _ in range(3):

            def interrupt() -> None:
                wait_until(lambda: consumer._consumer._is_polling, "it polls")
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=interrupt).start()
            with pytest.raises(KeyboardInterrupt):
                consumer.poll(LIMIT_S)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(topic, b"v")
        assert [record.value for record in consumer.poll(LIMIT_S)] == [b"v"]


def test_ctrl_c_in_send_and_result_leaves_a_producer_that_can_be_used(broker: EmbeddedBroker, topic: str) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        future = producer.send(topic, b"v")
        timer = threading.Timer(0.05, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            future.result()
        with pytest.raises(ClientTimeoutError):
            future.result(0.01)
        producer.flush()
        assert future.result().offset == 0


def test_result_in_a_callback_is_refused_instead_of_waiting_for_ever(broker: EmbeddedBroker, topic: str) -> None:
    raised: list[Exception] = []

    def on_delivery(metadata: Any, error: Any) -> None:
        later = producer.send(topic, b"from a callback")
        try:
            later.result()
        except WrongUseError as failure:
            raised.append(failure)

    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"first", on_delivery=on_delivery)
        producer.flush()
    assert "callback" in str(raised[0])
    assert values_of(broker.bootstrap_servers, topic) == [b"first", b"from a callback"]


# Event loops


def test_an_asyncio_producer_belongs_to_one_loop(broker: EmbeddedBroker, topic: str) -> None:
    """In a second `asyncio.run` it says so. What the first left unsent has failed, and nobody waits for it."""
    producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)

    async def first() -> Any:
        return await producer.send(topic, b"v")

    future = asyncio.run(first())
    assert isinstance(future.exception(0), ClientClosedError)

    async def second() -> None:
        for use in (lambda: producer.send(topic, b"w"), producer.flush, lambda: producer.partitions_for(topic)):
            with pytest.raises((WrongUseError, ClientClosedError), match="event loop"):
                await use()
        await producer.close()

    asyncio.run(second())


def test_a_loop_that_only_rests_is_not_taken_for_another(broker: EmbeddedBroker, topic: str) -> None:
    """Two loops in one thread, by turns: a record in the wrong one is refused, and not left lying."""
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)

        async def send(value: bytes) -> Any:
            return await producer.send(topic, value)

        future = first.run_until_complete(send(b"v"))
        with pytest.raises(WrongUseError, match="another event loop"):
            second.run_until_complete(send(b"w"))
        first.run_until_complete(producer.close())
        assert future.result(0).offset == 0
    finally:
        first.close()
        second.close()


def test_a_send_can_be_made_a_task_whether_it_has_to_wait_or_not(broker: EmbeddedBroker, topic: str) -> None:
    async def story() -> None:
        async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(3):
                future = await asyncio.create_task(producer.send(topic, b"v"))
            futures = await asyncio.gather(*[producer.send(topic, b"v") for _ in range(5)])
            assert [(await each).offset for each in (future, *futures)] == [2, 3, 4, 5, 6, 7]
            cancelled = asyncio.create_task(producer.send(topic, b"v"))
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled

    asyncio.run(story())


def test_an_asyncio_consumer_belongs_to_one_loop(broker: EmbeddedBroker, topic: str) -> None:
    consumer = aio.Consumer(topic, bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{topic}")

    async def poll() -> None:
        assert await consumer.poll(0.05) == []

    asyncio.run(poll())

    async def second() -> None:
        with pytest.raises(WrongUseError, match="another event loop"):
            await consumer.poll(0)
        await consumer.close()

    asyncio.run(second())


def test_a_loop_in_another_thread_is_refused(broker: EmbeddedBroker, topic: str) -> None:
    """Also for closing, as long as the right loop runs."""

    async def elsewhere(producer: aio.Producer, consumer: aio.Consumer) -> None:
        for use in (
            lambda: producer.send(topic, b"would go into a batch that is open"),
            lambda: producer.partitions_for(topic),
            producer.flush,
            producer.close,
            consumer.poll,
            consumer.list_topics,
            consumer.close,
        ):
            with pytest.raises(WrongUseError, match="another event loop"):
                await use()

    async def story() -> None:
        async with (
            aio.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer,
            aio.Consumer(topic, bootstrap_servers=broker.bootstrap_servers) as consumer,
        ):
            future = await producer.send(topic, b"v")
            await asyncio.to_thread(asyncio.run, elsewhere(producer, consumer))
            await producer.flush()
            assert (await future).offset == 0

    asyncio.run(story())
    assert values_of(broker.bootstrap_servers, topic) == [b"v"]


def test_an_asyncio_client_made_before_its_loop_works_in_it(broker: EmbeddedBroker, topic: str) -> None:
    producer = aio.Producer(bootstrap_servers=broker.bootstrap_servers)
    consumer = aio.Consumer(topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")

    async def story() -> None:
        async with producer, consumer:
            await (await producer.send(topic, b"v"))
            assert [record.value for record in await consumer.poll(LIMIT_S)] == [b"v"]

    asyncio.run(story())


def test_two_tasks_cannot_poll_one_consumer(broker: EmbeddedBroker, topic: str) -> None:
    async def story() -> None:
        async with aio.Consumer(topic, bootstrap_servers=broker.bootstrap_servers) as consumer:
            polling = asyncio.create_task(consumer.poll(LIMIT_S))
            await asyncio.sleep(0)
            with pytest.raises(WrongUseError, match="two tasks"):
                await consumer.poll(0)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await polling
            assert await consumer.poll(0) == []

    asyncio.run(story())


def test_a_cancelled_poll_leaves_a_consumer_that_can_be_used(broker: EmbeddedBroker, topic: str) -> None:
    async def story() -> None:
        settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
        async with aio.Consumer(topic, bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
            for timeout_s in (0.001, 0.01, 0.05):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        await consumer.poll()
            async with aio.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
                await (await producer.send(topic, b"v"))
            assert [record.value for record in await consumer.poll(LIMIT_S)] == [b"v"]

    asyncio.run(story())


# Forks


def in_a_fork(work: Callable[[], object]) -> str:
    """What the child tells: the names of errors that it met, and how it ended."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, str(work()).encode())
        except BaseException as error:
            os.write(write_end, f"child failed: {error!r}".encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        text = told.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


def errors_of(*uses: Callable[[], object]) -> list[str]:
    names = []
    for use in uses:
        try:
            use()
            names.append("fine")
        except Exception as error:
            names.append(type(error).__name__)
    return names


@needs_fork
def test_a_forked_child_cannot_use_a_producer_and_the_parent_goes_on(broker: EmbeddedBroker, topic: str) -> None:
    """The child is told to make its own; to close what it has inherited does no harm to anybody."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        pending = producer.send(topic, b"of the parent")

        def child() -> list[str]:
            told = errors_of(
                lambda: producer.send(topic, b"of the child"),
                lambda: producer.send("another", b"of the child"),
                producer.flush,
                lambda: producer.partitions_for(topic),
                lambda: pending.result(5),
                producer.close,
                lambda: producer.send(topic, b"of the child"),
            )
            with Producer(bootstrap_servers=broker.bootstrap_servers) as own:
                own.send(topic, b"of its own").result(LIMIT_S)
            return told

        told = in_a_fork(child)
        assert told == str([*["WrongUseError"] * 5, "fine", "WrongUseError"])
        producer.send(topic, b"after the fork")
        producer.flush()
    assert sorted(values_of(broker.bootstrap_servers, topic)) == [b"after the fork", b"of its own", b"of the parent"]


@needs_fork
def test_a_forked_child_cannot_use_a_consumer_and_the_parent_goes_on(broker: EmbeddedBroker, topic: str) -> None:
    settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
    with Consumer(topic, bootstrap_servers=broker.bootstrap_servers, **settings) as consumer:
        assert consumer.poll(0.1) == []
        told = in_a_fork(
            lambda: errors_of(
                lambda: consumer.poll(0),
                lambda: next(iter(consumer)),
                consumer.assignment,
                consumer.commit,
                consumer.wakeup,
                consumer.close,
                lambda: consumer.poll(0),
            )
        )
        assert told == str([*["WrongUseError"] * 5, "fine", "WrongUseError"])
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(topic, b"v")
        assert [record.value for record in consumer.poll(LIMIT_S)] == [b"v"]
        assert consumer.assignment() == [TopicPartition(topic, 0)]


def _child_that_just_ends(told: Any) -> None:
    told.send("ended")


@needs_fork
def test_a_child_of_multiprocessing_ends_without_waiting_for_clients_of_its_parent(
    broker: EmbeddedBroker, topic: str
) -> None:
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer,
        Consumer(topic, bootstrap_servers=broker.bootstrap_servers) as consumer,
    ):
        producer.send(topic, b"v")
        consumer.poll(0)
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        child = context.Process(target=_child_that_just_ends, args=(theirs,))
        child.start()
        assert ours.poll(LIMIT_S)
        assert ours.recv() == "ended"
        child.join(LIMIT_S)
        assert child.exitcode == 0
    assert values_of(broker.bootstrap_servers, topic) == [b"v"]


@needs_fork
def test_a_forked_child_that_ends_as_a_program_does_sends_nothing_of_its_parent(
    broker: EmbeddedBroker, topic: str
) -> None:
    """At its end it runs what is registered for that, and drops what it has inherited."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        producer.send(topic, b"v")
        child = os.fork()
        if child == 0:
            from barnabas.client.producer.sync_producer import _close_all

            try:
                _close_all()
            finally:
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert values_of(broker.bootstrap_servers, topic) == [b"v"]
