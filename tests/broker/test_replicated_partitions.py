"""Three nodes in a simulated world: leaders and followers together, by requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.replication.partition import Partition
from barnabas.testing.sim.world import SimulatedNode, World
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.data_plane import batch

NAME = TopicPartition("t", 0)
LAG_MS = 1500
OVERRIDES = {"replica.lag.time.max.ms": LAG_MS, "replica.fetch.wait.max.ms": 500, "min.insync.replicas": 2}


class Replicas:
    """The topic t, one partition on all three nodes."""

    def __init__(self, world: World, nodes: list[SimulatedNode]) -> None:
        self.world = world
        self.nodes = {node.node.services.node_id: node for node in nodes if node.node is not None}

    async def create(self) -> None:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3, assignments=[], configs=[])
        asked = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        response = await (await self.world.client(self.nodes[1].bootstrap)).ask(asked)
        assert response.topics[0].error_code == 0
        await self.until(lambda: all(self._has(node) for node in self.nodes.values()))

    @staticmethod
    def _has(node: SimulatedNode) -> bool:
        return node.node is not None and node.node.services.replica_manager.get(NAME) is not None

    def partition(self, node_id: int) -> Partition:
        node = self.nodes[node_id].node
        assert node is not None
        found = node.services.replica_manager.get(NAME)
        assert found is not None
        return found

    @property
    def leader_id(self) -> int:
        return self.partition(1).leader_id

    @property
    def follower_ids(self) -> list[int]:
        return [each for each in self.nodes if each != self.leader_id]

    async def produce(self, count: int) -> Any:
        client = await self.world.client(self.nodes[self.leader_id].bootstrap)
        data = PartitionProduceData(index=0, records=batch([b"x"] * count))
        topic = TopicProduceData(name="t", partition_data=[data])
        response = await client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), 12)
        return response.responses[0].partition_responses[0]

    def ends(self) -> set[tuple[int, int, int]]:
        """Log start, high watermark and log end of all replicas."""
        logs = [self.partition(each).log for each in self.nodes]
        return {(log.log_start_offset, log.high_watermark, log.log_end_offset) for log in logs if log is not None}

    async def until(self, holds: Callable[[], bool], limit_s: float = 20.0) -> float:
        """How long it took."""
        begun_s = self.world.loop.world_time()
        while not holds():
            assert self.world.loop.world_time() < begun_s + limit_s
            await asyncio.sleep(0.005)
        return self.world.loop.world_time() - begun_s


def test_followers_have_what_was_acknowledged_and_hear_soon_that_it_is_committed() -> None:
    with World(7) as world:

        async def story() -> None:
            replicas = Replicas(world, await world.start_cluster(3, OVERRIDES))
            await replicas.create()
            answer = await replicas.produce(3)
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert {end for _, _, end in replicas.ends()} == {3}
            assert await replicas.until(lambda: replicas.ends() == {(0, 3, 3)}) < 0.1
            # Deleted records are gone everywhere when the answer comes, and that does not take a fetch's whole wait.
            client = await world.client(replicas.nodes[replicas.leader_id].bootstrap)
            wanted = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
            begun_s = world.loop.world_time()
            deleted = await client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=5000))
            assert deleted.topics[0].partitions[0].low_watermark == 2
            assert world.loop.world_time() - begun_s < 0.2
            assert replicas.ends() == {(2, 3, 3)}

        world.run(story())


def test_a_follower_that_hangs_leaves_and_comes_back() -> None:
    with World(8) as world:

        async def story() -> None:
            replicas = Replicas(world, await world.start_cluster(3, OVERRIDES))
            await replicas.create()
            await replicas.produce(1)
            hanging = next(each for each in replicas.follower_ids if each != 1)
            leader = replicas.partition(replicas.leader_id).leading()
            replicas.nodes[hanging].host.pause()
            begun_s = world.loop.world_time()
            answer = await replicas.produce(1)
            # It was waited for as long as it was in sync.
            assert (answer.error_code, answer.base_offset) == (0, 1)
            assert world.loop.world_time() - begun_s > LAG_MS / 1000 - 0.6
            assert hanging not in leader.isr
            replicas.nodes[hanging].host.resume()
            await replicas.until(lambda: set(leader.isr) == {1, 2, 3} or leader.is_over)
            await replicas.until(lambda: len(replicas.ends()) == 1)
            assert replicas.ends() == {(0, 2, 2)}

        world.run(story())
