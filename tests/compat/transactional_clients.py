"""Transactional producers of everybody behind one face, so that one story is told of each and of several at once."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from barnabas import BrokerError, Producer, ProducerFencedError, TopicPartition
from barnabas.base.error_codes import ErrorCode
from barnabas.client.core.consuming.membership_steps import GroupMetadata
from tests.compat.aiokafka_client import ak, ak_errors
from tests.compat.brokers import unique
from tests.compat.confluent_client import ck
from tests.compat.our_client_peers import JavaPeer
from tests.compat.samples import TIMEOUT_S


class FencedError(Exception):
    """A newer producer has the transactional id."""


class Writer(Protocol):
    """A producer that has its id: `init_transactions` is done."""

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: bytes) -> None: ...
    def offsets(self, topic: str, partition: int, offset: int, group: str) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    """librdkafka."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        settings = {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "log_level": 0,
            "linger.ms": 1,
        }
        self._producer = ck.Producer({**settings, "transaction.timeout.ms": timeout_ms})
        self._call(self._producer.init_transactions, TIMEOUT_S)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        try:
            function(*arguments)
        except ck.KafkaException as problem:
            if problem.args[0].code() in (ck.KafkaError._FENCED, ck.KafkaError.PRODUCER_FENCED):
                raise FencedError(str(problem)) from problem
            raise

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._call(lambda: self._producer.produce(topic, value, partition=partition))
        self._call(self._producer.flush, TIMEOUT_S)

    def offsets(self, topic: str, partition: int, offset: int, group: str) -> None:
        consumer = ck.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 0})
        try:
            self._call(
                self._producer.send_offsets_to_transaction,
                [ck.TopicPartition(topic, partition, offset)],
                consumer.consumer_group_metadata(),
                TIMEOUT_S,
            )
        finally:
            consumer.close()

    def commit(self) -> None:
        self._call(self._producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction, TIMEOUT_S)

    def close(self) -> None:
        del self._producer


class AioKafka:
    """aiokafka, on a loop that runs while it is called."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._runner = asyncio.Runner()

        async def start() -> Any:
            producer = ak.AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            await producer.start()
            return producer

        self._producer = self._run(start())

    def _run(self, work: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(TIMEOUT_S):
                return await work

        try:
            return self._runner.run(bounded())
        except (ak_errors.ProducerFenced, ak_errors.InvalidProducerEpoch) as problem:
            raise FencedError(str(problem)) from problem

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def offsets(self, topic: str, partition: int, offset: int, group: str) -> None:
        self._run(self._producer.send_offsets_to_transaction({ak.TopicPartition(topic, partition): offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._runner.run(self._producer.stop())
        self._runner.close()


class Ours:
    """Our own."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = Producer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._call(self._producer.init_transactions)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (ProducerFencedError, BrokerError) as problem:
            # A record is told the code alone, as with Java.
            if isinstance(problem, BrokerError) and problem.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
                raise
            raise FencedError(str(problem)) from problem

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._call(self._producer.send(topic, value, partition=partition).result, TIMEOUT_S)

    def offsets(self, topic: str, partition: int, offset: int, group: str) -> None:
        offsets = {TopicPartition(topic, partition): offset}
        self._call(self._producer.send_offsets_to_transaction, offsets, GroupMetadata(group))

    def commit(self) -> None:
        self._call(self._producer.commit_transaction)

    def abort(self) -> None:
        self._call(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close()


class Java:
    """Java's, in the process of a `JavaPeer`."""

    def __init__(self, peer: JavaPeer, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._peer = peer
        self._bootstrap = bootstrap
        self._name = unique("java")
        self._settings = {"transactional.id": transactional_id, "transaction.timeout.ms": str(timeout_ms)}
        self._step("init")

    def _step(self, step: str, **more: Any) -> None:
        failed = self._peer.ask(
            self._bootstrap, "transaction", name=self._name, step=step, settings=self._settings, **more
        )
        if failed is not None and failed.startswith(("ProducerFencedException", "InvalidProducerEpochException")):
            raise FencedError(failed)
        assert failed is None, failed

    def begin(self) -> None:
        self._step("begin")

    def send(self, topic: str, partition: int, value: bytes) -> None:
        record = {"partition": partition, "value": base64.b64encode(value).decode()}
        self._step("send", topic=topic, records=[record])

    def offsets(self, topic: str, partition: int, offset: int, group: str) -> None:
        self._step("offsets", topic=topic, partition=partition, offset=offset, group=group)

    def commit(self) -> None:
        self._step("commit")

    def abort(self) -> None:
        self._step("abort")

    def close(self) -> None:
        self._step("close")


#: Makes a producer for an address, an id and a time-out in milliseconds.
Make = Callable[[str, str, int], Writer]
PYTHON: Final[Mapping[str, Make]] = {"confluent-kafka": Confluent, "aiokafka": AioKafka, "ours": Ours}
