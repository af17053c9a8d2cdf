"""Produce requests that wait for followers hold offsets and their answers: not their records, and no memory for them.

The second replica in sync is made up, so the high watermark stands still until the test moves it.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.metadata.image import PartitionImage
from barnabas.records import BatchBuilder
from barnabas.records.compression import Codec
from barnabas.replication.leader_state import LeaderState
from barnabas.testing.sim.world import SimulatedNode, World
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

MIB = 1024 * 1024
PARKED = 3
OTHER_NODE = 77
#: Bookkeeping of connections and requests, and what the allocator rounds up.
SLACK_BYTES = 30_000
OVERRIDES = {"message.max.bytes": str(4 * MIB)}


def request(data: bytearray, timeout_ms: int = 30_000) -> ProduceRequest:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=data)])
    return ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])


def records(size_bytes: int, codec: Codec) -> bytearray:
    """A batch that stays large when it is compressed."""
    builder = BatchBuilder(2 * size_bytes, codec=codec)
    builder.append(Random(1).randbytes(size_bytes // 2).hex().encode(), None, 1_700_000_000_000)
    return builder.build()


async def led_with_another(node: SimulatedNode) -> LeaderState:
    """A topic of the node, of which another node is said to have a replica in sync."""
    client = await node.host.world.client(node.bootstrap)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    await client.close()
    assert node.node is not None
    partition = node.node.services.replica_manager.get(TopicPartition("t", 0))
    assert partition is not None
    both = (partition.node_id, OTHER_NODE)
    partition.update(PartitionImage(both, both, partition.node_id, partition.leader_epoch, 1))
    return partition.leading()


def request_bytes(node: SimulatedNode) -> int:
    assert node.node is not None
    return node.node._server.request_bytes


def held_bytes() -> int:
    """What is held of all that the node itself allocated meanwhile; the simulated disk and network do not count."""
    gc.collect()
    left_out = [tracemalloc.Filter(False, f"*/{name}/*") for name in ("testing", "tests")]
    ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/barnabas/*"), *left_out])
    return sum(each.size for each in ours.traces)


@pytest.mark.parametrize(
    ("size_bytes", "codec"),
    [(60_000, Codec.NONE), (2 * MIB, Codec.NONE), (200_000, Codec.GZIP)],
    ids=["small", "in steps", "checked elsewhere"],
)
def test_parked_requests_hold_no_records(size_bytes: int, codec: Codec) -> None:
    with World(1) as world:

        async def story() -> None:
            node = await world.start_node(overrides=OVERRIDES)
            leader = await led_with_another(node)
            sent = request(records(size_bytes, codec))
            clients = [await world.client(node.bootstrap) for _ in range(PARKED)]
            # Once through all code, so that what is kept for good is not counted.
            warm = clients[0].send(sent, 12)
            await until_parked(leader, 1)
            leader.update_follower_fetch_state(OTHER_NODE, leader.log.log_end_offset)
            await warm
            tracemalloc.start()
            answers = [client.send(sent, 12) for client in clients]
            await until_parked(leader, PARKED)
            assert leader.log.high_watermark == 1
            assert request_bytes(node) == 0
            assert held_bytes() < SLACK_BYTES
            tracemalloc.stop()
            leader.update_follower_fetch_state(OTHER_NODE, leader.log.log_end_offset)
            told = [(await each).responses[0].partition_responses[0] for each in answers]
            assert sorted((each.error_code, each.base_offset) for each in told) == [(0, 1), (0, 2), (0, 3)]
            assert request_bytes(node) == 0

        world.run(story())


async def until_parked(leader: LeaderState, count: int) -> None:
    for _ in range(10_000):
        if leader.delayed_count == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{leader.delayed_count} requests wait")


def test_a_node_that_stops_answers_who_waits_for_followers() -> None:
    with World(3) as world:

        async def story() -> None:
            node = await world.start_node()
            leader = await led_with_another(node)
            client = await world.client(node.bootstrap)
            waiting = client.send(request(records(100, Codec.NONE)), 12)
            await until_parked(leader, 1)
            began_s = asyncio.get_running_loop().time()
            await node.stop()
            [answer] = (await waiting).responses[0].partition_responses
            assert ErrorCode.of(answer.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert asyncio.get_running_loop().time() - began_s < 1
            assert leader.delayed_count == 0

        world.run(story())
