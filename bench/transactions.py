"""Transactions: commits per second, what they cost a producer, and a coordinator that loads many ids; Kafka beside it.

Commits go over bare sockets, one after the other, as clients of 4.0 and later do them (v2): a batch to each of two
partitions, then EndTxn; a partition that is still busy with the last transaction is asked again at once. Throughput is
librdkafka's, with a commit every 100 ms and every second, as a share of the same producer without transactions.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from tests.oracles import missing

from barnabas.base.error_codes import ErrorCode
from barnabas.records import BatchBuilder
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from bench import node_clients as clients
from bench.measure import Result
from bench.node_brokers import Barnabas, Broker, Kafka, cpu_seconds
from bench.node_contest import Figures, cost, paired

TARGET: Final = 0.7
COMMIT_TARGET: Final = 1.0
PARTITIONS: Final = 2
SIZES: Final = (1, 10, 100)
INTERVALS_MS: Final = (100, 1000)
IDS: Final = 10_000
QUICK_IDS: Final = 1_000
ROUNDS: Final = 5
COMMIT_S: Final = 3.0
SEND_S: Final = 4.0
_RECORD: Final = b"x" * 100
_CALL_S: Final = 60
_END_TXN: Final = 26
_NOT_YET: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_SETTINGS: Final = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
#: A Kafka that finds a partition busy looks again by itself, after 20 ms unless told otherwise. Here work is compared.
_PATIENCE: Final = {"add.partitions.to.txn.retry.backoff.ms": "1"}
_LEVELS: Final = ("--release-version", "4.0-IV3", "--feature", "group.version=0", "--feature", "transaction.version=2")


@contextmanager
def running() -> Iterator[list[Broker]]:
    """Our node, and Apache Kafka if it is there; both know one partition of transactions."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        brokers: list[Broker] = [
            Barnabas(Path(folder, "barnabas"), *(f"{name}={value}" for name, value in _SETTINGS.items()))
        ]
        if missing() is None:
            brokers.append(Kafka(Path(folder, "kafka"), _SETTINGS | _PATIENCE, _LEVELS))
        else:
            print(f"transactions: alone, without Apache Kafka: {missing()}", file=sys.stderr)
        try:
            for each in brokers:
                each.prepare()
                each.start()
                with clients.connected(each.bootstrap) as peer:
                    clients.create_topic(peer, "bench", PARTITIONS)
            yield brokers
        finally:
            for each in brokers:
                each.stop()


def has_transactions(broker: Broker) -> bool:
    with clients.connected(broker.bootstrap) as peer:
        request = ApiVersionsRequest(client_software_name="bench", client_software_version="0")
        return _END_TXN in {each.api_key for each in peer.call(request, ApiVersionsResponse, 3).api_keys}


# Commits


class Transactor:
    """One producer on one connection. Its epoch and its sequences begin anew with each transaction."""

    def __init__(self, peer: clients.Peer, transactional_id: str, records: int) -> None:
        self._peer = peer
        self._id = transactional_id
        self._records = records
        self._producer_id, self._epoch = init(peer, transactional_id)

    def commit_one(self) -> None:
        """Batches, then the end."""
        frame = clients.framed(self._batches(), 12)
        self._until(lambda: self._sent(frame))
        request = EndTxnRequest(
            transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=True
        )
        answer = self._peer.call(request, EndTxnResponse, 5)
        if answer.error_code:
            raise RuntimeError(f"EndTxn: {ErrorCode.of(answer.error_code).name}")
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

    def _sent(self, frame: bytes) -> int:
        from barnabas.wire import decode_response

        answer = decode_response(ProduceResponse, 12, self._peer.exchange(frame))[1]
        return max(each.error_code for topic in answer.responses for each in topic.partition_responses)

    def _until(self, ask: Callable[[], int]) -> None:
        while code := ask():
            if ErrorCode.of(code) not in _NOT_YET:
                raise RuntimeError(f"Produce: {ErrorCode.of(code).name}")

    def _batches(self) -> ProduceRequest:
        builder = BatchBuilder(
            1 << 20,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            transactional=True,
        )
        now_ms = int(time.time() * 1000)
        for _ in range(self._records):
            builder.append(_RECORD, None, now_ms)
        batch = memoryview(bytes(builder.build()))
        # One record lies in one partition; more are in both.
        places = range(1 if self._records == 1 else PARTITIONS)
        data = [PartitionProduceData(index=index, records=batch) for index in places]
        topic = TopicProduceData(name="bench", partition_data=data)
        return ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=30_000, topic_data=[topic])


def init(peer: clients.Peer, transactional_id: str) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    deadline = time.monotonic() + _CALL_S
    while True:
        answer = peer.call(request, InitProducerIdResponse, 4)
        if not answer.error_code:
            return answer.producer_id, answer.producer_epoch
        if ErrorCode.of(answer.error_code) not in _NOT_YET or time.monotonic() > deadline:
            raise RuntimeError(f"InitProducerId: {ErrorCode.of(answer.error_code).name}")
        time.sleep(0.001)


def find_coordinator(bootstrap: str) -> None:
    """The first question for a coordinator makes its topic."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "first", "log_level": 0})
    producer.init_transactions(_CALL_S)


def commits_per_second(broker: Broker, records: int, seconds: float) -> float:
    with clients.connected(broker.bootstrap) as peer:
        transactor = Transactor(peer, f"bench-{records}", records)
        for _ in range(5):
            transactor.commit_one()
        count, begin = 0, time.perf_counter()
        while (passed := time.perf_counter() - begin) < seconds:
            transactor.commit_one()
            count += 1
        return count / passed


def commits(brokers: list[Broker], seconds: float, pairs: int) -> Iterator[Result]:
    for records in SIZES:
        measured = [Figures() for _ in brokers]
        for _ in range(pairs):
            for broker, figures in zip(brokers, measured, strict=True):
                before = cpu_seconds(broker.pid)
                rate = commits_per_second(broker, records, seconds)
                figures.add(rate * seconds, seconds, cpu_seconds(broker.pid) - before)
        detail = " / ".join(f"{statistics.median(each.rates):,.0f}" for each in measured) + " commits per s"
        what = f"{records} record{'s' * (records > 1)}"
        target = COMMIT_TARGET if len(brokers) > 1 else None
        yield Result(f"bare socket, transactions of {what}", paired(measured), target, detail)
        yield cost("CPU seconds per million commits", measured, 1e6)


def ratio(rates: list[float]) -> float:
    return rates[0] / rates[1] if len(rates) > 1 and rates[1] else math.nan


# Throughput


def records_per_second(broker: Broker, interval_ms: int | None, seconds: float) -> float:
    """Of librdkafka, with a commit every so often, or without transactions."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
        "queue.buffering.max.messages": 100_000,
        "delivery.report.only.error": True,
        "log_level": 0,
    }
    producer = Producer(settings | ({} if interval_ms is None else {"transactional.id": f"rate-{interval_ms}"}))
    if interval_ms is not None:
        producer.init_transactions(_CALL_S)
        producer.begin_transaction()
    messages = [{"value": _RECORD, "partition": number % PARTITIONS} for number in range(2_000)]
    count, begin = 0, time.perf_counter()
    began = begin
    while (now := time.perf_counter()) - begin < seconds:
        count += producer.produce_batch("bench", messages)
        # Part of a batch may not have found room.
        producer.poll(0 if len(producer) < 80_000 else 0.01)
        if interval_ms is not None and (now - began) * 1000 >= interval_ms:
            producer.commit_transaction(_CALL_S)
            producer.begin_transaction()
            began = time.perf_counter()
    if interval_ms is None:
        assert producer.flush(_CALL_S) == 0
    else:
        producer.commit_transaction(_CALL_S)
    return count / (time.perf_counter() - begin)


def throughput(brokers: list[Broker], seconds: float, rounds: int) -> Iterator[Result]:
    kinds = (None, *INTERVALS_MS)
    best = {kind: [0.0] * len(brokers) for kind in kinds}
    for _ in range(rounds):
        for index, broker in enumerate(brokers):
            for kind in kinds:
                best[kind][index] = max(best[kind][index], records_per_second(broker, kind, seconds))
    for kind in INTERVALS_MS:
        shares = [fast / plain for fast, plain in zip(best[kind], best[None], strict=True)]
        rates = " / ".join(
            f"{share * 100:.0f} % of {plain / 1e3:,.0f}k" for share, plain in zip(shares, best[None], strict=True)
        )
        yield Result(
            f"librdkafka, a commit every {kind} ms: records per s",
            ratio(best[kind]),
            TARGET if len(brokers) > 1 else None,
            f"{rates} records per s without transactions",
        )


# Recovery


def recovery(brokers: list[Broker], ids: int) -> Iterator[Result]:
    """Seconds from the start of a process to the answer for an id, with one id and with many."""
    few = [restarted(each) for each in brokers]
    for each in brokers:
        with clients.connected(each.bootstrap) as peer:
            for number in range(ids):
                init(peer, f"many-{number}")
    many = [restarted(each) for each in brokers]
    extra = [max(more - less, 0.001) for more, less in zip(many, few, strict=True)]
    detail = " / ".join(f"{more:.2f} s (few: {less:.2f} s)" for more, less in zip(many, few, strict=True))
    yield Result(
        f"restart until a coordinator of {ids:,} ids answers", ratio([1 / each for each in many]), None, detail
    )
    yield Result(
        f"what loading {ids:,} ids adds",
        ratio([1 / each for each in extra]),
        None,
        " / ".join(f"{each * 1000:.0f} ms" for each in extra),
    )


def restarted(broker: Broker) -> float:
    broker.stop()
    begin = time.perf_counter()
    broker.start()
    with clients.connected(broker.bootstrap) as peer:
        init(peer, "first")
    return time.perf_counter() - begin


def run(*, is_quick: bool = False) -> Iterator[Result]:
    rounds, share = (1, 0.3) if is_quick else (ROUNDS, 1.0)
    with running() as brokers:
        if not has_transactions(brokers[0]):
            print("transactions: our node does not have them", file=sys.stderr)
            return
        for each in brokers:
            find_coordinator(each.bootstrap)
            commits_per_second(each, 10, COMMIT_S * share)
        yield from commits(brokers, COMMIT_S * share, rounds)
        yield from throughput(brokers, SEND_S * share, rounds)
        yield from recovery(brokers, QUICK_IDS if is_quick else IDS)


def run_quickly() -> Iterator[Result]:
    return run(is_quick=True)
