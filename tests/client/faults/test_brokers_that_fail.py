"""Brokers that die, hesitate, refuse, throttle and move: what is acknowledged is there once, and in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas import Consumer, Producer, TopicPartition
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.client.errors import DeliveryTimeoutError
from barnabas.testing import EmbeddedBroker
from barnabas.wire.apis import ApiKey
from tests.client.faults.reading import LIMIT_S, values_of, wait_until
from tests.client.scenes import scene, timed
from tests.compat.brokers import OurServer
from tests.virtual_time import on_virtual_time


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def is_done(futures: list[Any], number: int) -> bool:
    return len(futures) > number and bool(futures[number].done())


def test_a_node_that_is_killed_and_comes_back_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """SIGKILL in mid-flight, twice. The producer is idempotent, so that its retries leave nothing twice."""
    server = OurServer(tmp_path, {}, ("--data-dir", str(tmp_path / "data")))
    server.start()
    host_and_port = server.bootstrap
    server._command[server._command.index("--listen") + 1] = host_and_port
    server._command[server._command.index("advertised.listeners=PLAINTEXT://127.0.0.1:0")] = (
        f"advertised.listeners=PLAINTEXT://{host_and_port}"
    )
    stop = threading.Event()
    futures: list[Any] = []
    try:
        with Producer(bootstrap_servers=host_and_port, linger_ms=1, retry_backoff_ms=20) as producer:

            def send() -> None:
                while not stop.is_set():
                    futures.append(producer.send("ledger", b"%d" % len(futures)))
                    if len(futures) % 50 == 0:
                        time.sleep(0.001)

            sending = threading.Thread(target=send)
            sending.start()
            for _ in range(2):
                wait_until(partial(is_done, futures, len(futures) + 500), "it sends")
                assert server._process is not None
                server._process.kill()
                server._process.wait()
                server.stop()
                server.start()
            wait_until(partial(is_done, futures, len(futures) + 100), "it goes on")
            stop.set()
            sending.join()
        assert all(future.exception(0) is None for future in futures)
        assert [future.result(0).offset for future in futures] == list(range(len(futures)))
        assert values_of(host_and_port, "ledger") == numbers(len(futures))
    finally:
        stop.set()
        server.stop()


def test_restarts_under_a_producer_and_a_group() -> None:
    """The group's consumer reads on, and gets everything at least once and in order."""
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0) as own:
        own.create_topic("t", 2)
        seen: list[bytes] = []
        consumer = Consumer(
            "t",
            bootstrap_servers=own.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
        )
        with Producer(bootstrap_servers=own.bootstrap_servers, linger_ms=1, retry_backoff_ms=20) as producer, consumer:
            for restart in range(3):
                futures = [
                    producer.send("t", b"%d" % number, partition=0)
                    for number in range(restart * 100, restart * 100 + 100)
                ]
                own.restart()
                futures.append(producer.send("t", b"x", partition=1))
                assert all(future.exception(LIMIT_S) is None for future in futures)
                wanted = b"%d" % (restart * 100 + 99)
                while wanted not in seen:
                    seen += [record.value for record in consumer.poll(LIMIT_S) if record.partition == 0]
        assert list(dict.fromkeys(seen)) == numbers(300)
        assert [value for value in values_of(own.bootstrap_servers, "t") if value != b"x"] == numbers(300)


RETRIED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
]


@pytest.mark.parametrize("code", RETRIED, ids=lambda code: code.name)
def test_what_a_broker_may_get_over_is_tried_again(broker: EmbeddedBroker, topic: str, code: ErrorCode) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=5, retry_backoff_max_ms=20) as producer:
        producer.send(topic, b"0").result(LIMIT_S)
        broker.faults.fail_next(ApiKey.PRODUCE, error=code, times=3)
        futures = [producer.send(topic, b"%d" % number) for number in range(1, 20)]
        assert [future.result(LIMIT_S).offset for future in futures] == list(range(1, 20))
    assert broker.faults.pending == 0
    assert values_of(broker.bootstrap_servers, topic) == numbers(20)


@pytest.mark.parametrize(
    "code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_REQUIRED_ACKS, ErrorCode.INVALID_RECORD]
)
def test_what_no_retry_helps_against_fails_at_once_and_the_next_record_goes(
    broker: EmbeddedBroker, topic: str, code: ErrorCode
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"0").result(LIMIT_S)
        broker.faults.fail_next(ApiKey.PRODUCE, error=code)
        with pytest.raises(BrokerError) as told:
            producer.send(topic, b"lost").result(LIMIT_S)
        assert told.value.code is code
        assert producer.send(topic, b"1").result(LIMIT_S).offset == 1
    assert values_of(broker.bootstrap_servers, topic) == numbers(2)


def test_hang_ups_in_the_midst_cost_nothing(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=5, reconnect_backoff_ms=5) as producer:
        futures = []
        for number in range(100):
            if number % 20 == 10:
                broker.faults.fail_next(ApiKey.PRODUCE, close=True)
            futures.append(producer.send(topic, b"%d" % number))
            if number % 7 == 0:
                producer.flush()
        assert [future.result(LIMIT_S).offset for future in futures] == list(range(100))
    assert values_of(broker.bootstrap_servers, topic) == numbers(100)


@on_virtual_time
async def test_an_answer_that_comes_too_late_leaves_the_record_once() -> None:
    """The broker has written it; the producer, which gave up on the answer, sends it again with the same sequence."""
    settings: dict[str, Any] = {
        "request_timeout_ms": 100,
        "delivery_timeout_ms": 10_000,
        "linger_ms": 0,
        "retry_backoff_ms": 5,
    }
    async with scene("t") as it:
        async with it.producer(**settings) as producer:
            await (await producer.send("t", b"0"))
            it.faults.fail_next(ApiKey.PRODUCE, delay_ms=250)
            futures = [await producer.send("t", b"%d" % number) for number in range(1, 10)]
            assert [(await future).offset for future in futures] == list(range(1, 10))
        assert await it.values_of("t") == numbers(10)


@on_virtual_time
async def test_after_its_delivery_timeout_a_record_is_never_sent_again() -> None:
    """It is reported once as failed, its memory is free again, and what is sent later does not bring it back."""
    settings: dict[str, Any] = {
        "request_timeout_ms": 100,
        "delivery_timeout_ms": 200,
        "linger_ms": 0,
        "retry_backoff_ms": 5,
    }
    async with scene("t") as it:
        async with it.producer(**settings) as producer:
            await (await producer.send("t", b"0"))
            it.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=10_000)
            told: list[Any] = []
            async with timed(0.2, 0.25):
                future = await producer.send("t", b"lost", on_delivery=lambda metadata, error: told.append(error))
                with pytest.raises(DeliveryTimeoutError, match="t-0") as failed:
                    await future
            it.faults.clear()
            assert (await (await producer.send("t", b"1"))).offset == 1
            await producer.flush()
            pool = producer._parts.pool
            assert pool.available_bytes == pool.total_bytes
            assert told == [failed.value]
        assert await it.values_of("t") == numbers(2)


def note(told: list[int], number: int, metadata: Any, error: Exception | None) -> None:
    told.append(number)


def test_a_broker_that_is_gone_for_good_fails_records_in_time_and_in_order() -> None:
    with EmbeddedBroker() as own:
        settings: dict[str, Any] = {
            "request_timeout_ms": 100,
            "delivery_timeout_ms": 300,
            "linger_ms": 0,
            "max_block_ms": 300,
        }
        with Producer(bootstrap_servers=own.bootstrap_servers, **settings) as producer:
            producer.send("t", b"0").result(LIMIT_S)
            own.stop()
            told: list[int] = []
            futures = [producer.send("t", b"v", on_delivery=partial(note, told, number)) for number in range(10)]
            for future in futures:
                assert isinstance(future.exception(LIMIT_S), DeliveryTimeoutError)
            assert told == list(range(10))


def test_a_start_in_trouble_only_takes_longer(broker: EmbeddedBroker, topic: str) -> None:
    broker.faults.fail_next(ApiKey.METADATA, delay_ms=50)
    broker.faults.fail_next(ApiKey.INIT_PRODUCER_ID, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
    with Producer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=5) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(100)]
        assert [future.result(LIMIT_S).offset for future in futures] == list(range(100))
    assert broker.faults.pending == 0


FETCH_TROUBLES: dict[str, Callable[[EmbeddedBroker], None]] = {
    "hang-ups": lambda own: own.faults.fail_next(ApiKey.FETCH, close=True, times=2),
    "no leader": lambda own: own.faults.fail_next(ApiKey.FETCH, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3),
    "another epoch": lambda own: own.faults.fail_next(ApiKey.FETCH, error=ErrorCode.FENCED_LEADER_EPOCH, times=2),
    "session lost": lambda own: own.faults.fail_next(ApiKey.FETCH, error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, times=2),
    "storage": lambda own: own.faults.fail_next(ApiKey.FETCH, error=ErrorCode.KAFKA_STORAGE_ERROR, times=2),
    "slow": lambda own: own.faults.fail_next(ApiKey.FETCH, delay_ms=100, times=2),
    "offsets refused": lambda own: own.faults.fail_next(
        ApiKey.LIST_OFFSETS, error=ErrorCode.LEADER_NOT_AVAILABLE, times=2
    ),
    "coordinator busy": lambda own: own.faults.fail_next(
        ApiKey.FIND_COORDINATOR, error=ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2
    ),
    "offset fetch busy": lambda own: own.faults.fail_next(
        ApiKey.OFFSET_FETCH, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2
    ),
    "joining": lambda own: own.faults.fail_next(ApiKey.JOIN_GROUP, error=ErrorCode.NOT_COORDINATOR, times=2),
    "syncing": lambda own: own.faults.fail_next(ApiKey.SYNC_GROUP, close=True, times=1),
}


@pytest.mark.parametrize("trouble", FETCH_TROUBLES)
def test_a_consumer_reads_every_record_once_whatever_fails_on_the_way(
    broker: EmbeddedBroker, topic: str, trouble: str
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in numbers(100):
            producer.send(topic, value)
    FETCH_TROUBLES[trouble](broker)
    settings: dict[str, Any] = {"group_id": f"g-{topic}", "auto_offset_reset": "earliest", "max_poll_records": 7}
    seen: list[bytes] = []
    with Consumer(
        topic, bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=5, reconnect_backoff_ms=5, **settings
    ) as consumer:
        while len(seen) < 100:
            seen += [record.value for record in consumer.poll(LIMIT_S)]
    assert seen == numbers(100)
    assert broker.faults.pending == 0


def test_commits_are_tried_again_until_they_are_done(broker: EmbeddedBroker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{topic}", retry_backoff_ms=5) as consumer:
        consumer.assign([partition])
        for trouble in (
            {"error": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS},
            {"error": ErrorCode.NOT_COORDINATOR},
            {"close": True},
        ):
            broker.faults.fail_next(ApiKey.OFFSET_COMMIT, times=2, **trouble)
            consumer.commit({partition: 5})
            found = consumer.committed([partition])[partition]
            assert found is not None
            assert found.offset == 5
        broker.faults.fail_next(ApiKey.OFFSET_COMMIT, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(BrokerError, match=r"(?i)group"):
            consumer.commit({partition: 6})


@on_virtual_time
async def test_asyncio_clients_survive_restarts_too() -> None:
    settings: dict[str, Any] = {"retry_backoff_ms": 20, "reconnect_backoff_ms": 20}
    async with (
        scene("t") as it,
        it.producer(linger_ms=1, **settings) as producer,
        it.consumer("t", auto_offset_reset="earliest", **settings) as consumer,
    ):
        seen: list[bytes] = []
        for round_number in range(2):
            futures = [await producer.send("t", b"%d" % (round_number * 50 + each)) for each in range(50)]
            await it.broker.restart()
            assert [(await future).offset for future in futures] == [round_number * 50 + each for each in range(50)]
            while len(seen) < round_number * 50 + 50:
                seen += [record.value for record in await consumer.poll(LIMIT_S)]
        assert seen == numbers(100)
