"""Members that are slow, late or gone: what is committed for them, and what they are told."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from barnabas import Consumer, Producer, TopicPartition, aio
from barnabas.base.error_codes import ErrorCode
from barnabas.client.errors import CommitFailedError
from barnabas.client.plugins import RebalanceListener
from barnabas.testing import EmbeddedBroker
from barnabas.wire.apis import ApiKey
from tests.client.faults.reading import LIMIT_S, wait_until
from tests.client.scenes import Scene, scene
from tests.virtual_time import on_virtual_time, until


def fill(broker: EmbeddedBroker, topic: str, count: int, partitions: int = 1) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


USUAL: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 30,
    "session_timeout_ms": 2000,
    "retry_backoff_ms": 10,
    "fetch_max_wait_ms": 50,
}


def member(broker: EmbeddedBroker, topic: str, **settings: Any) -> Consumer:
    given = {"bootstrap_servers": broker.bootstrap_servers, "group_id": f"g-{topic}", **USUAL, **settings}
    return Consumer(topic, **given)


def committed(broker: EmbeddedBroker, topic: str, partition: int = 0) -> int | None:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{topic}") as auditor:
        wanted = TopicPartition(topic, partition)
        found = auditor.committed([wanted])[wanted]
        return None if found is None else found.offset


class DiedOverIt(Exception):  # noqa: N818
    """The program failed with a record in hand."""


@pytest.mark.parametrize("fails", [True, False], ids=["it fails", "it leaves"])
def test_a_record_in_hand_is_committed_when_the_program_says_that_it_is_done(
    broker: EmbeddedBroker, topic: str, fails: bool
) -> None:
    """Neither the interval commits it nor an exception that ends the `with`: whoever dies over a record gets it again.
    To leave the `with` in good order says that it is done."""
    fill(broker, topic, 5)

    def program() -> None:
        with member(broker, topic, auto_commit_interval_ms=10) as consumer:
            for record in consumer:
                if record.offset == 3:
                    if fails:
                        raise DiedOverIt
                    return

    with pytest.raises(DiedOverIt) if fails else nullcontext():
        program()
    assert committed(broker, topic) == (3 if fails else 4)


def test_a_list_in_hand_is_not_committed_before_the_next_poll(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, 6)

    def program() -> None:
        with member(broker, topic, auto_commit_interval_ms=10, max_poll_records=2) as consumer:
            for _ in range(2):
                assert len(consumer.poll(LIMIT_S)) == 2
            raise DiedOverIt

    with pytest.raises(DiedOverIt):
        program()
    assert committed(broker, topic) == 2


def test_a_commit_of_the_program_is_not_taken_back_by_auto_commit(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, 6)

    def program() -> None:
        with member(broker, topic, max_poll_records=4) as consumer:
            assert len(consumer.poll(LIMIT_S)) == 4
            consumer.commit()
            raise DiedOverIt

    with pytest.raises(DiedOverIt):
        program()
    assert committed(broker, topic) == 4


def test_without_auto_commit_nothing_is_committed(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, 3)
    with member(broker, topic, enable_auto_commit=False) as consumer:
        assert len(consumer.poll(LIMIT_S)) == 3
        consumer.poll(0)
    assert committed(broker, topic) is None


class Story(RebalanceListener):
    """A listener that remembers."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.words.append("assigned")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.words.append("revoked")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.words.append("lost")


def joining(it: Scene, **settings: Any) -> aio.Consumer[Any, Any]:
    """A member of the group `g` that reads `t`, on virtual time."""
    return it.consumer("t", **{"group_id": "g", **USUAL, **settings})


@on_virtual_time
async def test_a_program_that_does_not_poll_in_time_loses_its_partitions() -> None:
    """Another member gets them; the late one is told so when it commits, with the setting, and joins again at the
    next poll."""
    settings: dict[str, Any] = {"max_poll_interval_ms": 200, "enable_auto_commit": False, "heartbeat_interval_ms": 30}
    story = Story()
    async with scene("t") as it:
        await it.fill("t", 3)
        async with joining(it, **settings) as late, joining(it, **settings) as other:
            late.subscribe(["t"], listener=story)
            assert len(await late.poll(LIMIT_S)) == 3
            # It works on them for too long.
            assert len(await other.poll(LIMIT_S)) == 3
            with pytest.raises(CommitFailedError, match=r"max.poll.interval.ms"):
                await late.commit()
            await other.commit()
            await other.close()
            await late.poll(0.3)
            while not late.assignment():
                await late.poll(0.05)
            assert story.words[:3] == ["assigned", "lost", "assigned"]
        assert await it.committed("g", TopicPartition("t", 0)) == 3


@on_virtual_time
async def test_heartbeats_go_on_while_the_program_works() -> None:
    """Longer than the session timeout, and shorter than max.poll.interval.ms: nobody takes its partitions."""
    async with scene("t") as it:
        await it.fill("t", 3)
        async with joining(it, session_timeout_ms=200, heartbeat_interval_ms=40) as consumer:
            assert len(await consumer.poll(LIMIT_S)) == 3
            generation = consumer.group_metadata().generation
            await asyncio.sleep(0.5)
            await consumer.commit()
            assert consumer.group_metadata().generation == generation


def test_heartbeats_do_not_need_the_thread_of_the_program(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, 3)
    with member(broker, topic) as consumer:
        assert len(consumer.poll(LIMIT_S)) == 3
        before = broker.faults.seen[ApiKey.HEARTBEAT]
        wait_until(lambda: broker.faults.seen[ApiKey.HEARTBEAT] >= before + 5, "heartbeats come")


@on_virtual_time
async def test_taking_records_one_by_one_counts_as_being_in_time() -> None:
    """An iteration over a large answer does not poll in between, but the program is not late as long as it takes."""
    async with scene("t") as it:
        await it.fill("t", 12)
        async with joining(it, max_poll_interval_ms=250, heartbeat_interval_ms=30) as consumer:
            iterator = aiter(consumer)
            for _ in range(12):
                await anext(iterator)
                await asyncio.sleep(0.05)
            await consumer.commit()
        assert await it.committed("g", TopicPartition("t", 0)) == 12


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@on_virtual_time
async def test_a_second_member_gets_its_share_from_a_slow_one(strategy: str) -> None:
    """Every record is handed out at least once, and what was done before the rebalance is not handed out again."""
    count = 400
    seen: dict[str, list[tuple[int, int]]] = {"first": [], "second": []}
    stop = asyncio.Event()

    async def consume(it: Scene, name: str) -> None:
        settings: dict[str, Any] = {"max_poll_records": 5, "auto_commit_interval_ms": 20}
        async with joining(it, partition_assignment_strategy=strategy, **settings) as consumer:
            while not stop.is_set():
                records = await consumer.poll(0.05)
                seen[name] += [(record.partition, record.offset) for record in records]
                await asyncio.sleep(0.01)

    async with scene("t", partitions=4) as it:
        await it.fill("t", count, partitions=4)
        first = asyncio.create_task(consume(it, "first"))
        await until(lambda: len(seen["first"]) > 50)
        second = asyncio.create_task(consume(it, "second"))
        await until(lambda: len({*seen["first"], *seen["second"]}) == count)
        stop.set()
        await asyncio.gather(first, second)
        assert len(seen["second"]) > 20, "the second has had a share"
        assert len(seen["first"]) + len(seen["second"]) <= count + 4 * 10, "hardly anything was read twice"
        assert sum([await it.committed("g", TopicPartition("t", number)) or 0 for number in range(4)]) >= count - 4 * 5


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS]
)
@on_virtual_time
async def test_a_member_that_the_coordinator_has_forgotten_joins_again(code: ErrorCode) -> None:
    async with scene("t") as it:
        await it.fill("t", 3)
        faults = it.faults
        async with joining(it, enable_auto_commit=False, session_timeout_ms=300) as consumer:
            assert len(await consumer.poll(LIMIT_S)) == 3
            await consumer.commit()
            joins = faults.seen[ApiKey.JOIN_GROUP]
            faults.fail_next(ApiKey.HEARTBEAT, error=code)
            while faults.seen[ApiKey.JOIN_GROUP] <= joins:
                await consumer.poll(0.02)
            while not consumer.assignment():
                await consumer.poll(0.02)
            await it.fill("t", 1)
            assert [record.offset for record in await consumer.poll(LIMIT_S)] == [3]
            await consumer.commit()
        assert await it.committed("g", TopicPartition("t", 0)) == 4


@on_virtual_time
async def test_a_static_member_that_comes_back_finds_its_place() -> None:
    """Closed and started again within the session: no rebalance; a second one of the same name fences the first."""
    async with scene("t") as it:
        await it.fill("t", 3)
        async with joining(it, group_instance_id="one") as consumer:
            assert len(await consumer.poll(LIMIT_S)) == 3
            generation = consumer.group_metadata().generation
            await consumer.poll(0)
        async with joining(it, group_instance_id="one") as consumer:
            await consumer.poll(0.2)
            assert consumer.group_metadata().generation == generation
            async with joining(it, group_instance_id="one") as twin:
                await twin.poll(0.2)
                with pytest.raises(Exception, match=r"(?i)instance|fenced"):
                    await consumer.poll(LIMIT_S)
