"""Clocks that run at a rate of their own, and wall clocks that jump."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.testing.sim.process import HostClock
from barnabas.testing.sim.world import Host, World


def begin(world: World, address: str) -> Host:
    host = world.host(address)
    host.start_process("sleeper")
    return host


def test_a_fast_clock_ends_sleeps_early_and_a_slow_one_late() -> None:
    with World(1) as world:
        ended: dict[str, float] = {}

        async def sleep(address: str) -> None:
            began_s = asyncio.get_running_loop().time()
            await asyncio.sleep(10)
            ended[address] = world.loop.world_time()
            assert asyncio.get_running_loop().time() - began_s == pytest.approx(10)

        async def story() -> None:
            hosts = {"10.0.0.1": 2.0, "10.0.0.2": 0.5, "10.0.0.3": 1.0}
            for address, rate in hosts.items():
                begin(world, address).set_clock_rate(rate)
            began_s = world.loop.world_time()
            await asyncio.gather(*(world.host(address).do(sleep(address)) for address in hosts))
            lasted = {address: round(end_s - began_s, 3) for address, end_s in ended.items()}
            assert lasted == {"10.0.0.1": 5.0, "10.0.0.3": 10.0, "10.0.0.2": 20.0}

        world.run(story())


def test_call_at_is_in_the_time_of_the_process() -> None:
    with World(1) as world:
        host = begin(world, "10.0.0.1")
        host.set_clock_rate(4.0)

        async def in_process() -> float:
            loop = asyncio.get_running_loop()
            called: asyncio.Future[None] = loop.create_future()
            loop.call_at(loop.time() + 8, called.set_result, None)
            await called
            return world.loop.world_time()

        began_s = world.loop.world_time()
        assert world.run(host.do(in_process())) - began_s == pytest.approx(2)


def test_a_change_of_the_rate_does_not_make_the_clock_jump() -> None:
    clock = HostClock(100.0)
    clock.set_rate(110.0, 0.5)
    assert clock.local_s(110.0) == 110.0
    assert clock.local_s(130.0) == 120.0
    clock.set_rate(130.0, 2.0)
    assert clock.local_s(130.0) == 120.0
    assert clock.local_s(131.0) == 122.0
    assert clock.world_s(122.0) == 131.0


def test_the_monotonic_reading_follows_the_rate_and_not_the_jumps() -> None:
    with World(1) as world:
        host = begin(world, "10.0.0.1")
        clock = host.runtime().clock

        async def readings() -> tuple[int, int]:
            before = clock.monotonic_ms(), clock.now_ms()
            await asyncio.sleep(1)
            host.jump_clock(-5000)
            return clock.monotonic_ms() - before[0], clock.now_ms() - before[1]

        assert world.run(host.do(readings())) == (1000, -4000)


def test_a_clock_keeps_its_rate_over_restarts() -> None:
    with World(1) as world:
        host = begin(world, "10.0.0.1")
        host.set_clock_rate(2.0)
        host.kill()
        host.start_process("sleeper")
        began_s = world.loop.world_time()
        world.run(host.do(asyncio.sleep(10)))
        assert world.loop.world_time() - began_s == pytest.approx(5)
