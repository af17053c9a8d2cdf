"""What a poll raises, how often, and how long it takes where it need not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import barnabas
from barnabas import Consumer, Producer, TopicPartition, aio
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.client._kernel.receiving import ConsumerRecord
from barnabas.client.core.cluster_view import ClusterView
from barnabas.client.core.consuming.offsets import EARLIEST
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.testing import EmbeddedBroker
from tests.client.consumer.reading_world import A, B, world
from tests.virtual_time import play, until

PATIENCE_S = 10.0
NEWS = TopicPartition("news", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(group_initial_rebalance_delay_ms=0) as made:
        made.create_topic("news", 2)
        with Producer(bootstrap_servers=made.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("news", b"%d" % number, partition=0)
        yield made


def options(broker: EmbeddedBroker, **given: Any) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest", **given}


# Topics that cannot be read


@pytest.mark.parametrize("group_id", [None, "nobody"])
def test_a_topic_with_an_impossible_name_is_told_by_poll(broker: EmbeddedBroker, group_id: str | None) -> None:
    with Consumer("a b!", "news", **options(broker, group_id=group_id)) as consumer:
        with pytest.raises(BrokerError, match="'a b!' cannot be read") as told:
            consumer.poll(PATIENCE_S)
        assert told.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        # It is told with each news of the cluster, and keeps nobody from the others meanwhile.
        records: list[ConsumerRecord] = []
        while not records:
            with suppress(BrokerError):
                records = consumer.poll(PATIENCE_S)
        assert records[0].topic == "news"


def test_partitions_of_an_impossible_topic_are_told_by_poll(broker: EmbeddedBroker) -> None:
    with Consumer(**options(broker)) as consumer:
        consumer.assign([TopicPartition("a b!", 0)])
        with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
            consumer.poll(PATIENCE_S)


def test_a_forbidden_topic_is_told_by_poll(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClusterView, "topic_error", lambda self, topic: ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with (
        Consumer("news", **options(broker)) as consumer,
        pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        consumer.poll(PATIENCE_S)


@pytest.mark.parametrize("wrong", ["news", ["news"], [("news",)], [("news", "0")], [None]])
def test_what_is_no_partition_cannot_be_assigned(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"\[TopicPartition\('clicks', 0\)\]"):
        Subscription(EARLIEST).assign(wrong)
    with (
        Consumer(bootstrap_servers="127.0.0.1:1") as consumer,
        pytest.raises(TypeError, match=r"\[TopicPartition\('clicks', 0\)\]"),
    ):
        consumer.assign(wrong)


# Errors that come again and again


def test_an_error_that_comes_again_and_again_is_told_once_and_forgotten_when_it_passes() -> None:
    async def story() -> None:
        async with world(partitions=2) as it, it.reader(A, B) as reader:
            await it.produce(A, [b"a"])
            await it.produce(B, [b"b"])
            assert len(await reader.values(2)) == 2
            state, error = reader.subscription.state(A), BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            real = reader.fetcher._reader.read
            answers = 0

            def read(node_id: int, wanted: Any, answered: Any, now_ms: int) -> Any:
                nonlocal answers
                effects = real(node_id, wanted, answered, now_ms)
                if A in wanted:
                    answers += 1
                    state.error = error
                return effects

            reader.fetcher._reader.read = read  # type: ignore[method-assign]
            await until(lambda: answers >= 5)
            reader.fetcher._reader.read = real  # type: ignore[method-assign]
            state.error = error
            with pytest.raises(BrokerError):
                reader.fetcher.take_chunk()
            assert reader.fetcher.take_chunk() is None
            # One that has passed before the program came back is not told at all.
            state.error = error
            await it.produce(A, [b"c"])
            await it.produce(B, [b"d"])
            assert sorted(await reader.values(2)) == [b"c", b"d"]
            state.error = error
            reader.subscription.seek(A, 0)
            assert reader.subscription.state(A).error is None

    play(story())


# Time


def test_polls_without_time_let_the_event_loop_work(broker: EmbeddedBroker) -> None:
    async def story() -> list[ConsumerRecord]:
        async with aio.Consumer("news", **options(broker)) as consumer:
            while True:
                records = await consumer.poll(0)
                if records:
                    return records

    assert asyncio.run(asyncio.wait_for(story(), PATIENCE_S))[0].value == b"0"


def test_a_poll_that_finds_nothing_for_the_program_goes_on_until_its_time_is_over(broker: EmbeddedBroker) -> None:
    """As where a compacted batch spans the position, and holds only records below it."""

    async def story() -> None:
        async with aio.Consumer("news", **options(broker)) as consumer:
            fetcher = consumer._parts.fetcher
            for name, empty in (("take_records", []), ("take_arrow", None)):
                real = getattr(fetcher, name)
                outcomes: Iterator[Any] = iter([empty])
                setattr(fetcher, name, lambda limit, real=real, left=outcomes: next(left, real) and real(limit))
            assert len(await consumer.poll(PATIENCE_S, max_records=10)) == 10
            assert (await consumer.poll_arrow(PATIENCE_S, max_rows=10)).num_rows == 10

    asyncio.run(story())


def test_who_has_records_does_not_wait_for_its_group(broker: EmbeddedBroker) -> None:
    async def story() -> None:
        async with aio.Consumer("news", **options(broker, group_id="waiting")) as consumer:
            assert len(await consumer.poll(PATIENCE_S, max_records=1)) == 1
            group, waits_ms = consumer._group, []
            assert group is not None

            async def poll(timeout_ms: float) -> bool:
                waits_ms.append(timeout_ms)
                return False

            group.poll = poll  # type: ignore[method-assign]
            consumer.enforce_rebalance()
            assert len(await consumer.poll(PATIENCE_S, max_records=99)) == 99
            assert waits_ms == [0]
            # Who has none does.
            assert await consumer.poll(0.3) == []
            assert max(waits_ms) == 100
            del group.poll

    asyncio.run(story())


# Names


@pytest.mark.parametrize("name", ["Consumer"])
def test_both_consumers_have_the_same_public_names(name: str) -> None:
    def names(kind: type) -> set[str]:
        # What other clients call it is in `dir` too, and leads to a hint.
        return {each for each in dir(kind) if not each.startswith("_") and hasattr(kind, each)}

    # A coroutine can be begun on a loop before it is used; a thread has begun already.
    assert names(getattr(aio, name)) - {"start"} == names(getattr(barnabas, name))


def test_records_can_be_annotated_with_what_they_hold() -> None:
    assert str(ConsumerRecord[str, bytes]).endswith("ConsumerRecord[str, bytes]")
