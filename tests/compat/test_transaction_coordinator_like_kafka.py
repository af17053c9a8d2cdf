"""Stories that producers and tools tell the transaction coordinator, of Kafka and of our node: the same answers, and
the same records in `__transaction_state`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.records import iter_batches
from barnabas.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_transactions,
)
from barnabas.wire.stored.transaction_state import TransactionKey, TransactionLogKey, TransactionValue
from tests.compat.duel import TOPIC, Side, both
from tests.compat.samples import until
from tests.oracles import needs_kafka

LAST_EPOCH = 32_766


class Teller:
    """Tells a story to one side. Producer ids are given out by each as it likes: they are named in their order."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.told: list[Any] = []
        self._names: dict[int, int] = {-1: -1, 0: 0}

    def named(self, producer_id: int) -> int:
        return self._names.setdefault(producer_id, 100 + len(self._names))

    def init(
        self, name: str, producer_id: int = -1, epoch: int = -1, *, timeout_ms: int = 60_000, version: int = 5
    ) -> tuple[int, int]:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
        )
        answer = self.side.call(request, version)
        self.told.append(("init", name, answer.error_code, self.named(answer.producer_id), answer.producer_epoch))
        return answer.producer_id, answer.producer_epoch

    def add(
        self, name: str, producer_id: int, epoch: int, *partitions: int, topic: str = TOPIC, version: int = 3
    ) -> None:
        topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
        self._added(name, self.side.call(request, version).results_by_topic_v3_and_below)

    def batched(
        self, name: str, producer_id: int, epoch: int, *partitions: int, verify: bool = False, version: int = 5
    ) -> None:
        transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify,
            topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=list(partitions))],
        )
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])
        answer = self.side.call(request, version)
        self.told.append(answer.error_code)
        self._added(name, answer.results_by_transaction[0].topic_results)

    def _added(self, name: str, topics: Any) -> None:
        found = [
            (
                topic.name,
                sorted((each.partition_index, each.partition_error_code) for each in topic.results_by_partition),
            )
            for topic in topics
        ]
        self.told.append(("add", name, found))

    def offsets(self, name: str, producer_id: int, epoch: int, version: int = 4) -> None:
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="g"
        )
        self.told.append(("offsets", name, self.side.call(request, version).error_code))

    def end(
        self, name: str, producer_id: int, epoch: int, *, commit: bool = True, version: int = 5, settle: bool = True
    ) -> tuple[int, int]:
        request = end_txn.EndTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        answer = self.side.call(request, version)
        told = ("end", name, answer.error_code, self.named(answer.producer_id), answer.producer_epoch)
        self.told.append(told)
        if settle:
            self.settle(name)
        return answer.producer_id, answer.producer_epoch

    def described(self, *names: str) -> list[Any]:
        request = describe_transactions.DescribeTransactionsRequest(transactional_ids=list(names))
        return list(self.side.call(request, 0).transaction_states)

    def settle(self, name: str) -> None:
        """Until its markers are written."""
        until(lambda: not self.described(name)[0].transaction_state.startswith("Prepare"))

    def describe(self, *names: str) -> None:
        for each in self.described(*names):
            topics = sorted((topic.topic, sorted(topic.partitions)) for topic in each.topics)
            self.told.append(
                (
                    *("describe", each.error_code, each.transactional_id, each.transaction_state),
                    *(each.transaction_timeout_ms, each.transaction_start_time_ms > 0),
                    *(self.named(each.producer_id), each.producer_epoch, topics),
                )
            )

    def list(self, version: int = 2, **filters: Any) -> None:
        request = list_transactions.ListTransactionsRequest(
            **({"state_filters": [], "producer_id_filters": []} | filters)
        )
        answer = self.side.call(request, version)
        states = sorted((each.transactional_id, each.transaction_state) for each in answer.transaction_states)
        self.told.append(("list", answer.error_code, sorted(answer.unknown_state_filters), states))


def wrong_requests(tell: Teller) -> None:
    tell.init("")
    tell.init("w", timeout_ms=0)
    tell.init("w", timeout_ms=900_001)
    tell.init("w", 5, -1)
    tell.init("w", -1, 5)
    tell.add("w", 1, 0, 0)
    tell.add("", 1, 0, 0)
    tell.offsets("w", 1, 0)
    tell.offsets("", 1, 0)
    tell.end("w", 1, 0, settle=False)
    tell.end("", 1, 0, settle=False)
    tell.describe("w", "")


def version_1(tell: Teller) -> None:
    producer_id, epoch = tell.init("v1")
    tell.end("v1", producer_id, epoch, version=4)
    tell.add("v1", producer_id, epoch, 0, 99)
    tell.add("v1", producer_id, epoch, 0, topic="nowhere")
    tell.add("v1", producer_id, epoch, 0, topic="__consumer_offsets")
    tell.describe("v1")
    tell.add("v1", producer_id, epoch, 0, 1)
    tell.add("v1", producer_id, epoch, 0)
    tell.batched("v1", producer_id, epoch, 0, 2, verify=True)
    tell.batched("v1", producer_id, epoch + 1, 0, verify=True)
    tell.batched("v1", producer_id + 1, epoch, 0, verify=True)
    tell.describe("v1")
    tell.add("v1", producer_id, epoch + 1, 0)
    tell.add("v1", producer_id, epoch + 1, 0, version=1)
    tell.add("v1", producer_id + 1, epoch, 0)
    tell.end("v1", producer_id, epoch + 1, version=4)
    tell.end("v1", producer_id, epoch + 1, version=1)
    tell.end("v1", producer_id, epoch, version=4)
    for commit in (True, False):
        tell.end("v1", producer_id, epoch, commit=commit, version=4)
    tell.add("v1", producer_id, epoch, 1, version=0)
    tell.end("v1", producer_id, epoch, commit=False, version=0)
    for commit in (True, False):
        tell.end("v1", producer_id, epoch, commit=commit, version=3)
    tell.describe("v1")


def version_2(tell: Teller) -> None:
    producer_id, epoch = tell.init("v2")
    for before, commit in ((0, True), (1, True), (1, False), (0, False)):
        tell.end("v2", producer_id, epoch - before, commit=commit)
    epoch += 1
    for committed in (True, False):
        tell.batched("v2", producer_id, epoch, 0, 1)
        tell.end("v2", producer_id, epoch - 1)
        producer_id, epoch = tell.end("v2", producer_id, epoch, commit=committed)
        for before, commit in ((0, True), (1, True), (1, False), (2, True), (0, False)):
            tell.end("v2", producer_id, epoch - before, commit=commit)
        epoch += 1
    tell.describe("v2")
    tell.list(state_filters=["CompleteAbort", "Nonsense"], transactional_id_pattern="v[0-9]")
    tell.list(transactional_id_pattern="(")
    tell.list(version=1, duration_filter=10**9, state_filters=["Ongoing"])


def fencing(tell: Teller) -> None:
    producer_id, epoch = tell.init("f")
    tell.init("f", producer_id, epoch)
    tell.init("f", producer_id, epoch)
    tell.init("f", producer_id, epoch + 1)
    tell.init("f", producer_id, epoch)
    tell.init("f", producer_id, epoch, version=3)
    tell.init("f", producer_id + 1, epoch)
    producer_id, epoch = tell.init("f")
    tell.batched("f", producer_id, epoch, 0)
    tell.init("f")
    tell.settle("f")
    tell.describe("f")
    tell.end("f", producer_id, epoch)
    tell.end("f", producer_id, epoch, commit=False)
    producer_id, epoch = tell.init("f")
    tell.add("f", producer_id, epoch, 0)
    tell.init("f", producer_id, epoch)
    tell.settle("f")
    older = tell.init("f", producer_id, epoch)
    producer_id, epoch = tell.init("f")
    # At rest an older epoch is fenced; an open transaction is aborted whatever the epoch.
    tell.init("f", *older)
    tell.init("f", producer_id, older[1] - 1)
    tell.batched("f", producer_id, epoch, 0)
    tell.init("f", producer_id, older[1] - 1)
    tell.settle("f")
    tell.init("f", producer_id, older[1] - 1)
    tell.describe("f")


STORIES: dict[str, Callable[[Teller], None]] = {
    each.__name__: each for each in (wrong_requests, version_1, version_2, fencing)
}


@pytest.fixture(scope="module")
def tellers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Teller, Teller]]:
    folder: Path = tmp_path_factory.mktemp("coordinator")
    settings = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
    with both(folder, settings) as sides:
        for side in sides:
            for key_type in (0, 1):
                until(lambda side=side, kind=key_type: _is_found(side, kind))  # type: ignore[misc]
            until(lambda side=side: Teller(side).described("x")[0].error_code != 14)  # type: ignore[misc]
            # Until it has producer ids to give out.
            until(lambda side=side: _has_ids(side))  # type: ignore[misc]
        yield Teller(sides[0]), Teller(sides[1])


def _has_ids(side: Side) -> bool:
    request = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    return not side.call(request, 5).error_code


def _is_found(side: Side, key_type: int) -> bool:
    request = find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
    return not side.call(request, 6).coordinators[0].error_code


@needs_kafka()
@pytest.mark.parametrize("story", STORIES)
def test_our_coordinator_answers_as_kafkas_does(tellers: tuple[Teller, Teller], story: str) -> None:
    for teller in tellers:
        teller.told = []
        STORIES[story](teller)
    kafka, ours = (teller.told for teller in tellers)
    assert ours == kafka


@needs_kafka()
def test_our_records_are_kafkas(tellers: tuple[Teller, Teller]) -> None:
    """After the stories: key by key the same values in the same versions."""
    kafka, ours = map(_records, tellers)
    assert ours == kafka
    assert len(ours) > 20


def _records(teller: Teller) -> list[Any]:
    wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[fetch.FetchTopic(topic="__transaction_state", partitions=[wanted])],
        forgotten_topics_data=[],
    )
    data = teller.side.call(request, 12).responses[0].partitions[0].records
    found = []
    for batch in iter_batches(bytearray(data)):
        for record in batch.records():
            assert record.key is not None
            assert record.value is not None
            key = TransactionKey.decode_key(record.key)
            assert isinstance(key, TransactionLogKey)
            value = TransactionValue.decode_value(0, record.value)
            topics = value.transaction_partitions
            found.append(
                (
                    *(key.transactional_id, record.value[:2], value.transaction_status, value.producer_epoch),
                    *(teller.named(value.producer_id), teller.named(value.previous_producer_id)),
                    *(value.next_producer_id, value.client_transaction_version, value.transaction_timeout_ms),
                    value.transaction_start_timestamp_ms == -1,
                    topics and sorted((each.topic, sorted(each.partition_ids)) for each in topics),
                )
            )
    return found
