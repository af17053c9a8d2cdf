"""The virtual-time loop: asyncio's promises, time that jumps, order from a seed, failures that surface."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from barnabas.testing.sim import DeadlockError, LivelockError, Process, SimulationError, VirtualTimeLoop
from barnabas.testing.sim.process import ProcessState


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop(Random(1))
    yield loop
    loop.close()


async def after(delay_s: float, result: Any = None) -> Any:
    await asyncio.sleep(delay_s)
    return result


def test_time_jumps_to_the_next_timer_and_only_there(loop: VirtualTimeLoop) -> None:
    seen = []

    async def story() -> None:
        begin_s = loop.time()
        for delay_s in (3600.0, 0.25, 7.5):
            await asyncio.sleep(delay_s)
            seen.append(loop.time() - begin_s)

    loop.run_until_complete(story())
    assert seen == [3600.0, 3600.25, 3607.75]


def test_call_soon_keeps_its_order_whatever_the_seed() -> None:
    for seed in range(5):
        loop = VirtualTimeLoop(Random(seed))
        order: list[int] = []
        for number in range(50):
            loop.call_soon(order.append, number)
        loop.run_forever()
        assert order == list(range(50))
        loop.close()


def test_timers_of_one_instant_are_shuffled_by_the_seed_and_others_are_not() -> None:
    def order_of(seed: int | None) -> list[tuple[int, int]]:
        loop = VirtualTimeLoop(None if seed is None else Random(seed))
        order: list[tuple[int, int]] = []
        for number in range(8):
            for second in (2, 1):
                loop.call_at(2000.0 + second, order.append, (second, number))
        loop.run_forever()
        loop.close()
        return order

    orders = [order_of(seed) for seed in range(10)]
    assert orders == [order_of(seed) for seed in range(10)]
    assert len({tuple(order) for order in orders}) > 5
    for order in orders:
        assert [second for second, _ in order] == [1] * 8 + [2] * 8
    assert order_of(None) == [(second, number) for second in (1, 2) for number in range(8)]


def test_timers_set_in_the_past_run_by_their_times(loop: VirtualTimeLoop) -> None:
    order: list[float] = []
    for when in (990.0, 980.0, 1000.0, 970.0):
        loop.call_at(when, order.append, when)
    loop.run_forever()
    assert order == [970.0, 980.0, 990.0, 1000.0]


def test_what_asyncio_offers_works(loop: VirtualTimeLoop) -> None:
    async def story() -> None:
        assert list(await asyncio.gather(after(3, "c"), after(1, "a"), after(2, "b"))) == ["c", "a", "b"]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(after(10), timeout=5)
        async with asyncio.timeout(5):
            await after(4)
        with pytest.raises(ExceptionGroup):
            await failing_group()
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        feeding = asyncio.create_task(asyncio.wait_for(_feed(queue), 100))
        assert [await queue.get() for _ in range(5)] == [0, 1, 2, 3, 4]
        await feeding
        lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
        async with lock, condition:
            loop.call_later(1, event.set)
            await event.wait()
        task = asyncio.create_task(after(1000))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        results = [await each for each in asyncio.as_completed([after(2, 2), after(1, 1)])]
        assert results == [1, 2]

    async def failing_group() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(after(100))
            group.create_task(asyncio.wait_for(after(10), timeout=1))

    async def _feed(queue: asyncio.Queue[int]) -> None:
        for number in range(5):
            await queue.put(number)

    loop.run_until_complete(story())
    assert loop.time() < 1100


def test_asyncio_runner_can_drive_it() -> None:
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(Random(1))) as runner:
        assert runner.run(after(86_400, "a day later")) == "a day later"


def test_sets_of_tasks_are_walked_through_in_the_order_of_their_making(loop: VirtualTimeLoop) -> None:
    async def story() -> list[int]:
        done, _ = await asyncio.wait([asyncio.create_task(after(0, number)) for number in range(20)])
        return [task.result() for task in done]

    # Small numbers are their own hashes, and a set of few of them is walked through in their order, give or take the
    # size of its table: the same in every process, which is what counts.
    assert loop.run_until_complete(story()) == VirtualTimeLoop(Random(1)).run_until_complete(story())


def test_a_failing_callback_ends_the_run(loop: VirtualTimeLoop) -> None:
    loop.call_later(1, lambda: 1 // 0)
    with pytest.raises(SimulationError, match="division") as failure:
        loop.run_until_complete(after(100))
    assert isinstance(failure.value.__cause__, ZeroDivisionError)
    assert loop.time() == 1001


def test_a_failed_task_that_nobody_looks_at_ends_the_run(loop: VirtualTimeLoop) -> None:
    async def fails() -> None:
        raise ValueError("unheard")

    async def story() -> None:
        asyncio.create_task(fails())  # noqa: RUF006
        await asyncio.sleep(1)

    with pytest.raises(SimulationError, match="unheard"):
        loop.run_until_complete(story())


def test_waiting_for_nothing_is_a_deadlock(loop: VirtualTimeLoop) -> None:
    with pytest.raises(DeadlockError, match="nothing is left to happen"):
        loop.run_until_complete(asyncio.wait_for(loop.create_future(), None))


def test_standing_still_is_a_livelock() -> None:
    loop = VirtualTimeLoop(max_idle_turns=50)

    async def spin() -> None:
        while True:
            await after(0)

    with pytest.raises(LivelockError, match="50 turns"):
        loop.run_until_complete(spin())
    loop.close()


def test_a_run_may_be_limited(loop: VirtualTimeLoop) -> None:
    async def beat() -> None:
        while True:
            await after(1)

    with pytest.raises(LivelockError, match="limit"):
        loop.run_until_complete(beat(), limit_s=100)
    assert loop.time() <= 1100


def test_threads_are_refused(loop: VirtualTimeLoop) -> None:
    with pytest.raises(SimulationError, match="offload"):
        loop.run_until_complete(asyncio.to_thread(int))


def test_cancelled_timers_do_not_pile_up(loop: VirtualTimeLoop) -> None:
    for _ in range(10_000):
        loop.call_later(1000, int).cancel()
    assert len(loop._timers) < 3000
    loop.run_forever()
    assert loop.time() == 1000


def test_nothing_of_a_killed_process_runs(loop: VirtualTimeLoop) -> None:
    happened: list[str] = []
    process = Process("victim", "10.0.0.1")

    async def victim() -> None:
        child = asyncio.create_task(beat("child"))
        loop.call_later(50, happened.append, "timer")
        child.add_done_callback(lambda _: happened.append("done"))
        try:
            await beat("parent")
        finally:
            happened.append("finally")

    async def beat(name: str) -> None:
        while True:
            await asyncio.sleep(10)
            happened.append(name)

    async def story() -> None:
        with process.enter():
            asyncio.create_task(victim())  # noqa: RUF006
        await asyncio.sleep(15)
        process.state = ProcessState.DEAD
        await asyncio.sleep(1000)

    loop.run_until_complete(story())
    assert sorted(happened) == ["child", "parent"]


def test_a_paused_process_catches_up_when_it_is_resumed(loop: VirtualTimeLoop) -> None:
    beats: list[float] = []
    process = Process("sleeper", "10.0.0.1")

    async def beat() -> None:
        while True:
            await asyncio.sleep(10)
            beats.append(loop.time() - 1000)

    async def story() -> None:
        with process.enter():
            asyncio.create_task(beat())  # noqa: RUF006
        await asyncio.sleep(15)
        process.state = ProcessState.PAUSED
        await asyncio.sleep(30)
        loop.resume(process)
        await asyncio.sleep(19)

    loop.run_until_complete(story())
    assert beats == [10, 45, 55]


def test_code_that_waits_is_closed_with_the_loop() -> None:
    loop = VirtualTimeLoop()
    ended: list[str] = []

    async def waits() -> None:
        try:
            await loop.create_future()
        finally:
            ended.append("finally")
            loop.call_soon(ended.append, "scheduled after the end")

    task = loop.create_task(waits())
    loop.run_for(1)
    loop.close()
    assert ended == ["finally"]
    assert not task.done()
    with pytest.raises(RuntimeError, match="closed"):
        loop.run_forever()


def test_code_that_waits_even_while_it_is_closed_is_closed_to_its_end() -> None:
    loop = VirtualTimeLoop()
    ended: list[str] = []

    async def outer() -> None:
        try:
            await stubborn()
        finally:
            ended.append("outer")

    async def stubborn() -> None:
        try:
            await loop.create_future()
        except BaseException:
            for number in range(3):
                try:
                    await loop.create_future()
                finally:
                    ended.append(f"stubborn {number}")
            raise

    loop.create_task(outer())
    loop.run_for(1)
    loop.close()
    assert ended == ["stubborn 0", "outer"]
