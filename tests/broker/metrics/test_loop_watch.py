"""What keeps the event loop is told as long as it was, on a loop whose time passes when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from barnabas.base.metrics.registry import MetricsRegistry
from barnabas.broker.metrics.process import LoopWatch
from barnabas.net import RequestMeter
from barnabas.testing.sim.loop import VirtualTimeLoop
from tests.virtual_time import virtual_loop

#: By how much a stall of something else than a request may be told too short.
MISSED_S = 0.05


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    with virtual_loop(seed=None) as loop:
        yield loop


def longest_stall_s(loop: VirtualTimeLoop, at_s: float, *, is_request: bool) -> float:
    """What is told of a stall of 200 ms."""

    async def story() -> float:
        meter = RequestMeter(loop.time)
        registry = MetricsRegistry(lambda: round(loop.time() * 1000), client_id=None)
        watch = LoopWatch(registry, meter)

        def keep() -> None:
            if is_request:
                meter.turn_begins(0)
            loop._now_s += 0.2
            if is_request:
                meter.turn_ends()

        loop.call_later(at_s, keep)
        await asyncio.sleep(1)
        watch.stop()
        return watch.longest_stall_s(registry.now_ms())

    return loop.run_until_complete(story())


@pytest.mark.parametrize("at_s", [0.301, 0.31, 0.32, 0.33, 0.34, 0.349])
def test_a_stall_is_told_whenever_it_comes(loop: VirtualTimeLoop, at_s: float) -> None:
    assert 0.2 - MISSED_S - 1e-6 <= longest_stall_s(loop, at_s, is_request=False) <= 0.2 + 1e-6


@pytest.mark.parametrize("at_s", [0.301, 0.33, 0.349])
def test_of_requests_it_is_exact(loop: VirtualTimeLoop, at_s: float) -> None:
    assert longest_stall_s(loop, at_s, is_request=True) == pytest.approx(0.2)


def test_the_longest_turn_is_that_since_the_start(loop: VirtualTimeLoop) -> None:
    async def story() -> int:
        meter = RequestMeter(loop.time)
        watch = LoopWatch(MetricsRegistry(lambda: 0, client_id=None), meter)
        for took_s in (0.2, 0.1):
            meter.turn_begins(0)
            loop._now_s += took_s
            meter.turn_ends()
            await asyncio.sleep(1)
        watch.stop()
        return watch.longest_turn_ns

    assert loop.run_until_complete(story()) == pytest.approx(200_000_000)
