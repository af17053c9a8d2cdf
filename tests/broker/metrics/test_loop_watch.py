"""What keeps the event loop is told as long as it was, on a loop whose time passes when a test says so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import cast

import pytest

from barnabas.base.metrics.exposition import Exposition
from barnabas.base.metrics.registry import MetricsRegistry
from barnabas.broker.metrics.process import CPU, LIFETIME, LoopWatch
from barnabas.broker.metrics.sources import NodeParts
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


def test_processor_time_comes_with_the_time_that_it_is_a_part_of() -> None:
    """On a clock as nodes have it: nothing is waited for here."""

    async def told() -> tuple[float, float]:
        watch = LoopWatch(MetricsRegistry(lambda: 0, client_id=None), RequestMeter(time.monotonic))
        began = _collected(watch)
        end_s = time.thread_time() + 0.05
        while time.thread_time() < end_s:
            pass
        ended = _collected(watch)
        watch.stop()
        return ended[0] - began[0], ended[1] - began[1]

    cpu_s, seconds = asyncio.run(told())
    assert 0.05 <= cpu_s <= seconds + 0.01


def _collected(watch: LoopWatch) -> tuple[float, float]:
    out = Exposition()
    for _ in watch.collect(cast(NodeParts, None), out):
        pass
    values = dict(line.split(" ") for family in (CPU, LIFETIME) for line in out.lines_of(family))
    return float(values[CPU.name]), float(values[LIFETIME.name])
