"""How fast addresses may connect, in a cluster whose controllers are nodes of their own."""

from __future__ import annotations

import asyncio

from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.cluster import ClusterPlan
from barnabas.testing.sim.world import CONTROLLER_PORT, SimulatedNode, World
from barnabas.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData

ADDRESS = "10.0.1.7"


async def refused_of(node: SimulatedNode, count: int, place: str) -> int:
    """Of so many connections at once how many the address may not have."""
    assert node.node is not None
    server = node.node._server
    before = server.refused_counts["quota"]
    clients = [await ScriptedClient.connect(place, "many", address=ADDRESS) for _ in range(count)]
    await asyncio.sleep(1)
    for each in clients:
        await each.close()
    return server.refused_counts["quota"] - before


def test_quotas_of_addresses_hold_on_brokers_and_controllers() -> None:
    with World(1) as world:

        async def story() -> None:
            controller, broker = ClusterPlan(1, 1).members(world, {})
            await asyncio.gather(controller.start(), broker.start())
            place = f"{controller.host.address}:{CONTROLLER_PORT}"
            assert await refused_of(controller, 12, place) == 0
            admin = await world.client(broker.bootstrap)
            quota = EntryData(
                entity=[EntityData(entity_type="ip", entity_name=ADDRESS)],
                ops=[OpData(key="connection_creation_rate", value=1.0, remove=False)],
            )
            answer = await admin.ask(AlterClientQuotasRequest(entries=[quota], validate_only=False))
            assert answer.entries[0].error_code == 0
            await asyncio.sleep(1)  # until both have read of it
            assert await refused_of(broker, 12, broker.bootstrap) == 2
            assert await refused_of(controller, 12, place) == 2
            await controller.stop()
            await controller.start()
            assert await refused_of(controller, 12, place) == 2, "they are in the log"

        world.run(story())
