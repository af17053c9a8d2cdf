"""A member that falls out of its group by whatever way stops to hand out what others may have by now; and what keeps it
from coming back does not stay in the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import Consumer, Producer, RebalanceListener, TopicPartition
from barnabas.base.error_codes import ErrorCode
from barnabas.client.consumer.heartbeat_task import HeartbeatTask
from barnabas.client.core.consuming.membership_steps import Heartbeat
from barnabas.client.errors import ClientTimeoutError, CommitFailedError
from barnabas.client.settings import ConsumerSettings
from barnabas.testing import AsyncEmbeddedBroker, EmbeddedBroker
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.leave_group import LeaveGroupRequest
from tests.client.consumer.players import at, member_of
from tests.client.faults.reading import wait_until
from tests.client.scenes import scene, timed
from tests.virtual_time import clock, on_virtual_time

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENCE_S = 10.0


@on_virtual_time
async def test_the_program_is_called_when_it_is_taken_for_late() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, max_poll_interval_ms=200) as member:
            member.subscribe("t")
            await member.join()
            called = asyncio.Event()
            member.group.on_attention = called.set
            await asyncio.wait_for(called.wait(), PATIENCE_S)
            assert not member.group.membership.is_in_generation


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS]
)
@on_virtual_time
async def test_the_program_is_called_when_a_commit_tells_that_the_group_has_gone_on(code: ErrorCode) -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers) as member:
            member.subscribe("t")
            await member.join()
            called = asyncio.Event()
            member.group.on_attention = called.set
            broker.faults.fail_next(ApiKey.OFFSET_COMMIT, error=code)
            with pytest.raises(CommitFailedError):
                await member.group.commit({T0: at(1)})
            assert called.is_set()


@on_virtual_time
async def test_a_defect_in_a_rebalance_is_told_once_and_the_member_joins_after_all() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers) as member:
            network = member.group._network
            real = network.request

            def broken(node_id: int, message: Any, **options: Any) -> Any:
                network.request = real  # type: ignore[method-assign]
                raise AttributeError("a defect of ours")

            network.request = broken  # type: ignore[method-assign]
            member.subscribe("t")
            with pytest.raises(AttributeError, match="a defect of ours"):
                await member.join()
            await member.join()
            assert member.assigned == [T0, T1]


class SlowNetwork:
    """The coordinator does not answer that a member leaves."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.is_beating = asyncio.Event()

    def known_coordinator(self, *key: object) -> int:
        return 1

    def version_of(self, *which: object) -> int:
        return 5

    async def request(self, node_id: int, message: object, **options: object) -> None:
        self.sent.append(message)
        await asyncio.sleep(3600)

    def request_soon(self, node_id: int, message: object, on_answer: object) -> None:
        self.sent.append(message)
        self.is_beating.set()


class LateMember:
    """Leaves, and is a member again at once."""

    def __init__(self) -> None:
        self.policy = type("Policy", (), {"group_id": "g"})
        self.coordinator_lost = None
        self.leave: LeaveGroupRequest | None = LeaveGroupRequest(group_id="g")
        self.beat: Heartbeat | None = Heartbeat(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))

    def overdue(self, now_ms: int) -> LeaveGroupRequest | None:
        leave, self.leave = self.leave, None
        return leave

    def heartbeat(self, now_ms: int) -> Heartbeat | None:
        beat, self.beat = self.beat, None
        return beat

    def next_timer_ms(self, now_ms: int) -> float | None:
        return None


@on_virtual_time
async def test_heartbeats_do_not_wait_until_leaving_is_answered() -> None:
    network = SlowNetwork()
    heartbeats = HeartbeatTask(
        network,  # type: ignore[arg-type]
        LateMember(),  # type: ignore[arg-type]
        ConsumerSettings.load(bootstrap_servers="127.0.0.1:1", group_id="g"),
        clock=clock(),
        metrics=None,
        before=lambda now_ms: None,
        after=lambda: None,
    )
    heartbeats.start()
    await asyncio.wait_for(network.is_beating.wait(), PATIENCE_S)
    heartbeats.stop()
    assert isinstance(network.sent[0], HeartbeatRequest)


# Whole consumers


class Told(RebalanceListener):
    def __init__(self) -> None:
        self.story: list[str] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.story.append("assigned")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.story.append("lost")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(group_min_session_timeout_ms=100, group_initial_rebalance_delay_ms=0) as made:
        made.create_topic("t", 2)
        with Producer(bootstrap_servers=made.bootstrap_servers) as producer:
            for number in range(200):
                producer.send("t", b"%d" % number, partition=0)
        yield made


def reader(broker: EmbeddedBroker, group: str, **given: Any) -> Consumer:
    return Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=400,
        heartbeat_interval_ms=50,
        **given,
    )


def test_a_loop_over_records_stops_in_mid_chunk_when_its_member_has_left(broker: EmbeddedBroker) -> None:
    listener = Told()
    with reader(broker, "late", max_poll_interval_ms=400) as consumer:
        consumer.subscribe(["t"], listener=listener)
        loop = iter(consumer)
        assert [next(loop).offset, next(loop).offset] == [0, 1]
        assert consumer._consumer._group is not None
        membership = consumer._consumer._group.membership
        wait_until(lambda: not membership.is_in_generation, "the member has left")
        assert listener.story == ["assigned"]
        # The group knows of nothing that was done: it begins anew.
        assert next(loop).offset == 0
        assert listener.story == ["assigned", "lost", "assigned"]


def test_a_loop_over_records_stops_in_mid_chunk_when_a_commit_is_refused(broker: EmbeddedBroker) -> None:
    listener = Told()
    with reader(broker, "refused", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"], listener=listener)
        loop = iter(consumer)
        assert [next(loop).offset, next(loop).offset] == [0, 1]
        broker.faults.fail_next(ApiKey.OFFSET_COMMIT, error=ErrorCode.UNKNOWN_MEMBER_ID)
        with pytest.raises(CommitFailedError):
            consumer.commit()
        assert next(loop).offset == 0
        assert listener.story == ["assigned", "lost", "assigned"]


def test_an_auto_commit_that_fails_is_logged_in_one_sentence(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with reader(broker, "logged", auto_commit_interval_ms=1) as consumer:
        consumer.subscribe(["t"])
        assert len(consumer.poll(PATIENCE_S, max_records=1)) == 1
        broker.faults.fail_next(ApiKey.OFFSET_COMMIT, error=ErrorCode.UNKNOWN_MEMBER_ID)
        with caplog.at_level(logging.WARNING):
            while "auto-commit" not in caplog.text:
                consumer.poll(0.05, max_records=1)
    assert "group logged: auto-commit: offsets were not committed: this consumer is not in group" in caplog.text
    assert "committed: offsets were" not in caplog.text


def committed(broker: EmbeddedBroker, group: str) -> dict[TopicPartition, int | None]:
    with reader(broker, group) as consumer:
        found = consumer.committed([T0, T1])
    return {partition: None if each is None else each.offset for partition, each in found.items()}


def test_partitions_that_are_assigned_no_more_are_committed(broker: EmbeddedBroker) -> None:
    with reader(broker, "by-hand") as consumer:
        consumer.assign([T0])
        assert len(consumer.poll(PATIENCE_S, max_records=30)) == 30
        assert len(consumer.poll(PATIENCE_S, max_records=30)) == 30
        consumer.assign([T1])
        consumer.commit({})  # what was asked for before is answered before
        assert committed(broker, "by-hand")[T0] == 60
        consumer.assign([T0, T1])
        assert consumer.poll(PATIENCE_S, max_records=10)[0].offset == 60
        assert consumer.poll(PATIENCE_S, max_records=10)[0].offset == 70
        consumer.unsubscribe()
        assert committed(broker, "by-hand")[T0] == 80


def test_without_auto_commit_a_new_assignment_commits_nothing(broker: EmbeddedBroker) -> None:
    with reader(broker, "by-hand-alone", enable_auto_commit=False) as consumer:
        consumer.assign([T0])
        consumer.poll(PATIENCE_S, max_records=30)
        consumer.poll(PATIENCE_S, max_records=30)
        consumer.assign([T1])
        consumer.commit({})
    assert committed(broker, "by-hand-alone")[T0] is None


@pytest.mark.parametrize("method", ["commit", "commit_async"])
def test_what_the_program_has_committed_is_not_taken_back_when_it_fails(broker: EmbeddedBroker, method: str) -> None:
    group = f"failing-{method}"
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        reader(broker, group) as consumer,
    ):
        consumer.subscribe(["t"])
        assert len(consumer.poll(PATIENCE_S, max_records=30)) == 30
        getattr(consumer, method)({T0: 20})
        raise ZeroDivisionError
    assert committed(broker, group)[T0] == 20


def test_what_a_loop_has_committed_is_not_taken_back_when_it_fails(broker: EmbeddedBroker) -> None:
    with (  # noqa: PT012
        pytest.raises(ZeroDivisionError),
        reader(broker, "failing-loop") as consumer,
    ):
        consumer.subscribe(["t"])
        for record in consumer:
            consumer.commit({T0: record.offset + 1})
            if record.offset == 4:
                raise ZeroDivisionError
    assert committed(broker, "failing-loop")[T0] == 5


@pytest.mark.parametrize("by_hand", [True, False])
@on_virtual_time
async def test_closing_keeps_its_time_while_no_coordinator_is_there(by_hand: bool) -> None:
    async with scene("t") as it:
        await it.fill("t", 1)
        consumer = it.consumer(
            group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=50, default_api_timeout_ms=8000
        )
        if by_hand:
            consumer.assign([T0])
        else:
            consumer.subscribe(["t"])
        assert len(await consumer.poll(PATIENCE_S)) == 1
    for _ in range(5):
        await consumer.poll(0.1)
    group = consumer._group
    assert group is not None
    assert len(group._committer._pending) <= 1
    async with timed(0, 0.7):
        await consumer.close(0.5)


@on_virtual_time
async def test_a_commit_waits_for_its_turn_no_longer_than_it_may() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, enable_auto_commit=False) as member:
            member.subscribe("t")
            await member.join()
            async with member.group._committer._turn:
                with pytest.raises(ClientTimeoutError, match="an earlier commit of group"):
                    await asyncio.wait_for(member.group.commit({T0: at(1)}, 50), PATIENCE_S)
            await member.group.commit({T0: at(1)})


@on_virtual_time
async def test_who_closes_in_a_hurry_is_told_what_was_not_committed() -> None:
    told: list[object] = []
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, enable_auto_commit=False) as member:
            member.subscribe("t")
            await member.join()
            broker.faults.fail_next(ApiKey.OFFSET_COMMIT, delay_ms=1000)
            member.group.commit_soon({T0: at(1)}, lambda offsets, error: told.append(error))
            await member.group.close(50)
    assert [type(each) for each in told] == [CommitFailedError]
