"""Our own clients in the simulated world: producers and a group that keep count, and what must be true afterwards.

A longer sweep than that of every day: `BARNABAS_SWEEP=full pytest tests/client/faults/test_in_a_simulated_world.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas import aio
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.errors import DeliveryTimeoutError
from barnabas.testing.sim.checkers import LogChecker
from barnabas.testing.sim.runtime import SimulatedClock
from barnabas.testing.sim.world import SimulatedNode, World
from tests.simulation.players import Player

TOPIC = "ledger"
PARTITIONS = 3
GROUP = "clerks"


def partitions() -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


class ClientLoad:
    """Producers that send without waiting, and members of one group that read, commit by themselves, come and go."""

    def __init__(self, world: World, node: SimulatedNode, **producer_settings: Any) -> None:
        self.checker = LogChecker()
        self.failed_count = 0
        #: What the group was given, by partition and offset.
        self.delivered: dict[TopicPartition, dict[int, bytes]] = {each: {} for each in partitions()}
        self._world = world
        self._node = node
        self._producer_settings = producer_settings
        self._clock = SimulatedClock(world.loop)
        self._strategy = world.random("strategy").choice(["range", "cooperative-sticky"])
        self._is_stopping = False
        self._is_drained = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        founder = Player(self._world, self._node, "founder", timeout_s=5.0)
        await founder.create_topic(TOPIC, PARTITIONS, internal_segment_bytes="5000")
        await founder.close()
        start = asyncio.create_task
        self._tasks = [start(self._produce(f"producer-{number}")) for number in range(2)]
        self._tasks += [start(self._consume(f"member-{number}")) for number in range(2)]

    def _settings(self, name: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self._node.bootstrap,
            "client_id": name,
            "clock": self._clock,
            "randomness": self._world.random(name),
            "request_timeout_ms": 3000,
        }

    async def _produce(self, name: str) -> None:
        chance = self._world.random(f"{name} program")
        outcomes: list[asyncio.Task[None]] = []
        settings: dict[str, Any] = {"linger_ms": 5, "batch_size": 500, **self._producer_settings}
        async with aio.Producer(**settings, **self._settings(name)) as producer:
            for number in range(1_000_000):
                if self._is_stopping:
                    break
                partition = TopicPartition(TOPIC, chance.randrange(PARTITIONS))
                value = b"%s/%d/%s" % (name.encode(), number, b"x" * chance.randrange(80))
                try:
                    future = await producer.send(TOPIC, value, partition=partition.partition)
                except BarnabasError:
                    self.failed_count += 1  # no room in time: it was never taken
                    continue
                self.checker.sent(partition, [value], name)
                outcomes.append(asyncio.create_task(self._learn(partition, value, future)))
                await asyncio.sleep(chance.uniform(0, 0.06))
        await asyncio.wait_for(asyncio.gather(*outcomes), 1)

    async def _learn(self, partition: TopicPartition, value: bytes, future: Any) -> None:
        try:
            metadata = await future
        except DeliveryTimeoutError:
            self.failed_count += 1  # it may be written all the same
        else:
            self.checker.acknowledged(partition, metadata.offset, [value])

    async def _consume(self, name: str) -> None:
        """A member that polls, and now and then dies of it or leaves as it should."""
        chance = self._world.random(f"{name} program")
        settings: dict[str, Any] = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 1000,
            "auto_commit_interval_ms": 500,
            "max_poll_records": 20,
            "partition_assignment_strategy": self._strategy,
        }
        while not self._is_over():
            consumer = aio.Consumer(TOPIC, **settings, **self._settings(name))
            try:
                for _ in range(chance.randint(20, 200)):
                    for record in await consumer.poll(0.5):
                        partition = TopicPartition(record.topic, record.partition)
                        before = self.delivered[partition].setdefault(record.offset, record.value)
                        assert before == record.value, f"{partition} at {record.offset}: {before!r}, {record.value!r}"
                    await asyncio.sleep(chance.uniform(0, 0.05))
                    if self._is_over():
                        break
            finally:
                await consumer.close(chance.choice([0, 2.0]))

    def _is_over(self) -> bool:
        return self._is_drained

    async def stop(self) -> None:
        self._is_stopping = True
        await asyncio.gather(*self._tasks[:2])

    async def check(self) -> None:
        """The node is well again: it holds what it must, and the group gets all of it."""
        auditor = Player(self._world, self._node, "auditor", timeout_s=5.0)
        for partition in partitions():
            values = await auditor.until_it_works(auditor.read_all, partition)
            self.checker.finish(partition, values)
            async with asyncio.timeout(120):
                while len(self.delivered[partition]) < len(values):  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
            assert self.delivered[partition] == dict(enumerate(values))
        self._is_drained = True
        await asyncio.gather(*self._tasks[2:])
        await auditor.close()
        self.checker.check()
        assert self.checker.acknowledged_count > 20  # it was a test at all, also in a world of long silences
