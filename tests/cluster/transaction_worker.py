"""A process that reads orders, writes totals, and commits both in one transaction, until it is ended.

    python -m tests.cluster.transaction_worker BOOTSTRAP TRANSACTIONAL_ID librdkafka|ours

Every record that it writes says which record it comes from, and to which transaction it belongs, of how many. Every
seventh transaction it aborts on purpose, and marks what it writes in it. What it cannot go on after ends it: whoever
started it starts it again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

import barnabas

ORDERS: Final = "orders"
TOTALS: Final = "totals"
GROUP: Final = "workers"
TRANSACTION_S: Final = 8
_MOST: Final = 40
_CALL_S: Final = 20
_ABORTED_EVERY: Final = 7


def persistently(call: Callable[[], object]) -> None:
    """A call that may be repeated as often as it says so."""
    while True:
        try:
            call()
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise
        else:
            return


@contextlib.contextmanager
def _patience_of_librdkafka() -> Iterator[None]:
    """Sending offsets may never come back, whatever time it is given, when the group's coordinator was gone for a while
    (librdkafka's issues 5511 and 5456), on a cluster of Kafka alone, too. Then this process tells where, and ends."""
    faulthandler.dump_traceback_later(2 * _CALL_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


class Worker:
    """One member of the group, with one transactional id."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        common = {"bootstrap.servers": bootstrap, "log_level": 0, "socket.timeout.ms": 5000}
        self._consumer = Consumer(
            {
                **common,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 50,
            }
        )
        self._producer = Producer(
            {
                **common,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_S * 1000,
                "message.timeout.ms": TRANSACTION_S * 1000,
                "partitioner": "murmur2_random",  # as everybody else: a key has one partition, whoever writes it
                "linger.ms": 1,
            }
        )
        self._count = 0

    def run(self) -> None:
        self._producer.init_transactions(60)
        self._consumer.subscribe([ORDERS])
        while True:
            messages = [each for each in self._consumer.consume(_MOST, 0.1) if each.error() is None]
            if messages:
                self._in_transaction(messages)

    def _in_transaction(self, messages: list[Message]) -> None:
        """Whatever can be aborted is, and read again; the rest is thrown."""
        self._count += 1
        is_aborted = self._count % _ABORTED_EVERY == 0
        try:
            self._producer.begin_transaction()
            self._write(messages, is_aborted)
            positions = self._consumer.position(self._consumer.assignment())
            member = self._consumer.consumer_group_metadata()
            known = [each for each in positions if each.offset >= 0]
            with _patience_of_librdkafka():
                persistently(lambda: self._producer.send_offsets_to_transaction(known, member, _CALL_S))
            if is_aborted:
                self._abort(messages)
            else:
                persistently(lambda: self._producer.commit_transaction(_CALL_S))
        except KafkaException as problem:
            error = problem.args[0]
            if not error.txn_requires_abort():
                raise
            self._abort(messages)

    def _write(self, messages: list[Message], is_aborted: bool) -> None:
        transaction = uuid.uuid4().hex
        for each in messages:
            source = (each.partition() or 0, each.offset() or 0)
            value = record_value(source, int(each.value() or b""), transaction, len(messages), is_aborted)
            self._producer.produce(TOTALS, value, each.key())
        self._producer.poll(0)

    def _abort(self, messages: list[Message]) -> None:
        persistently(lambda: self._producer.abort_transaction(_CALL_S))
        first: dict[int, int] = {}
        for each in messages:
            first.setdefault(each.partition() or 0, each.offset() or 0)
        mine = {each.partition for each in self._consumer.assignment()}
        for partition, offset in first.items():
            if partition in mine:
                self._consumer.seek(TopicPartition(ORDERS, partition, offset))


class OurWorker:
    """The same with our clients."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._consumer = barnabas.Consumer(
            bootstrap_servers=bootstrap,
            group_id=GROUP,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            fetch_max_wait_ms=50,
            request_timeout_ms=5000,
        )
        self._producer = barnabas.Producer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_S * 1000,
            request_timeout_ms=5000,
            delivery_timeout_ms=TRANSACTION_S * 1000,
        )
        self._count = 0

    def run(self) -> None:
        self._again(self._producer.init_transactions)
        self._consumer.subscribe([ORDERS])
        while True:
            records = self._consumer.poll(0.1, max_records=_MOST)
            if records:
                self._in_transaction(records)

    def _again(self, call: Callable[[], object]) -> None:
        while True:
            with contextlib.suppress(barnabas.TransactionTimeoutError):
                call()
                return

    def _in_transaction(self, records: list[Any]) -> None:
        self._count += 1
        is_aborted = self._count % _ABORTED_EVERY == 0
        try:
            self._producer.begin_transaction()
            transaction = uuid.uuid4().hex
            for each in records:
                source = (each.partition, each.offset)
                value = record_value(source, int(each.value), transaction, len(records), is_aborted)
                self._producer.send(TOTALS, value, key=each.key)
            after = {barnabas.TopicPartition(ORDERS, each.partition): each.offset + 1 for each in records}
            member = self._consumer.group_metadata()
            self._again(lambda: self._producer.send_offsets_to_transaction(after, member))
            if is_aborted:
                self._abort(records)
            else:
                self._again(self._producer.commit_transaction)
        except barnabas.TransactionAbortableError:
            self._abort(records)

    def _abort(self, records: list[Any]) -> None:
        self._again(self._producer.abort_transaction)
        first: dict[int, int] = {}
        for each in records:
            first.setdefault(each.partition, each.offset)
        mine = {each.partition for each in self._consumer.assignment()}
        for partition, offset in first.items():
            if partition in mine:
                self._consumer.seek(barnabas.TopicPartition(ORDERS, partition), offset)


def record_value(source: tuple[int, int], number: int, transaction: str, of: int, is_aborted: bool) -> bytes:
    """What a total says of itself."""
    value = {"from": source, "number": number, "transaction": transaction, "of": of, "aborted": is_aborted}
    return json.dumps(value).encode()


if __name__ == "__main__":
    worker = OurWorker(*sys.argv[1:3]) if sys.argv[3] == "ours" else Worker(*sys.argv[1:3])
    worker.run()
