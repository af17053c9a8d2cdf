"""Hosts, processes and their deaths in a simulated world; no node is needed to see them."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest

from barnabas.storage.files import read_file
from barnabas.testing.sim.loop import SimulationError
from barnabas.testing.sim.world import Host, ProcessDiedError, World

ADDRESS = "10.0.0.1"


def write(host: Host, content: bytes, *, sync: bool) -> None:
    file = host.disk.open("/notes", create=True)
    file.write_at(file.size(), content)
    if sync:
        file.sync()
        host.disk.sync_directory("/")


def test_a_killed_process_keeps_what_it_wrote() -> None:
    with World(1) as world:
        host = world.host(ADDRESS)
        host.start_process("writer")
        write(host, b"synced ", sync=True)
        write(host, b"not synced", sync=False)
        host.kill()
        assert read_file(host.disk, "/notes") == b"synced not synced"


def test_a_power_loss_keeps_what_was_synced_and_perhaps_the_rest() -> None:
    found = set()
    for seed in range(20):
        with World(seed) as world:
            host = world.host(ADDRESS)
            host.start_process("writer")
            write(host, b"synced ", sync=True)
            write(host, b"not synced", sync=False)
            host.power_off()
            found.add(read_file(host.disk, "/notes"))
    assert all(content.startswith(b"synced ") for content in found)
    assert {b"synced ", b"synced not synced"} <= found


@pytest.mark.parametrize("power", [False, True])
def test_dying_in_an_operation_ends_the_process_there(power: bool) -> None:
    steps: list[int] = []
    with World(3) as world:
        host = world.host(ADDRESS)

        async def work() -> None:
            for step in range(100):
                steps.append(step)
                write(host, b"x" * 10, sync=False)
                await asyncio.sleep(1)

        async def story() -> None:
            host.start_process("writer")
            host.die_at(5, power=power)
            with pytest.raises(ProcessDiedError):
                await host.do(work())
            assert not host.is_running
            await asyncio.sleep(1000)
            host.start_process("writer")
            content = read_file(host.disk, "/notes") if host.disk.exists("/notes") else b""
            assert len(content) <= 40 if power else 30 <= len(content) <= 40

        world.run(story())
    assert steps == [0, 1, 2, 3]


def test_one_process_at_a_time() -> None:
    with World(1) as world:
        host = world.host(ADDRESS)
        host.start_process("one")
        with pytest.raises(SimulationError, match="already runs"):
            host.start_process("two")
        host.kill()
        host.start_process("two")


def test_the_dead_do_nothing_and_say_so() -> None:
    with World(1) as world:

        async def story() -> None:
            host = world.host(ADDRESS)
            with pytest.raises(ProcessDiedError, match="nothing runs"):
                await host.do(asyncio.sleep(1))

        world.run(story())


def test_clocks_follow_virtual_time_and_may_be_wrong() -> None:
    with World(1) as world:
        right, wrong = world.host("10.0.0.1"), world.host("10.0.0.2")
        wrong.skew_ms = -5000
        clocks = [right.runtime().clock, wrong.runtime().clock]
        assert clocks[0].now_ms() - clocks[1].now_ms() == 5000
        before = [(clock.now_ms(), clock.monotonic_ms()) for clock in clocks]
        world.loop.run_for(3600)
        after = [(clock.now_ms(), clock.monotonic_ms()) for clock in clocks]
        assert [(b[0] - a[0], b[1] - a[1]) for a, b in zip(before, after, strict=True)] == [(3_600_000, 3_600_000)] * 2


def test_offloaded_work_takes_time_and_its_order_is_open() -> None:
    def order_of(seed: int) -> list[int]:
        order: list[int] = []
        with World(seed) as world:
            runtime = world.host(ADDRESS).runtime()

            def work(number: int) -> int:
                order.append(number)
                if number == 3:
                    raise OSError("disk")
                return number

            async def story() -> list[Any]:
                waiting = [runtime.offload(partial(work, number)) for number in range(6)]
                assert order == []
                return await asyncio.gather(*waiting, return_exceptions=True)

            results = world.run(story())
            assert [result for result in results if isinstance(result, int)] == [0, 1, 2, 4, 5]
            assert isinstance(results[3], OSError)
            assert world.loop.time() > 1000
        return order

    orders = [order_of(seed) for seed in range(5)]
    assert orders == [order_of(seed) for seed in range(5)]
    assert len({tuple(order) for order in orders}) > 1


def test_work_that_was_not_begun_dies_with_its_process() -> None:
    done: list[str] = []
    with World(1) as world:
        host = world.host(ADDRESS)
        runtime = host.runtime()

        async def story() -> None:
            process = host.start_process("writer")
            with process.enter():
                future = runtime.offload(lambda: done.append("done"))
            host.kill()
            await asyncio.sleep(10)
            assert not future.done()

        world.run(story())
    assert done == []


def test_an_error_that_is_only_logged_ends_the_run_too() -> None:
    log = logging.getLogger("barnabas.test")

    async def story() -> None:
        try:
            raise ValueError("nobody thought of it")
        except ValueError:
            log.exception("something failed")
        await asyncio.sleep(1)

    with World(1) as world, pytest.raises(SimulationError, match="nobody thought of it") as failure:
        world.run(story())
    assert "seed 1" in failure.value.__notes__[0]
    with World(1, tolerates_logged_errors=True) as world:
        world.run(story())


def test_the_trace_tells_what_happened_and_hashes_it() -> None:
    def trace(seed: int) -> tuple[str, list[str]]:
        with World(seed, keep_trace=True) as world:

            async def story() -> None:
                host = world.host(ADDRESS)
                with host.start_process("server").enter():
                    await world.loop.create_server(asyncio.Protocol, ADDRESS, 80)
                transport, _ = await world.loop.create_connection(asyncio.Protocol, ADDRESS, 80)
                transport.write(b"hello")
                write(host, b"x", sync=True)
                await asyncio.sleep(1)

            world.run(story())
            return world.trace.hexdigest(), list(world.trace.tail)

    digest, lines = trace(1)
    kinds = [line.split(" ")[1] for line in lines]
    assert kinds[:4] == ["start", "listen", "connect", "send"]
    assert {"disk", "receive"} <= set(kinds)
    assert trace(1) == (digest, lines)
    assert trace(2)[0] != digest
