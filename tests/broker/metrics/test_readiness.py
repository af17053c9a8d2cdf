"""What a node says of itself at /readyz, from its start to its end."""

from __future__ import annotations

import asyncio

from barnabas.testing import AsyncEmbeddedBroker
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.cluster import ClusterPlan
from barnabas.testing.sim.world import World
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.metadata import MetadataRequest
from tests.virtual_time import on_virtual_time

PORT = 9404
READY = (200, "ready")


async def readiness(host: str, port: int = PORT) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split(b" ")[1]), body.decode().strip()


def test_nodes_are_ready_when_the_quorum_is_and_say_what_they_wait_for() -> None:
    with World(1) as world:

        async def story() -> None:
            first, second, broker = ClusterPlan(2, 1).members(world, {"metrics.listener": f"0.0.0.0:{PORT}"})
            starting = [asyncio.ensure_future(each.start()) for each in (first, broker)]
            await asyncio.sleep(5)
            alone = "no controller leads; of the voters 2 at 10.0.0.2:9093 enough must run to be a majority"
            assert await readiness("10.0.0.1") == (503, alone)
            status, why = await readiness("10.0.0.3")
            assert status == 503
            assert "no controller leads" in why
            await asyncio.gather(second.start(), *starting)
            assert [await readiness(f"10.0.0.{node_id}") for node_id in (1, 2, 3)] == 3 * [READY]
            await second.stop()
            await asyncio.sleep(60)
            assert await readiness("10.0.0.1") == (503, alone)

        world.run(story())


@on_virtual_time
async def test_a_node_that_stops_is_not_ready_any_more() -> None:
    async with AsyncEmbeddedBroker(overrides={"metrics.listener": "127.0.0.1:0"}) as broker:
        address = broker.node.metrics.address
        assert address is not None
        assert await readiness(*address) == READY
        broker.faults.fail_next(ApiKey.METADATA, delay_ms=2000)
        client = await ScriptedClient.connect(broker.bootstrap_servers, "client")
        asking = asyncio.ensure_future(client.ask(MetadataRequest(topics=[])))
        await asyncio.sleep(1)
        stopping = asyncio.ensure_future(broker.stop())
        assert await readiness(*address) == (503, "the node is stopping")
        assert not stopping.done()
        await asyncio.gather(stopping, asking)


def test_a_node_of_both_roles_is_not_ready_without_its_quorum() -> None:
    """Whoever restarts nodes one after another must not stop the next one, which others need for a majority."""
    with World(1) as world:

        async def story() -> None:
            nodes = ClusterPlan(3).members(world, {"metrics.listener": f"0.0.0.0:{PORT}"})
            await asyncio.gather(*(each.start() for each in nodes))
            assert [await readiness(f"10.0.0.{node_id}") for node_id in (1, 2, 3)] == 3 * [READY]
            for each in nodes[1:]:
                each.kill()
            await asyncio.sleep(60)
            others = "2 at 10.0.0.2:9093, 3 at 10.0.0.3:9093"
            assert await readiness("10.0.0.1") == (
                503,
                f"no controller leads; of the voters {others} enough must run to be a majority",
            )
            await nodes[1].start()
            assert [await readiness(f"10.0.0.{node_id}") for node_id in (1, 2)] == 2 * [READY]

        world.run(story())
