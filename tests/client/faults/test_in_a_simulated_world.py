"""Our clients and a node that is killed, paused and cut off, on virtual time: nothing acknowledged is lost or twice.

The group gets every record at least once. `BARNABAS_SWEEP=full pytest tests/client/faults/test_in_a_simulated_world.py`
plays a hundred worlds of each kind.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from barnabas.testing.sim.network import HOME
from barnabas.testing.sim.world import World
from tests.client.faults.sim_load import ClientLoad
from tests.sweeps import IS_FULL

SEEDS = range(100) if IS_FULL else range(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_is_killed_costs_time_and_nothing_else(seed: int) -> None:
    with World(seed) as world:

        async def story() -> None:
            node = await world.start_node()
            load, chance = ClientLoad(world, node), Random(seed)
            await load.start()
            for _ in range(3):
                await asyncio.sleep(chance.uniform(0.3, 3.0))
                node.kill()
                await asyncio.sleep(chance.uniform(0.05, 4.0))
                await node.start_if_dead()
            await asyncio.sleep(3)
            await load.stop()
            await load.check()
            assert load.failed_count == 0, "two minutes are enough for all of this"

        world.run(story())


@pytest.mark.parametrize("seed", SEEDS)
def test_cuts_resets_and_pauses_leave_every_record_once(seed: int) -> None:
    with World(seed) as world:

        async def story() -> None:
            node = await world.start_node()
            load, chance = ClientLoad(world, node), Random(seed)
            await load.start()
            for _ in range(4):
                await asyncio.sleep(chance.uniform(0.2, 2.0))
                match chance.choice(["cut", "reset", "pause"]):
                    case "cut":
                        world.network.partition([HOME], [node.host.address])
                    case "reset":
                        world.network.reset()
                    case _:
                        node.host.pause()
                await asyncio.sleep(chance.uniform(0.1, 10.0))
                world.network.heal()
                node.host.resume()
            await asyncio.sleep(5)
            await load.stop()
            await load.check()

        world.run(story())


@pytest.mark.parametrize("seed", SEEDS)
def test_records_that_time_out_are_never_there_twice_nor_before_others(seed: int) -> None:
    """With little patience many records fail. What fails may be written or not; what is acknowledged is in order."""
    with World(seed) as world:

        async def story() -> None:
            node = await world.start_node()
            settings: dict[str, Any] = {"delivery_timeout_ms": 4000, "max_block_ms": 1000, "buffer_memory": 20_000}
            load, chance = ClientLoad(world, node, **settings), Random(seed)
            await load.start()
            for _ in range(3):
                await asyncio.sleep(chance.uniform(0.3, 2.0))
                if chance.random() < 0.5:
                    world.network.partition([HOME], [node.host.address])
                else:
                    node.kill()
                await asyncio.sleep(chance.uniform(3.0, 12.0))
                world.network.heal()
                await node.start_if_dead()
            await asyncio.sleep(5)
            await load.stop()
            await load.check()
            assert load.failed_count > 0

        world.run(story())
