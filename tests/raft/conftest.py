from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.raft.stores import MakeStore, OnSimulatedDisk
from tests.virtual_time import play

Story = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Story], None]


def run_asyncio(story: Story) -> None:
    asyncio.run(asyncio.wait_for(story(), 30))


def run_uvloop(story: Story) -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(story(), 30))


def run_simulated(story: Story) -> None:
    """On virtual time, with bytes in other pieces each time."""
    for seed in range(1, 21):
        play(story(), seed=seed)


@pytest.fixture(params=[run_asyncio, run_uvloop, run_simulated], ids=["asyncio", "uvloop", "simulated"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a story on each kind of event loop, the first two with real sockets."""
    runner: Run = request.param
    return runner


@pytest.fixture(params=[run_asyncio, run_uvloop], ids=["asyncio", "uvloop"])
def run_real(request: pytest.FixtureRequest) -> Run:
    runner: Run = request.param
    return runner


@pytest.fixture(params=[OnSimulatedDisk])
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    """Every implementation of `LogStore` in turn."""
    store: MakeStore = request.param()
    return store
