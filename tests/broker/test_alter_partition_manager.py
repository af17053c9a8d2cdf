"""Proposals of who is in sync, on their way to a controller that answers when the test says, and as it says."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker.data.alter_partition_manager import AlterPartitionManager
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.replication.isr import CommittedPartitionState
from barnabas.replication.partition import Partition
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionResult,
    TopicResult,
)
from tests.broker.connections import over_the_wire
from tests.replication.leader_bench import ScriptedPorts
from tests.replication.partitions import append, partition, state


class Controller:
    """Keeps requests until they are answered."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self._answers: asyncio.Queue[AlterPartitionResponse | BrokerError] = asyncio.Queue()

    async def submit(self, request: Request, version: int, caller: AuthorizableRequestContext) -> Response:
        assert version == 3
        self.asked.append(over_the_wire(cast(AlterPartitionRequest, request), version))
        answer = await self._answers.get()
        if isinstance(answer, BrokerError):
            raise answer
        return over_the_wire(answer, version)

    def answer(self, *results: PartitionResult, code: ErrorCode = ErrorCode.NONE) -> None:
        topics = [TopicResult(topic_id=self.asked[-1].topics[0].topic_id, partitions=list(results))] if results else []
        self._answers.put_nowait(AlterPartitionResponse(error_code=code, topics=topics))

    def fail(self, code: ErrorCode) -> None:
        self._answers.put_nowait(BrokerError(code))


class Bench:
    """Node 1 leads a partition; `ports` hand its proposals to the manager."""

    def __init__(self, epoch: int = 101) -> None:
        self.loop = VirtualTimeLoop()
        self.epoch = epoch
        self.controller = Controller()
        self.manager = AlterPartitionManager(cast(Any, self.controller), 1, lambda: self.epoch)
        self.ports = ScriptedPorts()
        self.ports.submit = self.manager.submit  # type: ignore[method-assign]
        self.partition = self.led()

    def led(self) -> Partition:
        return partition(state((1, 2, 3), isr=(1, 2)), self.ports)

    def fetch(self, replica: int, offset: int = 0) -> None:
        async def fetch() -> None:
            self.partition.leading().update_follower_fetch_state(replica, offset, 0, 100 + replica)

        self.loop.run_until_complete(fetch())
        self.settle()

    def settle(self, ms: float = 1) -> None:
        self.loop.run_for(ms / 1000)

    @property
    def isr(self) -> tuple[int, ...]:
        return self.partition.leading().isr

    @property
    def is_committed(self) -> bool:
        return isinstance(self.partition.leading().isr_state, CommittedPartitionState)


def accepted(asked: PartitionData) -> PartitionResult:
    return PartitionResult(
        partition_index=asked.partition_index,
        leader_id=1,
        leader_epoch=asked.leader_epoch,
        isr=[each.broker_id for each in asked.new_isr_with_epochs],
        partition_epoch=asked.partition_epoch + 1,
    )


def refused(code: ErrorCode) -> PartitionResult:
    return PartitionResult(partition_index=0, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0)


def test_a_follower_joins(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    bench.fetch(3)
    (asked,) = bench.controller.asked
    (data,) = asked.topics[0].partitions
    assert (asked.broker_id, asked.broker_epoch, asked.topics[0].topic_id) == (1, 101, bench.partition.topic_id)
    assert [(each.broker_id, each.broker_epoch) for each in data.new_isr_with_epochs] == [(1, 101), (2, -1), (3, 103)]
    assert (data.leader_epoch, data.partition_epoch, data.leader_recovery_state) == (0, 0, 0)
    bench.controller.answer(accepted(data))
    bench.settle()
    assert (bench.isr, bench.is_committed) == ((1, 2, 3), True)
    assert "t-0: broker 3 has caught up, and is in sync (ISR 1,2 -> 1,2,3); version 1" in caplog.messages
    assert len(bench.controller.asked) == 1


@pytest.mark.parametrize("count", [5, 28])
def test_followers_that_join_many_partitions_are_one_line(caplog: pytest.LogCaptureFixture, count: int) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    partitions = [bench.led() for _ in range(count)]
    for number, each in enumerate(partitions):
        each.name = each.name._replace(partition=number)

    async def fetch() -> None:
        for each in partitions:
            each.leading().update_follower_fetch_state(3, 0, 0, 103)

    bench.loop.run_until_complete(fetch())
    bench.settle()
    (asked,) = bench.controller.asked
    caplog.clear()
    bench.controller.answer(*map(accepted, asked.topics[0].partitions))
    bench.settle()
    reason = "broker 3 has caught up, and is in sync (ISR 1,2 -> 1,2,3)"
    if count == 5:
        assert caplog.messages == [f"t-{each}: {reason}; version 1" for each in range(5)]
    else:
        names = ", ".join(f"t-{each}" for each in range(10))
        assert caplog.messages == [f"28 partitions: {reason}: {names} and 18 more"]


def test_a_follower_that_lags_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    append(bench.partition, b"a")
    bench.ports.now_ms = 30_001

    async def expire() -> None:
        bench.partition.leading().maybe_shrink_isr()

    bench.loop.run_until_complete(expire())
    bench.settle()
    assert caplog.messages == [
        "t-0: Shrinking ISR from 1,2 to 1. Leader: (highWatermark: 0, endOffset: 1). "
        "Out of sync replicas: (brokerId: 2, endOffset: -1, caught up 30001 ms ago)."
    ]
    bench.controller.answer(accepted(bench.controller.asked[0].topics[0].partitions[0]))
    bench.settle()
    assert (bench.isr, bench.partition.led_log().high_watermark) == ((1,), 1)


@pytest.mark.parametrize(
    ("code", "asked", "is_committed"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, 1, True),
        (ErrorCode.INVALID_UPDATE_VERSION, 1, False),
        (ErrorCode.FENCED_LEADER_EPOCH, 1, False),
        (ErrorCode.NOT_CONTROLLER, 2, False),
    ],
)
def test_refusals(code: ErrorCode, asked: int, is_committed: bool) -> None:
    bench = Bench()
    bench.fetch(3)
    bench.controller.answer(refused(code))
    bench.settle(1000)
    assert (len(bench.controller.asked), bench.is_committed) == (asked, is_committed)


def test_what_was_not_decided_is_sent_again_with_the_epoch_of_then() -> None:
    bench = Bench()
    bench.fetch(3)
    bench.controller.fail(ErrorCode.REQUEST_TIMED_OUT)
    bench.settle(49)
    assert len(bench.controller.asked) == 1
    bench.epoch = 201
    bench.settle(2)
    bench.controller.answer(code=ErrorCode.STALE_BROKER_EPOCH)
    bench.settle(52)
    bench.controller.answer()  # without the partition
    bench.settle(52)
    assert [each.broker_epoch for each in bench.controller.asked] == [101, 201, 201, 201]
    bench.controller.answer(accepted(bench.controller.asked[-1].topics[0].partitions[0]))
    bench.settle()
    assert bench.isr == (1, 2, 3)


def test_one_request_at_a_time_with_all_that_came_up_meanwhile() -> None:
    bench = Bench()
    bench.fetch(3)
    second, third = bench.led(), bench.led()
    second.name, third.name = second.name._replace(partition=1), third.name._replace(partition=2)

    async def fetch() -> None:
        for each in (second, third):
            each.leading().update_follower_fetch_state(3, 0, 0, 103)

    bench.loop.run_until_complete(fetch())
    bench.settle(200)
    assert len(bench.controller.asked) == 1
    bench.controller.answer(accepted(bench.controller.asked[0].topics[0].partitions[0]))
    bench.settle()
    assert len(bench.controller.asked) == 2
    assert [each.partition_index for each in bench.controller.asked[1].topics[0].partitions] == [1, 2]


def test_newer_metadata_ends_a_proposal() -> None:
    bench = Bench()
    bench.fetch(3)
    bench.partition.update(state((1, 2, 3), isr=(1,), partition_epoch=5))
    bench.controller.fail(ErrorCode.NOT_CONTROLLER)
    bench.settle(1000)
    assert (len(bench.controller.asked), bench.isr, bench.is_committed) == (1, (1,), True)


def test_before_the_broker_is_registered_nothing_is_asked() -> None:
    bench = Bench(epoch=-1)
    bench.fetch(3)
    bench.settle(1000)
    assert not bench.controller.asked
    bench.epoch = 101
    bench.settle(50)
    assert len(bench.controller.asked) == 1


def test_it_stops_while_a_request_is_under_way() -> None:
    bench = Bench()
    bench.fetch(3)
    bench.loop.run_until_complete(bench.manager.stop())
    bench.fetch(3)
    assert len(bench.controller.asked) == 1
