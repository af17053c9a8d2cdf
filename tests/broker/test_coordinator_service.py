"""Shards of coordinators are loaded when their partition can be read, and not before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from types import SimpleNamespace
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.coordinators.coordinator_runner import Words, WriteSettings
from barnabas.broker.coordinators.coordinator_service import CoordinatorService
from barnabas.coordinator.transactions.config import TransactionCoordinatorConfig
from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard
from barnabas.records.compression import Codec
from barnabas.testing.sim.world import World

NODE_ID, TOPIC = 1, "shards"


class Writer:
    """A log whose leaders become readable when the test says so."""

    def __init__(self) -> None:
        self.waits: list[asyncio.Future[ErrorCode]] = []
        self.read_count = 0

    def until_readable(self, partition: TopicPartition) -> Awaitable[ErrorCode]:
        self.waits.append(asyncio.get_running_loop().create_future())
        return self.waits[-1]

    async def read_all(self, partition: TopicPartition, max_bytes: int, runtime: object) -> AsyncIterator[bytes]:
        self.read_count += 1
        for nothing in list[bytes]():
            yield nothing


class Service(CoordinatorService[TransactionCoordinatorShard]):
    def _new_shard(self, index: int) -> TransactionCoordinatorShard:
        markers: Any = SimpleNamespace(send=lambda *_: None, cancel_all=lambda: None)
        return TransactionCoordinatorShard(TransactionCoordinatorConfig(), lambda: 1, markers)

    def _write_settings(self) -> WriteSettings:
        return WriteSettings(-1, 1000, 1000, Codec.NONE, 1_000_000)

    def _reconfigure_shard(self, shard: TransactionCoordinatorShard) -> None:
        """It has no settings."""

    def leads_in(self, leader_epoch: int) -> None:
        """The metadata says that this node leads in this epoch."""
        partition = SimpleNamespace(leader=NODE_ID, leader_epoch=leader_epoch)
        image: Any = SimpleNamespace(topics={TOPIC: SimpleNamespace(partitions=(partition,))})
        changed = [TopicPartition(TOPIC, 0)]
        delta: Any = SimpleNamespace(configs_changed=(), topics_deleted=(), partitions_changed=changed)
        self.apply(image, delta)

    @property
    def error(self) -> ErrorCode:
        return self._runners[0].error


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def _play(story: Any) -> None:
    world = World(1)
    writer: Any = Writer()
    words = Words(logging.getLogger("barnabas.shards"), "ids", "ids")

    async def play() -> None:
        service = Service(TOPIC, words, world.host("10.0.0.1").runtime(), NODE_ID, writer, 1)
        service.start()
        await story(service, writer)
        await service.stop()

    try:
        world.run(play(), limit_s=60)
    finally:
        world.close()


def test_the_end_of_one_leader_epoch_does_not_load_for_the_next() -> None:
    """Who waited for the first hears that it is over; what the second may not know yet is not left out."""

    async def story(service: Service, writer: Writer) -> None:
        service.leads_in(5)
        await _turns()
        assert service.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        writer.waits[0].set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        service.leads_in(7)
        await _turns()
        assert (service.error, writer.read_count) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0)
        writer.waits[1].set_result(ErrorCode.NONE)
        await _turns()
        assert (service.error, writer.read_count) == (ErrorCode.NONE, 1)

    _play(story)


def test_who_begins_anew_while_it_stands_in_line_waits_anew() -> None:
    async def story(service: Service, writer: Writer) -> None:
        service.leads_in(5)
        await _turns()
        writer.waits[0].set_result(ErrorCode.NONE)
        await asyncio.sleep(0)  # it is in line, and not read yet
        service.leads_in(6)
        await _turns()
        assert (service.error, writer.read_count) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0)
        writer.waits[1].set_result(ErrorCode.NONE)
        await _turns()
        assert service.error is ErrorCode.NONE

    _play(story)
