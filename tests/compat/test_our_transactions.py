"""Transactions of our producers on an Apache Kafka, of both kinds: what is committed is read, by us and by Java, and
nothing else is."""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from barnabas import Admin, TopicPartition
from barnabas.client.core.producing.transaction_states import TransactionHandle
from barnabas.errors import (
    BrokerError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
    TransactionStateError,
)
from tests.compat.brokers import unique
from tests.compat.our_client import polled
from tests.compat.our_client_peers import Peers, java_sample
from tests.compat.samples import TIMEOUT_S, until

PARTITIONS: Final = 3
Both = tuple[Peers, int]


def committed_of_ours(peers: Peers, topic: str) -> list[bytes]:
    """Everything that is committed now."""
    with peers.ours.consumer(isolation_level="read_committed") as consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[bytes] = []
        while any(consumer.position(each) < end for each, end in ends.items()):
            found += [each.value for each in consumer.poll(0.1)]
        return sorted(found)


def assert_read(peers: Peers, topic: str, wanted: list[bytes]) -> None:
    """We and Java read just these. Markers may come a little after a commit has returned."""
    until(lambda: committed_of_ours(peers, topic) == sorted(wanted))
    settings = {"isolation.level": "read_committed"}
    told = peers.java("read", topic=topic, partitions=PARTITIONS, count=len(wanted), settings=settings)
    assert sorted(java_sample(each).value or b"" for each in told) == sorted(wanted)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(both_transaction_versions: Both) -> None:
    peers, version = both_transaction_versions
    topic = peers.ours.topic(PARTITIONS)
    wanted: list[bytes] = []
    with peers.ours.producer(transactional_id=unique("t"), linger_ms=500) as producer:
        producer.init_transactions()
        transactions = producer._parts.transactions
        assert transactions is not None
        assert transactions.manager.is_v2 is (version == 2)
        for number in range(6):
            values = [b"%d/%d" % (number, each) for each in range(40)]
            producer.begin_transaction()
            sent = [producer.send(topic, each, key=each) for each in values]
            if number % 3 == 1:
                producer.flush()
                producer.send(topic, b"never sent")
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                wanted += values
                assert all(each.done() for each in sent)
        with producer.transaction():
            producer.send_arrow(topic, pa.table({"value": [b"row 1", b"row 2"], "partition": [0, 2]}))
        wanted += [b"row 1", b"row 2"]
        with producer.transaction():
            """An empty one."""
        assert producer.metrics()["producer-metrics"]["txn-commit-time-ns-total"] > 0
    assert_read(peers, topic, wanted)


def test_with_asyncio(both_transaction_versions: Both) -> None:
    peers, _ = both_transaction_versions
    topic = peers.ours.topic(PARTITIONS)

    async def run() -> None:
        async with peers.ours.aio_producer(transactional_id=unique("t"), linger_ms=1000) as producer:
            await producer.init_transactions()
            for number in range(3):
                async with producer.transaction():
                    await producer.send(topic, b"%d" % number)
            sent = []

            async def gives_up() -> None:
                async with producer.transaction():
                    sent.append(await producer.send(topic, b"aborted", partition=1))
                    raise ValueError("no more")

            with pytest.raises(ValueError, match="no more"):
                await gives_up()
            with pytest.raises(TransactionAbortedError):
                await sent[0]
            await producer.begin_transaction()
            await producer.send(topic, b"closed before its end")
            await producer.flush()

    asyncio.run(run())
    assert_read(peers, topic, [b"0", b"1", b"2"])


def test_offsets_are_committed_with_the_records_or_not_at_all(both_transaction_versions: Both) -> None:
    peers, _ = both_transaction_versions
    topic, group = peers.ours.topic(PARTITIONS), unique("g")
    with peers.ours.producer() as plain:
        for number in range(9):
            plain.send(topic, b"in %d" % number, partition=number % PARTITIONS)
    with (
        peers.ours.producer(transactional_id=unique("t")) as producer,
        peers.ours.consumer(topic, group_id=group, isolation_level="read_committed") as consumer,
    ):
        producer.init_transactions()
        polled(consumer, 9)
        positions = {each: consumer.position(each) for each in consumer.assignment()}
        producer.begin_transaction()
        producer.send(topic, b"aborted")
        producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        producer.abort_transaction()
        assert set(consumer.committed(list(positions)).values()) == {None}
        with producer.transaction():
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
        found = consumer.committed(list(positions))
        assert {each: kept.offset for each, kept in found.items() if kept is not None} == positions
        member = consumer.group_metadata()
    # The member has left: its group has moved on without it.
    with peers.ours.producer(transactional_id=unique("t")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(TransactionAbortableError, match="must be aborted"):
            producer.send_offsets_to_transaction(positions, member)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"after it")


def test_the_older_of_two_producers_is_locked_out(both_transaction_versions: Both) -> None:
    peers, _ = both_transaction_versions
    topic, name = peers.ours.topic(PARTITIONS), unique("t")
    with peers.ours.producer(transactional_id=name) as older, peers.ours.producer(transactional_id=name) as newer:
        older.init_transactions()
        older.begin_transaction()
        older.send(topic, b"of the older").result(TIMEOUT_S)
        newer.init_transactions()
        with pytest.raises(ProducerFencedError, match="another producer with the transactional id"):
            older.commit_transaction()
        with pytest.raises(ProducerFencedError):
            older.send(topic, b"more of the older")
        with pytest.raises(ProducerFencedError):
            older.abort_transaction()
        with newer.transaction():
            newer.send(topic, b"of the newer")
    assert_read(peers, topic, [b"of the newer"])


def test_a_transaction_that_takes_too_long_is_aborted(both_transaction_versions: Both) -> None:
    peers, _ = both_transaction_versions
    topic, name = peers.ours.topic(PARTITIONS), unique("t")
    with peers.ours.producer(transactional_id=name, transaction_timeout_ms=1000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"too late", partition=0).result(TIMEOUT_S)
        with Admin(bootstrap_servers=peers.bootstrap) as admin:
            until(lambda: admin.describe_transactions([name])[name].state == "CompleteAbort")
        with pytest.raises(TransactionFatalError):
            producer.commit_transaction()
    with (
        peers.ours.producer(transactional_id=name, transaction_timeout_ms=100_001) as producer,
        pytest.raises(TransactionFatalError, match="INVALID_TRANSACTION_TIMEOUT"),
    ):
        producer.init_transactions()
    assert_read(peers, topic, [])


_ENDER: Final = """
import json, sys
from barnabas import Admin, TransactionHandle
with Admin(bootstrap_servers=sys.argv[1]) as admin:
    for _ in range(2):
        admin.end_transaction(TransactionHandle(**json.loads(sys.argv[2])), commit=sys.argv[3] == "commit")
"""


def test_another_process_ends_it_by_its_handle(both_transaction_versions: Both) -> None:
    peers, version = both_transaction_versions
    topic, name = peers.ours.topic(PARTITIONS), unique("t")

    def begun(value: bytes) -> TransactionHandle:
        with peers.ours.producer(transactional_id=name, linger_ms=100) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, value)
            handle: TransactionHandle = producer.transaction_handle()
            with pytest.raises(TransactionStateError):
                producer.send(topic, b"too late")
        assert pickle.loads(pickle.dumps(handle)) == handle
        assert handle.version == version
        return handle

    for how in ("commit", "abort"):
        told = json.dumps(asdict(begun(how.encode())))
        subprocess.run([sys.executable, "-c", _ENDER, peers.bootstrap, told, how], check=True, timeout=TIMEOUT_S)
    assert_read(peers, topic, [b"commit"])
    with Admin(bootstrap_servers=peers.bootstrap) as admin:
        handle = begun(b"taken over")
        begun(b"left open")
        with pytest.raises(ProducerFencedError, match="was aborted, unless"):
            admin.end_transaction(handle)
        with pytest.raises(BrokerError, match="INVALID_PRODUCER_ID_MAPPING"):
            admin.end_transaction(TransactionHandle(unique("nobody"), 123, 0, version))


@pytest.mark.slow  # the worker is started again and again
def test_a_worker_that_is_killed_counts_each_order_once(both_transaction_versions: Both) -> None:
    peers, _ = both_transaction_versions
    program = Path(__file__).parents[2] / "examples" / "exactly_once.py"
    done = subprocess.run([sys.executable, program, peers.bootstrap], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("which is right") == 3, done.stdout
    assert "400 of 400 orders are counted, in spite of everything" in done.stdout


def test_the_example_of_the_documents(both_transaction_versions: Both) -> None:
    peers, _ = both_transaction_versions
    text = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
    code = text.partition("### Transactions")[2].partition("```python\n")[2].partition("```")[0]
    orders, bills, group = peers.ours.topic(PARTITIONS), peers.ours.topic(PARTITIONS), unique("g")
    for name, ours in (('"orders",', f'"{orders}",'), ('"bills"', f'"{bills}"'), ('"billing"', f'"{group}"')):
        assert name in code
        code = code.replace(name, ours)
    with peers.ours.producer() as plain:
        plain.send(orders, b"a bill", key=b"Anna")
    exec(compile(code, "clients.md", "exec"), {"address": peers.bootstrap})
    assert_read(peers, bills, [b"a bill"])


def test_calls_in_the_wrong_order_change_nothing(both_transaction_versions: Both) -> None:
    peers, _ = both_transaction_versions
    topic = peers.ours.topic(PARTITIONS)
    with peers.ours.producer() as plain, pytest.raises(TransactionStateError, match="has no transactional"):
        plain.begin_transaction()
    with peers.ours.producer(transactional_id=unique("t")) as producer:
        for call in (producer.begin_transaction, producer.commit_transaction, lambda: producer.send(topic, b"x")):
            with pytest.raises(TransactionStateError, match="is uninitialized"):
                call()
        producer.init_transactions()
        for call in (producer.commit_transaction, producer.abort_transaction, lambda: producer.send(topic, b"x")):
            with pytest.raises(TransactionStateError, match="is ready"):
                call()
        producer.begin_transaction()
        with pytest.raises(TransactionStateError):
            producer.begin_transaction()
        producer.send(topic, b"in it")
        producer.commit_transaction()
    assert_read(peers, topic, [b"in it"])
