"""confluent-kafka, which is librdkafka, with the few lines that its tests share."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tests.compat.brokers import unique
from tests.compat.samples import TIMEOUT_S, Sample, until

ck = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
ck_admin = pytest.importorskip("confluent_kafka.admin", reason="confluent-kafka is not installed")

Settings = Mapping[str, Any]


class Confluent:
    """Clients of one broker, and a topic for each test."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = ck_admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    # Admin

    def topic(self, partitions: int = 1, config: Settings | None = None) -> str:
        name = unique("confluent")
        result_of(self.admin.create_topics([ck_admin.NewTopic(name, partitions, 1, config=dict(config or {}))]))
        self.partitions_of(name, partitions)
        return name

    def partitions_of(self, topic: str, count: int) -> dict[int, Any]:
        """The partitions that a topic was told to have; brokers hear of them and of their leaders a little later."""

        def found() -> dict[int, Any]:
            partitions: dict[int, Any] = self.admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
            is_ready = len(partitions) == count and all(each.leader >= 0 for each in partitions.values())
            return partitions if is_ready else {}

        return until(found)

    def config_of(self, topic: str) -> dict[str, Any]:
        entries: dict[str, Any] = result_of(
            self.admin.describe_configs([ck_admin.ConfigResource(ck_admin.ConfigResource.Type.TOPIC, topic)])
        )
        return entries

    def offsets(self, spec: Any, *partitions: Any) -> list[int]:
        asked = self.admin.list_offsets(dict.fromkeys(partitions, spec))
        return [asked[each].result(TIMEOUT_S).offset for each in partitions]

    # Producing

    def producer(self, settings: Settings | None = None) -> Any:
        return ck.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "log_level": 0, **(settings or {})})

    def produce(
        self, topic: str, samples: Iterable[Sample], settings: Settings | None = None, partition: int | None = None
    ) -> list[Any]:
        """What was acknowledged, in order; the first failure is raised."""
        producer = self.producer(settings)
        delivered: list[Any] = []
        failures: list[Any] = []

        def done(error: Any, message: Any) -> None:
            failures.append(error) if error is not None else delivered.append(message)

        where = {} if partition is None else {"partition": partition}
        for each in samples:
            producer.produce(
                topic,
                each.value,
                each.key,
                headers=list(each.headers) or None,
                timestamp=each.timestamp_ms,
                on_delivery=done,
                **where,
            )
        assert producer.flush(TIMEOUT_S) == 0
        if failures:
            raise ck.KafkaException(failures[0])
        return delivered

    # Consuming

    def consumer(self, group: str | None = None, settings: Settings | None = None) -> AbstractContextManager[Any]:
        return self._consumer(group or unique("readers"), settings or {})

    @contextmanager
    def _consumer(self, group: str, settings: Settings) -> Any:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
                "fetch.wait.max.ms": 100,
                "check.crcs": True,
                "log_level": 0,
                **settings,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def consume(self, topic: str, count: int, settings: Settings | None = None, partition: int = 0) -> list[Any]:
        """The first records of a partition, without a group."""
        with self.consumer(settings=settings) as consumer:
            consumer.assign([ck.TopicPartition(topic, partition, ck.OFFSET_BEGINNING)])
            return polled(consumer, count)


def polled(consumer: Any, count: int) -> list[Any]:
    """The next records that a consumer gets; an error in their place is raised."""
    deadline = time.monotonic() + TIMEOUT_S
    messages: list[Any] = []
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} records came"
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            raise ck.KafkaException(message.error())
        messages.append(message)
    return messages


def nothing_polled(consumer: Any, timeout_s: float = 0.4) -> bool:
    return consumer.poll(timeout_s) is None


def as_sample(message: Any) -> Sample:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Sample(message.value(), message.key(), headers, message.timestamp()[1])


def values(messages: Sequence[Any]) -> list[bytes | None]:
    return [message.value() for message in messages]


def result_of(futures: Mapping[Any, Any]) -> Any:
    """The only answer of an admin request."""
    (future,) = futures.values()
    return future.result(TIMEOUT_S)


def code_of(failure: pytest.ExceptionInfo[Any]) -> str:
    """The protocol's name of an error, as librdkafka has it."""
    return str(failure.value.args[0].name())
