"""A rolling restart of three nodes, on virtual time, with our clients at work: nothing is lost, nothing is refused, and
nobody waits for longer than an election takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import pytest

from barnabas import aio
from barnabas.base.ids import TopicPartition
from barnabas.client.admin import NewTopic
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.loader import MetadataUpdate
from barnabas.raft.types import LeaderAndEpoch
from barnabas.testing.sim.runtime import SimulatedClock
from barnabas.testing.sim.world import SimulatedNode, World
from tests.sweeps import IS_FULL

SEEDS: Final = range(50) if IS_FULL else range(2)
TOPIC: Final = "ledger"
PARTITIONS: Final = 6
SETTINGS: Final = {
    "offsets.topic.replication.factor": 3,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
}
#: A client is told who leads now, and sends again; the new leader does not wait until its followers have waited in vain
#: for news of other partitions (`replica.fetch.wait.max.ms`, half a second).
LONGEST_WAIT_S: Final = 0.4
#: It does not wait for a heartbeat, which comes every two seconds.
LONGEST_STOP_S: Final = 1.0


class Clients:
    """A producer that sends a record every 20 ms to each partition in turn, and a group that reads them."""

    def __init__(self, world: World, bootstrap: str) -> None:
        self._world = world
        self._bootstrap = bootstrap
        self._is_over = False
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {}
        self.read: dict[TopicPartition, dict[int, bytes]] = {}
        self.sent_count = 0
        #: How long each record waited for its answer.
        self.waits_s: list[float] = []
        self._learning: list[asyncio.Task[None]] = []

    def settings(self, name: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self._bootstrap,
            "client_id": name,
            "clock": SimulatedClock(self._world.loop),
            "randomness": self._world.random(name),
        }

    async def produce(self) -> None:
        async with aio.Producer(linger_ms=0, acks="all", **self.settings("producer")) as producer:
            while not self._is_over:
                partition = TopicPartition(TOPIC, self.sent_count % PARTITIONS)
                value = b"%d" % self.sent_count
                self.sent_count += 1
                future = await producer.send(TOPIC, value, partition=partition.partition)
                self._learning.append(asyncio.create_task(self._learn(partition, value, future)))
                await asyncio.sleep(0.02)
        await asyncio.gather(*self._learning)

    async def _learn(self, partition: TopicPartition, value: bytes, future: Any) -> None:
        begin_s = self._world.loop.time()
        metadata = await future
        self.waits_s.append(self._world.loop.time() - begin_s)
        offsets = self.acknowledged.setdefault(partition, {})
        assert metadata.offset not in offsets
        offsets[metadata.offset] = value

    async def consume(self) -> None:
        given = self.settings("member") | {"group_id": "clerks", "auto_offset_reset": "earliest"}
        async with aio.Consumer(TOPIC, **given) as consumer:
            while not self._is_over or self.read != self.acknowledged:
                for record in await consumer.poll(0.2):
                    offsets = self.read.setdefault(TopicPartition(record.topic, record.partition), {})
                    assert offsets.setdefault(record.offset, record.value or b"") == record.value

    def stop(self) -> None:
        self._is_over = True


class Watcher:
    """What another node learns of one that stops: how much it led just before it was fenced."""

    def __init__(self, victim: int, image: ClusterImage) -> None:
        self._victim = victim
        self._led = self._count(image)
        assert self._led > 0
        self.led_at_last: int | None = None

    def _count(self, image: ClusterImage) -> int:
        return sum(1 for _ in image.topics.led_by(self._victim))

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        broker = update.image.brokers.get(self._victim)
        if broker is not None and broker.is_fenced and self.led_at_last is None:
            self.led_at_last = self._led
        self._led = self._count(update.image)

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        """Nothing: controllers hand over in a way of their own."""


def newest(members: Sequence[SimulatedNode]) -> ClusterImage:
    return max((each.node.loader.image for each in members if each.node is not None), key=lambda image: image.offset)


async def until_in_sync(members: Sequence[SimulatedNode]) -> None:
    async with asyncio.timeout(60):
        while not all(  # noqa: ASYNC110
            state.leader >= 0 and len(state.isr) == len(state.replicas)
            for topic in newest(members).topics.values()
            for state in topic.partitions
        ):
            await asyncio.sleep(0.1)


async def roll(members: Sequence[SimulatedNode]) -> None:
    for member in members:
        other = next(each for each in members if each is not member)
        assert other.node is not None
        watcher = Watcher(member.settings.node_id, other.node.loader.image)
        other.node.loader.publish_to(watcher)
        begin_s = asyncio.get_running_loop().time()
        await member.stop()
        assert asyncio.get_running_loop().time() - begin_s < LONGEST_STOP_S
        async with asyncio.timeout(30):
            while watcher.led_at_last is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert watcher.led_at_last == 0, f"{member.host.address} was gone before it had handed over"
        await member.start()
        await until_in_sync(members)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rolling_restart_is_a_hiccup(seed: int) -> None:
    with World(seed) as world:

        async def story() -> None:
            members = await world.start_cluster(3, SETTINGS)
            clients = Clients(world, ",".join(each.bootstrap for each in members))
            async with aio.Admin(**clients.settings("founder")) as admin:
                await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
            await until_in_sync(members)
            programs = [asyncio.create_task(each) for each in (clients.produce(), clients.consume())]
            await asyncio.sleep(2)
            await roll(members)
            await asyncio.sleep(2)
            clients.stop()
            async with asyncio.timeout(60):
                await asyncio.gather(*programs)
            known = sum(map(len, clients.acknowledged.values()))
            assert known == clients.sent_count > 200
            # Offsets without a gap: each record is there once.
            assert all(sorted(each) == list(range(len(each))) for each in clients.acknowledged.values())
            assert max(clients.waits_s) < LONGEST_WAIT_S, f"the longest wait was {max(clients.waits_s):.3f} s"

        world.run(story())
