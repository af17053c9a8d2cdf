"""A node under load that is killed, loses power, is paused and cut off: nothing acknowledged is lost, groups resume."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

import pytest

from barnabas.testing.sim.loop import SimulationError
from barnabas.testing.sim.network import HOME
from barnabas.testing.sim.world import CLIENT_ADDRESS, SimulatedNode, World
from tests.simulation.players import Refused
from tests.simulation.workload import Workload, survive
from tests.sweeps import IS_FULL

#: Small segments and little patience: files are rolled, compacted and replaced all the time.
EAGER: Mapping[str, object] = {
    "log.roll.ms": 500,
    "log.cleaner.backoff.ms": 100,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "internal.metadata.log.segment.bytes": 2000,
    "metadata.log.max.record.bytes.between.snapshots": 500,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "log.initial.task.delay.ms": 100,
}
SEEDS = range(100) if IS_FULL else range(2)


def kill(world: World, node: SimulatedNode) -> None:
    node.kill()


def kill_in_a_write(world: World, node: SimulatedNode) -> None:
    """Die within one of the next operations of the disk, perhaps in the middle of a write."""
    node.host.die_at(world.random(f"write {world.loop.time()}").randint(1, 40))


def lose_power(world: World, node: SimulatedNode) -> None:
    node.power_off()


@pytest.mark.parametrize("seed", SEEDS)
def test_killing_the_process_loses_nothing_that_was_acknowledged(seed: int) -> None:
    with World(seed) as world:

        async def story() -> Workload:
            node = await world.start_node(overrides=EAGER if seed % 2 else {})
            chance = Random(seed)
            return await survive(world, node, [chance.choice([kill, kill_in_a_write]) for _ in range(4)])

        workload = world.run(story())
        assert workload.failure_count > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_power_loss_loses_nothing_when_every_append_is_flushed(seed: int) -> None:
    with World(seed) as world:

        async def story() -> None:
            node = await world.start_node(overrides={"log.flush.interval.messages": 1, **(EAGER if seed % 2 else {})})
            await survive(world, node, [lose_power] * 3)

        world.run(story())


def test_without_flushes_a_power_loss_costs_records_and_the_load_notices() -> None:
    """Kafka promises no more of one replica. If this load found nothing missing, it would prove nothing elsewhere."""
    for seed in range(20):
        with World(seed) as world:

            async def story(world: World = world) -> None:
                node = await world.start_node()
                await survive(world, node, [lose_power])

            try:
                world.run(story())
            except (AssertionError, Refused, SimulationError):
                return
    raise AssertionError("twenty power losses, and nothing was missed")


@pytest.mark.parametrize("seed", SEEDS)
def test_producers_that_are_not_idempotent_lose_nothing_either(seed: int) -> None:
    with World(seed) as world:

        async def story() -> None:
            node = await world.start_node()
            await survive(world, node, [kill] * 3, is_idempotent=False)

        world.run(story())


@pytest.mark.parametrize("seed", SEEDS)
def test_cuts_resets_and_pauses_cost_time_and_nothing_else(seed: int) -> None:
    with World(seed) as world:

        async def story() -> None:
            node = await world.start_node()
            chance = Random(seed)
            workload = Workload(world, node, is_idempotent=True)
            await workload.start()
            for _ in range(6):
                await asyncio.sleep(chance.uniform(0.2, 2.0))
                trouble = chance.choice(["cut", "reset", "pause"])
                if trouble == "cut":
                    world.network.partition([CLIENT_ADDRESS, HOME], [node.host.address])
                elif trouble == "reset":
                    world.network.reset()
                else:
                    node.host.pause()
                await asyncio.sleep(chance.uniform(0.1, 15.0))
                world.network.heal()
                node.host.resume()
            await asyncio.sleep(10)
            await workload.stop()
            await workload.check()

        world.run(story())


@pytest.mark.parametrize("seed", SEEDS)
def test_dying_while_starting_is_as_good_as_dying_later(seed: int) -> None:
    """The start writes too: metadata, checkpoints, recovered logs. Dying in any of it must not be noticed."""
    with World(seed) as world:

        async def story() -> None:
            node = await world.start_node()
            chance = Random(seed)
            workload = Workload(world, node, is_idempotent=True)
            await workload.start()
            await asyncio.sleep(2)
            for _ in range(3):
                node.kill()
                node.host.die_at(chance.randint(1, 60))
                await node.start_if_dead()
            await asyncio.sleep(5)
            await workload.stop()
            await workload.check()

        world.run(story())
