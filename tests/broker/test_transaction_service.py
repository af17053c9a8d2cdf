"""The transaction coordinator of a node: its handlers, its shards, and markers on their way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.handlers import add_partitions_to_txn
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.records.batch import BatchView
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.broker.transaction_bench import TransactionBench, image_at, play

OK = ErrorCode.NONE


@pytest.mark.parametrize(("level", "version"), [(0, 4), (1, 4), (2, 4), (2, 5)])
def test_a_transaction(level: int, version: int) -> None:
    async def story(bench: TransactionBench) -> None:
        await bench.start(version=level)
        error, *producer = await bench.init("x")
        assert (error, producer) == (OK, [1000, 0])
        assert await bench.add("x", *producer, t=[0, 2]) == {"t": [OK, OK]}
        assert await bench.add_offsets("x", *producer) is OK
        assert await bench.state("x") == "Ongoing"
        epoch = int(version == 5)
        assert await bench.end("x", *producer, version=version) == ((OK, 1000, 1) if version == 5 else (OK, -1, -1))
        assert await bench.state("x") == "PrepareCommit"
        await asyncio.sleep(0.1)
        assert await bench.state("x") == "CompleteCommit"
        assert bench.brokers.taken == [
            (1, epoch, True, CONSUMER_OFFSETS, 3),
            (1, epoch, True, "t", 0),
            (1, epoch, True, "t", 2),
        ]
        marker = bench.brokers.requests[0][1].markers[0]
        assert marker.transaction_version == (2 if version == 5 else 0)

    play(story)


def test_an_abort_without_partitions() -> None:
    async def story(bench: TransactionBench) -> None:
        await bench.start()
        _, *producer = await bench.init("x")
        assert await bench.end("x", *producer, commit=False) == (OK, 1000, 1)
        await asyncio.sleep(0.1)
        assert await bench.state("x") == "CompleteAbort"
        assert not bench.brokers.requests

    play(story)


def test_markers_are_sent_until_they_are_written() -> None:
    async def story(bench: TransactionBench) -> None:
        await bench.start()
        _, *producer = await bench.init("x")
        await bench.add("x", *producer, t=[0, 1])
        bench.brokers.troubles = [None, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, None]
        bench.brokers.errors = {TopicPartition("t", 1): ErrorCode.NOT_ENOUGH_REPLICAS}
        await bench.end("x", *producer)
        await asyncio.sleep(60)
        assert await bench.state("x") == "PrepareCommit"
        attempts = len(bench.brokers.requests)
        assert 60 < attempts < 80, "with pauses of up to a second"
        # What has its marker gets no other.
        assert bench.brokers.taken[-1][-1] == 1
        assert bench.brokers.requests[-1][1].markers[0].topics[0].partition_indexes == [1]
        bench.brokers.errors = {}
        await asyncio.sleep(2)
        assert await bench.state("x") == "CompleteCommit"

    play(story)


def test_markers_follow_the_leader_and_forget_what_is_deleted() -> None:
    async def story(bench: TransactionBench) -> None:
        await bench.start()
        _, *producer = await bench.init("x")
        await bench.add("x", *producer, t=[0])
        bench.brokers.errors = {TopicPartition("t", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}
        await bench.end("x", *producer)
        await asyncio.sleep(1)
        # Only markers go by this image; the coordinator stays.
        bench.metadata.image = image_at({"t": 1}, leader=2)
        await asyncio.sleep(2)
        assert bench.brokers.taken[-1][0] == 2
        bench.metadata.image = image_at({"t": 1}, leader=-1)
        await asyncio.sleep(2)
        before = len(bench.brokers.requests)
        await asyncio.sleep(5)
        assert len(bench.brokers.requests) == before, "nobody leads it"
        bench.metadata.image = image_at({})
        await asyncio.sleep(2)
        assert await bench.state("x") == "CompleteCommit"

    play(story)


def test_a_topic_of_offsets_that_is_not_heard_of_yet_is_not_a_deleted_one() -> None:
    """A client may have committed offsets to it, as a broker that knows more has found the coordinator of its group."""

    async def story(bench: TransactionBench) -> None:
        await bench.start()
        _, *producer = await bench.init("x")
        assert await bench.add_offsets("x", *producer) is ErrorCode.NONE
        bench.metadata.image = image_at({"t": 1})
        await bench.end("x", *producer, version=4)
        await asyncio.sleep(2)
        assert await bench.state("x") == "PrepareCommit"
        bench.metadata.image = image_at({"t": 1, "__consumer_offsets": 50})
        await asyncio.sleep(2)
        assert await bench.state("x") == "CompleteCommit"

    play(story)


def test_markers_of_several_transactions_go_together() -> None:
    async def story(bench: TransactionBench) -> None:
        await bench.start()
        producers = {}
        for name in "abcdef":
            _, *producers[name] = await bench.init(name)
            await bench.add(name, *producers[name], t=[0])
        await asyncio.gather(*(bench.end(name, *producer) for name, producer in producers.items()))
        await asyncio.sleep(1)
        assert len(bench.brokers.requests) <= 2
        assert len(bench.brokers.taken) == 6

    play(story)


def test_a_coordinator_that_moves_sends_no_more_markers_and_the_next_one_does() -> None:
    async def first(bench: TransactionBench) -> None:
        await bench.start()
        _, *producer = await bench.init("x")
        await bench.add("x", *producer, t=[0])
        bench.brokers.errors = {TopicPartition("t", 0): ErrorCode.NOT_ENOUGH_REPLICAS}
        await bench.end("x", *producer)
        await asyncio.sleep(1)
        bench.apply(image_at({TRANSACTION_STATE: 2, "t": 3}, leader=2, epoch=1))
        await asyncio.sleep(1)
        before = len(bench.brokers.requests)
        await asyncio.sleep(10)
        assert len(bench.brokers.requests) == before
        assert (await bench.init("x"))[0] is ErrorCode.NOT_COORDINATOR

    async def second(bench: TransactionBench) -> None:
        bench.apply(image_at({TRANSACTION_STATE: 2, "t": 3}, epoch=2))
        await asyncio.sleep(1)
        assert await bench.state("x") == "CompleteCommit"
        assert bench.brokers.taken == [(1, 1, True, "t", 0)]
        assert bench.brokers.requests[0][1].markers[0].coordinator_epoch == 2

    play(second, play(first))


@pytest.mark.parametrize("error", [ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_coordinator_that_was_overtaken_stops(error: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
    async def story(bench: TransactionBench) -> None:
        await bench.start()
        _, *producer = await bench.init("x")
        await bench.add("x", *producer, t=[0])
        bench.brokers.errors = {TopicPartition("t", 0): error}
        await bench.end("x", *producer)
        await asyncio.sleep(30)
        assert len(bench.brokers.requests) == 1
        assert error.name in caplog.text

    play(story)


def test_if_one_partition_is_unknown_none_is_added() -> None:
    async def story(bench: TransactionBench) -> None:
        await bench.start()
        _, *producer = await bench.init("x")
        not_tried, unknown = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await bench.add("x", *producer, t=[0, 3], missing=[0]) == {
            "t": [not_tried, unknown],
            "missing": [unknown],
        }
        internal: dict[str, Any] = {CONSUMER_OFFSETS: [0], "t": [0]}
        assert await bench.add("x", *producer, **internal) == {
            CONSUMER_OFFSETS: [ErrorCode.TOPIC_AUTHORIZATION_FAILED],
            "t": [not_tried],
        }
        assert await bench.state("x") == "Empty"

    play(story)


def test_leaders_verify_and_add_for_several_transactions() -> None:
    async def story(bench: TransactionBench) -> None:
        await bench.start()
        producers = {}
        for name in "ab":
            _, *producers[name] = await bench.init(name)
        await bench.add("a", *producers["a"], t=[0])

        async def ask(verify: bool, *names: str) -> dict[str, list[ErrorCode]]:
            request = AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=name,
                        producer_id=producers[name][0],
                        producer_epoch=producers[name][1],
                        verify_only=verify,
                        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
                    )
                    for name in names
                ]
            )
            answer: Any = await bench.call(add_partitions_to_txn, request, 5)
            return {
                each.transactional_id: [
                    ErrorCode.of(result.partition_error_code) for result in each.topic_results[0].results_by_partition
                ]
                for each in answer.results_by_transaction
            }

        missing = ErrorCode.TRANSACTION_ABORTABLE
        assert await ask(True, "a", "b") == {"a": [OK, missing], "b": [missing, missing]}
        assert await ask(False, "a", "b") == {"a": [OK, OK], "b": [OK, OK]}
        assert await ask(True, "a", "b") == {"a": [OK, OK], "b": [OK, OK]}

    play(story)


def test_transactions_are_listed_and_described() -> None:
    async def story(bench: TransactionBench) -> None:
        await bench.start()
        _, *producer = await bench.init("orders-1", timeout_ms=5_000)
        await bench.init("orders-2")
        await bench.init("other")
        await bench.add("orders-1", *producer, t=[2, 0])

        async def names(**filters: Any) -> list[str]:
            return sorted(each.transactional_id for each in (await bench.list(**filters)).transaction_states)

        assert await names() == ["orders-1", "orders-2", "other"]
        assert await names(state_filters=["Ongoing"]) == ["orders-1"]
        assert await names(producer_id_filters=[producer[0]]) == ["orders-1"]
        assert await names(transactional_id_pattern="orders-[0-9]") == ["orders-1", "orders-2"]
        assert await names(transactional_id_pattern="order") == []
        assert await names(duration_filter=1_000, state_filters=["Ongoing"]) == []
        await asyncio.sleep(2)
        assert await names(duration_filter=1_000, state_filters=["Ongoing"]) == ["orders-1"]
        listed = await bench.list(state_filters=["Ongoing", "Nonsense"])
        assert listed.unknown_state_filters == ["Nonsense"]
        assert (await bench.list(transactional_id_pattern="(")).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

        first, missing, empty = await bench.describe("orders-1", "unknown", "")
        assert (first.producer_id, first.producer_epoch, first.transaction_timeout_ms) == (producer[0], 0, 5_000)
        assert [(each.topic, each.partitions) for each in first.topics] == [("t", [0, 2])]
        assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_REQUEST

    play(story)


def test_while_it_is_loaded_everybody_asks_again() -> None:
    async def story(bench: TransactionBench) -> None:
        for index in range(2):
            bench.log.behind[TopicPartition(TRANSACTION_STATE, index)] = asyncio.Event()
        await bench.start()
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await bench.init("x"))[0] is loading
        assert (await bench.list()).error_code == loading
        assert (await bench.describe("x"))[0].error_code == loading
        for each in bench.log.behind.values():
            each.set()
        await asyncio.sleep(0.2)
        assert (await bench.init("x"))[0] is OK

    play(story)


def test_the_level_of_the_feature_decides_what_is_written() -> None:
    async def story(bench: TransactionBench) -> None:
        await bench.start(partitions=1, version=0)
        await bench.init("x")
        bench.apply(image_at({TRANSACTION_STATE: 1, "t": 1}, 2), partitions_changed=())
        await bench.init("x")

    log = play(story)
    values = [
        record.value
        for batch in log.batches[TopicPartition(TRANSACTION_STATE, 0)]
        for record in BatchView(bytearray(batch)).records()
    ]
    assert [int.from_bytes(each[:2], "big") for each in values if each is not None] == [0, 1]
